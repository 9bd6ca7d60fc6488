//! Finds out if files can be opened for direct I/O.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a new file of `folder` for direct I/O, and returns `true` if that succeeds. Returns
/// `false` if the folder is on a tmpfs of a kernel that does not support direct I/O there.
///
/// # Panics
/// The file cannot be opened for another reason: a fault must not look like missing support.
pub fn is_known_in(folder: &Path) -> bool {
    let file = tempfile::NamedTempFile::new_in(folder).expect("a file to try");
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_DIRECT).open(file.path());
    match opened {
        Ok(_) => true,
        Err(error) if error.kind() == ErrorKind::InvalidInput && is_in_memory(folder) => false,
        Err(error) => panic!("{}, O_DIRECT: {error}", folder.display()),
    }
}

fn is_in_memory(folder: &Path) -> bool {
    let path = CString::new(folder.as_os_str().as_bytes()).expect("a path");
    let mut found = MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a live string, and room for the answer.
    let rc = unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) };
    // SAFETY: statfs has filled `found` if it returned 0.
    rc == 0 && unsafe { found.assume_init() }.f_type == libc::TMPFS_MAGIC
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mount::{Kind, Mount};
    use crate::skip;

    #[test]
    fn a_device_takes_direct_files_and_trying_leaves_nothing() {
        let Some(mount) = skip::unless(Mount::new(Kind::Btrfs)) else { return };
        assert!(is_known_in(mount.path()));
        assert_eq!(std::fs::read_dir(mount.path()).expect("its folder").count(), 0);
    }
}
