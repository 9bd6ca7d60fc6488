//! The settings of a writer for its image, and the image's share of its store.

use crate::cipher::ImageKey;
use crate::head::Writer;

/// How a writer serves an image.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Its writer.
    pub writer: Writer,
    /// The key of an encrypted image.
    pub key: Option<ImageKey>,
    /// Most bytes of writes in memory that are not durable; one write may have more.
    pub buffer_bytes: usize,
    /// Most blocks of data in a segment, within [`crate::geometry::DATA_BYTES_MAX`].
    pub segment_blocks: u32,
    /// How long a write stays in memory alone when no flush comes.
    pub linger_ns: u64,
    /// A checkpoint is made after so many bytes of segments, or 24 times those of the map.
    pub checkpoint_bytes: u64,
    /// A checkpoint is made after so many segments.
    pub checkpoint_segments: u64,
    /// When more in a hundred blocks that segments hold were overwritten since, the live ones of
    /// the emptiest segments are written again. With 100, none are.
    pub garbage_percent: u32,
}

impl Settings {
    /// Returns what fits most images.
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
    /// Bytes of blocks that the image has: the others are zeroes.
    pub live_bytes: u64,
    /// Bytes of blocks in segments that have a live one: the others wait for their deletion only.
    pub held_bytes: u64,
}

impl Usage {
    /// Returns how many in a hundred of the bytes that are held were overwritten since.
    pub fn garbage_percent(&self) -> u32 {
        let garbage = u128::from(self.held_bytes - self.live_bytes) * 100;
        (garbage / u128::from(self.held_bytes.max(1))) as u32
    }
}
