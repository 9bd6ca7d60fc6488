//! The page cache before a run: written back and dropped, or filled.

use std::fs::{self, File, OpenOptions};
use std::io::Read;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use crate::error::{Context, Result};

/// If a process writes 3 to this file, the kernel drops clean pages, directory entries and inodes.
const DROP_CACHES: &str = "/proc/sys/vm/drop_caches";

/// The pause after a flush, in which the device finishes its own writes.
const SETTLE: Duration = Duration::from_millis(50);

pub fn state(caches_dropped: bool) -> &'static str {
    match caches_dropped {
        true => "dropped before each run of a cold case",
        false => "only the pages of the test file dropped before each run of a cold case",
    }
}

pub fn can_drop() -> bool {
    OpenOptions::new().write(true).open(DROP_CACHES).is_ok()
}

pub fn write_back(path: &Path) -> Result<()> {
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    rustix::fs::syncfs(&file).map_err(std::io::Error::from).context(|| "syncfs".to_owned())
}

/// With `everything`, which needs [`can_drop`], drops all clean pages, directory entries and
/// inodes.
pub fn make_cold(path: &Path, everything: bool) -> Result<()> {
    write_back(path)?;
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    // The advice covers the whole file. Its failure does not matter.
    let _ = rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed);
    if everything {
        fs::write(DROP_CACHES, "3").context(|| format!("write {DROP_CACHES}"))?;
    }
    sleep(SETTLE);
    Ok(())
}

pub fn make_cached(path: &Path, size_bytes: u64) -> Result<()> {
    let file = File::open(path).context(|| format!("open {}", path.display()))?;
    let mut buffer = vec![0; 1 << 20];
    let mut rest = file.take(size_bytes);
    while rest.read(&mut buffer).context(|| format!("read {}", path.display()))? > 0 {}
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_can_be_warmed_and_chilled_without_changing_it() {
        let file = tempfile::NamedTempFile::new().expect("a temporary file");
        fs::write(file.path(), [7; 9000]).expect("write");
        make_cached(file.path(), 9000).expect("read");
        make_cold(file.path(), false).expect("sync");
        assert_eq!(fs::read(file.path()).expect("read"), [7; 9000]);
    }
}
