//! The compiler's build, as a hash of its sources: what another build compiled is not taken from the cache.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

const PARTS: [&str; 8] = ["ir", "machine", "parser", "dialects", "passes", "lowering", "runtime", "compiler"];

fn main() {
    let root = Path::new(&std::env::var("CARGO_MANIFEST_DIR").expect("cargo sets it")).join("..");
    let mut files = BTreeMap::new();
    for part in PARTS.map(|part| root.join(part)).into_iter().chain([root.join("Cargo.lock")]) {
        println!("cargo::rerun-if-changed={}", part.display());
        collect(&root, &part, &mut files);
    }
    let mut hash = 0xcbf2_9ce4_8422_2325u64;
    for (name, bytes) in files {
        let length = (bytes.len() as u64).to_le_bytes();
        for byte in name.to_string_lossy().bytes().chain(length).chain(bytes) {
            hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
        }
    }
    println!("cargo::rustc-env=RC_BUILD={hash:016x}");
}

/// The files below a path, by their names from the root; tests are no part of the compiler.
fn collect(root: &Path, path: &Path, files: &mut BTreeMap<PathBuf, Vec<u8>>) {
    if path.is_dir() {
        let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
        let is_part =
            |entry: &std::fs::DirEntry| !["tests", "benches", "target"].iter().any(|name| entry.file_name() == *name);
        entries.filter(is_part).for_each(|entry| collect(root, &entry.path(), files));
    } else if let Ok(bytes) = std::fs::read(path) {
        files.insert(path.strip_prefix(root).unwrap_or(path).to_path_buf(), bytes);
    }
}
