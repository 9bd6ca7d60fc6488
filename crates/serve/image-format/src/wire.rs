//! Fields of objects: little-endian numbers, with a checksum behind them.
//!
//! A store may answer with any bytes, so each length is compared with the bytes that exist before
//! memory is allocated for it.

use core::fmt;

pub(crate) const CHECKSUM_BYTES: usize = 4;

/// The reason why an object is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Damage(pub(crate) &'static str);

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl std::error::Error for Damage {}

pub(crate) fn checked(bytes: &[u8]) -> Result<&[u8], Damage> {
    let Some((body, sum)) = bytes.split_last_chunk::<CHECKSUM_BYTES>() else {
        return Err(Damage("shorter than a checksum"));
    };
    match crc32c::crc32c(body) == u32::from_le_bytes(*sum) {
        true => Ok(body),
        false => Err(Damage("wrong checksum")),
    }
}

/// Appends the checksum of all bytes.
pub(crate) fn seal(bytes: &mut Vec<u8>) {
    let sum = crc32c::crc32c(bytes);
    bytes.extend(sum.to_le_bytes());
}

pub(crate) struct Fields<'a> {
    rest: &'a [u8],
}

impl<'a> Fields<'a> {
    pub(crate) fn of(bytes: &'a [u8]) -> Fields<'a> {
        Fields { rest: bytes }
    }

    fn take(&mut self, len: usize) -> Result<&'a [u8], Damage> {
        let (front, rest) = self.rest.split_at_checked(len).ok_or(Damage("ends too early"))?;
        self.rest = rest;
        Ok(front)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Damage> {
        let mut array = [0; N];
        array.copy_from_slice(self.take(N)?);
        Ok(array)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Damage> {
        self.array().map(u16::from_le_bytes)
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Damage> {
        self.array().map(u32::from_le_bytes)
    }

    pub(crate) fn u64(&mut self) -> Result<u64, Damage> {
        self.array().map(u64::from_le_bytes)
    }

    pub(crate) fn flag(&mut self) -> Result<bool, Damage> {
        match self.array()? {
            [0] => Ok(false),
            [1] => Ok(true),
            _ => Err(Damage("a flag is neither 0 nor 1")),
        }
    }

    pub(crate) fn text(&mut self, len_max: usize) -> Result<String, Damage> {
        let len = usize::from(self.u16()?);
        if len > len_max {
            return Err(Damage("a string is longer than allowed"));
        }
        let text =
            core::str::from_utf8(self.take(len)?).map_err(|_| Damage("a string is not UTF-8"))?;
        Ok(text.to_owned())
    }

    /// Reads a number of entries. Fails if the rest has less than `each_bytes` for each entry.
    pub(crate) fn count(&mut self, each_bytes: usize) -> Result<usize, Damage> {
        let count = self.u32()? as usize;
        match count.checked_mul(each_bytes).is_some_and(|bytes| bytes <= self.rest.len()) {
            true => Ok(count),
            false => Err(Damage("more entries than bytes for them")),
        }
    }

    pub(crate) fn end(&self) -> Result<(), Damage> {
        if self.rest.is_empty() { Ok(()) } else { Err(Damage("bytes after the end")) }
    }
}

/// Cuts a string that is longer than `len_max`.
pub(crate) fn put_text(bytes: &mut Vec<u8>, text: &str, len_max: usize) {
    let text = &text[..text.floor_char_boundary(len_max)];
    bytes.extend((text.len() as u16).to_le_bytes());
    bytes.extend(text.as_bytes());
}

pub(crate) fn put_count(bytes: &mut Vec<u8>, count: usize) {
    bytes.extend((count as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_count_without_bytes_for_it_is_refused() {
        let mut bytes = u32::MAX.to_le_bytes().to_vec();
        bytes.extend([0; 100]);
        assert!(Fields::of(&bytes).count(1).is_err());
        assert!(Fields::of(&bytes).count(usize::MAX).is_err());
        bytes[..4].copy_from_slice(&10u32.to_le_bytes());
        assert_eq!(Fields::of(&bytes).count(10), Ok(10));
        assert!(Fields::of(&bytes).count(11).is_err());
    }

    #[test]
    fn a_text_that_is_too_long_is_cut_between_characters() {
        let mut bytes = Vec::new();
        put_text(&mut bytes, "aéé", 4);
        assert_eq!(Fields::of(&bytes).text(4).as_deref(), Ok("aé"));
        assert!(Fields::of(&bytes).text(2).is_err());
    }
}
