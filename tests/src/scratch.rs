//! A private folder that is removed at the end of the test.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary folder, on a real disk if there is one.
#[derive(Debug)]
pub struct Scratch(TempDir);

impl Scratch {
    /// Makes a folder whose name begins with `nowait-<name>`.
    pub fn new(name: &str) -> Self {
        let folder = tempfile::Builder::new().prefix(&format!("nowait-{name}-")).tempdir();
        Self(folder.expect("the temporary folder is writable"))
    }

    /// The folder itself.
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

    /// Makes an image of this size, without any data.
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

/// Returns a path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}
