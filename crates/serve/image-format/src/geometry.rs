//! The block size, size and encryption of an image.

use crate::cipher::{Encryption, TAG_BYTES};
use crate::wire::{CHECKSUM_BYTES, Damage};

/// The most bytes of data in one segment, without tags and checksums.
pub const DATA_BYTES_MAX: usize = 8 << 20;

const SIZE_BYTES_MAX: u64 = 1 << 60;

/// The block size, size and encryption of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The size of a block in bytes, a power of two from 512 to 64 KiB.
    pub block_bytes: u32,
    /// The size of the image in bytes, a multiple of the block size.
    pub size_bytes: u64,
    /// The encryption of the blocks, if they are encrypted.
    pub encryption: Option<Encryption>,
}

impl Geometry {
    /// Makes the geometry of an image that is not encrypted.
    ///
    /// # Errors
    /// The sizes are not possible.
    pub fn checked(block_bytes: u32, size_bytes: u64) -> Result<Geometry, Damage> {
        if !block_bytes.is_power_of_two() || !(512..=1 << 16).contains(&block_bytes) {
            return Err(Damage("the block size must be a power of two from 512 to 65536"));
        }
        if size_bytes == 0 {
            return Err(Damage("the image must have at least one block"));
        }
        if !size_bytes.is_multiple_of(u64::from(block_bytes)) {
            return Err(Damage("the size must be a multiple of the block size"));
        }
        match size_bytes <= SIZE_BYTES_MAX {
            true => Ok(Geometry { block_bytes, size_bytes, encryption: None }),
            false => Err(Damage("the image is too large")),
        }
    }

    /// Returns the geometry with the largest possible size: the image may have been larger before.
    pub(crate) fn any_size(&self) -> Geometry {
        Geometry { size_bytes: SIZE_BYTES_MAX, ..*self }
    }

    /// Returns the number of blocks of the image.
    pub fn blocks(&self) -> u64 {
        self.size_bytes / u64::from(self.block_bytes)
    }

    /// Returns the number of bytes of a block in a segment, with tag (if encrypted) and checksum.
    pub fn stored_bytes(&self) -> usize {
        let tag_bytes = if self.encryption.is_some() { TAG_BYTES } else { 0 };
        self.block_bytes as usize + tag_bytes + CHECKSUM_BYTES
    }

    /// Returns the most blocks of data in one segment.
    pub fn segment_blocks_max(&self) -> u32 {
        DATA_BYTES_MAX as u32 / self.block_bytes
    }
}
