//! Requests of fronts, by which they are known, and their ends.

use crate::Chunk;
use core::ops::Range;
use nowait::Errno;

/// The name of a request at its frontend: the client, and which of its requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// Whose request it is.
    pub owner: u64,
    /// Which of them.
    pub slot: u32,
    /// Which part of it.
    pub part: u32,
}

/// A blocking task: it takes longer than a request to the device.
#[derive(Debug)]
pub enum Chore {
    /// The contents of a range are of no interest any more: give its space back if possible.
    Discard {
        /// In bytes of the image.
        range: Range<u64>,
        /// Durable when it ends.
        durable: bool,
    },
    /// A range reads as zeroes.
    Zero {
        /// In bytes of the image.
        range: Range<u64>,
        /// Keep its space.
        allocated: bool,
        /// Fail with `EOPNOTSUPP` rather than write zeroes.
        fast: bool,
        /// Durable when it ends.
        durable: bool,
    },
    /// Tell where data are and where holes.
    Extents {
        /// In bytes of the image, not empty.
        range: Range<u64>,
        /// Most extents to tell of; the range may then not be covered.
        max: usize,
    },
    /// A range will be read soon: as much of it as is worth it is read into the page cache.
    Prefetch {
        /// In bytes of the image.
        range: Range<u64>,
    },
    /// Write what is not of whole blocks.
    WriteParts {
        /// The bytes to write.
        chunk: Chunk,
        /// In bytes of the image.
        offset: u64,
        /// Durable when it ends.
        durable: bool,
    },
}

/// A part of an image of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// In bytes.
    pub len: u64,
    /// Takes no space, and reads as zeroes.
    pub hole: bool,
}

/// The end of a request; each has one, unless it was forgotten.
#[derive(Debug)]
pub struct RequestEnd {
    /// The tag of the request.
    pub tag: Tag,
    /// `Ok` if all of it was done.
    pub result: Result<(), Errno>,
    /// The memory of a read or write.
    pub chunk: Option<Chunk>,
    /// The extents that [`Chore::Extents`] found.
    pub extents: Vec<Extent>,
}

impl RequestEnd {
    /// Is the end of a request without memory.
    pub fn plain(tag: Tag, result: Result<(), Errno>) -> RequestEnd {
        RequestEnd { tag, result, chunk: None, extents: Vec::new() }
    }
}
