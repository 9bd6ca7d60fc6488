//! The requests of a front to an image, and their results.

use crate::extents::Extents;
use std::ops::Range;

/// The number by which a front identifies its request.
pub type RequestId = u64;

/// A request of a front. Offsets and lengths are multiples of the block size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Reads bytes.
    Read {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Finds data, and zeroes that take no space. The result describes runs from `offset` on, at
    /// least one, by two little-endian numbers of 8 bytes each: the end of the run, and 1 for data
    /// or 0 for zeroes.
    Extents {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Writes bytes.
    Write {
        /// The offset of the first byte.
        offset: u64,
        /// The bytes.
        data: Vec<u8>,
        /// The bytes must be durable when the request ends.
        durable: bool,
    },
    /// Zeroes bytes, which then take no space.
    Discard {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Makes the changes durable that ended before.
    Flush,
    /// Makes all changes durable and ends the writer: the head names the end of the log. Changes
    /// that come after this request fail at once; when it has succeeded, all requests fail.
    Close,
    /// Makes the image smaller. The bytes behind the new end are all gone when the request ends,
    /// and none of them before; changes that come meanwhile wait. If the image grows again, it has
    /// zeroes behind the old end.
    Shrink {
        /// The new size, which is not larger than the present one.
        size_bytes: u64,
    },
}

/// The most runs in the result of [`Request::Extents`].
const RUNS_MAX: usize = 4096;

/// Returns the result of [`Request::Extents`] for some blocks.
pub fn told_runs(extents: &Extents, blocks: Range<u64>, block_bytes: u32) -> Vec<u8> {
    let runs = extents.runs(blocks, RUNS_MAX);
    let told = |(end, has_data): (u64, bool)| {
        [(end * u64::from(block_bytes)).to_le_bytes(), u64::from(has_data).to_le_bytes()]
    };
    runs.into_iter().flat_map(told).flatten().collect()
}

/// The reason why a request failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The range is outside the image or not in whole blocks, or the image is already being closed:
    /// EINVAL.
    Invalid,
    /// The image is damaged, or the writer has lost it: EIO.
    Io,
}

/// The end of a request; each has one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// The number of the request.
    pub id: RequestId,
    /// The bytes of a read, otherwise empty.
    pub result: Result<Vec<u8>, Failure>,
}
