//! The files of a folder, and their removal: blocks that were not used for the longest time, and
//! temporary files of processes that have ended.

use crate::{
    names::{FileKind, kind_of},
    usage::OWN_FOLDER,
};
use std::{
    ffi::OsStr,
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::{Duration, SystemTime},
};
use walkdir::WalkDir;

/// Age at which a temporary file counts as abandoned. If a process still writes the file, its store
/// fails and nothing else.
const ABANDONED_AFTER: Duration = Duration::from_mins(10);

/// The file of a block.
#[derive(Debug)]
pub(crate) struct Block {
    /// Time of the last use, in nanoseconds.
    used_at: i128,
    bytes: u64,
    path: PathBuf,
}

/// The files of a folder.
#[derive(Debug, Default)]
pub(crate) struct Found {
    /// Bytes of blocks and temporary files.
    pub(crate) bytes: u64,
    blocks: Vec<Block>,
    abandoned: Vec<(u64, PathBuf)>,
}

impl Found {
    /// Reads the folder and sums its files up. Leaves out files that vanish meanwhile and folders
    /// of other users.
    ///
    /// `goes_on` returns `false` to end early.
    ///
    /// # Errors
    /// A folder cannot be read, for example because there is no free descriptor: the sum would lack
    /// its files.
    pub(crate) fn read(root: &Path, goes_on: impl Fn() -> bool) -> io::Result<Found> {
        Found::read_kinds(root, goes_on, |kind| kind != FileKind::Other)
    }

    /// Reads the temporary files of the folder alone, without a system call for each block.
    ///
    /// # Errors
    /// The errors of [`Found::read`].
    pub(crate) fn abandoned(root: &Path, goes_on: impl Fn() -> bool) -> io::Result<Found> {
        Found::read_kinds(root, goes_on, |kind| kind == FileKind::Temporary)
    }

    fn read_kinds(
        root: &Path,
        goes_on: impl Fn() -> bool,
        is_wanted: impl Fn(FileKind) -> bool,
    ) -> io::Result<Found> {
        let mut found = Found::default();
        let inside = |entry: &walkdir::DirEntry| entry.file_name() != OsStr::new(OWN_FOLDER);
        for entry in WalkDir::new(root).into_iter().filter_entry(inside) {
            if !goes_on() {
                break;
            }
            let Some(entry) = readable(entry)? else { continue };
            let kind = kind_of(entry.path());
            if !is_wanted(kind) || !entry.file_type().is_file() {
                continue;
            }
            let Some(metadata) = readable(entry.metadata())? else { continue };
            let bytes = metadata.len();
            found.bytes += bytes;
            let path = entry.into_path();
            match kind {
                FileKind::Block => {
                    let used_at = last_use(&metadata);
                    found.blocks.push(Block { used_at, bytes, path });
                }
                _ if is_abandoned(&metadata) => found.abandoned.push((bytes, path)),
                _ => {}
            }
        }
        Ok(found)
    }

    /// Removes abandoned files, and blocks until at most `bytes_max` are left. Returns the removed
    /// blocks.
    pub(crate) fn shrink(&mut self, bytes_max: u64) -> Vec<PathBuf> {
        for (bytes, path) in self.abandoned.drain(..) {
            if remove(&path) {
                self.bytes = self.bytes.saturating_sub(bytes);
            }
        }
        let mut removed = Vec::new();
        let excess = self.bytes.saturating_sub(bytes_max);
        for block in oldest(&mut self.blocks, excess) {
            if remove(&block.path) {
                self.bytes = self.bytes.saturating_sub(block.bytes);
                removed.push(block.path);
            }
        }
        removed
    }
}

/// Returns the entry, or `None` if it has vanished or belongs to another user.
fn readable<T>(entry: Result<T, walkdir::Error>) -> io::Result<Option<T>> {
    let is_left_out = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
    };
    match entry {
        Err(error) if error.io_error().is_some_and(is_left_out) => Ok(None),
        entry => Ok(Some(entry?)),
    }
}

/// Removes a file, and the two folders above it if they are then empty: there may be a million such
/// folders, and no capacity bounds their space.
fn remove(path: &Path) -> bool {
    let is_removed = fs::remove_file(path).is_ok();
    if is_removed {
        path.ancestors().skip(1).take(2).all(|folder| fs::remove_dir(folder).is_ok());
    }
    is_removed
}

fn last_use(metadata: &fs::Metadata) -> i128 {
    let nanoseconds =
        |seconds: i64, rest: i64| i128::from(seconds) * 1_000_000_000 + i128::from(rest);
    let accessed = nanoseconds(metadata.atime(), metadata.atime_nsec());
    accessed.max(nanoseconds(metadata.mtime(), metadata.mtime_nsec()))
}

