//! The numbers of the protocol, and the layout of its messages.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, with the extension "extended headers".

use nowait::Errno;

/// What the server says first.
pub(crate) const GREETING: u64 = 0x4e42_444d_4147_4943;
/// Before each option.
pub(crate) const OPTION: u64 = 0x4948_4156_454f_5054;
/// Before each answer to an option.
pub(crate) const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;

/// Flags of the greeting and of the client's answer: fixed newstyle, no padding.
pub(crate) const FIXED_NEWSTYLE: u16 = 1;
pub(crate) const NO_ZEROES: u16 = 2;

/// Options.
pub(crate) mod option {
    pub(crate) const EXPORT_NAME: u32 = 1;
    pub(crate) const ABORT: u32 = 2;
    pub(crate) const LIST: u32 = 3;
    pub(crate) const STARTTLS: u32 = 5;
    pub(crate) const INFO: u32 = 6;
    pub(crate) const GO: u32 = 7;
    pub(crate) const STRUCTURED_REPLY: u32 = 8;
    pub(crate) const LIST_META_CONTEXT: u32 = 9;
    pub(crate) const SET_META_CONTEXT: u32 = 10;
    pub(crate) const EXTENDED_HEADERS: u32 = 11;
}

/// Answers to options.
pub(crate) mod answer {
    pub(crate) const ACK: u32 = 1;
    pub(crate) const SERVER: u32 = 2;
    pub(crate) const INFO: u32 = 3;
    pub(crate) const META_CONTEXT: u32 = 4;
    pub(crate) const UNSUPPORTED: u32 = 1 << 31 | 1;
    pub(crate) const POLICY: u32 = 1 << 31 | 2;
    pub(crate) const INVALID: u32 = 1 << 31 | 3;
    pub(crate) const TLS_REQUIRED: u32 = 1 << 31 | 5;
    pub(crate) const UNKNOWN: u32 = 1 << 31 | 6;
    pub(crate) const TOO_BIG: u32 = 1 << 31 | 9;
}

/// Kinds of information about an export.
pub(crate) mod info {
    pub(crate) const EXPORT: u16 = 0;
    pub(crate) const NAME: u16 = 1;
    pub(crate) const BLOCK_SIZE: u16 = 3;
}

/// What an export can do.
pub(crate) mod transmission {
    pub(crate) const HAS_FLAGS: u16 = 1;
    pub(crate) const READ_ONLY: u16 = 1 << 1;
    pub(crate) const FLUSH: u16 = 1 << 2;
    pub(crate) const FUA: u16 = 1 << 3;
    pub(crate) const TRIM: u16 = 1 << 5;
    pub(crate) const WRITE_ZEROES: u16 = 1 << 6;
    pub(crate) const DONT_FRAGMENT: u16 = 1 << 7;
    pub(crate) const MULTI_CONN: u16 = 1 << 8;
    pub(crate) const CACHE: u16 = 1 << 10;
    pub(crate) const FAST_ZERO: u16 = 1 << 11;
}

/// Requests.
pub(crate) mod command {
    pub(crate) const READ: u16 = 0;
    pub(crate) const WRITE: u16 = 1;
    pub(crate) const DISCONNECT: u16 = 2;
    pub(crate) const FLUSH: u16 = 3;
    pub(crate) const TRIM: u16 = 4;
    pub(crate) const CACHE: u16 = 5;
    pub(crate) const WRITE_ZEROES: u16 = 6;
    pub(crate) const BLOCK_STATUS: u16 = 7;
}

/// Flags of requests.
pub(crate) mod flag {
    pub(crate) const FUA: u16 = 1;
    pub(crate) const NO_HOLE: u16 = 1 << 1;
    pub(crate) const DONT_FRAGMENT: u16 = 1 << 2;
    pub(crate) const ONE: u16 = 1 << 3;
    pub(crate) const FAST_ZERO: u16 = 1 << 4;
    pub(crate) const PAYLOAD_LEN: u16 = 1 << 5;
}

