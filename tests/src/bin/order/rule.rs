//! The order that the kernel's own AIO keeps among requests in flight on one file.
//!
//! A request takes effect, in the file's bytes and its length, before requests that are submitted
//! after it. On btrfs and tmpfs there are no exceptions. ext4 and xfs have the following ones.
//!
//! **A direct write that allocates** writes into a hole, into blocks that fallocate(2) has
//! reserved, or beyond the end of the file. Until its event:
//!
//! | exception | ext4 | xfs |
//! |---|---|---|
//! | a read of the same bytes may return the old bytes | unless the write makes the file longer | yes |
//! | a buffered write to a part of one of its pages may overwrite the direct write's other bytes in that page | unless the write makes the file longer | yes |
//! | the file keeps its old end: reads end there, appends begin there | no | yes |
//!
//! **io_submit of more than two requests** may delay its direct requests until all its requests
//! have begun, or until io_submit sleeps. A delayed request has no order with later requests of the
//! same call.
//!
//! **If several threads submit**, a direct request takes effect before another request only if its
//! event is taken before the other request's io_submit begins. A buffered request takes effect
//! before requests whose io_submit begins after its own io_submit has returned.
//!
//! If a direct write and a buffered write to a part of one of its pages have no order, the buffered
//! write may overwrite the direct write's other bytes of that page.
//!
//! The kernel fails some requests with EIO. A sync may fail after a buffered write to a page of a
//! direct write in flight, because the kernel could not drop the page when the direct write ended.
//! On xfs a direct read may fail at blocks beyond the old end that a buffered write has reserved.
//!
//! In all other cases two direct requests reach the device in the order of submission. Then the
//! device decides: a loop device and the disk of a virtual machine keep the order.
//!
//! Found by `order pairs` and `order run` with the system's libaio on Linux 6.18.

use std::ffi::CString;
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rule {
    /// No exceptions.
    Strict,
    Ext4,
    Xfs,
}

impl Rule {
    pub(crate) fn of(folder: &Path) -> Self {
        const XFS: i64 = 0x5846_5342;
        let path = CString::new(folder.as_os_str().as_bytes()).expect("a path");
        let mut found = MaybeUninit::<libc::statfs>::uninit();
        // SAFETY: a live string, and room for the answer.
        let rc = unsafe { libc::statfs(path.as_ptr(), found.as_mut_ptr()) };
        assert_eq!(rc, 0, "statfs of {}", folder.display());
        // SAFETY: the call succeeded and has filled `found`.
        match unsafe { found.assume_init() }.f_type {
            libc::EXT4_SUPER_MAGIC => Self::Ext4,
            XFS => Self::Xfs,
            _ => Self::Strict,
        }
    }

    /// Returns `true` if the first two exceptions of the table apply to a direct write that
    /// allocates; `grows`: the write makes the file longer.
    pub(crate) fn excepts(self, grows: bool) -> bool {
        match self {
            Self::Strict => false,
            Self::Ext4 => !grows,
            Self::Xfs => true,
        }
    }

    /// Returns `true` if a direct write makes the file longer only at its event.
    pub(crate) fn lengthens_late(self) -> bool {
        self == Self::Xfs
    }

    /// Returns `true` if io_submit of `requests` requests may delay the direct requests among them.
    pub(crate) fn keeps_back(self, requests: usize) -> bool {
        const AT_ONCE_MAX: usize = 2;
        self != Self::Strict && requests > AT_ONCE_MAX
    }

    /// Returns `true` if a direct request has no order with later requests until its event, because
    /// `threads` threads submit.
    pub(crate) fn is_lost_among(self, threads: usize) -> bool {
        self != Self::Strict && threads > 1
    }

    /// Returns `true` if a direct read up to `end` may fail with EIO; the file had `size` bytes.
    pub(crate) fn fails_reads(self, end: u64, size: u64) -> bool {
        self == Self::Xfs && end > size
    }
}