fn is_abandoned(metadata: &fs::Metadata) -> bool {
    let age = metadata.modified().ok().and_then(|at| SystemTime::now().duration_since(at).ok());
    age.is_some_and(|age| age > ABANDONED_AFTER)
}

/// Takes out of `blocks` the ones to remove: those with the oldest last use, until their sum is at
/// least `excess` bytes.
fn oldest(blocks: &mut Vec<Block>, excess: u64) -> Vec<Block> {
    blocks.sort_unstable_by_key(|block| block.used_at);
    let mut bytes = 0;
    let is_needed = |block: &&Block| {
        let is_needed = bytes < excess;
        bytes += block.bytes;
        is_needed
    };
    let count = blocks.iter().take_while(is_needed).count();
    blocks.drain(..count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{File, FileTimes};

    fn aged(path: &Path, bytes: usize, seconds: u64) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, vec![0; bytes]).unwrap();
        let then = SystemTime::now() - Duration::from_secs(seconds);
        let times = FileTimes::new().set_accessed(then).set_modified(then);
        File::options().write(true).open(path).unwrap().set_times(times).unwrap();
    }

    #[test]
    fn the_oldest_blocks_go_until_enough_bytes_are_free() {
        let block = |used_at| Block { used_at, bytes: 10, path: PathBuf::new() };
        for (excess, expected) in
            [(0, vec![]), (1, vec![1]), (10, vec![1]), (11, vec![1, 2]), (99, vec![1, 2, 3])]
        {
            let mut blocks = vec![block(3), block(1), block(2)];
            let gone: Vec<i128> = oldest(&mut blocks, excess).iter().map(|it| it.used_at).collect();
            assert_eq!(gone, expected, "{excess}");
            assert_eq!(blocks.len(), 3 - gone.len());
        }
    }

    #[test]
    fn a_folder_without_a_bound_loses_its_abandoned_files_only() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("model_r0/abc/de_g0").join(name);
        aged(&at("abcdef01.bin"), 100, 5000);
        aged(&at("abcdef03.bin_5.tmp"), 100, 700);
        let mut found = Found::abandoned(folder.path(), || true).unwrap();
        assert_eq!(found.bytes, 100, "blocks are not read");
        assert!(found.shrink(u64::MAX).is_empty());
        assert!(at("abcdef01.bin").exists() && !at("abcdef03.bin_5.tmp").exists());
    }

    #[test]
    fn only_blocks_and_abandoned_files_are_removed() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join("model_r0/abc/de_g0").join(name);
        aged(&at("abcdef01.bin"), 100, 50);
        aged(&at("abcdef02.bin"), 100, 90);
        aged(&at("abcdef03.bin_5.tmp"), 100, 700);
        aged(&at("abcdef04.bin_5.tmp"), 100, 5);
        aged(&at("config.json"), 100, 9000);
        // These are files of another program.
        aged(&folder.path().join("abcdef06.bin"), 100, 9000);
        aged(&folder.path().join("photos/abc/abcdef07.bin"), 100, 9000);
        aged(&folder.path().join("model_r0/fff/de_g0/abcdef08.bin"), 100, 9000);
        aged(&folder.path().join(OWN_FOLDER).join("usage"), 8, 9000);
        let mut found = Found::read(folder.path(), || true).unwrap();
        assert_eq!(found.bytes, 400);
        assert_eq!(found.shrink(200), [at("abcdef02.bin")]);
        assert_eq!(found.bytes, 200);
        for (name, is_there) in [
            ("abcdef01.bin", true),
            ("abcdef03.bin_5.tmp", false),
            ("abcdef04.bin_5.tmp", true),
            ("config.json", true),
        ] {
            assert_eq!(at(name).exists(), is_there, "{name}");
        }
    }

    #[test]
    fn folders_go_with_their_last_block() {
        let root = tempfile::tempdir().unwrap();
        let folder = root.path().join("model_r0");
        for (name, seconds) in [
            ("abc/de_g0/abcdef01.bin", 30),
            ("abc/df_g0/abcdf001.bin", 20),
            ("123/45_g0/123456.bin", 9),
        ] {
            aged(&folder.join(name), 100, seconds);
        }
        Found::read(root.path(), || true).unwrap().shrink(200);
        assert!(!folder.join("abc/de_g0").exists() && folder.join("abc/df_g0").exists());
        Found::read(root.path(), || true).unwrap().shrink(0);
        assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
    }

    #[test]
    fn a_folder_that_cannot_be_read_is_an_error_unless_it_is_gone() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(Found::read(&root.path().join("gone"), || true).unwrap().bytes, 0);
        // The link points to itself, so reading it fails with ELOOP, for root too.
        let link = root.path().join("link");
        std::os::unix::fs::symlink(&link, &link).unwrap();
        assert!(Found::read(&link, || true).is_err());
    }
}
