//! Reading a package, every byte of it checked.

use super::manifest::{ALIGNMENT, FORMAT, HASH, HEADER, MAGIC, Manifest, VERSION, hash, hash_of};
use crate::safetensors::SafetensorsFile;
use crate::tensor::{DType, Storage, Tensor, byte_size};
use crate::threads::on_team;
use crate::{Error, Result};
use rayon::prelude::*;
use rc_ir::{Blob, Module, Name};
use rc_machine::Needs;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::path::{Component, Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// A package whose bytes are sound.
#[derive(Debug)]
pub struct Package {
    path: PathBuf,
    storage: Arc<Storage>,
    manifest: Manifest,
    /// Where the blobs begin.
    start: usize,
    beside: Option<SafetensorsFile>,
    /// Set once the weights are known to be sound.
    weights: OnceLock<()>,
}

impl Package {
    /// Maps a package and checks it: the format, rc's version, every name and place in it, and the hash of everything but weights, which are
    /// checked before they are used.
    ///
    /// # Errors
    /// [`Error::Io`] where it cannot be read; [`Error::Format`], which names what is wrong, where it is not sound.
    pub fn open(path: impl AsRef<Path>) -> Result<Package> {
        let path = path.as_ref();
        let storage = crate::safetensors::map(path)?;
        let (manifest, start) = manifest(path, storage.bytes())?;
        let mut package =
            Package { path: path.to_path_buf(), storage, manifest, start, beside: None, weights: OnceLock::new() };
        package.check_places()?;
        package.check_numbers()?;
        let of_weights = package.of_weights();
        package.check_hashes(|blob| !of_weights.contains(&blob))?;
        package.beside = package.open_beside()?;
        Ok(package)
    }

    /// Whether a file begins as a package does.
    pub fn is_at(path: impl AsRef<Path>) -> bool {
        let mut start = [0; MAGIC.len()];
        let read = std::fs::File::open(path).and_then(|mut file| std::io::Read::read_exact(&mut file, &mut start));
        read.is_ok() && start == *MAGIC
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What each module's code needs.
    pub fn needs(&self) -> impl ExactSizeIterator<Item = &Needs> {
        self.manifest.modules.iter().map(|module| &module.needs)
    }

    /// What is said of it besides.
    pub fn notes(&self) -> &BTreeMap<String, String> {
        &self.manifest.notes
    }

    /// A module, its resources in the mapped file.
    ///
    /// # Errors
    /// A text that is no module of rc's.
    ///
    /// # Panics
    /// If there is no such module.
    pub fn module(&self, number: usize) -> Result<Module> {
        rc_dialects::register();
        let packed = &self.manifest.modules[number];
        let text = std::str::from_utf8(self.blob(packed.text)).map_err(|e| self.wrong("a text", e.to_string()))?;
        let name = self.path.display().to_string();
        let (module, errors) = rc_parser::parse_module(&name, text);
        let first = |errors: &[rc_ir::Diagnostic]| errors.first().map_or_else(String::new, |e| e.message.clone());
        let mut module = module.ok_or_else(|| self.wrong("a module", first(&errors)))?;
        for resource in &packed.resources {
            let part = Part { storage: self.storage.clone(), range: self.place(resource.blob) };
            let mut blob = Blob::new(part);
            blob.align = resource.align;
            module.resources.insert(Name::new(&resource.name), blob);
        }
        let errors = on_team(|| rc_ir::verify::verify_module(&module))?;
        if errors.is_empty() { Ok(module) } else { Err(self.wrong("a sound module", first(&errors))) }
    }

    /// Checks the hashes of all weights, those beside the package too, if that was not done yet.
    ///
    /// # Errors
    /// [`Error::Format`], which names the file.
    pub fn check_weights(&self) -> Result<()> {
        if self.weights.get().is_some() {
            return Ok(());
        }
        let of_weights = self.of_weights();
        self.check_hashes(|blob| of_weights.contains(&blob))?;
        if let (Some(file), Some(beside)) = (&self.beside, &self.manifest.beside)
            && on_team(|| hash(file.bytes()))?.to_hex()[..] != beside.blake3
        {
            let expected = format!("the weights that {} was made with", self.path.display());
            return Err(Error::format(file.path(), expected, "others"));
        }
        self.weights.get_or_init(|| ());
        Ok(())
    }

    /// The value of the argument of this name, checked; `None` where the package has none.
    ///
    /// # Errors
    /// As [`Package::check_weights`]; a weight of an unknown dtype, or whose bytes are not those of its shape.
    pub fn weight(&self, name: &str) -> Result<Option<Tensor>> {
        self.check_weights()?;
        self.unchecked_weight(name)
    }

    /// A weight whose bytes may not be what they were.
    pub(crate) fn unchecked_weight(&self, name: &str) -> Result<Option<Tensor>> {
        let Some(weight) = self.manifest.weights.iter().find(|weight| weight.name == name) else {
            return self.beside.as_ref().filter(|file| file.contains(name)).map(|file| file.tensor(name)).transpose();
        };
        let what = || format!("the weight '{name}' of a dtype and shape that rc has");
        let dtype: DType = weight.dtype.parse().map_err(|_| self.wrong(what(), &weight.dtype))?;
        let place = self.place(weight.blob);
        let expected = byte_size(dtype, &weight.shape).map_err(|e| self.wrong(what(), e.to_string()))?;
        if expected != place.len() {
            return Err(self.wrong(format!("{expected} bytes of the weight '{name}'"), place.len().to_string()));
        }
        let tensor = Tensor::view(dtype, weight.shape.clone(), self.storage.clone(), place.start)?;
        Ok(Some(tensor))
    }

    fn place(&self, blob: usize) -> Range<usize> {
        let range = self.manifest.blobs[blob].range();
        self.start + range.start..self.start + range.end
    }

    fn blob(&self, blob: usize) -> &[u8] {
        &self.storage.bytes()[self.place(blob)]
    }

    fn wrong(&self, expected: impl Into<String>, found: impl Into<String>) -> Error {
        Error::format(&self.path, expected, found)
    }

    /// The blobs that are weights and nothing else.
    fn of_weights(&self) -> BTreeSet<usize> {
        let Manifest { modules, weights, .. } = &self.manifest;
        let of_modules: BTreeSet<usize> =
            modules.iter().flat_map(|m| m.resources.iter().map(|r| r.blob).chain([m.text])).collect();
        weights.iter().map(|weight| weight.blob).filter(|blob| !of_modules.contains(blob)).collect()
    }

    /// That blobs follow one another with nothing but zeros between, to the end of the file.
    fn check_places(&self) -> Result<()> {
        let bytes = &self.storage.bytes()[self.start..];
        let mut end = 0usize;
        for (i, blob) in self.manifest.blobs.iter().enumerate() {
            let next = blob.at.checked_add(blob.bytes).and_then(|n| n.checked_next_multiple_of(ALIGNMENT));
            let next = next.filter(|&next| blob.at == end && next <= bytes.len());
            end =
                next.ok_or_else(|| self.wrong(format!("blob {i} at byte {end} of the file's blobs"), "another place"))?;
            if bytes[blob.range().end..end].iter().any(|&byte| byte != 0) {
                return Err(self.wrong(format!("zeros after blob {i}"), "other bytes"));
            }
        }
        if end != bytes.len() {
            return Err(self.wrong(format!("{end} bytes of blobs"), format!("{} bytes", bytes.len())));
        }
        Ok(())
    }

    /// That blobs are what their hashes say.
    fn check_hashes(&self, which: impl Fn(usize) -> bool) -> Result<()> {
        let blobs: Vec<usize> = (0..self.manifest.blobs.len()).filter(|&blob| which(blob)).collect();
        let damaged = |&&blob: &&usize| hash(self.blob(blob)).to_hex()[..] != self.manifest.blobs[blob].blake3;
        match on_team(|| blobs.par_iter().find_first(damaged))? {
            Some(i) => Err(self.wrong(format!("blob {i} with the hash that the manifest says"), "another hash")),
            None => Ok(()),
        }
    }

    /// That the manifest names blobs that are there.
    fn check_numbers(&self) -> Result<()> {
        let Manifest { modules, weights, blobs, .. } = &self.manifest;
        let of_modules = modules.iter().flat_map(|m| m.resources.iter().map(|r| r.blob).chain([m.text]));
        if let Some(blob) = of_modules.chain(weights.iter().map(|w| w.blob)).find(|&blob| blob >= blobs.len()) {
            return Err(self.wrong(format!("{} blobs", blobs.len()), format!("the blob {blob} in use")));
        }
        let alignment = |r: &super::manifest::Resource| !r.align.is_power_of_two();
        if modules.iter().flat_map(|m| &m.resources).any(alignment) {
            return Err(self.wrong("alignments that are powers of two", "another one"));
        }
        if modules.is_empty() { Err(self.wrong("a module", "none")) } else { Ok(()) }
    }

    /// The file of weights beside this one.
    fn open_beside(&self) -> Result<Option<SafetensorsFile>> {
        let Some(beside) = &self.manifest.beside else { return Ok(None) };
        let name = Path::new(&beside.file);
        if !matches!(name.components().collect::<Vec<_>>()[..], [Component::Normal(_)])
            || beside.file.contains(['/', '\\', '\0'])
        {
            return Err(self.wrong("the name of a file in the same folder", format!("'{}'", beside.file)));
        }
        SafetensorsFile::open(self.path.with_file_name(name)).map(Some)
    }
}

/// The manifest, and where the blobs begin.
fn manifest(path: &Path, bytes: &[u8]) -> Result<(Manifest, usize)> {
    let wrong = |expected: String, found: String| Error::format(path, expected, found);
    if !bytes.starts_with(MAGIC) {
        let found =
            if MAGIC.starts_with(bytes) { format!("{} bytes", bytes.len()) } else { "another kind of file".into() };
        return Err(wrong("a package of rc".into(), found));
    }
    let Some((header, rest)) = bytes.split_at_checked(HEADER) else {
        return Err(wrong("a package's header of 64 bytes".into(), format!("{} bytes", bytes.len())));
    };
    let number = |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
    let (format, length) = (number(8), number(12) as usize);
    if format != FORMAT {
        let what = format!("format {FORMAT}, which rc {VERSION} reads");
        return Err(wrong(what, format!("format {format}: make the package anew with this rc")));
    }
    let size = u64::from(number(16)) | u64::from(number(20)) << 32;
    if size != bytes.len() as u64 {
        return Err(wrong(format!("a file of {size} bytes"), format!("{} bytes", bytes.len())));
    }
    let Some(json) = rest.get(..length) else {
        return Err(wrong(format!("a manifest of {length} bytes"), "the end of the file".into()));
    };
    if hash_of(header, json).as_bytes()[..] != header[HASH] {
        return Err(wrong("a manifest with the hash that the header says".into(), "another hash".into()));
    }
    let manifest: Manifest =
        serde_json::from_slice(json).map_err(|e| wrong("a manifest of rc's".into(), e.to_string()))?;
    if manifest.rc != VERSION {
        let found = format!("one that rc {} made: make it anew with this rc", manifest.rc);
        return Err(wrong(format!("a package that rc {VERSION} made"), found));
    }
    let start = (HEADER + length).next_multiple_of(ALIGNMENT);
    match bytes.get(HEADER + length..start) {
        Some(padding) if padding.iter().all(|&byte| byte == 0) => Ok((manifest, start)),
        _ => Err(wrong("zeros after the manifest".into(), "other bytes".into())),
    }
}

/// Bytes of the mapped file.
struct Part {
    storage: Arc<Storage>,
    range: Range<usize>,
}

impl AsRef<[u8]> for Part {
    fn as_ref(&self) -> &[u8] {
        &self.storage.bytes()[self.range.clone()]
    }
}
