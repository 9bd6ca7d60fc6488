//! What a front asks of an image, and how that ends.

use crate::extents::Extents;
use std::ops::Range;

/// By which a front knows its request.
pub type RequestId = u64;

/// What a front asks. Offsets and lengths are in whole blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Read bytes.
    Read {
        /// The first.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Tell where data are, and where zeroes that take no place: for each run from `offset` on,
    /// some of the first at least, where it ends, and 1 if it has data or 0, as two little-endian
    /// numbers of 8 bytes.
    Extents {
        /// The first byte.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Write bytes.
    Write {
        /// The first.
        offset: u64,
        /// Those.
        data: Vec<u8>,
        /// They are durable when the request ends.
        durable: bool,
    },
    /// Make bytes zeroes, which takes no place.
    Discard {
        /// The first.
        offset: u64,
        /// How many.
        len: u64,
    },
    /// Make durable what ended before.
    Flush,
    /// Make all durable and end: the head says where the log ends. When this has ended well, all
    /// other requests fail; changes that come behind it do.
    Close,
    /// Make the image smaller. What is behind its new end is gone when the request ends, and
    /// nothing of it before; changes that come meanwhile wait. If the image grows again, zeroes are
    /// there.
    Shrink {
        /// Its new size, no more than it has.
        size_bytes: u64,
    },
}

/// Most runs that [`Request::Extents`] tells of.
const RUNS_MAX: usize = 4096;

/// Returns what [`Request::Extents`] tells of blocks.
pub fn told_runs(extents: &Extents, blocks: Range<u64>, block_bytes: u32) -> Vec<u8> {
    let runs = extents.runs(blocks, RUNS_MAX);
    let told = |(end, has_data): (u64, bool)| {
        [(end * u64::from(block_bytes)).to_le_bytes(), u64::from(has_data).to_le_bytes()]
    };
    runs.into_iter().flat_map(told).flatten().collect()
}

/// Why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It is not within the image, or not in whole blocks: EINVAL.
    Invalid,
    /// The image is not this writer's any more, or damaged: EIO.
    Io,
}

/// The end of a request; each has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// Which.
    pub id: RequestId,
    /// The bytes of a read, else none.
    pub result: Result<Vec<u8>, Failure>,
}
