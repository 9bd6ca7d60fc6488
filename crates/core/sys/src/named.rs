//! Finds a file by its name without waiting, so that a call can read a whole file at once.

use crate::{
    Errno, Fd,
    file::{self, Stat},
    sys,
};
use core::ffi::CStr;

/// A regular file whose name and inode were in the kernel's caches. The file is not opened: a
/// device or FIFO would notice an open.
#[derive(Debug)]
pub struct Named {
    fd: Fd,
    /// The file's attributes from the kernel's caches.
    pub stat: Stat,
}

impl Named {
    /// Finds the file at `path`.
    ///
    /// # Errors
    /// `EAGAIN`: finding it would wait. `EINVAL`: it is no regular file, or the kernel is older
    /// than 5.12. `ENOSYS`, `EPERM`: the kernel is older than 5.6, or a seccomp filter does not
    /// know the call. Others as for open(2).
    /// Source: openat2(2), `RESOLVE_CACHED`.
    pub fn find(path: &CStr) -> Result<Named, Errno> {
        let flags = libc::O_PATH | libc::O_CLOEXEC;
        // `struct open_how`: flags, mode, resolve.
        let how = [flags as u64, 0, libc::RESOLVE_CACHED];
        let (path, size) = (path.as_ptr(), size_of_val(&how));
        // SAFETY: the path ends with a zero byte, and both live to the end of the call.
        let fd = unsafe { sys!(libc::SYS_openat2, libc::AT_FDCWD, path, how.as_ptr(), size) }?;
        let fd = Fd::from_raw(fd as i32);
        let stat = file::stat_cached(fd.raw())?;
        if !stat.is_regular() {
            return Err(Errno::INVAL);
        }
        Ok(Named { fd, stat })
    }

    /// Opens this file for reading, even if its name refers to another file by now. On a local file
    /// system the open does not wait, also not for a lease (fcntl(2), `F_SETLEASE`).
    ///
    /// # Errors
    /// As for [`file::reopen`]. `EAGAIN`: there is a lease.
    pub fn open(&self) -> Result<Fd, Errno> {
        file::reopen(self.fd.raw(), libc::O_RDONLY | libc::O_NONBLOCK)
    }

    /// Returns `true` if the file has no name any more. Closing the file's last descriptor then
    /// frees the blocks, which may wait.
    pub fn is_unlinked(&self) -> bool {
        file::links(self.fd.raw()) == Ok(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{ffi::CString, fs, os::unix::ffi::OsStrExt, path::Path, path::PathBuf};

    fn find(path: &Path) -> Result<Named, Errno> {
        Named::find(&CString::new(path.as_os_str().as_bytes()).unwrap())
    }

    fn is_there() -> bool {
        let answer = Named::find(c"/");
        let is_missing = matches!(answer, Err(Errno::NOSYS | Errno::PERM));
        if is_missing {
            println!("skipped: openat2: {answer:?}");
        }
        !is_missing
    }

    fn new_folder(name: &str) -> PathBuf {
        let folder = std::env::temp_dir().join(format!("nowait-{name}-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        folder
    }

    #[test]
    #[cfg_attr(miri, ignore = "no openat2")]
    fn what_is_found_is_opened_though_its_name_is_another_files() {
        if !is_there() {
            return;
        }
        let folder = new_folder("found");
        let path = folder.join("file");
        fs::write(&path, b"first").unwrap();
        let named = find(&path).unwrap();
        assert_eq!(named.stat.size, 5);
        assert!(!named.is_unlinked());
        fs::write(folder.join("other"), b"second file").unwrap();
        fs::rename(folder.join("other"), &path).unwrap();
        assert!(named.is_unlinked());
        let opened = named.open().unwrap();
        assert_eq!(file::stat(opened.raw()).unwrap().ino, named.stat.ino);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    #[cfg_attr(miri, ignore = "no openat2")]
    fn what_is_no_regular_file_is_not_found() {
        if !is_there() {
            return;
        }
        assert_eq!(Named::find(c"/").unwrap_err(), Errno::INVAL);
        assert_eq!(Named::find(c"/dev/null").unwrap_err(), Errno::INVAL);
        let folder = new_folder("none");
        let missing = find(&folder.join("missing")).unwrap_err();
        assert!(matches!(missing, Errno::NOENT | Errno::AGAIN), "{missing:?}");
        fs::remove_dir_all(folder).unwrap();
    }
}
