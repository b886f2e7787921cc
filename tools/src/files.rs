//! Input and output files, `-` for standard input and output.

use std::fmt::Display;
use std::fs;
use std::io::{self, Read, Write};
use std::path::Path;

/// The bytes of a file, or of standard input for `-`. The error says which file and why.
pub fn read(path: &Path) -> Result<Vec<u8>, String> {
    if path == Path::new("-") {
        let mut bytes = Vec::new();
        return io::stdin()
            .lock()
            .read_to_end(&mut bytes)
            .map(|_| bytes)
            .map_err(|e| format!("cannot read standard input: {e}"));
    }
    fs::read(path).map_err(|e| format!("cannot read '{}': {e}", path.display()))
}

/// Writes a file, or standard output for `-`, by `write`. A file appears complete or not at all: the
/// bytes go to a temporary one beside it, which then takes its name.
pub fn write(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<(), String> {
    if path == Path::new("-") {
        let mut out = io::BufWriter::new(io::stdout().lock());
        return match write(&mut out).and_then(|()| out.flush()) {
            // The reader, such as `head`, has seen enough.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => result.map_err(|e| format!("cannot write standard output: {e}")),
        };
    }
    write_file(path, write).map_err(|e| format!("cannot write '{}': {e}", path.display()))
}

/// A line on standard output. `println!` would panic where a disk is full.
pub fn print_line(line: impl Display) -> Result<(), String> {
    write(Path::new("-"), |out| writeln!(out, "{line}"))
}

/// A line on standard error. Nothing can be done about an error in doing so.
pub fn note_line(line: impl Display) {
    let _ = writeln!(io::stderr().lock(), "{line}");
}

fn write_file(path: &Path, write: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> io::Result<()> {
    // What a link points to is replaced, not the link; a device is written as it is.
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    if fs::metadata(&target).is_ok_and(|m| !m.is_file()) {
        let mut out = io::BufWriter::new(fs::OpenOptions::new().write(true).open(&target)?);
        write(&mut out)?;
        return out.flush();
    }
    let folder = target.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut builder = tempfile::Builder::new();
    #[cfg(unix)]
    builder.permissions(std::os::unix::fs::PermissionsExt::from_mode(0o666));
    let mut out = io::BufWriter::new(builder.tempfile_in(folder)?);
    write(&mut out)?;
    let file = out.into_inner().map_err(|e| e.into_error())?;
    file.persist(&target).map_err(|e| e.error)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_write_leaves_no_file() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out.ir");
        let error = write(&path, |out| {
            out.write_all(b"half")?;
            Err(io::Error::other("no more"))
        });
        assert!(error.unwrap_err().contains("no more"));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
        write(&path, |out| out.write_all(b"whole")).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"whole");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_missing_file_is_named() {
        assert!(read(Path::new("no/such.ir")).unwrap_err().contains("cannot read 'no/such.ir'"));
    }
}
