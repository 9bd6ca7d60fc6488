//! Reads a small cached file by path: finds, opens and reads the file inside the call.
//!
//! An open may wait if the file system asks another machine or another process. So the call opens
//! files only on known mounts. A mount is known if a helper thread has found that its file system
//! is in memory, or that it supports reads that do not wait.

use crate::{memory::Memory, process::PythonProcess};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nowait::{IoBuffer, IoBufferMut};
use nowait_sys::{
    Fd,
    file::{self, IoVec, rwf},
    named::Named,
};
use pyo3::prelude::*;
use std::{
    ffi::CString,
    fs::File,
    io::{self, Read},
    os::{fd::AsRawFd, unix::ffi::OsStrExt},
    path::Path,
};

const LEN_MAX: usize = 256 << 10;

/// `None`: the file is not small, its mount is not known, or the read would wait or fails.
pub(crate) fn read_at_once(py: Python<'_>, path: &Path) -> Option<Py<PyAny>> {
    let path = CString::new(path.as_os_str().as_bytes()).ok()?;
    let named = Named::find(&path).ok()?;
    let how = named.stat.mount.and_then(how_to_read)?;
    // A file of length 0 may have content nevertheless, as in /proc.
    let len = usize::try_from(named.stat.size).ok().filter(|len| (1..=LEN_MAX).contains(len))?;
    let opened = named.open().ok()?;
    let bytes = read(py, &opened, len, how);
    if named.is_unlinked() {
        close_aside((named, opened));
    }
    bytes
}

/// `None`: fewer bytes can be read without waiting.
fn read(py: Python<'_>, file: &Fd, len: usize, flags: u32) -> Option<Py<PyAny>> {
    let mut memory = Memory::for_read(py, len, None).ok()?;
    let whole = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
    // SAFETY: the memory has this length, and nothing else refers to it.
    let count = unsafe { file::preadv2(file.raw(), &[whole], 0, flags) };
    (count == Ok(len)).then(|| memory.into_result(py, len).ok()).flatten()
}

/// Closes descriptors on a helper thread, because the close may wait until the file's blocks are
/// freed.
fn close_aside(descriptors: (Named, Fd)) {
    if let Ok(process) = PythonProcess::get() {
        process.engine.run_aside(move || drop(descriptors));
    }
}

pub(crate) fn read_and_learn(path: &Path) -> io::Result<Vec<u8>> {
    let (mut file, mut bytes) = (File::open(path)?, Vec::new());
    file.read_to_end(&mut bytes)?;
    if let Some((mount, how)) = mount_to_know(&file) {
        KNOWN[slot(mount)].store((mount << 1) | u64::from(how == IN_MEMORY), Relaxed);
    }
    Ok(bytes)
}

/// Returns the mount of a file that was just read, with the flags for reads, if the mount is not
/// known yet and qualifies.
fn mount_to_know(file: &File) -> Option<(u64, u32)> {
    const TMPFS: u32 = 0x0102_1994;
    const RAMFS: u32 = 0x8584_58f6;
    let fd = file.as_raw_fd();
    let stat = file::stat(fd).ok().filter(file::Stat::is_regular)?;
    let mount = stat.mount.filter(|mount| how_to_read(*mount).is_none())?;
    if matches!(file::filesystem_magic(fd), Ok(TMPFS | RAMFS)) {
        return Some((mount, IN_MEMORY));
    }
    let mut byte = 0u8;
    let one = IoVec { base: &raw mut byte, len: 1 };
    // SAFETY: the byte is a live local.
    let count = unsafe { file::preadv2(fd, &[one], 0, rwf::NOWAIT) };
    (count == Ok(1)).then_some((mount, rwf::NOWAIT))
}

/// The flags of a read in memory, where nothing waits.
const IN_MEMORY: u32 = 0;

fn how_to_read(mount: u64) -> Option<u32> {
    let known = KNOWN[slot(mount)].load(Relaxed);
    let is_in_memory = known & 1 == 1;
    (known >> 1 == mount).then_some(if is_in_memory { IN_MEMORY } else { rwf::NOWAIT })
}

/// Known mounts, each as its number times two, plus one if it is in memory. Atomics instead of a
/// lock: the program may fork at any moment.
static KNOWN: [AtomicU64; 32] = [const { AtomicU64::new(0) }; 32];

fn slot(mount: u64) -> usize {
    mount as usize % KNOWN.len()
}
