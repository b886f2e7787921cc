//! Assembled code kept on disk. The driver has a cache of its own, but it is not shipped with a model, and it can be
//! off.

use std::io::Write;
use std::path::{Path, PathBuf};

use super::assemble::AssembleOptions;
use crate::files::write_whole;

/// A folder of machine code, a file for each piece, named by the hash of all that determines it: PTX, architecture,
/// driver version and options. A file holds a magic number, the hash of its code, and the code; one that does not
/// check is ignored and written anew. What cannot be written is a warning (through `tracing`), never an error.
/// Entries are never removed: the folder may be emptied at any time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CubinCache {
    folder: PathBuf,
}

const MAGIC: &[u8; 8] = b"rccubin1";
const HEADER: usize = MAGIC.len() + blake3::OUT_LEN;

impl CubinCache {
    /// A cache in this folder, which is made when first written to.
    pub fn at(folder: impl Into<PathBuf>) -> CubinCache {
        CubinCache { folder: folder.into() }
    }

    /// The folder.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The key of an assembly.
    pub(super) fn key(ptx: &str, arch: &str, driver: i32, options: &AssembleOptions) -> String {
        let mut hasher = blake3::Hasher::new();
        let AssembleOptions { max_registers, optimization_level, line_info } = options;
        let registers = max_registers.map_or(-1, i64::from);
        let settings = format!("{arch} {driver} {registers} {optimization_level} {line_info}");
        // The length first, so that no two pairs of settings and PTX run together.
        hasher.update(&(settings.len() as u64).to_le_bytes()).update(settings.as_bytes()).update(ptx.as_bytes());
        hasher.finalize().to_hex().to_string()
    }

    fn path(&self, key: &str) -> PathBuf {
        self.folder.join(format!("{key}.cubin"))
    }

    /// The code under a key; `None` where there is none, or its file does not check.
    pub(super) fn get(&self, key: &str) -> Option<Vec<u8>> {
        let path = self.path(key);
        let mut bytes = match std::fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) => {
                if error.kind() != std::io::ErrorKind::NotFound {
                    tracing::warn!("{}: cannot read cached code: {error}", path.display());
                }
                return None;
            }
        };
        let sound = bytes.len() >= HEADER
            && &bytes[..MAGIC.len()] == MAGIC
            && &bytes[MAGIC.len()..HEADER] == blake3::hash(&bytes[HEADER..]).as_bytes();
        if !sound {
            tracing::warn!("{}: cached code is corrupt and will be made anew", path.display());
            return None;
        }
        Some(bytes.split_off(HEADER))
    }

    /// Keeps code under a key.
    pub(super) fn put(&self, key: &str, code: &[u8]) {
        let path = self.path(key);
        let hash = blake3::hash(code);
        let write = std::fs::create_dir_all(&self.folder).and_then(|()| {
            write_whole(&path, |file| {
                file.write_all(MAGIC)?;
                file.write_all(hash.as_bytes())?;
                file.write_all(code)
            })
        });
        if let Err(error) = write {
            tracing::warn!("{}: cannot keep assembled code: {error}", path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_what_was_put() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CubinCache::at(folder.path().join("not/yet/there"));
        assert_eq!(cache.get("k"), None);
        for code in [&b"code"[..], b"", &[7; 100_000]] {
            cache.put("k", code);
            assert_eq!(cache.get("k").as_deref(), Some(code));
        }
        assert_eq!(std::fs::read_dir(cache.folder()).unwrap().count(), 1);
    }

    #[test]
    fn corrupt_entries_are_ignored_and_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let cache = CubinCache::at(folder.path());
        cache.put("k", b"code");
        let path = cache.path("k");
        let good = std::fs::read(&path).unwrap();
        for i in 0..good.len() {
            let mut bytes = good.clone();
            bytes[i] ^= 1;
            std::fs::write(&path, &bytes).unwrap();
            assert_eq!(cache.get("k"), None, "byte {i}");
            std::fs::write(&path, &good[..i]).unwrap();
            assert_eq!(cache.get("k"), None, "{i} bytes");
        }
        cache.put("k", b"code");
        assert_eq!(cache.get("k").as_deref(), Some(&b"code"[..]));
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("file");
        std::fs::write(&file, "").unwrap();
        let cache = CubinCache::at(file.join("below"));
        cache.put("k", b"code");
        assert_eq!(cache.get("k"), None);
        // Every write to this device finds no space.
        let full = Path::new("/dev/full");
        if full.exists() {
            assert!(write_whole(full, |file| file.write_all(b"x")).is_err());
        }
    }

    #[test]
    fn keys_tell_everything_apart() {
        let base = AssembleOptions::default();
        let more = AssembleOptions { max_registers: Some(64), ..base.clone() };
        let less = AssembleOptions { optimization_level: 0, ..base.clone() };
        let lines = AssembleOptions { line_info: true, ..base.clone() };
        let keys = [
            CubinCache::key("a", "sm_90", 12080, &base),
            CubinCache::key("b", "sm_90", 12080, &base),
            CubinCache::key("a", "sm_80", 12080, &base),
            CubinCache::key("a", "sm_90", 13000, &base),
            CubinCache::key("a", "sm_90", 12080, &more),
            CubinCache::key("a", "sm_90", 12080, &less),
            CubinCache::key("a", "sm_90", 12080, &lines),
        ];
        let distinct: std::collections::BTreeSet<_> = keys.iter().collect();
        assert_eq!(distinct.len(), keys.len());
        assert_eq!(keys[0], CubinCache::key("a", "sm_90", 12080, &base));
    }
}
