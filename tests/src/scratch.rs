//! A private folder that a drop removes.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A folder in the system's temporary folder (`TMPDIR`).
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes a folder whose name begins with `nowait-<name>`.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("nowait-{name}-")).tempdir();
        Self(folder.expect("the temporary folder is writable"))
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        self.0.path()
    }

    /// Returns a path inside the folder; creates nothing.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a folder inside this one.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.file(name);
        fs::create_dir_all(&path).expect("a folder in the scratch folder");
        path
    }

    /// Makes a sparse file of this size, without any data.
    pub fn image(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.file(name);
        fs::File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
        path
    }

    /// Makes a file of this size whose bytes depend on their offset.
    pub fn patterned(&self, name: &str, bytes: u64) -> PathBuf {
        let path = self.file(name);
        let bytes: Vec<u8> = (0..bytes).map(|i| (i * 31 + (i >> 12)) as u8).collect();
        fs::write(&path, bytes).expect("a file of data");
        path
    }
}

/// Returns a path as text, for an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
