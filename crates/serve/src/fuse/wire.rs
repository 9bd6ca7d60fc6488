//! The numbers of the protocol between the kernel and its file systems in user space, and how
//! messages are laid out: in the machine's own order of bytes.
//!
//! Source: include/uapi/linux/fuse.h, version 7.31 and what later ones added to it.

/// The version that is spoken; the kernel speaks every older one.
pub(crate) const MAJOR: u32 = 7;
pub(crate) const MINOR: u32 = 31;
/// The oldest that has all that is used: lengths in pages, and answers of the sizes below.
pub(crate) const MINOR_MIN: u32 = 28;

/// The only node there is.
pub(crate) const ROOT: u64 = 1;

/// Bytes of a request before the data of a write.
pub(crate) const HEAD_BYTES: usize = HEADER_BYTES + WRITE_BYTES;
const HEADER_BYTES: usize = 40;
const WRITE_BYTES: usize = 40;
/// Bytes of the longest request that is looked into, but writes.
pub(crate) const REQUEST_BYTES_MAX: usize = HEADER_BYTES + 88;

/// What the kernel wants.
pub(crate) mod opcode {
    pub(crate) const FORGET: u32 = 2;
    pub(crate) const GETATTR: u32 = 3;
    pub(crate) const SETATTR: u32 = 4;
    pub(crate) const OPEN: u32 = 14;
    pub(crate) const READ: u32 = 15;
    pub(crate) const WRITE: u32 = 16;
    pub(crate) const STATFS: u32 = 17;
    pub(crate) const RELEASE: u32 = 18;
    pub(crate) const FSYNC: u32 = 20;
    pub(crate) const INIT: u32 = 26;
    pub(crate) const DESTROY: u32 = 38;
    pub(crate) const BATCH_FORGET: u32 = 42;
    pub(crate) const FALLOCATE: u32 = 43;
    pub(crate) const LSEEK: u32 = 46;
}

/// What was agreed upon.
pub(crate) mod init {
    /// Several reads of a file at once.
    pub(crate) const ASYNC_READ: u32 = 1;
    /// Writes longer than a page.
    pub(crate) const BIG_WRITES: u32 = 1 << 5;
    /// Direct requests of asynchronous callers do not wait for each other.
    pub(crate) const ASYNC_DIO: u32 = 1 << 15;
    /// The longest request is told in pages.
    pub(crate) const MAX_PAGES: u32 = 1 << 22;
}

/// How a file is open.
pub(crate) mod open {
    /// Nothing of it is in the kernel's page cache.
    pub(crate) const DIRECT_IO: u32 = 1;
    /// Direct writes do not wait for each other. Kernels that do not know it do not care.
    pub(crate) const PARALLEL_DIRECT_WRITES: u32 = 1 << 6;
}

/// Which attributes are to be changed.
pub(crate) mod change {
    pub(crate) const MODE: u32 = 1;
    pub(crate) const USER: u32 = 1 << 1;
    pub(crate) const GROUP: u32 = 1 << 2;
    pub(crate) const SIZE: u32 = 1 << 3;
}

/// What every request begins with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    /// Of the request, in bytes, with its data.
    pub(crate) len: u32,
    pub(crate) opcode: u32,
    /// The kernel's name for the request.
    pub(crate) unique: u64,
    pub(crate) node: u64,
    /// Who asks.
    pub(crate) user: u32,
}

/// Where and how much.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Transfer {
    pub(crate) offset: u64,
    pub(crate) len: u32,
    /// Those that the file is open with.
    pub(crate) open_flags: u32,
}

/// Takes numbers from bytes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn bytes<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (bytes, rest) = self.0.split_first_chunk::<N>()?;
        self.0 = rest;
        Some(*bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.bytes().map(u32::from_ne_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.bytes().map(u64::from_ne_bytes)
    }

    /// Reads of a read, and of a write before its data.
    pub(crate) fn transfer(&mut self) -> Option<Transfer> {
        let (_handle, offset, len) = (self.u64()?, self.u64()?, self.u32()?);
        let (_flags, _owner, open_flags) = (self.u32()?, self.u64()?, self.u32()?);
        Some(Transfer { offset, len, open_flags })
    }
}

impl Header {
    /// Reads the header of a request; the reader stands behind it then.
    pub(crate) fn read(bytes: &[u8]) -> Option<(Header, Reader<'_>)> {
        let mut reader = Reader(bytes);
        let (len, opcode) = (reader.u32()?, reader.u32()?);
        let (unique, node, user) = (reader.u64()?, reader.u64()?, reader.u32()?);
        // Group, process, and what extensions follow.
        let _: [u8; 12] = reader.bytes()?;
        Some((Header { len, opcode, unique, node, user }, reader))
    }
}

