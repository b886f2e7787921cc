//! A folder of packages, a file for each key. Files appear whole or not at all, so that many processes may share a folder; one that is not
//! sound is a miss and is written anew. What is used least is removed where the folder becomes too large.

use super::{Key, Shared, environment};
use rc_ir::Module;
use rc_runtime::package::{Contents, Package, write};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

/// Bytes that a cache holds at most, where `RC_CACHE_SIZE` says nothing.
const LIMIT: u64 = 4 << 30;
/// After this time a file that was not finished belongs to nobody.
const ABANDONED: Duration = Duration::from_secs(3600);

/// Compiled modules in a folder.
#[derive(Clone, Debug)]
pub struct Cache {
    folder: PathBuf,
    limit: u64,
    /// Where entries are looked for that the folder does not have.
    shared: Option<Shared>,
}

/// A compiled module, and what was noted with it.
pub type Found = (Module, BTreeMap<String, String>);

/// A file of the cache.
#[derive(Clone, Debug)]
pub struct Entry {
    pub path: PathBuf,
    pub bytes: u64,
    /// When it was used last.
    pub used: SystemTime,
}

impl Cache {
    /// The cache that the environment says: `RC_CACHE_DIR` (by default `~/.cache/rc`), `RC_CACHE_SIZE` (`500M`, `4G`), none where `RC_CACHE=off`;
    /// behind it the store that `RC_CACHE_SHARED` says.
    pub fn open() -> Option<Cache> {
        let limit = environment::size().unwrap_or(LIMIT);
        let cache = Cache::at(rc_runtime::cache::folder()?, limit);
        Some(Cache { shared: Shared::open(), ..cache })
    }

    /// A cache in a folder, which is made when first written to, of at most so many bytes.
    pub fn at(folder: impl Into<PathBuf>, limit: u64) -> Cache {
        Cache { folder: folder.into(), limit, shared: None }
    }

