//! Requests of fronts, their tags, and their ends.

use crate::Chunk;
use core::ops::Range;
use nowait::Errno;

/// The identity of a request, or of a part of one. The front finds its own record of the request by
/// this tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The number that the front gave the client.
    pub owner: u64,
    /// The number of the client's request.
    pub slot: u32,
    /// The number of the part, if the front has divided the client's request; otherwise 0.
    pub part: u32,
}

/// A request that a thread for blocking calls carries out.
#[derive(Debug)]
pub enum BlockingTask {
    /// Frees the space of the whole blocks in a range whose contents no longer matter, if the
    /// source can free space.
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
        /// Keep the space of the range allocated, rather than make a hole.
        allocated: bool,
        /// Fail with `EOPNOTSUPP` rather than write zeroes to whole blocks. The task may still
        /// write zeroes to parts of blocks.
        fast: bool,
        /// The effect must be durable when the task ends.
        durable: bool,
    },
    /// Finds the data and the holes of a range.
    Extents {
        /// The bytes of the image; not empty.
        range: Range<u64>,
        /// The most extents to return; if there are more, the result covers only the beginning of
        /// the range.
        max: usize,
    },
    /// Reads the beginning of a range into the cache of the image, because a client may read the
    /// range soon.
    Prefetch {
        /// The bytes of the image.
        range: Range<u64>,
    },
    /// Writes bytes that need not fill whole blocks. The task may wait for other writes to the same
    /// blocks.
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
    /// `true`: the extent reads as zeroes, and usually takes no space; `false`: it holds data.
    pub hole: bool,
}

/// The end of a request. The medium reports one end of each request, and none of a blocking task
/// that [`crate::Medium::forget`] drops.
#[derive(Debug)]
pub struct RequestEnd {
    /// The tag of the request.
    pub tag: Tag,
    /// `Ok` if the request succeeded. A request that failed may have been carried out in part.
    pub result: Result<(), Errno>,
    /// The chunk that the front passed with a read or write, or a larger one in its place; `None`
    /// for other requests.
    pub chunk: Option<Chunk>,
    /// The extents that [`BlockingTask::Extents`] found; empty for other requests.
    pub extents: Vec<Extent>,
}

impl RequestEnd {
    /// Makes the end of a request that used no chunk.
    pub fn plain(tag: Tag, result: Result<(), Errno>) -> RequestEnd {
        RequestEnd { tag, result, chunk: None, extents: Vec::new() }
    }
}
