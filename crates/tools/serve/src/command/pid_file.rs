//! The file that holds the number of the process while it serves.

use crate::ServeError;
use std::{
    fs, io,
    path::{Path, PathBuf},
    process,
};

/// It; removed when dropped.
#[derive(Debug)]
pub(super) struct PidFile(PathBuf);

impl PidFile {
    /// Writes it. A reader that sees the file sees the whole number; one that a server left behind
    /// is replaced.
    ///
    /// # Errors
    /// It cannot be written.
    pub(super) fn new(path: &Path) -> Result<PidFile, ServeError> {
        let mut name = path.file_name().unwrap_or_default().to_owned();
        name.push(format!(".{}", process::id()));
        let new = path.with_file_name(name);
        let written = fs::write(&new, format!("{}\n", process::id()));
        let placed = written.and_then(|()| fs::rename(&new, path));
        placed.map_err(|error: io::Error| {
            let _ = fs::remove_file(&new);
            ServeError::io(format!("--pid-file {}", path.display()), &error)
        })?;
        Ok(PidFile(path.to_owned()))
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}
