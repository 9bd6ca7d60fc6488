//! The value of `--device`: a file, a folder, a block device or memory. The benchmark fills the
//! file or block device with the pattern of test files, so that reads can be checked.

use std::collections::BTreeSet;
use std::fs::{self, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use nowait_sys::aligned::AlignedBuffer;

use super::args::WorkloadArgs;
use super::parts::PartFiles;
use super::recipe::Recipe;
use crate::error::{Context, Failure, Result};
use crate::layout::{TestFile, holds_pattern, overwrite};
use crate::progress::Progress;
use crate::units;

/// The value of `--device` for a file in memory.
pub(crate) const MEMORY: &str = "ram";
/// The folder of the files in memory.
const MEMORY_FOLDER: &str = "/dev/shm";
/// The name of the test file in a folder.
const FILE_NAME: &str = "nowait-bench.pages";
const PRISTINE_NAME: &str = "nowait-bench.pattern";

/// The files or the device of a measurement.
#[derive(Debug)]
pub(crate) struct Device {
    /// The test file, if this program made it. It is removed at the end, unless it is kept.
    _file: Option<TestFile>,
    pub(crate) path: PathBuf,
    /// `true` if the files are in memory, so that no cache has to be dropped.
    pub(crate) in_memory: bool,
}

/// The files on which the runs of some cases work. Dropping this value removes the files that this
/// program made, unless `--keep` is set.
pub(crate) struct LaidOut {
    /// The device that reads use; `write` is the file that writes use. Both may be the same.
    pub(crate) device: Device,
    pub(crate) write: PathBuf,
    pub(crate) size_bytes: u64,
    _written: Option<TestFile>,
    _parts: Vec<PartFiles>,
}

impl LaidOut {
    /// Writes the files for some jobs; `all_bytes` is the size of the measurement. With `apart`,
    /// reads and writes use two files, unless the device is a block device.
    ///
    /// # Errors
    /// The device holds something else or is too small, there is no space, or the user asked to
    /// stop.
    pub(crate) fn prepare(
        args: &WorkloadArgs,
        apart: bool,
        all_bytes: u64,
        jobs: &[Recipe],
        progress: &Progress,
    ) -> Result<Self> {
        // With `apart`, the file that a run does not work on fills nowait's page cache before.
        let needed = |write: bool| {
            let needs = jobs.iter().map(|job| job.needs(job.work.writes() == write, all_bytes));
            needs.max().unwrap_or(0)
        };
        let size_bytes = if apart { needed(false) } else { all_bytes };
        let laid_out = |written| progress.laying_out(written, size_bytes);
        let (keep, overwrite, pristine) = (args.measure.keep, args.overwrite, apart);
        let how = Use { size_bytes, keep, overwrite, pristine, progress: &laid_out };
        let device = Device::prepare(&args.device, how)?;
        let beside = || {
            let name = format!("{}.written", device.path.file_name()?.to_string_lossy());
            let is_file = apart && device.path.is_file();
            is_file.then(|| TestFile::new(device.path.with_file_name(name), keep))
        };
        let written = beside();
        if let Some(written) = &written {
            let bytes = needed(true);
            written.lay_out(bytes, 0, &|_| true, &|done| progress.laying_out(done, bytes))?;
        }
        let counts: BTreeSet<usize> = jobs.iter().map(|job| job.files).collect();
        let parts = counts.into_iter().filter(|files| *files > 1);
        let parts = parts.map(|n| PartFiles::lay_out(&device.path, n, all_bytes, keep, progress));
        Ok(Self {
            write: written.as_ref().map_or(device.path.as_path(), TestFile::path).to_owned(),
            size_bytes: all_bytes,
            _parts: parts.collect::<Result<_>>()?,
            device,
            _written: written,
        })
    }
}

/// The options for the use of `--device`.
#[derive(Clone, Copy)]
struct Use<'a> {
    size_bytes: u64,
    keep: bool,
    /// The content of a block device may be overwritten.
    overwrite: bool,
    /// Runs only read the file.
    pristine: bool,
    progress: &'a dyn Fn(u64),
}

impl Device {
    /// Opens the file or block device that `--device` names, or makes a test file. Afterwards its
    /// first `size_bytes` hold the pattern.
    ///
    /// # Errors
    /// The device holds something else or is too small, or there is no space.
    fn prepare(device: &Path, how: Use<'_>) -> Result<Self> {
        if device == Path::new(MEMORY) {
            let name = format!("nowait-bench.{}", std::process::id());
            return Self::lay_out(Path::new(MEMORY_FOLDER).join(name), false, true, how);
        }
        if device.to_string_lossy().starts_with("sim:") {
            let message = "models of devices are for `bench paper`; pass a file, a block device \
                           or ram";
            return Err(Failure::usage(message));
        }
        match fs::metadata(device) {
            Ok(found) if found.is_dir() => {
                let path = device.join(if how.pristine { PRISTINE_NAME } else { FILE_NAME });
                match path.exists() {
                    true => Self::take(path, false, how),
                    false => Self::lay_out(path, how.keep, false, how),
                }
            }
            Ok(found) if found.is_file() || found.file_type().is_block_device() => {
                Self::take(device.to_owned(), !found.is_file(), how)
            }
            Ok(_) => Err(Failure::usage(format!(
                "{} is neither a file, a folder nor a block device",
                device.display()
            ))),
            Err(_) => Self::lay_out(device.to_owned(), how.keep, false, how),
        }
    }

