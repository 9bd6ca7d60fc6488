//! Support of RWF_NOWAIT and O_DIRECT on one file system, tried on a file without a name.

use super::Refusal;
use nowait_sys::file::{self, IoVec, preadv2, pwritev2, rwf};
use nowait_sys::{Errno, Fd, inspect, time};
use std::ffi::CString;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// The file system's answer to a request that must not wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The request was done at once.
    Yes,
    /// `EAGAIN`: the file system knows the flag, but would wait, although the trial gives no
    /// reason.
    WouldWait,
    /// `EOPNOTSUPP`: the file system does not support the flag.
    Unsupported,
    /// The request failed with another error, for example because a seccomp filter refuses the
    /// flag.
    Refused(Refusal),
    /// The request was not tried, because of this error.
    Untested(Errno),
}

/// The alignment that O_DIRECT requires of a request, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Alignment {
    /// Alignment of the memory's address.
    pub memory: u32,
    /// Alignment of offset and length.
    pub offset: u32,
    /// `true`: statx(2) has stated the alignment; `false`: 512 if a read with this alignment
    /// worked, otherwise 4096.
    pub stated: bool,
}

/// The findings on one file system.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NowaitSupport {
    /// The name of the file system, or its magic number in hexadecimal.
    pub file_system: String,
    /// A read of cached pages.
    pub buffered_read: Answer,
    /// A write over cached, allocated, clean pages.
    pub buffered_write: Answer,
    /// A direct read of allocated blocks.
    pub direct_read: Answer,
    /// A direct write over allocated blocks.
    pub direct_write: Answer,
    /// The alignment of O_DIRECT requests, or the errno that kept the probe from trying any.
    pub direct: Result<Alignment, Errno>,
}

/// Tries RWF_NOWAIT and O_DIRECT on the file system of `path`.
///
/// Makes a file without a name in the directory `path`, or beside the regular file `path`. If no
/// file can be made beside a regular file, or if `path` is a block device, the probe reads `path`
/// and tries no writes. The probe tries nothing on other types of files, and never writes to
/// `path`. Waits for the device.
///
/// # Errors
/// `ENOENT`, `EACCES`, …: `path` cannot be opened.
pub fn nowait_support(path: &Path) -> Result<NowaitSupport, Errno> {
    let named = open(path, inspect::O_RDONLY | inspect::O_NONBLOCK)?;
    let stat = file::stat(named.raw())?;
    let is_directory = stat.file_type() == inspect::S_IFDIR;
    let file_system = name_of(file::filesystem_magic(named.raw())?);
    let directory = match stat.file_type() {
        inspect::S_IFDIR => path.to_owned(),
        inspect::S_IFREG => parent(path),
        inspect::S_IFBLK => return Ok(Trial::reading(named, Errno::PERM).run(BLOCK_DEVICE)),
        // Reading a terminal or a pipe would take away data that another program waits for.
        _ => return Ok(untested(file_system, Errno::INVAL)),
    };
    let trial = match scratch(&directory) {
        // If the file `path` is itself a mount point, its folder is on another file system, and a
        // test there says nothing about `path`.
        Ok(fd) if file::stat(fd.raw())?.dev == stat.dev => Trial { fd, read_only: None },
        Ok(_) if is_directory => return Ok(untested(file_system, Errno::NODEV)),
        Err(errno) if is_directory => return Ok(untested(file_system, errno)),
        Ok(_) => Trial::reading(named, Errno::ROFS),
        Err(errno) => Trial::reading(named, errno),
    };
    Ok(trial.run(&file_system))
}

fn open(path: &Path, flags: i32) -> Result<Fd, Errno> {
    let path = CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    inspect::open(&path, flags, 0o600)
}

fn parent(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}

/// Makes a file without a name, or else makes one with a name and removes the name at once.
fn scratch(directory: &Path) -> Result<Fd, Errno> {
    if let Ok(fd) = open(directory, inspect::O_TMPFILE | inspect::O_RDWR) {
        return Ok(fd);
    }
    let name = format!(".nowait-{}-{}", nowait_sys::thread::process_id(), time::now_ns());
    let path =
        CString::new(directory.join(name).as_os_str().as_bytes()).map_err(|_| Errno::INVAL)?;
    let flags = inspect::O_CREAT | inspect::O_EXCL | inspect::O_RDWR;
    let fd = inspect::open(&path, flags, 0o600)?;
    let _ = inspect::unlink(&path);
    Ok(fd)
}

fn untested(file_system: String, errno: Errno) -> NowaitSupport {
    NowaitSupport {
        file_system,
        buffered_read: Answer::Untested(errno),
        buffered_write: Answer::Untested(errno),
        direct_read: Answer::Untested(errno),
        direct_write: Answer::Untested(errno),
        direct: Err(errno),
    }
}

/// The length of a trial's first transfer; no file system requires a larger alignment today.
const LEN: usize = 64 << 10;

struct Trial {
    fd: Fd,
    read_only: Option<Errno>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Read,
    Write,
}

impl Trial {
    fn reading(fd: Fd, why: Errno) -> Trial {
        Trial { fd, read_only: Some(why) }
    }

