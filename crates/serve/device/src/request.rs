//! Requests of fronts, their tags, and their ends.

use crate::Chunk;
use core::ops::Range;
use nowait::Errno;

/// The identity of a request at its front: the client, and the number of the client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The client.
    pub owner: u64,
    /// The number of the client's request.
    pub slot: u32,
    /// The part of the request.
    pub part: u32,
}

/// A request that a thread for blocking calls carries out.
#[derive(Debug)]
pub enum BlockingTask {
    /// Frees the space of a range whose contents no longer matter, if possible.
    Discard {
        /// The bytes of the image.
        range: Range<u64>,
        /// The effect must be durable when the task ends.
        durable: bool,
    },
    /// Zeroes a range.
    Zero {
        /// The bytes of the image.
        range: Range<u64>,
        /// Keep the space of the range allocated.
        allocated: bool,
        /// Fail with `EOPNOTSUPP` rather than write zeroes.
        fast: bool,
        /// The effect must be durable when the task ends.
        durable: bool,
    },
    /// Finds the data and the holes of a range.
    Extents {
        /// The bytes of the image; not empty.
        range: Range<u64>,
        /// The most extents to return; if there are more, the result covers a part of the range.
        max: usize,
    },
    /// Reads the beginning of a range into the page cache, because a client will read it soon.
    Prefetch {
        /// The bytes of the image.
        range: Range<u64>,
    },
    /// Writes bytes that need not fill whole blocks, and may wait for other writes to their blocks.
    WriteParts {
        /// The bytes to write.
        chunk: Chunk,
        /// The offset in the image, in bytes.
        offset: u64,
        /// The bytes must be durable when the task ends.
        durable: bool,
    },
}

/// A part of an image that is all data or all hole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The length in bytes.
    pub len: u64,
    /// The extent reads as zeroes, and usually takes no space.
    pub hole: bool,
}

/// The end of a request. Each request has one, except a blocking task that
/// [`crate::Medium::forget`] drops.
#[derive(Debug)]
pub struct RequestEnd {
    /// The tag of the request.
    pub tag: Tag,
    /// `Ok` if the whole request was carried out.
    pub result: Result<(), Errno>,
    /// The chunk of a read or write, if it used one.
    pub chunk: Option<Chunk>,
    /// The extents that [`BlockingTask::Extents`] found.
    pub extents: Vec<Extent>,
}

impl RequestEnd {
    /// Makes the end of a request without memory.
    pub fn plain(tag: Tag, result: Result<(), Errno>) -> RequestEnd {
        RequestEnd { tag, result, chunk: None, extents: Vec::new() }
    }
}