    /// Uses an existing file or block device if it holds the pattern. Writes the pattern to an
    /// empty file, and to a block device whose content may be overwritten.
    fn take(path: PathBuf, is_block: bool, how: Use<'_>) -> Result<Self> {
        let shown = path.display();
        let what = || format!("open {shown}");
        let mut file = OpenOptions::new().read(true).write(is_block).open(&path).context(what)?;
        let len = file.seek(SeekFrom::End(0)).context(what)?;
        if len == 0 && !is_block {
            return Self::lay_out(path, true, false, how);
        }
        let holds = holds_pattern(&path, 0, len.min(how.size_bytes));
        if !(holds || is_block && how.overwrite) {
            return Err(Failure::usage(match is_block {
                true => {
                    format!("{shown} may hold data that are needed; pass --overwrite to lose them")
                }
                false => format!("{shown} is no test file, and is left alone; name another"),
            }));
        }
        if len < how.size_bytes {
            let [len, size] = [len, how.size_bytes].map(|bytes| units::bytes(bytes as f64));
            let message = format!("{shown} is too small: {len} of {size}; pass a smaller --size");
            return Err(Failure::new(message));
        }
        if !holds {
            overwrite(&mut file, how.size_bytes, how.progress)?;
        }
        Ok(Self { _file: None, path, in_memory: false })
    }

    fn lay_out(path: PathBuf, keep: bool, in_memory: bool, how: Use<'_>) -> Result<Self> {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        if !folder.is_dir() {
            return Err(Failure::usage(format!("there is no folder {}", folder.display())));
        }
        let file = TestFile::new(path.clone(), keep);
        file.lay_out(how.size_bytes, 0, &|_| true, how.progress)?;
        Ok(Self { _file: Some(file), path, in_memory })
    }
}

/// Returns the smallest block of direct I/O on a device, which may be a path that does not exist
/// yet; `None` if direct I/O does not work there.
pub(crate) fn smallest_direct_block(device: &Path) -> Option<usize> {
    let device = if device == Path::new(MEMORY) { Path::new(MEMORY_FOLDER) } else { device };
    if device.exists() && !device.is_dir() {
        return direct_block_bytes(device);
    }
    let folder = if device.is_dir() { device } else { device.parent()? };
    let file = tempfile::NamedTempFile::new_in(folder).ok()?;
    fs::write(file.path(), [0; 8192]).ok()?;
    direct_block_bytes(file.path())
}

/// Returns the smallest block, up to 4096 bytes, that can be read from a file with `O_DIRECT`;
/// `None` if no such read works.
pub(crate) fn direct_block_bytes(path: &Path) -> Option<usize> {
    let file = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(path).ok()?;
    let mut buffer = AlignedBuffer::zeroed(4096);
    [512, 1024, 2048, 4096].into_iter().find(|len| file.read_at(&mut buffer[..*len], 0).is_ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prepare(path: &Path, size_bytes: u64, keep: bool) -> Result<Device> {
        let (overwrite, pristine) = (false, false);
        let how = Use { size_bytes, keep, overwrite, pristine, progress: &|_| () };
        Device::prepare(path, how)
    }

    #[test]
    fn a_file_of_another_is_left_alone() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("letter");
        fs::write(&path, vec![7; 1 << 20]).expect("write");
        let error = prepare(&path, 1 << 20, false).expect_err("not ours");
        assert_eq!(error.exit_code(), 2);
        assert_eq!(fs::read(&path).expect("still there"), vec![7; 1 << 20]);
    }

    #[test]
    fn a_kept_file_is_used_again_and_a_small_one_is_told() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let path = folder.path().join("pages");
        drop(prepare(&path, 1 << 20, true).expect("made"));
        assert!(path.exists(), "kept");
        drop(prepare(&path, 1 << 20, false).expect("found"));
        assert!(path.exists(), "it was there before");
        let error = prepare(&path, 2 << 20, false).expect_err("too small");
        assert!(error.to_string().contains("--size"), "{error}");
    }

    #[test]
    fn a_made_file_is_removed_in_a_folder_and_in_memory() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let device = prepare(folder.path(), 1 << 20, false).expect("made");
        let path = device.path.clone();
        assert!(path.exists());
        drop(device);
        assert!(!path.exists());
        let device = prepare(Path::new(MEMORY), 1 << 20, false).expect("made");
        assert!(device.in_memory && device.path.starts_with(MEMORY_FOLDER));
    }

    #[test]
    fn a_model_is_not_a_device_of_these_workloads() {
        let error = prepare(Path::new("sim:hdd"), 1, false).expect_err("a model");
        assert!(error.to_string().contains("bench paper"), "{error}");
    }
}
