//! The description of the device: its features and its configuration space.
//!
//! Source: Virtual I/O Device (VIRTIO) 1.2, 5.2 "Block Device".

use nowait_device::Properties;
use vhost::vhost_user::{VhostUserProtocolFeatures, VhostUserVirtioFeatures};
use virtio_bindings::{
    virtio_blk::{
        VIRTIO_BLK_F_BLK_SIZE, VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_FLUSH, VIRTIO_BLK_F_MQ,
        VIRTIO_BLK_F_RO, VIRTIO_BLK_F_SEG_MAX, VIRTIO_BLK_F_SIZE_MAX, VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_WRITE_ZEROES,
    },
    virtio_config::VIRTIO_F_VERSION_1,
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VIRTIO_RING_F_INDIRECT_DESC},
};

/// The unit of offsets and lengths in `virtio_blk`, whatever the sector size of the image.
pub const SECTOR_BYTES: u64 = 512;
/// The most bytes of a segment. This limit and [`SEGMENTS_MAX`] bound the memory of a request.
pub const SEGMENT_BYTES_MAX: u32 = 64 << 10;
/// The most segments of a request: as many as fit a queue of 128 without indirect descriptors.
pub const SEGMENTS_MAX: u32 = 126;
/// The most bytes of a read or write.
pub const REQUEST_BYTES_MAX: usize = (SEGMENT_BYTES_MAX * SEGMENTS_MAX) as usize;
/// The most ranges of a discard or of zeroing.
pub const RANGES_MAX: u32 = 32;
/// The most sectors of a range to discard or zero: 2 GiB.
pub const RANGE_SECTORS_MAX: u32 = 1 << 22;
/// The largest queue.
pub const QUEUE_SIZE_MAX: u16 = 1024;
/// The most queues.
pub const QUEUES_MAX: u16 = 64;

const CONFIG_BYTES: usize = 256;

/// Returns the features that the device offers for an image, as bits.
pub fn features(properties: Properties) -> u64 {
    let common = [
        VIRTIO_F_VERSION_1,
        VIRTIO_RING_F_INDIRECT_DESC,
        VIRTIO_RING_F_EVENT_IDX,
        VIRTIO_BLK_F_SIZE_MAX,
        VIRTIO_BLK_F_SEG_MAX,
        VIRTIO_BLK_F_BLK_SIZE,
        VIRTIO_BLK_F_FLUSH,
        VIRTIO_BLK_F_TOPOLOGY,
        VIRTIO_BLK_F_MQ,
    ];
    let own: &[u32] = match properties.read_only {
        true => &[VIRTIO_BLK_F_RO],
        false => &[VIRTIO_BLK_F_DISCARD, VIRTIO_BLK_F_WRITE_ZEROES],
    };
    let bits = common.iter().chain(own).fold(0, |bits, bit| bits | 1 << bit);
    bits | VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits()
}

/// Returns `true` if bit number `bit` is set in `features`.
pub fn has(features: u64, bit: u32) -> bool {
    features & 1 << bit != 0
}

/// Returns the vhost-user protocol features that the server offers. The virtio features are
/// separate from these.
pub fn protocol_features() -> VhostUserProtocolFeatures {
    VhostUserProtocolFeatures::MQ
        | VhostUserProtocolFeatures::REPLY_ACK
        | VhostUserProtocolFeatures::CONFIG
        | VhostUserProtocolFeatures::INFLIGHT_SHMFD
        | VhostUserProtocolFeatures::CONFIGURE_MEM_SLOTS
        | VhostUserProtocolFeatures::BACKEND_REQ
        | VhostUserProtocolFeatures::RESET_DEVICE
}

/// Returns `len` bytes of the configuration space from `offset` on; `None`: the bytes are not all
/// inside the space.
pub fn config(
    properties: Properties,
    size_bytes: u64,
    queues: u16,
    offset: usize,
    len: usize,
) -> Option<Vec<u8>> {
    let mut space = [0; CONFIG_BYTES];
    let mut put = |at: usize, bytes: &[u8]| space[at..at + bytes.len()].copy_from_slice(bytes);
    // An image behind a page cache takes requests of any size, but the sectors of a virtio disk
    // have at least 512 bytes.
    let sector_bytes = properties.sector_bytes.max(SECTOR_BYTES as u32);
    let blocks = properties.preferred_bytes / sector_bytes;
    let (zeroing, aligned) = (!properties.read_only, properties.preferred_bytes / 512);
    put(0, &(size_bytes / SECTOR_BYTES).to_le_bytes());
    put(8, &SEGMENT_BYTES_MAX.to_le_bytes());
    put(12, &SEGMENTS_MAX.to_le_bytes());
    put(20, &sector_bytes.to_le_bytes());
    put(24, &[blocks.ilog2() as u8, 0]);
    put(26, &(blocks as u16).to_le_bytes());
    put(34, &queues.to_le_bytes());
    if zeroing {
        put(36, &RANGE_SECTORS_MAX.to_le_bytes());
        put(40, &RANGES_MAX.to_le_bytes());
        put(44, &aligned.to_le_bytes());
        put(48, &RANGE_SECTORS_MAX.to_le_bytes());
        put(52, &RANGES_MAX.to_le_bytes());
        put(56, &[1]);
    }
    Some(space.get(offset..offset.checked_add(len)?)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROPERTIES: Properties =
        Properties { read_only: false, sector_bytes: 512, preferred_bytes: 4096, caches: false };

    #[test]
    fn the_configuration_has_the_layout_of_the_standard() {
        let config = config(PROPERTIES, 1 << 30, 4, 0, 60).unwrap();
        assert_eq!(config[..8], (1u64 << 21).to_le_bytes());
        assert_eq!(config[20..24], 512u32.to_le_bytes());
        assert_eq!((config[24], &config[26..28], config[34]), (3, &[8, 0][..], 4));
        assert_eq!((&config[40..44], config[56]), (&32u32.to_le_bytes()[..], 1));
    }

    #[test]
    fn a_read_outside_the_configuration_is_refused() {
        assert_eq!(config(PROPERTIES, 512, 1, 250, 6).unwrap(), [0; 6]);
        assert_eq!(config(PROPERTIES, 512, 1, 250, 7), None);
        assert_eq!(config(PROPERTIES, 512, 1, usize::MAX, 2), None);
    }

    #[test]
    fn a_read_only_image_offers_no_discard() {
        let read_only = features(Properties { read_only: true, ..PROPERTIES });
        assert!(has(read_only, VIRTIO_BLK_F_RO) && !has(read_only, VIRTIO_BLK_F_DISCARD));
        assert!(has(features(PROPERTIES), VIRTIO_BLK_F_DISCARD));
    }
}
