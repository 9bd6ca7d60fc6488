//! The files of the cases. The harness checks for free space before it lays out a file. At the end
//! it removes the files, unless the user keeps them.
//!
//! A read of a hole does not reach the disk. So the harness writes each file once before runs read
//! it, with bytes that do not compress. Cold cases share one file. A cold buffered fio job visits
//! each block at most once. So no read finds a page of an earlier read.

use std::fs::{self, File};
use std::io::{Seek, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::error::{Context, Failure, Result};
use crate::interrupt;
use crate::pattern;
use crate::units;

const CHUNK_BYTES: usize = 4 << 20;

/// `f_type` of tmpfs, from statfs(2).
const TMPFS_MAGIC: i64 = 0x0102_1994;

/// The number of bytes that must be left on the file system, so that a file does not fill it.
const RESERVE_BYTES: u64 = 64 << 20;

const SMALLER: &str = "measure less (--size, --quick), or in another folder";

/// The number of places that [`holds_pattern`] checks.
const PLACES: u64 = 64;

/// A test file. Dropping this value removes the file, unless `keep` is set.
#[derive(Debug)]
pub struct TestFile {
    path: PathBuf,
    keep: bool,
}

impl TestFile {
    /// Does not touch a file that exists at the path.
    pub fn new(path: PathBuf, keep: bool) -> Self {
        Self { path, keep }
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Keeps a file of at least this size without holes. Before writing, checks that there is space
    /// for the file and for `spare_bytes` more. Returns a smaller size if `more` returned `false`.
    pub fn lay_out(
        &self,
        size_bytes: u64,
        spare_bytes: u64,
        more: &dyn Fn(u64) -> bool,
        progress: &dyn Fn(u64),
    ) -> Result<u64> {
        if is_laid_out(&self.path, size_bytes) {
            return Ok(size_bytes);
        }
        let _ = fs::remove_file(&self.path);
        check_space(&self.path, size_bytes.saturating_add(spare_bytes))?;
        let what = || format!("write {}", self.path.display());
        let mut file = File::create_new(&self.path).context(what)?;
        let written = write(&mut file, size_bytes, more, progress)?;
        file.sync_all().context(what)?;
        Ok(written)
    }

    pub fn make_fresh(&self, hole_bytes: u64) -> Result<()> {
        let _ = fs::remove_file(&self.path);
        if hole_bytes > 0 {
            let what = || format!("create {}", self.path.display());
            File::create_new(&self.path).context(what)?.set_len(hole_bytes).context(what)?;
        }
        Ok(())
    }
}

fn write(
    file: &mut File,
    size_bytes: u64,
    more: &dyn Fn(u64) -> bool,
    progress: &dyn Fn(u64),
) -> Result<u64> {
    let mut chunk = vec![0_u8; CHUNK_BYTES];
    let mut written = 0;
    while written < size_bytes && more(written) {
        interrupt::check()?;
        pattern::fill(written, &mut chunk);
        let len = (size_bytes - written).min(CHUNK_BYTES as u64) as usize;
        file.write_all(&chunk[..len]).context(|| "write the test data".to_owned())?;
        written += len as u64;
        progress(written);
    }
    Ok(written)
}

pub fn overwrite(file: &mut File, size_bytes: u64, progress: &dyn Fn(u64)) -> Result<()> {
    let what = || "write the device".to_owned();
    file.rewind().context(what)?;
    write(file, size_bytes, &|_| true, progress)?;
    file.sync_all().context(what)
}

impl Drop for TestFile {
    fn drop(&mut self) {
        if !self.keep {
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Returns `true` if pages at 64 places in the first `len` bytes of a file begin with the words of
/// their places, in any generation. The file begins with byte `base` of the pattern.
pub fn holds_pattern(path: &Path, base: u64, len: u64) -> bool {
    let page = pattern::STAMP_BYTES as u64;
    let (Ok(file), pages) = (File::open(path), len / page) else { return false };
    let mut word = [0; 8];
    pages > 0
        && (0..PLACES).all(|place| {
            let offset = pages * place / PLACES * page;
            let read = file.read_exact_at(&mut word, offset);
            read.is_ok() && pattern::generation(base + offset, &word).is_some()
        })
}

fn is_laid_out(path: &Path, size_bytes: u64) -> bool {
    let Ok(metadata) = fs::symlink_metadata(path) else { return false };
    metadata.is_file() && metadata.len() >= size_bytes && metadata.blocks() * 512 >= size_bytes
}

pub fn check_space(path: &Path, needed_bytes: u64) -> Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    let free = free_bytes(folder)?;
    if free < needed_bytes.saturating_add(RESERVE_BYTES) {
        let text = |bytes: u64| units::bytes(bytes as f64);
        return Err(Failure::new(format!(
            "{} has {} free and {} are needed; {SMALLER}",
            folder.display(),
            text(free),
            text(needed_bytes + RESERVE_BYTES)
        )));
    }
    Ok(())
}

fn free_bytes(folder: &Path) -> Result<u64> {
    let stat = rustix::fs::statvfs(folder).map_err(std::io::Error::from);
    let stat = stat.context(|| format!("statvfs {}", folder.display()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

pub fn is_tmpfs(folder: &Path) -> bool {
    rustix::fs::statfs(folder).is_ok_and(|stat| stat.f_type == TMPFS_MAGIC)
}

pub fn scratch_in(folder: &Path) -> Result<TempDir> {
    fs::create_dir_all(folder).context(|| format!("create {}", folder.display()))?;
    tempfile::tempdir_in(folder).context(|| format!("write in {}", folder.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_laid_out_file_has_blocks_and_is_written_once() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = TestFile::new(folder.path().join("data"), false);
        let calls = std::cell::Cell::new(0);
        let lay_out = || file.lay_out(5 << 20, 0, &|_| true, &|_| calls.set(calls.get() + 1));
        lay_out().expect("first");
        lay_out().expect("second");
        assert_eq!(calls.get(), 2, "two chunks, written by the first call only");
        assert_eq!(file.lay_out(9 << 20, 0, &|written| written == 0, &|_| ()), Ok(4 << 20));
        let path = file.path().to_owned();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_sparse_file_does_not_pass_for_laid_out() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = TestFile::new(folder.path().join("holes"), false);
        file.make_fresh(1 << 20).expect("truncate");
        assert_eq!(fs::metadata(file.path()).expect("there").len(), 1 << 20);
        assert!(!is_laid_out(file.path(), 1 << 20));
        file.make_fresh(0).expect("remove");
        assert!(!file.path().exists());
    }

    #[test]
    fn a_full_disk_is_told_before_it_is_full() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let error = check_space(&folder.path().join("x"), u64::MAX / 2).expect_err("too much");
        assert!(error.to_string().contains("--size"), "{error}");
    }
}