/// An answer being made, with room for the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    bytes: [u8; ANSWER_BYTES_MAX],
    len: usize,
}

/// The longest is that about attributes.
const ANSWER_BYTES_MAX: usize = 16 + 104;

impl Answer {
    /// Begins an answer without an error.
    pub(crate) fn new(unique: u64) -> Answer {
        let answer = Answer { bytes: [0; ANSWER_BYTES_MAX], len: 0 };
        answer.u32(0).u32(0).u64(unique)
    }

    /// Is the answer that `error` happened, a positive number.
    pub(crate) fn failed(unique: u64, error: i32) -> Answer {
        let answer = Answer { bytes: [0; ANSWER_BYTES_MAX], len: 0 };
        answer.u32(0).u32((-error) as u32).u64(unique)
    }

    pub(crate) fn u16(self, value: u16) -> Answer {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u32(self, value: u32) -> Answer {
        self.bytes(&value.to_ne_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Answer {
        self.bytes(&value.to_ne_bytes())
    }

    /// Adds as many zeroes.
    pub(crate) fn zeroes(mut self, count: usize) -> Answer {
        self.len += count;
        self
    }

    fn bytes(mut self, bytes: &[u8]) -> Answer {
        self.bytes[self.len..self.len + bytes.len()].copy_from_slice(bytes);
        self.len += bytes.len();
        self
    }

    /// Ends it; `data_bytes` follow.
    pub(crate) fn end(mut self, data_bytes: usize) -> Answer {
        let len = (self.len + data_bytes) as u32;
        self.bytes[..4].copy_from_slice(&len.to_ne_bytes());
        self
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// What is told of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Attributes {
    pub(crate) size: u64,
    /// Of the last change, in nanoseconds since 1970.
    pub(crate) changed_ns: u64,
    /// Kind and rights.
    pub(crate) mode: u32,
    pub(crate) user: u32,
    pub(crate) group: u32,
    pub(crate) block_bytes: u32,
}

const NS_PER_S: u64 = 1_000_000_000;

impl Attributes {
    /// Is the answer that tells them. The kernel forgets them at once: the size may change.
    pub(crate) fn answer(&self, unique: u64) -> Answer {
        let (seconds, ns) = (self.changed_ns / NS_PER_S, (self.changed_ns % NS_PER_S) as u32);
        let answer = Answer::new(unique).u64(0).u32(0).u32(0);
        let answer = answer.u64(ROOT).u64(self.size).u64(self.size.div_ceil(512));
        let answer = answer.u64(seconds).u64(seconds).u64(seconds).u32(ns).u32(ns).u32(ns);
        let links_and_device = (1, 0);
        let answer = answer.u32(self.mode).u32(links_and_device.0).u32(self.user).u32(self.group);
        answer.u32(links_and_device.1).u32(self.block_bytes).u32(0).end(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_have_the_sizes_of_the_protocol() {
        let attributes = Attributes {
            size: 4096,
            changed_ns: 3_000_000_007,
            mode: 0o100_600,
            user: 5,
            group: 6,
            block_bytes: 4096,
        };
        let answer = attributes.answer(9);
        let bytes = answer.as_bytes();
        assert_eq!(bytes.len(), ANSWER_BYTES_MAX);
        let u32_at = |at: usize| u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap());
        assert_eq!((u32_at(0), u32_at(4), u32_at(8)), (120, 0, 9));
        // Behind 16 bytes of header and 16 of validity: size at 8, seconds at 24, mode at 60.
        assert_eq!((u32_at(32 + 8), u32_at(32 + 16), u32_at(32 + 24)), (4096, 8, 3));
        assert_eq!((u32_at(32 + 48), u32_at(32 + 60), u32_at(32 + 64)), (7, 0o100_600, 1));
        assert_eq!((u32_at(32 + 68), u32_at(32 + 72), u32_at(32 + 80)), (5, 6, 4096));
        assert_eq!(Answer::failed(7, 22).end(0).as_bytes().len(), 16);
    }

    #[test]
    fn a_request_that_is_too_short_is_none() {
        let mut bytes = [0u8; HEAD_BYTES];
        bytes[4] = opcode::WRITE as u8;
        bytes[40 + 8] = 3;
        bytes[40 + 16] = 4;
        let (header, mut reader) = Header::read(&bytes).unwrap();
        assert_eq!(header.opcode, opcode::WRITE);
        let transfer = reader.transfer().unwrap();
        assert_eq!((transfer.offset, transfer.len), (3, 4));
        assert!(Header::read(&bytes[..39]).is_none());
        assert!(Header::read(&bytes[..60]).unwrap().1.transfer().is_none());
    }
}