/// Kinds of chunks of a structured reply.
pub(crate) mod chunk {
    pub(crate) const NONE: u16 = 0;
    pub(crate) const OFFSET_DATA: u16 = 1;
    pub(crate) const BLOCK_STATUS: u16 = 5;
    pub(crate) const BLOCK_STATUS_EXT: u16 = 6;
    pub(crate) const ERROR: u16 = 1 << 15 | 1;
    /// The last chunk of a reply.
    pub(crate) const DONE: u16 = 1;
}

pub(crate) const REQUEST: u32 = 0x2560_9513;
pub(crate) const EXTENDED_REQUEST: u32 = 0x21e4_1c71;
pub(crate) const SIMPLE_REPLY: u32 = 0x6744_6698;
pub(crate) const STRUCTURED_REPLY: u32 = 0x668e_33ef;
pub(crate) const EXTENDED_REPLY: u32 = 0x6e8a_278c;

/// The only metadata context there is, and its number.
pub(crate) const ALLOCATION: &[u8] = b"base:allocation";
pub(crate) const ALLOCATION_ID: u32 = 1;
/// Status of an extent: takes no space, reads as zeroes.
pub(crate) const HOLE_AND_ZERO: u32 = 3;

/// Most bytes of data in one request or reply: what clients may rely on without asking.
pub(crate) const PAYLOAD_MAX: u32 = 32 << 20;

/// Takes numbers and strings off the front of a message; `None`: it is too short.
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (front, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(front)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.bytes(N)?.try_into().ok()
    }

    pub(crate) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_be_bytes)
    }

    pub(crate) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_be_bytes)
    }

    pub(crate) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_be_bytes)
    }

    /// Takes a string with its length in 32 bits before it.
    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }
}

/// A request as it arrives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    /// In bytes.
    pub(crate) len: u64,
}

/// What is wrong with a stream: nothing after it can be understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadMagic;

impl Header {
    /// Returns how long a header is, in bytes.
    pub(crate) const fn size(extended: bool) -> usize {
        if extended { 32 } else { 28 }
    }

    /// Reads a header; `None`: it is not complete.
    pub(crate) fn read(bytes: &[u8], extended: bool) -> Result<Option<Header>, BadMagic> {
        let mut reader = Reader(bytes);
        let magic = if extended { EXTENDED_REQUEST } else { REQUEST };
        match reader.u32() {
            Some(found) if found != magic => return Err(BadMagic),
            _ => {}
        }
        Ok(Header::rest(reader, extended))
    }

    fn rest(mut reader: Reader<'_>, extended: bool) -> Option<Header> {
        Some(Header {
            flags: reader.u16()?,
            command: reader.u16()?,
            cookie: reader.u64()?,
            offset: reader.u64()?,
            len: if extended { reader.u64()? } else { u64::from(reader.u32()?) },
        })
    }
}

/// Returns the number that the protocol has for an error.
pub(crate) fn error_number(errno: Errno) -> u32 {
    match errno {
        Errno::PERM | Errno::ACCES | Errno::ROFS => 1,
        Errno::NOMEM => 12,
        Errno::INVAL => 22,
        Errno::NOSPC | Errno::DQUOT | Errno::FBIG => 28,
        Errno::OVERFLOW => 75,
        Errno::OPNOTSUPP => 95,
        Errno::SHUTDOWN => 108,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_when_it_is_complete() {
        let mut bytes = REQUEST.to_be_bytes().to_vec();
        bytes.extend([0, 1, 0, 1]);
        bytes.extend(7u64.to_be_bytes());
        bytes.extend(4096u64.to_be_bytes());
        for len in 4..bytes.len() {
            assert_eq!(Header::read(&bytes[..len], false), Ok(None));
        }
        bytes.extend(512u32.to_be_bytes());
        let expected = Header { flags: 1, command: 1, cookie: 7, offset: 4096, len: 512 };
        assert_eq!(Header::read(&bytes, false), Ok(Some(expected)));
        assert_eq!(Header::read(&bytes, true), Err(BadMagic));
        bytes[0] ^= 1;
        assert_eq!(Header::read(&bytes[..4], false), Err(BadMagic));
        assert_eq!(Header::read(&[], false), Ok(None));
    }
}
