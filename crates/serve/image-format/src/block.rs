//! A block of data as stored in a segment.
//!
//! ```text
//!   plain       data │ checksum 4
//!   encrypted   ciphertext │ tag 16 │ checksum 4
//! ```
//!
//! The checksum covers the bytes before it, and the block's place in the image and in the log: a
//! block in another place counts as damaged. A reader can verify the checksum without the key.

use crate::cipher::{Cipher, Place, TAG_BYTES};
use crate::stamp::ImageId;
use crate::wire::{CHECKSUM_BYTES, Damage};

/// Encodes and decodes the blocks of a segment.
#[derive(Clone, Copy, Debug)]
pub struct BlockCodec<'a> {
    /// The cipher of an encrypted image. Without the cipher, a reader of an encrypted image can
    /// only verify checksums.
    pub cipher: Option<&'a Cipher>,
    /// The image whose writer put the segment.
    pub image: ImageId,
    /// The place of the segment in the log.
    pub sequence: u64,
}

impl BlockCodec<'_> {
    /// Appends a block of the image in its stored form.
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

    /// Copies the data of a stored block to `to`, which has the length of a block.
    ///
    /// # Errors
    /// `stored` is another block, or damaged. After an error `to` does not hold the block.
    pub fn copy(&self, to: &mut [u8], stored: &[u8], block: u64) -> Result<(), Damage> {
        let (data, tag) = self.parted(stored, block)?;
        if data.len() != to.len() {
            return Err(Damage("wrong length of a block"));
        }
        to.copy_from_slice(data);
        self.decrypt(to, tag, block)
    }

    /// Appends the data of a stored block.
    ///
    /// # Errors
    /// `stored` is another block, or damaged. After an error nothing is appended.
    pub fn append(&self, to: &mut Vec<u8>, stored: &[u8], block: u64) -> Result<(), Damage> {
        let (data, tag) = self.parted(stored, block)?;
        let start = to.len();
        to.extend_from_slice(data);
        let decrypted = self.decrypt(&mut to[start..], tag, block);
        decrypted.inspect_err(|_| to.truncate(start))
    }

    /// Verifies the checksum of a stored block and, with the cipher, its tag.
    ///
    /// # Errors
    /// `stored` is another block, or damaged.
    pub fn check(&self, stored: &[u8], block: u64) -> Result<(), Damage> {
        match self.cipher {
            None => stored_block(stored, block, self.sequence).map(drop),
            Some(_) => self.append(&mut Vec::new(), stored, block),
        }
    }

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

fn stored_block(stored: &[u8], block: u64, sequence: u64) -> Result<&[u8], Damage> {
    match stored.split_last_chunk::<CHECKSUM_BYTES>() {
        Some((data, sum)) if *sum == block_sum(data, block, sequence).to_le_bytes() => Ok(data),
        _ => Err(Damage("wrong checksum of a block")),
    }
}

fn block_sum(data: &[u8], block: u64, sequence: u64) -> u32 {
    let place = [block.to_le_bytes(), sequence.to_le_bytes()];
    crc32c::crc32c_append(crc32c::crc32c(place.as_flattened()), data)
}
