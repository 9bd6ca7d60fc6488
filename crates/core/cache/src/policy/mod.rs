//! The eviction policy: chooses the folio that leaves when a frame is needed.
//!
//! ```text
//!              not remembered                     hit more than once
//!   insert ──────────────────► small (a tenth) ──────────────────────► main ◄─┐ hit since
//!      │                         │ else                                 │ ────┘
//!      │ remembered              ▼                                      ▼
//!      └──────────► main        leaves; its hash goes to the ghosts    leaves
//! ```
//!
//! A hit takes no lock and moves no folio. A hit on the first page of a folio raises a counter of
//! two bits in the folio's state word. The policy reads and lowers the counter when it looks for a
//! folio to evict. docs/eviction.md has the measurements by which the policy was chosen.

pub mod ghost;
pub mod queues;
pub mod s3_fifo;

pub use s3_fifo::S3Fifo;

/// Hashes a mapping and the index of a folio's first page.
pub fn hash(mapping: u64, index: u64) -> u32 {
    // The finalizer of SplitMix64 (Steele, Lea, Flood 2014), applied to both numbers.
    let mut mixed = mapping.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ index;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (mixed ^ (mixed >> 31)) as u32
}