    /// This cache with a store behind it: what the folder does not have is looked for there, and copied to the folder.
    #[must_use]
    pub fn behind(self, shared: Shared) -> Cache {
        Cache { shared: Some(shared), ..self }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    fn path(&self, key: &Key) -> PathBuf {
        self.folder.join("modules").join(name(key))
    }

    /// The compiled module of a key, with what was noted when it was kept; `None` where there is none.
    ///
    /// # Errors
    /// What is wrong with the file that should hold it, in words.
    pub fn get(&self, key: &Key) -> Result<Option<Found>, String> {
        let path = self.path(key);
        if !path.exists() && !self.fetch(key, &path)? {
            return Ok(None);
        }
        let found = self.trusted().and_then(|()| read(&path, key));
        let found = found.map_err(|why| format!("the cache's entry is not used: {why}"))?;
        // A clock that cannot be set only makes the entry go sooner.
        let _ = fs::File::options().append(true).open(&path).and_then(|file| file.set_modified(SystemTime::now()));
        Ok(Some(found))
    }

    /// Keeps a compiled module with notes, and removes what is used least where the cache is then too large.
    ///
    /// # Errors
    /// Why it cannot be kept, in words.
    pub fn put(&self, key: &Key, module: &Module, notes: &[(&str, &str)]) -> Result<(), String> {
        let path = self.path(key);
        let kept =
            make_folder(path.parent().unwrap_or(&self.folder)).map_err(|e| format!("{}: {e}", self.folder.display()));
        let mut all = key.notes();
        all.extend(notes.iter().map(|(name, text)| (name.to_string(), text.to_string())));
        let contents = Contents { modules: vec![module], notes: all, ..Contents::default() };
        let kept = kept.and_then(|()| self.trusted()).and_then(|()| {
            clear(&path);
            write(&path, &contents).map_err(|e| e.to_string())
        });
        kept.map_err(|why| format!("the compiled module is not kept in the cache: {why}"))?;
        let given = self.give(key, &path);
        self.shrink();
        given
    }

    /// Copies an entry from the store behind the folder, if that has a sound one.
    fn fetch(&self, key: &Key, path: &Path) -> Result<bool, String> {
        let Some(shared) = &self.shared else { return Ok(false) };
        let Some(bytes) = shared.get(&name(key))? else { return Ok(false) };
        let folder = path.parent().unwrap_or(&self.folder);
        let kept = || -> std::io::Result<tempfile::NamedTempFile> {
            make_folder(folder)?;
            let mut file = tempfile::Builder::new().suffix(".part").tempfile_in(folder)?;
            file.write_all(&bytes)?;
            Ok(file)
        };
        let fail = |why: String| format!("what the shared cache has is not kept: {}: {why}", folder.display());
        let file = kept().map_err(|e| fail(e.to_string()))?;
        if let Err(why) = read(file.path(), key) {
            return shared.lied::<()>(&name(key), &why).map(|_| false);
        }
        file.persist(path).map_err(|e| fail(e.error.to_string()))?;
        self.shrink();
        Ok(true)
    }

    /// Writes an entry to the store behind the folder.
    fn give(&self, key: &Key, path: &Path) -> Result<(), String> {
        let Some(shared) = &self.shared else { return Ok(()) };
        // Another process may have removed it.
        fs::read(path).map_or(Ok(()), |bytes| shared.put(&name(key), &bytes))
    }

    /// Its files, the one used last first.
    pub fn entries(&self) -> Vec<Entry> {
        let mut entries = Vec::new();
        collect(&self.folder, &mut entries);
        entries.sort_by(|a, b| b.used.cmp(&a.used).then_with(|| a.path.cmp(&b.path)));
        entries
    }

    /// Removes all entries; gives the number of those that could not be.
    pub fn clear(&self) -> usize {
        self.entries().iter().filter(|entry| fs::remove_file(&entry.path).is_err()).count()
    }

    /// The entry whose key is nearest to this one, and in what they differ. `None` where the cache has no sound entry.
    pub fn nearest(&self, key: &Key) -> Option<(Entry, Vec<&'static str>)> {
        let entries = self.entries().into_iter().filter(|entry| entry.path.extension().is_some_and(|e| e == "rcp"));
        let differences = entries.filter_map(|entry| {
            let package = Package::open(&entry.path).ok()?;
            Some((entry, key.differences(&Key::of(package.notes()))))
        });
        differences.min_by_key(|(_, differences)| differences.len())
    }

    /// Removes what is used least until the files fit, and what was never finished.
    fn shrink(&self) {
        let mut total = 0;
        for entry in self.entries() {
            let age = SystemTime::now().duration_since(entry.used).unwrap_or_default();
            let unfinished = entry.path.extension().is_some_and(|e| e == "part");
            total += entry.bytes;
            if total > self.limit || unfinished && age > ABANDONED {
                // Another process may have removed it.
                let _ = fs::remove_file(&entry.path);
            }
        }
    }

    /// That nobody else writes to the folder: what is in it is run.
    #[cfg(unix)]
    fn trusted(&self) -> Result<(), String> {
        use std::os::unix::fs::MetadataExt;
        for folder in [self.folder.clone(), self.folder.join("modules")] {
            let about = fs::metadata(&folder).map_err(|e| format!("{}: {e}", folder.display()))?;
            // SAFETY: no preconditions.
            let user = unsafe { libc::geteuid() };
            if about.mode() & 0o002 != 0 || ![user, 0].contains(&about.uid()) {
                return Err(format!("{}: other users may write to this folder", folder.display()));
            }
        }
        Ok(())
    }
    #[cfg(not(unix))]
    fn trusted(&self) -> Result<(), String> {
        Ok(())
    }
}

/// The name of a key's file.
fn name(key: &Key) -> String {
    format!("{}.rcp", key.id())
}

/// Makes a folder that the user alone may look into.
fn make_folder(path: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(path)
}

/// Removes what is in an entry's place and is no file: a pipe would be written to.
fn clear(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|about| !about.is_file()) {
        // What stays is what writing fails with.
        let _ = fs::remove_file(path).or_else(|_| fs::remove_dir(path));
    }
}

fn read(path: &Path, key: &Key) -> Result<Found, String> {
    let package = Package::open(path).map_err(|e| e.to_string())?;
    if Key::of(package.notes()) != *key {
        return Err(format!("{}: it is another module's", path.display()));
    }
    let module = package.module(0).map_err(|e| e.to_string())?;
    Ok((module, package.notes().clone()))
}

fn collect(folder: &Path, entries: &mut Vec<Entry>) {
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let (path, about) = (entry.path(), entry.metadata());
        let is_ours = |path: &Path| path.extension().is_some_and(|e| e == "rcp" || e == "cubin" || e == "part");
        match about {
            Ok(about) if about.is_dir() => collect(&path, entries),
            Ok(about) if is_ours(&path) => {
                let used = about.modified().unwrap_or(SystemTime::UNIX_EPOCH);
                entries.push(Entry { path, bytes: about.len(), used });
            }
            _ => {}
        }
    }
}
