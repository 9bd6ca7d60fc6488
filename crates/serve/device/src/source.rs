//! What the bytes of an image are read from and written to: a file, a server, or a store.

use crate::{object::Object, remote::Remote};
use core::ops::Range;
use nowait::{Errno, File, Nowait, Zeroing};
use std::{fs, io, path::Path, sync::Arc};

/// A file, a connection to a server, or an image on a store. Its functions block.
#[derive(Clone, Debug)]
pub enum Source {
    /// A file or block device of this machine.
    File(File),
    /// An image on an NBD server.
    Remote(Arc<Remote>),
    /// An image on an object store.
    Object(Arc<Object>),
}

type Done = Result<(), Errno>;

impl Source {
    /// Returns the engine it belongs to.
    pub fn nowait(&self) -> &Nowait {
        match self {
            Source::File(file) => file.nowait(),
            Source::Remote(remote) => remote.nowait(),
            Source::Object(object) => object.nowait(),
        }
    }

    /// Returns its path, or its address.
    pub fn path(&self) -> &Path {
        match self {
            Source::File(file) => file.path(),
            Source::Remote(remote) => Path::new(remote.shown()),
            Source::Object(object) => Path::new(object.shown()),
        }
    }

    /// Returns what the system knows of the file.
    ///
    /// # Errors
    /// It cannot be found out; it is no file.
    pub fn metadata(&self) -> io::Result<fs::Metadata> {
        match self {
            Source::File(file) => fs::metadata(file.path()),
            Source::Remote(_) | Source::Object(_) => {
                Err(io::Error::from(io::ErrorKind::Unsupported))
            }
        }
    }

    /// Makes what was written durable, at the end: an image on a store is closed.
    ///
    /// # Errors
    /// It could not be, of some of it.
    pub fn sync_all(&self) -> Result<(), String> {
        match self {
            Source::File(file) => file.sync_all().map_err(|error| error.to_string()),
            Source::Remote(remote) => {
                let failed = |errno| format!("{}: flush: {errno}", remote.shown());
                remote.sync_at_end().map_err(failed)
            }
            Source::Object(object) => object.close(),
        }
    }

    pub(crate) fn sync_data(&self) -> Done {
        match self {
            Source::File(file) => file.sync_data().map_err(|error| error.errno()),
            Source::Remote(remote) => remote.sync(),
            Source::Object(object) => object.sync_data(),
        }
    }

    /// Returns what offsets and lengths must be a multiple of.
    pub(crate) fn block_bytes(&self) -> u64 {
        match self {
            Source::File(file) => file.alignment().map_or(1, |alignment| alignment.offset as u64),
            Source::Remote(remote) => u64::from(remote.block_bytes()),
            Source::Object(object) => u64::from(object.block_bytes()),
        }
    }

    /// Returns what has to be read for a range: whole blocks, and what a cache has use for.
    pub(crate) fn span(&self, range: &Range<u64>) -> Range<u64> {
        let align = self.block_bytes();
        let blocks = range.start / align * align..range.end.next_multiple_of(align);
        match self {
            Source::File(_) | Source::Object(_) => blocks,
            Source::Remote(remote) => remote.span(blocks),
        }
    }

    pub(crate) fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
        match self {
            Source::File(file) => file.read_at(bytes, at).map_err(|error| error.errno()),
            Source::Remote(remote) => remote.read_at(bytes, at).map(|()| bytes.len()),
            Source::Object(object) => object.read_at(bytes, at).map(|()| bytes.len()),
        }
    }

    pub(crate) fn write_all_at(&self, bytes: &[u8], at: u64) -> Done {
        match self {
            Source::File(file) => file.write_all_at(bytes, at).map_err(|error| error.errno()),
            Source::Remote(remote) => remote.write_at(bytes, at),
            Source::Object(object) => object.write_at(bytes, at),
        }
    }

    /// Gives the space of whole blocks back, if that is possible: else `EOPNOTSUPP`.
    pub(crate) fn discard(&self, range: Range<u64>) -> Done {
        match self {
            Source::File(file) => file.zero(range, Zeroing::Hole).map_err(|error| error.errno()),
            Source::Remote(remote) => remote.trim(&range),
            Source::Object(object) => object.discard(&range),
        }
    }

    /// Zeroes whole blocks without writing them all, if that is possible: else `EOPNOTSUPP`.
    pub(crate) fn zero(&self, range: Range<u64>, zeroing: Zeroing, fast: bool) -> Done {
        match self {
            Source::File(file) => file.zero(range, zeroing).map_err(|error| error.errno()),
            Source::Remote(remote) => {
                remote.zero(&range, matches!(zeroing, Zeroing::Allocated), fast)
            }
            Source::Object(object) => object.discard(&range),
        }
    }

    /// Tells where data are from `at` on, as far as that is known at once: where each extent ends,
    /// and whether it has data. There is one at least, which may go on behind `end`.
    pub(crate) fn extents(&self, at: u64, end: u64) -> Result<Vec<(u64, bool)>, Errno> {
        match self {
            Source::File(file) => {
                let extent = file.extent_at(at).map_err(|error| error.errno())?;
                Ok(vec![extent.unwrap_or((end, false))])
            }
            Source::Remote(remote) => remote.extents(at, end),
            Source::Object(object) => object.extents(at, end),
        }
    }
}
