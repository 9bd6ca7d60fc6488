//! The eviction policy: which folio leaves when a frame is needed.
//!
//! ```text
//!              not remembered                     hit more than once
//!   insert ──────────────────► small (a tenth) ──────────────────────► main ◄─┐ hit since
//!      │                         │ else                                 │ ────┘
//!      │ remembered              ▼                                      ▼
//!      └──────────► main        leaves; its hash goes to the ghosts    leaves
//! ```
//!
//! A hit takes no lock and moves nothing: it raises a counter of two bits in the folio's own word.
//! The policy reads and lowers it when it looks for a folio to evict.
//!
//! * [`s3_fifo`]: the policy; docs/eviction.md has the measurements that it was chosen by
//! * [`ghost`]: hashes of those that left; [`queues`]: the order of those that are here

pub mod ghost;
pub mod queues;
pub mod s3_fifo;

pub use s3_fifo::S3Fifo;

/// Hashes the name of a folio: its mapping and the index of its first page.
pub fn hash(mapping: u64, index: u64) -> u32 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood 2014) over both.
    let mut mixed = mapping.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as u32
}
