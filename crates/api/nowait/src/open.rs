//! Options of opening a file.

use crate::{Error, File, Nowait, align::Alignment};
use nowait_file::UserHandle;
use nowait_sys::{
    Errno,
    file::{self, O_APPEND, O_DIRECT, O_DSYNC, O_TRUNC},
    mistake::{self, Mistake},
};
use std::{fs, os::fd::AsRawFd, os::unix::fs::OpenOptionsExt, path::Path};

/// The page cache between the program and the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum CacheMode {
    /// The page cache of nowait itself, in the process: cached data needs no system call and no
    /// second copy in memory. All handles of one engine see the same data. An open sees earlier
    /// writes of other programs; other programs see data about a second after the write, or after a
    /// sync or the last close.
    #[default]
    User,
    /// The kernel's page cache: coherent with every other reader and writer that uses it.
    Host,
    /// No page cache: the file is opened with O_DIRECT. Offsets, lengths and addresses must be
    /// aligned, see [`File::alignment`].
    Direct,
}

/// Options and flags of an open, like [`std::fs::OpenOptions`], and the cache mode of the file.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    std: fs::OpenOptions,
    cache: CacheMode,
    sync: bool,
    truncate: bool,
    flags: i32,
    access: Access,
}

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
    /// Returns options that permit neither reads nor writes, in the cache mode [`CacheMode::User`].
    pub fn new() -> OpenOptions {
        OpenOptions {
            std: fs::OpenOptions::new(),
            cache: CacheMode::default(),
            sync: false,
            truncate: false,
            flags: 0,
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

    /// Creates the file if it does not exist; needs `write`.
    #[must_use]
    pub fn create(mut self, yes: bool) -> OpenOptions {
        self.std.create(yes);
        self
    }

    /// Creates the file, and fails with `EEXIST` if it exists; needs `write`.
    #[must_use]
    pub fn create_new(mut self, yes: bool) -> OpenOptions {
        self.std.create_new(yes);
        self
    }

    /// Empties the file; needs `write`. Leaves files that are not regular as they are. Works like
    /// [`File::set_len`]: it also discards bytes that another open of the engine has written and
    /// that are only in the page cache.
    #[must_use]
    pub fn truncate(mut self, yes: bool) -> OpenOptions {
        self.truncate = yes;
        self
    }

    /// Makes every write durable before the write ends (O_DSYNC), as if [`File::sync_data`]
    /// followed each write.
    #[must_use]
    pub fn sync(mut self, yes: bool) -> OpenOptions {
        self.sync = yes;
        self
    }

    /// Sets the permissions of a file that the open creates; 0o666 by default. The umask applies.
    #[must_use]
    pub fn mode(mut self, permissions: u32) -> OpenOptions {
        self.std.mode(permissions);
        self
    }

    /// Adds flags of open(2) that have no method here, such as O_NOFOLLOW or O_SYNC; a call
    /// replaces the flags of the call before. The open ignores the access mode in `flags`; O_TRUNC
    /// works like [`OpenOptions::truncate`]. A file with O_APPEND is opened in [`CacheMode::Host`]
    /// instead of [`CacheMode::User`]: only the kernel knows the end of a file to which several
    /// programs append.
    #[must_use]
    pub fn flags(mut self, flags: i32) -> OpenOptions {
        self.flags = flags;
        self
    }

    /// Chooses the cache mode of the file.
    #[must_use]
    pub fn cache(mut self, mode: CacheMode) -> OpenOptions {
        self.cache = mode;
        self
    }

    /// Opens the file at `path` for `nowait`. Blocks, as open(2) does.
    ///
    /// # Errors
    /// The errors of open(2). `EINVAL`: contradictory options; in the mode [`CacheMode::Direct`], a
    /// file system without direct I/O; in the mode [`CacheMode::User`], a file that is not regular.
    /// `ENOMEM`: no memory for the page cache.
    pub fn open(&self, nowait: &Nowait, path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        let mut flags = self.flags | if self.sync { O_DSYNC } else { 0 };
        let cache = match self.cache {
            CacheMode::User if flags & O_APPEND != 0 => CacheMode::Host,
            chosen => chosen,
        };
        match cache {
            CacheMode::User | CacheMode::Host => {}
            CacheMode::Direct => flags |= O_DIRECT,
        }
        let failed = |error: &_| {
            let error = Error::from_io(error, format!("open of {}", path.display()));
            let direct = cache == CacheMode::Direct && error.errno() == Errno::INVAL;
            if direct { error.because("this file system has no direct I/O") } else { error }
        };
        let truncates = self.truncate || flags & O_TRUNC != 0;
        if truncates && !self.access.write {
            let why = "the file would be truncated, and is not opened for writing";
            let what = format!("open of {}", path.display());
            return Err(Error::from_io(&errno_to_io(Errno::INVAL), what).because(why));
        }
        let mut std = self.std.clone();
        // The kernel's truncation would bypass the cached data of the file.
        let behind = truncates && mistake::makes(Mistake::TruncateBehind);
        let flags = if behind { flags | O_TRUNC } else { flags & !O_TRUNC };
        let file = std.custom_flags(flags).open(path).map_err(|e| failed(&e))?;
        let fd = file.as_raw_fd();
        let seen =
            file::stat(fd).and_then(|stat| Ok((nowait.engine().flags_of_kept(fd, &stat)?, stat)));
        let (flags, stat) = seen.map_err(|errno| failed(&errno_to_io(errno)))?;
        let alignment = match cache {
            CacheMode::Direct => Some(Alignment::of(fd, self.access.read)),
            _ => None,
        };
        let user = match cache {
            CacheMode::User => Some(self.open_cached(nowait, fd).map_err(|(errno, reason)| {
                Error::new(errno, format!("open of {}", path.display())).because(reason)
            })?),
            _ => None,
        };
        let file = File::from_parts(
            nowait,
            file,
            path,
            (flags, (stat.dev, stat.ino)),
            self.access,
            alignment,
            user,
        );
        if truncates && !behind {
            file.empty().map_err(|errno| failed(&errno_to_io(errno)))?;
        }
        Ok(file)
    }
}

impl OpenOptions {
    fn open_cached(&self, nowait: &Nowait, fd: i32) -> Result<UserHandle, (Errno, &'static str)> {
        let engine = nowait.engine();
        UserHandle::open(engine, fd, self.access.write).map_err(|errno| match errno {
            // The engine has no page cache, so the cause is not the file.
            Errno::INVAL if engine.cache().is_err() => {
                (errno, "the size of the page cache must be more than 0 and less than 16 TiB")
            }
            Errno::INVAL => (errno, "only regular files can be cached; use Host or Direct"),
            Errno::NOMEM => (errno, "no memory for the page cache: make it smaller, or use Host"),
            _ => (errno, "the page cache could not open the file"),
        })
    }
}

fn errno_to_io(errno: Errno) -> std::io::Error {
    std::io::Error::from_raw_os_error(errno.raw())
}
