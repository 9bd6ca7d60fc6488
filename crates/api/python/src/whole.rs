//! Whole files, by path: one call on a helper thread each, instead of one for each step; and none
//! for a small file that is cached.
//!
//! They are plain files of the kernel: what nowait has cached of a file in the mode `user`, and
//! not written yet, is not in them.

use crate::{
    error::{Failure, INVAL},
    memory::{Memory, number},
    operation::{Operation, Outcome},
    small,
    thread_queue::ThreadQueue,
};
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use nowait::IoBuffer;
use pyo3::{prelude::*, types::PyBytes};
use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
    slice,
};

/// Reads all of a file.
#[pyfunction]
pub(crate) fn read_whole(py: Python<'_>, path: PathBuf) -> PyResult<Py<Operation>> {
    if let Some(bytes) = small::read_at_once(py, &path) {
        return Operation::over(py, Ok(bytes));
    }
    ThreadQueue::call(py, move || {
        let read = small::read_and_learn(&path);
        move |py: Python<'_>| -> Outcome {
            let bytes = read.map_err(|error| Failure::of_io(&error, path))?;
            Ok(PyBytes::new(py, &bytes).into_any().unbind())
        }
    })
}

/// Writes a file that is new, or takes the place of all that was in it; returns how many bytes.
///
/// `atomic`: another file, which is durable, takes the name in one step; until then, and after a
/// crash, the old content is there.
#[pyfunction]
pub(crate) fn write_whole(
    py: Python<'_>,
    path: PathBuf,
    data: &Bound<'_, PyAny>,
    atomic: bool,
) -> PyResult<Py<Operation>> {
    let memory = Memory::for_write(data, None)?;
    ThreadQueue::call(py, move || {
        // SAFETY: the memory keeps this many bytes alive, at this place.
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

/// Copies a file and its permissions, inside the kernel where the file system can; returns how many
/// bytes.
#[pyfunction]
pub(crate) fn copy_whole(py: Python<'_>, from: PathBuf, to: PathBuf) -> PyResult<Py<Operation>> {
    ThreadQueue::call(py, move || {
        let copied = match is_same(&from, &to) {
            true => Err(io::Error::from_raw_os_error(INVAL)), // it would be emptied first
            false => fs::copy(&from, &to),
        };
        // The standard library does not say which of the two it is.
        let of = if from.exists() { to } else { from };
        move |py: Python<'_>| -> Outcome {
            let count = copied.map_err(|error| Failure::of_io(&error, of))?;
            Ok(number(py, count as usize))
        }
    })
}

/// Tells whether two names are those of one file.
fn is_same(one: &Path, other: &Path) -> bool {
    let inode = |path| fs::metadata(path).map(|metadata| (metadata.dev(), metadata.ino()));
    inode(one).is_ok_and(|one| inode(other).is_ok_and(|other| one == other))
}

/// Writes `bytes` to a file beside `path`, makes it durable, and gives it the name.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    // Through a link, as a write in place would go.
    let path = &fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let permissions = fs::metadata(path).map(|metadata| metadata.permissions()).ok();
    let (beside, mut file) = new_file_beside(path)?;
    let written = file
        .write_all(bytes)
        .and_then(|()| permissions.map_or(Ok(()), |permissions| file.set_permissions(permissions)))
        .and_then(|()| file.sync_all())
        .and_then(|()| fs::rename(&beside, path));
    if let Err(error) = written {
        let _ = fs::remove_file(&beside);
        return Err(error);
    }
    // The name is durable with its folder.
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
    fs::File::open(folder.unwrap_or(Path::new(".")))?.sync_all()
}

/// Makes a file with a name that no other has, in the folder of `path`.
fn new_file_beside(path: &Path) -> io::Result<(PathBuf, fs::File)> {
    static MADE: AtomicU64 = AtomicU64::new(0);
    let Some(name) = path.file_name() else {
        return Err(io::Error::from_raw_os_error(IS_A_FOLDER));
    };
    loop {
        let mut other = std::ffi::OsString::from(".");
        other.push(name);
        other.push(format!(".{}-{}.new", std::process::id(), MADE.fetch_add(1, Relaxed)));
        let other = path.with_file_name(other);
        match OpenOptions::new().write(true).create_new(true).mode(0o666).open(&other) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            opened => return opened.map(|file| (other, file)),
        }
    }
}

/// EISDIR.
const IS_A_FOLDER: i32 = 21;
