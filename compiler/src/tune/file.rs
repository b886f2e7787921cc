//! The file of what was measured.

use rc_ir::{Diagnostic, Loc, Result};
use rc_passes::schedule::Tuning;
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

/// Adds entries to a file, which is made where there is none. The file is read again first, while no other process writes to it; the new one is
/// written beside it and takes its name when it is complete.
///
/// # Errors
/// If the file is corrupt, or cannot be read or written; it stays as it was.
pub fn update(path: &Path, found: Tuning) -> Result {
    let failed = |e: io::Error| {
        Diagnostic::error(Loc::UNKNOWN, format!("cannot write the tuning file '{}': {e}", path.display()))
    };
    let _lock = lock(path).map_err(failed)?;
    let mut all = Tuning::read(path)?;
    all.merge(found);
    replace(path, &all.to_text()).map_err(failed)
}

/// Waits until no other process holds the file that has this name, and makes it if there is none.
fn lock(path: &Path) -> io::Result<File> {
    loop {
        let file = File::options().create(true).append(true).open(path)?;
        file.lock()?;
        // Another process may have put a new file in its place meanwhile.
        if is_at(&file, path)? {
            return Ok(file);
        }
    }
}

#[cfg(unix)]
fn is_at(file: &File, path: &Path) -> io::Result<bool> {
    use std::os::unix::fs::MetadataExt;
    let (own, there) = (file.metadata()?, fs::metadata(path));
    Ok(there.is_ok_and(|there| (there.dev(), there.ino()) == (own.dev(), own.ino())))
}
#[cfg(not(unix))]
fn is_at(_: &File, _: &Path) -> io::Result<bool> {
    Ok(true)
}

fn replace(path: &Path, text: &str) -> io::Result<()> {
    let target = fs::canonicalize(path)?;
    let folder = target.parent().unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut part = builder.tempfile_in(folder)?;
    part.write_all(text.as_bytes())?;
    part.as_file().sync_all()?;
    part.persist(&target).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use rc_passes::schedule::Entry;

    fn one(kernel: &str) -> Tuning {
        let mut tuning = Tuning::default();
        let (machine, origin) = ("m 2 cores".to_string(), "add".to_string());
        tuning.insert(Entry { kernel: kernel.into(), machine, origin, ns: 10, model_ns: 20, schedules: Vec::new() });
        tuning
    }

    #[test]
    fn writers_do_not_lose_one_anothers_entries() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.tuning");
        std::thread::scope(|scope| {
            for i in 0..16 {
                let path = &path;
                scope.spawn(move || update(path, one(&format!("k{i:02}"))).unwrap());
            }
        });
        let all = Tuning::read(&path).unwrap();
        assert_eq!(all.entries().count(), 16);
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
        assert_eq!(Tuning::parse("t", all.to_text()).unwrap(), all);
    }

    #[test]
    fn a_corrupt_file_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.tuning");
        let text = "// rc tuning 1\n#rc.tuned<kernel = \"a\", machine = 3>\n";
        fs::write(&path, text).unwrap();
        let error = update(&path, one("k")).unwrap_err();
        assert!(error.render().contains("t.tuning:2:1"), "{}", error.render());
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        let nowhere = folder.path().join("no/such.tuning");
        assert!(update(&nowhere, one("k")).unwrap_err().message.contains("no/such.tuning"));
    }
}
