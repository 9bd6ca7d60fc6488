//! The settings of a writer for its image, and the image's share of its store.

use crate::cipher::ImageKey;
use crate::head::Writer;

/// The settings of a writer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The writer.
    pub writer: Writer,
    /// The key of an encrypted image.
    pub key: Option<ImageKey>,
    /// The most bytes of writes in memory that are not durable; a single write may have more.
    pub buffer_bytes: usize,
    /// The most blocks of data in a segment, within [`crate::geometry::DATA_BYTES_MAX`].
    pub segment_blocks: u32,
    /// Without a flush, a segment is put this long after its first write, or later, once the
    /// segments before it are durable.
    pub linger_ns: u64,
    /// A checkpoint is made after this many bytes of segments were put, or lost their last live
    /// block; after 24 times the map's bytes if that is more.
    pub checkpoint_bytes: u64,
    /// A checkpoint is made after this many segments.
    pub checkpoint_segments: u64,
    /// When more than this percentage of the blocks in segments is overwritten, the collector moves
    /// the live blocks of the emptiest segments. 100 turns it off.
    pub garbage_percent: u32,
}

impl Settings {
    /// Returns settings that fit most images.
    pub fn new(writer: Writer) -> Settings {
        Settings {
            writer,
            key: None,
            buffer_bytes: 64 << 20,
            segment_blocks: u32::MAX,
            linger_ns: 1_000_000_000,
            checkpoint_bytes: 64 << 20,
            checkpoint_segments: 4096,
            garbage_percent: 30,
        }
    }
}

/// The space of a store that an image takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Usage {
    /// The bytes of blocks that the image has: all others are zeroes.
    pub live_bytes: u64,
    /// The bytes of blocks in segments with a live block; other segments only wait for deletion.
    pub held_bytes: u64,
}

impl Usage {
    /// Returns the percentage of the held bytes that are not live.
    pub fn garbage_percent(&self) -> u32 {
        let garbage = u128::from(self.held_bytes - self.live_bytes) * 100;
        (garbage / u128::from(self.held_bytes.max(1))) as u32
    }
}
