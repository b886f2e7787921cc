//! Files that appear whole or not at all.

use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

/// Writes a file through one beside it, renamed when complete. What is no regular file (`/dev/stdout`, a pipe) is
/// written directly.
pub(crate) fn write_whole(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    if path.metadata().is_ok_and(|m| !m.is_file()) {
        return write(&mut File::options().write(true).open(path)?);
    }
    let mut name = path.file_name().ok_or_else(|| io::Error::other("not a file name"))?.to_os_string();
    name.push(format!(".{}-{}.part", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed)));
    let part = path.with_file_name(name);
    let result = File::create(&part).and_then(|mut file| write(&mut file)).and_then(|()| std::fs::rename(&part, path));
    if result.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&part);
    }
    result
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn a_failed_write_leaves_the_old_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("f");
        write_whole(&path, |file| file.write_all(b"old")).unwrap();
        let failing = write_whole(&path, |file| file.write_all(b"n").and_then(|()| Err(io::Error::other("full"))));
        assert_eq!(failing.unwrap_err().to_string(), "full");
        assert_eq!(std::fs::read(&path).unwrap(), b"old");
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1);
    }
}