    fn run(self, file_system: &str) -> NowaitSupport {
        let file_system = file_system.to_owned();
        let mut memory = vec![0u8; 2 * LEN];
        let start = memory.as_ptr().align_offset(LEN).min(LEN);
        let memory = &mut memory[start..start + LEN];
        // After this the pages are cached, allocated and clean, so no request has to wait.
        let filled = match self.read_only {
            None => {
                self.transfer(Direction::Write, memory, 0, 0).and(file::fdatasync(self.fd.raw()))
            }
            Some(_) => self.transfer(Direction::Read, memory, 0, 0).map(drop),
        };
        if let Err(errno) = filled {
            return untested(file_system, errno);
        }
        let buffered_read = self.answer(Direction::Read, &mut memory[..4096], 0);
        let buffered_write = self.answer(Direction::Write, &mut memory[..4096], 0);
        let direct = self.turn_direct().map(|()| self.alignment(memory));
        let (direct_read, direct_write) = match direct {
            Ok(alignment) => self.direct_answers(&mut memory[..unit(alignment)]),
            Err(errno) => (Answer::Untested(errno), Answer::Untested(errno)),
        };
        NowaitSupport {
            file_system,
            buffered_read,
            buffered_write,
            direct_read,
            direct_write,
            direct,
        }
    }

    /// Tries direct requests on allocated blocks. If it may write, it first writes the blocks
    /// without the page cache: a direct write that must drop cached pages could fail with `EAGAIN`.
    fn direct_answers(&self, memory: &mut [u8]) -> (Answer, Answer) {
        let mut offset = 0;
        if self.read_only.is_none() {
            offset = LEN as i64;
            if let Err(errno) = self.transfer(Direction::Write, memory, offset, 0) {
                return (Answer::Untested(errno), Answer::Untested(errno));
            }
        }
        let read = self.answer(Direction::Read, memory, offset);
        (read, self.answer(Direction::Write, memory, offset))
    }

    fn answer(&self, direction: Direction, memory: &mut [u8], offset: i64) -> Answer {
        if let (Direction::Write, Some(errno)) = (direction, self.read_only) {
            return Answer::Untested(errno);
        }
        match self.transfer(direction, memory, offset, rwf::NOWAIT) {
            Ok(_) => Answer::Yes,
            Err(Errno::AGAIN) => Answer::WouldWait,
            Err(Errno::OPNOTSUPP) => Answer::Unsupported,
            Err(errno) => {
                let reading = direction == Direction::Read;
                let call = if reading { "preadv2" } else { "pwritev2" };
                Answer::Refused(Refusal::diagnose(call, errno))
            }
        }
    }

    fn transfer(
        &self,
        direction: Direction,
        memory: &mut [u8],
        offset: i64,
        flags: u32,
    ) -> Result<usize, Errno> {
        let segment = [IoVec { base: memory.as_mut_ptr(), len: memory.len() }];
        match direction {
            // SAFETY: the segment is a live slice, borrowed mutably for the call.
            Direction::Read => unsafe { preadv2(self.fd.raw(), &segment, offset, flags) },
            // SAFETY: as above; only read.
            Direction::Write => unsafe { pwritev2(self.fd.raw(), &segment, offset, flags) },
        }
    }

    fn turn_direct(&self) -> Result<(), Errno> {
        let flags = file::status_flags(self.fd.raw())?;
        inspect::set_status_flags(self.fd.raw(), flags | inspect::O_DIRECT)
    }

    fn alignment(&self, memory: &mut [u8]) -> Alignment {
        if let Ok(Some(stated)) = inspect::direct_alignment(self.fd.raw()) {
            return Alignment { memory: stated.memory, offset: stated.offset, stated: true };
        }
        let small = self.transfer(Direction::Read, &mut memory[512..1024], 512, 0);
        let found = if small.is_ok() { 512 } else { 4096 };
        Alignment { memory: found, offset: found, stated: false }
    }
}

fn unit(alignment: Alignment) -> usize {
    (alignment.offset as usize).clamp(4096, LEN)
}

const BLOCK_DEVICE: &str = "a block device";

/// Source: statfs(2), `<linux/magic.h>`.
fn name_of(magic: u32) -> String {
    let name = match magic {
        0xEF53 => "ext4",
        0x5846_5342 => "xfs",
        0x9123_683E => "btrfs",
        0x0102_1994 => "tmpfs",
        0x794C_7630 => "overlayfs",
        0x6969 => "nfs",
        0x6573_5546 => "fuse",
        0xF2F5_2010 => "f2fs",
        0x2FC1_2FC1 => "zfs",
        0xCA45_1A4E => "bcachefs",
        0x0102_1997 => "9p",
        0xFF53_4D42 | 0xFE53_4D42 => "smb",
        0x9FA0 => "proc",
        _ => return format!("0x{magic:x}"),
    };
    name.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_directory_and_of_a_file_in_it_answer_alike() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, [7u8; 8192]).unwrap();
        let (of_directory, of_file) =
            (nowait_support(directory.path()).unwrap(), nowait_support(&path).unwrap());
        println!("{of_directory:?}");
        assert_eq!(of_directory.file_system, of_file.file_system);
        assert_eq!(of_directory.buffered_read, of_file.buffered_read);
        assert_eq!(std::fs::read(&path).unwrap(), [7u8; 8192], "the file was not written");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left");
    }

    #[test]
    fn a_file_that_may_only_be_read_is_only_read() {
        let support = nowait_support(Path::new("/proc/self/status")).unwrap();
        assert_eq!(support.file_system, "proc");
        assert!(matches!(support.buffered_write, Answer::Untested(_)), "{support:?}");
    }

    #[test]
    fn a_path_that_is_not_there_is_an_error() {
        assert_eq!(nowait_support(Path::new("/nowhere/at/all")), Err(Errno::NOENT));
    }
}
