//! A private folder that is gone when the test is over.

use std::fs;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

/// A temporary folder on a real disk where there is one.
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

    /// A path inside it; nothing is created.
    pub fn file(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    /// Makes a folder inside it.
    pub fn folder(&self, name: &str) -> PathBuf {
        let path = self.file(name);
        fs::create_dir_all(&path).expect("a folder in the scratch folder");
        path
    }
}
