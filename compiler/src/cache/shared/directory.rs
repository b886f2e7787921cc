//! A directory that machines share.

use super::{LARGEST, Store};
use std::fs;
use std::io::{Read, Write};
use std::path::PathBuf;

/// A directory that is somebody else's to make.
pub struct Directory(pub PathBuf);

impl Store for Directory {
    fn get(&self, name: &str) -> Result<Option<Vec<u8>>, String> {
        let file = match fs::File::open(self.0.join(name)) {
            Ok(file) => file,
            Err(e) if e.kind() == std::io::ErrorKind::NotFound && fs::metadata(&self.0).is_ok() => return Ok(None),
            Err(e) => return Err(e.to_string()),
        };
        let mut bytes = Vec::new();
        file.take(LARGEST).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
        Ok(Some(bytes))
    }

    fn put(&self, name: &str, bytes: &[u8]) -> Result<(), String> {
        let fail = |e: std::io::Error| e.to_string();
        let mut file = tempfile::Builder::new().suffix(".part").tempfile_in(&self.0).map_err(fail)?;
        file.write_all(bytes).map_err(fail)?;
        readable(file.as_file()).map_err(fail)?;
        file.persist(self.0.join(name)).map(drop).map_err(|e| fail(e.error))
    }
}

/// Lets others read a file that was made for its user alone.
#[cfg(unix)]
fn readable(file: &fs::File) -> std::io::Result<()> {
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o644))
}
#[cfg(not(unix))]
fn readable(_: &fs::File) -> std::io::Result<()> {
    Ok(())
}
