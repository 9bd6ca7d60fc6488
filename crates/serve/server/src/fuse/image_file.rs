//! The file that shows an image: its attributes and open count. The threads of fuser and the
//! serving threads share these.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use fuser::{FileAttr, FileType, INodeNo};
use nowait_device::{Image, KnownFailures};
use std::{
    sync::Arc,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// The owner of the file, and the users who may open it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// The user that owns the file.
    pub user: u32,
    /// The group that owns the file.
    pub group: u32,
    /// The users who may open the file; empty: the kernel admits only the user of the server.
    pub users: Vec<u32>,
}

/// An image shown as a file.
#[derive(Debug)]
pub struct ImageFile<F> {
    image: Arc<Image<F>>,
    /// The failures that the kernel knows. The kernel counts as one client, however often the file
    /// is open.
    told: KnownFailures,
    rights: Rights,
    /// The time of the last change of the contents, in nanoseconds since 1970.
    changed_ns: AtomicU64,
    opened: AtomicU64,
}

impl<F> ImageFile<F> {
    /// Shows `image`, whose contents were last changed at `changed`.
    pub fn new(image: Arc<Image<F>>, rights: Rights, changed: SystemTime) -> ImageFile<F> {
        let changed_ns = AtomicU64::new(since_1970_ns(changed));
        ImageFile { told: image.join(), image, rights, changed_ns, opened: AtomicU64::new(0) }
    }

    /// Returns the image.
    pub fn image(&self) -> &Arc<Image<F>> {
        &self.image
    }

    pub(crate) fn told(&self) -> &KnownFailures {
        &self.told
    }

    /// Returns `true` if `user` may open the file, and then counts the open file.
    pub(crate) fn open(&self, user: u32) -> bool {
        let users = &self.rights.users;
        let may = users.is_empty() || users.contains(&user);
        if may {
            self.opened.fetch_add(1, Relaxed);
            self.image.stats().connect();
        }
        may
    }

    pub(crate) fn close(&self) {
        let closed = self.opened.fetch_update(Relaxed, Relaxed, |opened| opened.checked_sub(1));
        if closed.is_ok() {
            self.image.stats().disconnect();
        }
    }

    pub(crate) fn change(&self) {
        self.set_changed(since_1970_ns(SystemTime::now()));
    }

    fn set_changed(&self, ns: u64) {
        self.changed_ns.store(ns, Relaxed);
    }

    pub(crate) fn attributes(&self) -> FileAttr {
        let properties = self.image.properties();
        let reading = if self.rights.users.is_empty() { 0o400 } else { 0o444 };
        let writing = if properties.read_only { 0 } else { reading >> 1 };
        let size = self.image.size();
        let changed = UNIX_EPOCH + Duration::from_nanos(self.changed_ns.load(Relaxed));
        FileAttr {
            ino: INodeNo(1),
            size,
            blocks: size.div_ceil(512),
            atime: changed,
            mtime: changed,
            ctime: changed,
            crtime: changed,
            kind: FileType::RegularFile,
            perm: reading | writing,
            nlink: 1,
            uid: self.rights.user,
            gid: self.rights.group,
            rdev: 0,
            blksize: properties.preferred_bytes,
            flags: 0,
        }
    }
}

impl<F> Drop for ImageFile<F> {
    fn drop(&mut self) {
        // The kernel does not report the close of the file after the end of the mount.
        for _ in 0..*self.opened.get_mut() {
            self.image.stats().disconnect();
        }
    }
}

fn since_1970_ns(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
