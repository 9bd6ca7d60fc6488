//! Finds out if files can be opened for direct I/O.

use std::ffi::CString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Returns `true` if files of `folder` can be opened for direct I/O, by opening one: not every
/// kernel supports it in memory (tmpfs).
///
/// # Panics
/// The folder is on a device, and its files cannot be opened: that must not look like a kernel
/// without support.
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
    // SAFETY: filled if the call succeeds.
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
