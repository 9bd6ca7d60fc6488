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
    /// Finds data, and zeroes that take no space. The result describes runs of bytes from `offset`
    /// on, at most 4096 runs. Each run has two little-endian numbers of 8 bytes: the offset of its
    /// end, and 1 for data or 0 for zeroes.
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
        /// `true`: the bytes must be durable when the request ends.
        durable: bool,
    },
    /// Zeroes bytes, which then take no space.
    Discard {
        /// The first byte.
        offset: u64,
        /// The number of bytes.
        len: u64,
    },
    /// Makes all changes durable that ended before this request came.
    Flush,
    /// Makes all changes durable and ends the writer: the head names the end of the log. Changes
    /// that come after this request fail at once. When this request has succeeded, all later
    /// requests fail.
    Close,
    /// Makes the image smaller. One PUT of the head removes all bytes behind the new end from the
    /// stored image. Once the writer has begun to shrink, requests beyond the new end fail, and
    /// other changes wait until the shrink ends. If the image grows again, its new bytes are
    /// zeroes.
    Shrink {
        /// The new size, which is not larger than the present one.
        size_bytes: u64,
    },
}

const RUNS_MAX: usize = 4096;

/// Returns the result of [`Request::Extents`] for a range of blocks.
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
    /// The range is outside the image or not in whole blocks, the new size is not possible, or the
    /// request is a [`Request::Close`] while another one is in progress: EINVAL.
    Invalid,
    /// A segment with the data is damaged or missing, the image is being closed (changes only), or
    /// the writer does not have the image: EIO.
    Io,
}

/// The end of a request. Each request has one end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// The number of the request.
    pub id: RequestId,
    /// The bytes of a read, or the runs of [`Request::Extents`]; empty for other requests.
    pub result: Result<Vec<u8>, Failure>,
}
