//! The settings of a writer for its image, and the space that the image takes in its store.

use crate::cipher::ImageKey;
use crate::head::Writer;

/// The settings of a writer.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The writer.
    pub writer: Writer,
    /// The key of an encrypted image.
    pub key: Option<ImageKey>,
    /// The most bytes of writes in memory that are not durable: a write that would exceed them
    /// waits. A single write may have more.
    pub buffer_bytes: usize,
    /// The most blocks of data in a segment; [`crate::geometry::DATA_BYTES_MAX`] limits them, too.
    pub segment_blocks: u32,
    /// How long a segment waits, from its first change on, for a flush or more data; longer while
    /// earlier segments are not durable.
    pub linger_ns: u64,
    /// The writer makes a checkpoint after segments of this many bytes, or after segments with this
    /// many bytes of data have lost their last live block. The limit is 24 times the map's bytes if
    /// that is more.
    pub checkpoint_bytes: u64,
    /// The writer also makes a checkpoint after this many segments.
    pub checkpoint_segments: u64,
    /// The largest allowed percentage of dead blocks in segments that have a live block; 100 turns
    /// the collector off.
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
    /// The bytes of the image's blocks that segments store: all other blocks are zeroes.
    pub live_bytes: u64,
    /// The bytes of all blocks in segments with a live block.
    pub held_bytes: u64,
}

impl Usage {
    /// Returns the percentage of the held bytes that are not live.
    pub fn garbage_percent(&self) -> u32 {
        let garbage = u128::from(self.held_bytes - self.live_bytes) * 100;
        (garbage / u128::from(self.held_bytes.max(1))) as u32
    }
}
