//! The source of an image: it stores the bytes that an image reads and writes.

use crate::{Chunk, Mailbox, Tag, error::ImageError, stripes::Shared};
use core::{any::Any, fmt, ops::Range};
use nowait::{Errno, File, Nowait, Zeroing};
use std::{fs, io, path::Path, sync::Arc};

/// A source of any kind, shared by all its users.
pub type AnySource = Arc<dyn Source>;

/// The bytes behind an image: a file, an export of an NBD server, or a kind that another crate
/// adds.
///
/// Serving threads call [`Source::block_bytes`], [`Source::span`], [`Source::transfers`] and the
/// functions of [`Messages`], so these must not wait. Other functions may block.
pub trait Source: Any + fmt::Debug + Send + Sync {
    /// Returns the engine with which the source was opened.
    fn nowait(&self) -> &Nowait;

    /// Returns the path or address of the source, as users named it.
    fn path(&self) -> &Path;

    /// Returns the size of the source in bytes.
    ///
    /// # Errors
    /// The size cannot be determined.
    fn size(&self) -> Result<u64, ImageError>;

    /// Makes later calls of [`Source::size`] see a size that another program has changed.
    ///
    /// # Errors
    /// The size cannot be determined, or cannot change.
    fn refresh_size(&self) -> Result<(), ImageError>;

    /// Returns the file's metadata.
    ///
    /// # Errors
    /// The metadata cannot be read; `Unsupported`: the source is not a file.
    fn metadata(&self) -> io::Result<fs::Metadata> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    /// Returns a text that is the same for two sources only if they stand for the same bytes. For
    /// files the callers compare device and inode instead.
    fn identity(&self) -> String {
        self.path().display().to_string()
    }

    /// Returns `true` if an NBD server permits no changes of its export; `false` for other sources,
    /// even if they were opened only for reading.
    fn is_read_only(&self) -> bool {
        false
    }

    /// Returns the block size in bytes: offsets and lengths of transfers must be multiples of it.
    fn block_bytes(&self) -> u64;

    /// Returns the range to read from the source for a read of `range`: whole blocks, and more if a
    /// cache can use it.
    fn span(&self, range: &Range<u64>) -> Range<u64> {
        let align = self.block_bytes();
        range.start / align * align..range.end.next_multiple_of(align)
    }

    /// Returns the way in which a thread transfers whole blocks without waiting.
    fn transfers(&self) -> Transfers<'_>;

    /// Reads whole blocks; returns the number of bytes read.
    ///
    /// # Errors
    /// The read has failed.
    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno>;

    /// Writes whole blocks.
    ///
    /// # Errors
    /// The write has failed; a part of it may be written.
    fn write_all_at(&self, bytes: &[u8], at: u64) -> Result<(), Errno>;

    /// Frees the space of whole blocks.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the source cannot do that.
    fn discard(&self, range: Range<u64>) -> Result<(), Errno>;

    /// Zeroes whole blocks without sending zeroes for all of them. `fast` makes an NBD server fail
    /// if that would take as long as writing zeroes; other sources ignore `fast`.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the source cannot do that.
    fn zero(&self, range: Range<u64>, zeroing: Zeroing, fast: bool) -> Result<(), Errno>;

    /// Returns the extents from `at` on, as far as one query finds them: the end of each extent,
    /// and `true` if the extent holds data. There is at least one extent, and the last may end
    /// behind `end`.
    ///
    /// # Errors
    /// The extents cannot be determined.
    fn extents(&self, at: u64, end: u64) -> Result<Vec<(u64, bool)>, Errno>;

    /// Makes the writes durable that ended before this call.
    ///
    /// # Errors
    /// Some of these writes could not be made durable.
    fn sync_data(&self) -> Result<(), Errno>;

    /// Makes all writes durable when serving ends, and closes an image in an object store.
    ///
    /// # Errors
    /// One line that says why some writes could not be made durable.
    fn sync_all(&self) -> Result<(), String>;
}

/// The way in which a thread transfers whole blocks of a source without waiting.
#[derive(Debug)]
pub enum Transfers<'a> {
    /// A queue of nowait.
    Queue(&'a File),
    /// Messages to threads of the source, which put the end of each request into a mailbox.
    Messages(&'a dyn Messages),
}

/// Requests to a source that has threads of its own. None of these functions waits.
pub trait Messages: fmt::Debug {
    /// Returns `true` if a write can be durable by itself; otherwise the caller has to flush after
    /// a write that must be durable.
    fn writes_durably(&self) -> bool {
        true
    }

    /// Fills all of `chunk` and returns `true`, if a cache holds all of these bytes.
    fn read_now(&self, chunk: &mut Chunk, at: u64) -> bool {
        let _ = (chunk, at);
        false
    }

    /// Reads into all of `chunk`; the end comes into `mailbox`.
    fn read(&self, chunk: Chunk, at: u64, tag: Tag, mailbox: &Arc<Mailbox>);

    /// Writes all of `chunk` at `place`: an offset, and `true` if the write must be durable. The
    /// end comes into `mailbox`. The source keeps `blocks`, the lock on the stripes, until then.
    fn write(
        &self,
        chunk: Chunk,
        place: (u64, bool),
        blocks: Option<Shared>,
        tag: Tag,
        mailbox: &Arc<Mailbox>,
    );

    /// Makes the writes durable that ended before this call; the end of the flush comes into
    /// `mailbox`.
    fn flush(&self, tag: Tag, mailbox: &Arc<Mailbox>);
}

impl dyn Source {
    /// Returns the source as an `S`, if its type is `S`.
    pub fn downcast<S: Source>(&self) -> Option<&S> {
        (self as &dyn Any).downcast_ref()
    }
}

impl Source for File {
    fn nowait(&self) -> &Nowait {
        self.nowait()
    }

    fn path(&self) -> &Path {
        self.path()
    }

    fn size(&self) -> Result<u64, ImageError> {
        Ok(self.extent()?)
    }

    fn refresh_size(&self) -> Result<(), ImageError> {
        Ok(self.look_again()?)
    }

    fn metadata(&self) -> io::Result<fs::Metadata> {
        fs::metadata(self.path())
    }

    fn block_bytes(&self) -> u64 {
        self.alignment().map_or(1, |alignment| alignment.offset as u64)
    }

    fn transfers(&self) -> Transfers<'_> {
        Transfers::Queue(self)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
        self.read_at(bytes, at).map_err(|error| error.errno())
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> Result<(), Errno> {
        self.write_all_at(bytes, at).map_err(|error| error.errno())
    }

    fn discard(&self, range: Range<u64>) -> Result<(), Errno> {
        self.zero(range, Zeroing::Hole).map_err(|error| error.errno())
    }

    fn zero(&self, range: Range<u64>, zeroing: Zeroing, _fast: bool) -> Result<(), Errno> {
        self.zero(range, zeroing).map_err(|error| error.errno())
    }

    fn extents(&self, at: u64, end: u64) -> Result<Vec<(u64, bool)>, Errno> {
        let extent = self.extent_at(at).map_err(|error| error.errno())?;
        Ok(vec![extent.unwrap_or((end, false))])
    }

    fn sync_data(&self) -> Result<(), Errno> {
        self.sync_data().map_err(|error| error.errno())
    }

    fn sync_all(&self) -> Result<(), String> {
        self.sync_all().map_err(|error| error.to_string())
    }
}
