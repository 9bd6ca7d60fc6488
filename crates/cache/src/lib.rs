//! A page cache in user space: no system call, lock or allocation on a hit.
//!
//! ```text
//! mapping      the pages of one file: look-up, fill, change, writeback, removal
//!   tree       from page index to folio, with tags; look-ups without a lock
//!   nodes      what trees are made of, recycled
//! folio        header of a run of frames: one word of state, the identity
//!   pin        guard: the folio stays
//!   page_wait  operations that wait for a folio, by reason
//! frames       the memory, in huge pages
//!   buddy      which runs of frames are free
//!   room       operations that wait for a frame
//! copy         between frames and memory of the application
//! ```
//!
//! **Lock order.** A mapping's lock, then `Frames`' buddy or the nodes' book. The shards of
//! `page_wait`, the list of `room`, and the registry of `cache` are taken alone. Nothing is
//! kicked under a lock.

mod buddy;
pub mod cache;
pub mod copy;
pub mod folio;
pub mod frames;
pub mod mapping;
#[cfg(all(test, loom))]
mod models;
mod nodes;
pub mod page_wait;
pub mod pin;
mod room;
mod sync;
pub mod tree;

pub use buddy::ORDER_MAX;
pub use cache::Cache;
pub use folio::{Folio, FolioId};
pub use frames::{FRAME_BYTES, Frames, NoFrames};
pub use mapping::{Busy, Mapping};
pub use page_wait::Reason;
pub use pin::Pin;
pub use tree::Tag;
