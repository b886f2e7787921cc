//! Writing a package.

use super::manifest::{
    ALIGNMENT, Beside, FORMAT, HASH, HEADER, MAGIC, Manifest, PackedModule, Resource, Stored, VERSION, Weight, hash,
    hash_of,
};
use crate::files::write_whole;
use crate::{Error, Result, Tensor};
use rc_dialects::func::arg_names;
use rc_dialects::op;
use rc_ir::print::{PrintOptions, print_module};
use rc_ir::{Body, Module};
use rc_machine::{Needs, Target};
use rustc_hash::FxHashMap;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;

/// What a package holds.
#[derive(Default)]
pub struct Contents<'a> {
    /// A program, compiled for one or several processors.
    pub modules: Vec<&'a Module>,
    /// Values of arguments, by their names: whoever runs the package does not give them.
    pub weights: Vec<(&'a str, &'a Tensor)>,
    /// A `.safetensors` file that lies in the folder that the package is written to: it holds the values of arguments that have the names of its
    /// tensors, and is shipped with the package.
    pub beside: Option<&'a Path>,
    /// What is said of it besides.
    pub notes: BTreeMap<String, String>,
}

/// Writes a package. The file appears whole or not at all.
///
/// # Errors
/// A module that is not compiled or does not say for which processor it is; a weight that no argument has the name of; files that cannot be
/// read or written.
pub fn write(path: impl AsRef<Path>, contents: &Contents) -> Result<()> {
    let path = path.as_ref();
    let mut packing = Packing::default();
    let mut manifest = Manifest { rc: VERSION.into(), notes: contents.notes.clone(), ..Manifest::default() };
    if contents.modules.is_empty() {
        return Err(Error::Invalid("a package holds at least one module".into()));
    }
    for module in &contents.modules {
        let needs = needs(module)?;
        let text = print_module(module, &PrintOptions { resources: false, ..PrintOptions::PRETTY });
        let text = packing.add(Cow::Owned(text.into_bytes()));
        let mut resources = Vec::new();
        for (name, bytes) in &module.resources {
            let blob = packing.add(Cow::Borrowed(bytes.bytes()));
            resources.push(Resource { name: name.to_string(), align: bytes.align, blob });
        }
        manifest.modules.push(PackedModule { needs, text, resources });
    }
    for &(name, tensor) in &contents.weights {
        check_weight(&contents.modules, name)?;
        let blob = packing.add(Cow::Borrowed(tensor.bytes()));
        let (dtype, shape) = (tensor.dtype().to_string(), tensor.shape().to_vec());
        manifest.weights.push(Weight { name: name.into(), dtype, shape, blob });
    }
    manifest.beside = contents.beside.map(|file| beside(path, file)).transpose()?;
    packing.write(path, manifest)
}

/// What a module's code needs.
fn needs(module: &Module) -> Result<Needs> {
    let kernel = |b: &Body| b.name(b.root()) == op::kernel::FUNC;
    let planned = |b: &Body| b.name(b.root()) == op::host::FUNC;
    if module.bodies.iter().any(kernel) || !module.bodies.iter().any(planned) {
        return Err(Error::Invalid(
            "a package holds compiled modules: compile it with --lower-cpu or --lower-cuda".into(),
        ));
    }
    let target = Target::of_module(module.attrs).map_err(|d| Error::Invalid(d.message))?;
    let target =
        target.ok_or_else(|| Error::Invalid("the module does not say which processor it is for (rc.target)".into()))?;
    Ok(target.needs())
}

fn check_weight(modules: &[&Module], name: &str) -> Result<()> {
    let is_arg = |body: &Body| arg_names(body).iter().any(|arg| arg == name);
    if modules.iter().all(|module| module.bodies.iter().any(is_arg)) {
        return Ok(());
    }
    Err(Error::Invalid(format!("the weight '{name}' is no argument of the module")))
}

fn beside(path: &Path, file: &Path) -> Result<Beside> {
    let name = file.file_name().and_then(|name| name.to_str());
    let name = name.ok_or_else(|| Error::Invalid(format!("{}: not a file's name", file.display())))?;
    let folder =
        |path: &Path| path.parent().map(Path::to_path_buf).filter(|p| !p.as_os_str().is_empty()).unwrap_or(".".into());
    let same = |a: &Path, b: &Path| a == b || a.canonicalize().ok().is_some_and(|a| b.canonicalize().ok() == Some(a));
    if !same(&folder(path), &folder(file)) {
        let what =
            format!("{}: weights beside a package lie in its folder, {}", file.display(), folder(path).display());
        return Err(Error::Invalid(what));
    }
    let storage = crate::safetensors::map(file)?;
    Ok(Beside { file: name.into(), blake3: hash(storage.bytes()).to_hex().to_string() })
}

/// Blobs as they will lie in the file.
#[derive(Default)]
struct Packing<'a> {
    blobs: Vec<(Cow<'a, [u8]>, blake3::Hash)>,
    known: FxHashMap<blake3::Hash, usize>,
}

impl<'a> Packing<'a> {
    /// The number of a blob; that of an equal one, where there is one.
    fn add(&mut self, bytes: Cow<'a, [u8]>) -> usize {
        let hash = hash(&bytes);
        *self.known.entry(hash).or_insert_with(|| {
            self.blobs.push((bytes, hash));
            self.blobs.len() - 1
        })
    }

    fn write(&self, path: &Path, mut manifest: Manifest) -> Result<()> {
        // Places are counted from the end of the manifest, whose length they would change.
        let mut end = 0usize;
        for (bytes, hash) in &self.blobs {
            manifest.blobs.push(Stored { at: end, bytes: bytes.len(), blake3: hash.to_hex().to_string() });
            end = (end + bytes.len()).next_multiple_of(ALIGNMENT);
        }
        let fail = |e: serde_json::Error| Error::Invalid(format!("the manifest: {e}"));
        let json = serde_json::to_vec(&manifest).map_err(fail)?;
        let start = (HEADER + json.len()).next_multiple_of(ALIGNMENT);
        let mut header = [0u8; HEADER];
        header[..8].copy_from_slice(MAGIC);
        header[8..12].copy_from_slice(&FORMAT.to_le_bytes());
        let length = u32::try_from(json.len()).map_err(|_| Error::Invalid("a manifest of more than 4 GiB".into()))?;
        header[12..16].copy_from_slice(&length.to_le_bytes());
        header[16..24].copy_from_slice(&((start + end) as u64).to_le_bytes());
        let hash = hash_of(&header, &json);
        header[HASH].copy_from_slice(hash.as_bytes());
        let zeros = [0u8; ALIGNMENT];
        let padding = |bytes: usize| &zeros[..bytes.next_multiple_of(ALIGNMENT) - bytes];
        let written = write_whole(path, |file| {
            let mut out = std::io::BufWriter::new(file);
            out.write_all(&header)?;
            out.write_all(&json)?;
            out.write_all(padding(HEADER + json.len()))?;
            for (bytes, _) in &self.blobs {
                out.write_all(bytes)?;
                out.write_all(padding(bytes.len()))?;
            }
            out.flush()
        });
        written.map_err(|e| Error::io(path, e))
    }
}
