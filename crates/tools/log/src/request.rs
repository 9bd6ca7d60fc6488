//! What a front asks of an image, and how that ends.

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
    /// Make the image smaller. What is behind its new end is gone when the request ends, and
    /// nothing of it before; changes that come meanwhile wait. If the image grows again, zeroes are
    /// there.
    Shrink {
        /// Its new size, no more than it has.
        size_bytes: u64,
    },
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
