//! The layout of the protocol's messages.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, with the extension "extended headers".

pub(crate) use nowait_device::nbd::*;

/// The server's number for the metadata context [`ALLOCATION`].
pub(crate) const ALLOCATION_ID: u32 = 1;

/// Takes numbers and strings from the front of a message; `None`: the message is too short.
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

    pub(crate) fn string(&mut self) -> Option<&'a [u8]> {
        let len = self.u32()?;
        self.bytes(len as usize)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) flags: u16,
    pub(crate) command: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

/// A header begins with a wrong magic number, so nothing after it can be parsed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BadMagic;

impl Header {
    pub(crate) const fn size(extended: bool) -> usize {
        if extended { 32 } else { 28 }
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_parsed_when_it_is_complete() {
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
