//! How a file is opened.

use crate::{Error, File, Nowait, align::Alignment};
use nowait_sys::{
    Errno,
    file::{self, O_DIRECT, O_DSYNC},
};
use std::{fs, os::fd::AsRawFd, os::unix::fs::OpenOptionsExt, path::Path};

/// Which page cache stands between the program and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CacheMode {
    /// The page cache of nowait itself, in the process. Not in this version: refused at open.
    User,
    /// The kernel's: coherent with every other reader and writer of the file.
    #[default]
    Host,
    /// None: O_DIRECT. Offsets, lengths and addresses must be aligned, see [`File::alignment`].
    Direct,
}

/// Options and flags of an open, as [`std::fs::OpenOptions`] has them, and the cache mode.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    std: fs::OpenOptions,
    cache: CacheMode,
    sync: bool,
    access: Access,
}

/// What a file may be used for.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Access {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Begins with nothing allowed, in the cache mode [`CacheMode::Host`].
    pub fn new() -> OpenOptions {
        OpenOptions {
            std: fs::OpenOptions::new(),
            cache: CacheMode::default(),
            sync: false,
            access: Access::default(),
        }
    }

    /// Allows reads.
    #[must_use]
    pub fn read(mut self, yes: bool) -> OpenOptions {
        self.std.read(yes);
        self.access.read = yes;
        self
    }

    /// Allows writes.
    #[must_use]
    pub fn write(mut self, yes: bool) -> OpenOptions {
        self.std.write(yes);
        self.access.write = yes;
        self
    }

    /// Creates the file if it is missing; needs `write`.
    #[must_use]
    pub fn create(mut self, yes: bool) -> OpenOptions {
        self.std.create(yes);
        self
    }

    /// Creates the file, and fails with `EEXIST` if it is there; needs `write`.
    #[must_use]
    pub fn create_new(mut self, yes: bool) -> OpenOptions {
        self.std.create_new(yes);
        self
    }

    /// Empties the file; needs `write`.
    #[must_use]
    pub fn truncate(mut self, yes: bool) -> OpenOptions {
        self.std.truncate(yes);
        self
    }

    /// Makes every write durable before it ends (O_DSYNC): as if [`File::sync_data`] followed.
    #[must_use]
    pub fn sync(mut self, yes: bool) -> OpenOptions {
        self.sync = yes;
        self
    }

    /// Chooses the cache.
    #[must_use]
    pub fn cache(mut self, mode: CacheMode) -> OpenOptions {
        self.cache = mode;
        self
    }

    /// Opens the file at `path` for `nowait`. Blocks, as open(2) does.
    ///
    /// # Errors
    /// Those of open(2). `EINVAL`: senseless options, or a file system without direct I/O.
    /// `ENOSYS`: [`CacheMode::User`].
    pub fn open(&self, nowait: &Nowait, path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        let mut flags = if self.sync { O_DSYNC } else { 0 };
        match self.cache {
            CacheMode::User => return Err(no_user_cache(path)),
            CacheMode::Host => {}
            CacheMode::Direct => flags |= O_DIRECT,
        }
        let failed = |error: &_| {
            let error = Error::from_io(error, format!("open of {}", path.display()));
            let direct = self.cache == CacheMode::Direct && error.errno() == Errno::INVAL;
            if direct { error.because("this file system has no direct I/O") } else { error }
        };
        let file = self.std.clone().custom_flags(flags).open(path).map_err(|e| failed(&e))?;
        let fd = file.as_raw_fd();
        let flags = file::status_flags(fd).map_err(|errno| failed(&errno_to_io(errno)))?;
        let alignment = match self.cache {
            CacheMode::Direct => Some(Alignment::of(fd, self.access.read)),
            _ => None,
        };
        Ok(File::from_parts(nowait, file, path, flags, self.access, alignment))
    }
}

fn errno_to_io(errno: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno.raw())
}

/// The only place that knows of the missing mode.
fn no_user_cache(path: &Path) -> Error {
    let error = Error::new(Errno::NOSYS, format!("open of {}", path.display()));
    error.because("the cache mode User is not in this version; use Host or Direct")
}
