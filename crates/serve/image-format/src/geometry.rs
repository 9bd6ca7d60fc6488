//! The blocks of an image.

use crate::cipher::{Encryption, TAG_BYTES};
use crate::wire::{CHECKSUM_BYTES, Damage};

/// Most bytes of data in one segment, without checksums.
pub const DATA_BYTES_MAX: usize = 8 << 20;

/// Bytes of the largest image.
const SIZE_BYTES_MAX: u64 = 1 << 60;

/// The blocks of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Bytes of a block, a power of two from 512 to 64 KiB.
    pub block_bytes: u32,
    /// Bytes of the image, whole blocks.
    pub size_bytes: u64,
    /// By which key they are encrypted, if they are.
    pub encryption: Option<Encryption>,
}

impl Geometry {
    /// Makes one that is possible, of blocks that are not encrypted.
    ///
    /// # Errors
    /// It is not.
    pub fn checked(block_bytes: u32, size_bytes: u64) -> Result<Geometry, Damage> {
        if !block_bytes.is_power_of_two() || !(512..=1 << 16).contains(&block_bytes) {
            return Err(Damage("no block size"));
        }
        if size_bytes == 0 {
            return Err(Damage("an image has at least one block"));
        }
        if !size_bytes.is_multiple_of(u64::from(block_bytes)) {
            return Err(Damage("the size is not in whole blocks"));
        }
        match size_bytes <= SIZE_BYTES_MAX {
            true => Ok(Geometry { block_bytes, size_bytes, encryption: None }),
            false => Err(Damage("larger than any image")),
        }
    }

    /// The blocks of the same image when it was larger, however large that was.
    pub(crate) fn any_size(&self) -> Geometry {
        Geometry { size_bytes: SIZE_BYTES_MAX, ..*self }
    }

    /// How many blocks the image has.
    pub fn blocks(&self) -> u64 {
        self.size_bytes / u64::from(self.block_bytes)
    }

    /// Bytes of a block in a segment, with what stands behind it there.
    pub fn stored_bytes(&self) -> usize {
        let tag_bytes = if self.encryption.is_some() { TAG_BYTES } else { 0 };
        self.block_bytes as usize + tag_bytes + CHECKSUM_BYTES
    }

    /// Most blocks of data in one segment.
    pub fn segment_blocks_max(&self) -> u32 {
        DATA_BYTES_MAX as u32 / self.block_bytes
    }
}
