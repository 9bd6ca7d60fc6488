//! A block of data as a segment has it.
//!
//! ```text
//!   plain       data │ checksum 4
//!   encrypted   ciphertext │ tag 16 │ checksum 4
//! ```
//!
//! The checksum is of what stands before it, and of its place in the image and in the log, too: a
//! block that stands elsewhere is damaged. It can be compared without the key.

use crate::cipher::{Cipher, Place, TAG_BYTES};
use crate::stamp::ImageId;
use crate::wire::{CHECKSUM_BYTES, Damage};

/// How the blocks of a segment are stored and read.
#[derive(Clone, Copy, Debug)]
pub struct BlockCodec<'a> {
    /// By which they are encrypted. Of an encrypted image that is read without it, checksums can be
    /// compared, and nothing else.
    pub cipher: Option<&'a Cipher>,
    /// The image that has put the segment.
    pub image: ImageId,
    /// The segment.
    pub sequence: u64,
}

impl BlockCodec<'_> {
    /// Appends a block of the image as it is stored.
    pub fn put(&self, bytes: &mut Vec<u8>, data: &[u8], block: u64) {
        let start = bytes.len();
        bytes.extend_from_slice(data);
        if let Some(cipher) = self.cipher {
            let tag = cipher.encrypt(&mut bytes[start..], self.place(block));
            bytes.extend_from_slice(&tag);
        }
        let sum = block_sum(&bytes[start..], block, self.sequence);
        bytes.extend_from_slice(&sum.to_le_bytes());
    }

    /// Copies the data of a block that was stored, which fill `to`.
    ///
    /// # Errors
    /// It is another, or damaged; `to` has no data then.
    pub fn copy(&self, to: &mut [u8], stored: &[u8], block: u64) -> Result<(), Damage> {
        let (data, tag) = self.parted(stored, block)?;
        if data.len() != to.len() {
            return Err(Damage("a block has another length"));
        }
        to.copy_from_slice(data);
        self.decrypt(to, tag, block)
    }

    /// Appends the data of a block that was stored.
    ///
    /// # Errors
    /// It is another, or damaged; nothing is appended then.
    pub fn append(&self, to: &mut Vec<u8>, stored: &[u8], block: u64) -> Result<(), Damage> {
        let (data, tag) = self.parted(stored, block)?;
        let start = to.len();
        to.extend_from_slice(data);
        let decrypted = self.decrypt(&mut to[start..], tag, block);
        decrypted.inspect_err(|_| to.truncate(start))
    }

    /// Tells whether a block is whole that was stored.
    ///
    /// # Errors
    /// It is another, or damaged.
    pub fn check(&self, stored: &[u8], block: u64) -> Result<(), Damage> {
        match self.cipher {
            None => stored_block(stored, block, self.sequence).map(drop),
            Some(_) => self.append(&mut Vec::new(), stored, block),
        }
    }

    /// Returns the data or the ciphertext of a block, and its tag.
    fn parted<'a>(&self, stored: &'a [u8], block: u64) -> Result<Parted<'a>, Damage> {
        let body = stored_block(stored, block, self.sequence)?;
        match self.cipher {
            None => Ok((body, None)),
            Some(_) => match body.split_last_chunk() {
                Some((data, tag)) => Ok((data, Some(tag))),
                None => Err(Damage("a block is shorter than a tag")),
            },
        }
    }

    fn decrypt(
        &self,
        data: &mut [u8],
        tag: Option<&[u8; TAG_BYTES]>,
        block: u64,
    ) -> Result<(), Damage> {
        match self.cipher.zip(tag) {
            None => Ok(()),
            Some((cipher, tag)) => cipher.decrypt(data, tag, self.place(block)),
        }
    }

    fn place(&self, block: u64) -> Place {
        Place { image: self.image, sequence: self.sequence, block }
    }
}

type Parted<'a> = (&'a [u8], Option<&'a [u8; TAG_BYTES]>);

/// Returns what stands before the checksum of a block that was stored in segment `sequence`: its
/// data, or those encrypted.
///
/// # Errors
/// It is another, or damaged.
fn stored_block(stored: &[u8], block: u64, sequence: u64) -> Result<&[u8], Damage> {
    match stored.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((data, sum)) if *sum == block_sum(data, block, sequence).to_le_bytes() => Ok(data),
        _ => Err(Damage("a block has another checksum")),
    }
}

fn block_sum(data: &[u8], block: u64, sequence: u64) -> u32 {
    let place = [block.to_le_bytes(), sequence.to_le_bytes()];
    crc32c::crc32c_append(crc32c::crc32c(place.as_flattened()), data)
}
