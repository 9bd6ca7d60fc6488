//! Many files of equal size, which together hold the bytes of one test file.

use std::fs;
use std::path::{Path, PathBuf};

use crate::cache;
use crate::error::{Context, Failure, Result};
use crate::interrupt;
use crate::layout::{check_space, holds_pattern};
use crate::pattern;
use crate::progress::Progress;

/// Dropping this value removes the files, unless `keep` is set.
#[derive(Debug)]
pub(super) struct PartFiles {
    folder: PathBuf,
    keep: bool,
}

impl PartFiles {
    /// Writes `files` files to a folder beside `path`, unless the folder exists. Together the files
    /// have about `size_bytes`.
    pub(super) fn lay_out(
        path: &Path,
        files: usize,
        size_bytes: u64,
        keep: bool,
        progress: &Progress,
    ) -> Result<Self> {
        let page = pattern::STAMP_BYTES as u64;
        let len = (size_bytes / page / files as u64).max(1) * page;
        let (parts, folder) = (paths(path, files), folder(path, files));
        let bases = (0..).map(|index| index * len);
        if folder.exists() {
            let mut found = parts.iter().zip(bases);
            return match found.all(|(path, base)| holds_pattern(path, base, len)) {
                true => Ok(Self { folder, keep }),
                false => Err(Failure::usage(format!(
                    "{} holds no test files, and is left alone; remove it, or name another device",
                    folder.display()
                ))),
            };
        }
        check_space(&folder, size_bytes)?;
        let what = || format!("write {}", folder.display());
        fs::create_dir(&folder).context(what)?;
        let made = Self { folder, keep };
        let mut bytes = vec![0; len as usize];
        for (path, base) in parts.iter().zip(bases) {
            interrupt::check()?;
            pattern::fill(base, &mut bytes);
            fs::write(path, &bytes).context(|| format!("write {}", path.display()))?;
            progress.laying_out(base + len, size_bytes);
        }
        // One sync for all files: ten thousand commits of the journal would take a minute.
        cache::write_back(&made.folder).map(|()| made)
    }
}

impl Drop for PartFiles {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

pub(super) fn paths(path: &Path, files: usize) -> Vec<PathBuf> {
    if files == 1 {
        return vec![path.to_owned()];
    }
    let folder = folder(path, files);
    (0..files).map(|index| folder.join(index.to_string())).collect()
}

fn folder(path: &Path, files: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}.{files}-files"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_user_are_left_alone() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let (path, progress) = (parent.path().join("data"), Progress::new());
        let lay_out = |keep| PartFiles::lay_out(&path, 3, 12 * 4096, keep, &progress);
        drop(lay_out(true).expect("made"));
        let mine = paths(&path, 3).swap_remove(1);
        assert_eq!(fs::metadata(&mine).expect("kept").len(), 4 * 4096);
        fs::write(&mine, vec![7; 4 * 4096]).expect("written");
        let error = lay_out(false).expect_err("not ours any more");
        assert!(error.exit_code() == 2 && error.to_string().contains("left alone"), "{error}");
        assert!(mine.exists());
    }
}
