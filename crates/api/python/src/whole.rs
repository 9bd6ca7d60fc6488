//! Whole files, by path: one call on a helper thread for each file, instead of one for each step.
//!
//! These calls use the kernel's page cache. They do not see data that nowait has cached for a file
//! in the mode `user` and not written back yet.

use crate::{
    error::{Failure, INVAL, Outcome},
    memory::{Memory, copied, number},
    operation::Operation,
    small, submit,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nowait::IoBuffer;
use pyo3::prelude::*;
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt, fchown},
    path::{Path, PathBuf},
    slice,
};

#[pyfunction]
pub(crate) fn read_whole(py: Python<'_>, path: PathBuf) -> PyResult<Py<Operation>> {
    if let Some(bytes) = small::read_at_once(py, &path) {
        return Operation::over(py, Ok(bytes));
    }
    submit::ask(py, move || {
        let read = small::read_and_learn(&path);
        move |py: Python<'_>| -> Outcome {
            let bytes = read.map_err(|error| Failure::of_io(&error, path))?;
            copied(py, &bytes)
        }
    })
}

/// Writes a new file, or replaces the content of an existing one; returns the number of bytes.
///
/// `atomic`: a new, durable file takes the name in one step; until that step, also after a crash,
/// the old content is there. The new file gets the permissions and the owner of the old one:
/// `EPERM` if the caller may not set that owner.
#[pyfunction]
pub(crate) fn write_whole(
    py: Python<'_>,
    path: PathBuf,
    data: &Bound<'_, PyAny>,
    atomic: bool,
) -> PyResult<Py<Operation>> {
    let memory = Memory::for_write(data, None)?;
    submit::call(py, move || {
        // SAFETY: `memory` keeps this many bytes alive and in place.
        let bytes = unsafe { slice::from_raw_parts(memory.as_ptr(), memory.len()) };
        let written = match atomic {
            true => replace(&path, bytes),
            false => fs::write(&path, bytes),
        };
        move |py: Python<'_>| -> Outcome {
            written.map_err(|error| Failure::of_io(&error, path))?;
            Ok(number(py, memory.len()))
        }
    })
}

/// Copies a file and its permissions, inside the kernel if the file system can; returns the number
/// of bytes.
#[pyfunction]
pub(crate) fn copy_whole(py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<Py<Operation>> {
    submit::call(py, move || {
        let copied = match is_same(&from, &to) {
            true => Err(io::Error::from_raw_os_error(INVAL)), // the copy would empty it first
            false => fs::copy(&from, &to),
        };
        // The standard library does not say which of the two paths failed.
        let of = if from.exists() { to } else { from };
        move |py: Python<'_>| -> Outcome {
            let count = copied.map_err(|error| Failure::of_io(&error, of))?;
            Ok(number(py, count as usize))
        }
    })
}

fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    inode(one).is_ok_and(|one| inode(other).is_ok_and(|other| one == other))
}

fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let path = &behind_links(path)?;
    let old = fs::metadata(path).ok();
    // If there is an old file, only the owner may read the new file until it has the permissions of
    // the old file.
    let (beside, mut file) = new_file_beside(path, if old.is_some() { 0o600 } else { 0o666 })?;
    let written = file
        .write_all(bytes)
        .and_then(|()| old.map_or(Ok(()), |old| take_after(&file, &old)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    // Sync the folder, too, to make the name durable.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Follows symbolic links, as a write in place would, even to a path that does not exist yet.
fn behind_links(path: &Path) -> io::Result<PathBuf> {
    // The number of links that the kernel follows.
    const LINKS_MAX: usize = 40;
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(io::Error::from_raw_os_error(TOO_MANY_LINKS))
}

fn take_after(file: &fs::File, old: &fs::Metadata) -> io::Result<()> {
    let new = file.metadata()?;
    if (new.uid(), new.gid()) != (old.uid(), old.gid()) {
        fchown(file, Some(old.uid()), Some(old.gid()))?;
    }
    // Set the permissions last, because a change of the owner clears some of their bits.
    file.set_permissions(old.permissions())
}

/// The new name does not contain the old one, which may have the longest possible length.
fn new_file_beside(path: &Path, mode: u32) -> io::Result<(PathBuf, fs::File)> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    if path.file_name().is_none() {
        return Err(io::Error::from_raw_os_error(IS_A_FOLDER));
    }
    loop {
        let made = MADE.fetch_add(1, Relaxed);
        let other = path.with_file_name(format!(".nowait-{}-{made}.new", std::process::id()));
        match OpenOptions::new().write(true).create_new(true).mode(mode).open(&other) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (other, file)),
        }
    }
}

/// EISDIR.
const IS_A_FOLDER: i32 = 21;
/// ELOOP.
const TOO_MANY_LINKS: i32 = 40;
