//! The bytes of the test file once more, in many files of the same size.

use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use super::run::BLOCK;
use crate::error::{BenchError, Context, Result};
use crate::interrupt;
use crate::layout::{SMALLER, check_space, holds_pattern_from};
use crate::pattern;
use crate::progress::Progress;

/// Files that are removed when dropped, unless kept.
#[derive(Debug)]
pub(super) struct CutFiles {
    folder: PathBuf,
    keep: bool,
}

impl CutFiles {
    /// Writes so many files of together `size_bytes` beside `path`, or finds them.
    ///
    /// # Errors
    /// There is no space, something else has the name of their folder, or the user asked to stop.
    pub(super) fn lay_out(
        path: &Path,
        files: usize,
        size_bytes: u64,
        keep: bool,
        progress: &Progress,
    ) -> Result<Self> {
        let (folder, len) = (folder(path, files), file_bytes(size_bytes, files));
        if folder.exists() {
            return match (0..files).all(|index| holds(&folder, index, len)) {
                true => Ok(Self { folder, keep }),
                false => Err(BenchError::usage(format!(
                    "{} holds no test files, and is left alone; remove it, or name another device",
                    folder.display()
                ))),
            };
        }
        check_space(&folder, size_bytes, SMALLER)?;
        let what = || format!("write {}", folder.display());
        fs::create_dir(&folder).context(what)?;
        let cut = Self { folder: folder.clone(), keep };
        let mut bytes = vec![0; len as usize];
        for index in 0..files {
            interrupt::check()?;
            let base = index as u64 * len;
            pattern::fill(base, &mut bytes);
            fs::write(file(&folder, index), &bytes).context(what)?;
            progress.laying_out(base + len, size_bytes);
        }
        // One for all of them: ten thousand journal commits would take a minute.
        let opened = File::open(&folder).context(what)?;
        // SAFETY: the descriptor is open during the call, which has no other argument.
        if unsafe { libc::syncfs(opened.as_raw_fd()) } != 0 {
            return Err(std::io::Error::last_os_error()).context(what);
        }
        Ok(cut)
    }
}

impl Drop for CutFiles {
    fn drop(&mut self) {
        if !self.keep {
            // A folder that is gone already is what was wanted.
            let _ = fs::remove_dir_all(&self.folder);
        }
    }
}

/// Returns where the files are that were laid out beside `path`, or that one itself.
pub(super) fn paths(path: &Path, files: usize) -> Vec<PathBuf> {
    if files == 1 {
        return vec![path.to_owned()];
    }
    let folder = folder(path, files);
    (0..files).map(|index| file(&folder, index)).collect()
}

/// Opens them for direct reads.
///
/// # Errors
/// One cannot be opened, or so many may not be open.
pub(super) fn open(path: &Path, files: usize) -> Result<Vec<File>> {
    let open = |path: PathBuf| {
        let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(&path);
        opened.context(|| format!("open {}", path.display()))
    };
    paths(path, files).into_iter().map(open).collect()
}

/// Returns the size of each of so many files.
pub(super) fn file_bytes(size_bytes: u64, files: usize) -> u64 {
    (size_bytes / BLOCK as u64 / files as u64).max(1) * BLOCK as u64
}

fn folder(path: &Path, files: usize) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!("{name}.{files}-files"))
}

fn file(folder: &Path, index: usize) -> PathBuf {
    folder.join(index.to_string())
}

fn holds(folder: &Path, index: usize, len: u64) -> bool {
    holds_pattern_from(&file(folder, index), index as u64 * len, len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_of_a_user_are_left_alone() {
        let parent = tempfile::tempdir().expect("a temporary folder");
        let (path, progress) = (parent.path().join("data"), Progress::new());
        let lay_out = |keep| CutFiles::lay_out(&path, 3, 12 * BLOCK as u64, keep, &progress);
        drop(lay_out(true).expect("made"));
        assert_eq!(open(&path, 3).expect("kept").len(), 3);
        let mine = file(&folder(&path, 3), 1);
        fs::write(&mine, vec![7; 4 * BLOCK]).expect("written");
        let error = lay_out(false).expect_err("not ours any more");
        assert!(error.is_usage() && error.to_string().contains("left alone"), "{error}");
        assert!(mine.exists());
    }
}
