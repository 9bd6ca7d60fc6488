//! A page cache in user space: no system call, lock or allocation on a hit.
//!
//! ```text
//! mapping      the pages of one file: look-up, fill, change, writeback, removal
//!   tree       from page index to folio, with tags; look-ups without a lock
//!   nodes      what trees are made of, recycled
//! folio        header of a run of frames: one word of state, the identity
//!   pages      a set of its pages: which are dirty
//!   pin        guard: the folio stays
//!   page_wait  operations that wait for a folio, by reason
//! frames       the memory, in huge pages
//!   buddy      which runs of frames are free
//!   room       operations that wait for a frame
//!
//! file         a cached file: mapping, sizes, how bios reach it
//!   read, write, writeback   operations: iterations that never wait
//!   io         bios from issue to completion      flush      group commit
//!   memory     frames for an operation            reclaim    victims, cleaning
//!   share      how much may be dirty, of which file and device
//! lend         bytes without a copy
//! copy         between frames and memory of the application
//! mistake      made on purpose, for tests that must find them
//! open_file    what an open remembers of its reads
//! readahead    what to read before it is asked for
//! policy       which folio leaves when a frame is needed
//! change       what is done to the file past its cache: cuts, holes, writes of others
//! gate         no pages are brought in meanwhile
//! ```
//!
//! An operation is driven by its owner: `iterate` with a plug list and a way to make a wait
//! entry; the bios on the list are queued to a backend after it; their completions go to
//! [`Cache::complete`], which kicks.
//!
//! **Lock order.** A mapping's lock, then the buddy of `frames`, the book of `nodes`, the policy or
//! a shard of `page_wait`; the policy's and the shards' are taken alone too, and nothing under
//! them. The lists of `room` and of the gate, the book of `flush`, and the registry, the files and
//! the I/Os of `cache` are taken alone. Nothing is kicked under a lock.
//!
//! **Floors.** A module imports only modules of lower floors (`cargo x tidy`). `cache`, `file`,
//! `io` and `mapping` are the one circle: the cache owns its files, each file has a mapping, a
//! mapping takes frames from the cache, and I/O completes through all of them.

mod buddy;
pub mod cache;
pub mod change;
pub mod copy;
pub mod file;
mod flush;
pub mod folio;
pub mod frames;
mod gate;
mod io;
pub mod lend;
pub mod mapping;
mod memory;
pub mod mistake;
#[cfg(all(test, loom))]
mod models;
mod nodes;
pub mod open_file;
pub mod page_wait;
pub mod pages;
pub mod pin;
pub mod policy;
mod primitives;
pub mod read;
pub mod readahead;
mod reclaim;
mod room;
mod share;
#[cfg(all(test, not(loom)))]
mod tests;
pub mod tree;
pub mod write;
pub mod writeback;

pub use buddy::{FRAME_BYTES, ORDER_MAX};
pub use cache::Cache;
pub use change::Change;
pub use file::{Backing, CachedFile, Target, Writes};
pub use flush::SyncLevel;
pub use folio::{Folio, FolioId};
pub use frames::{Ahead, Frames, NoFrames};
pub use lend::PinnedRange;
pub use mapping::{Busy, Mapping};
pub use open_file::OpenFile;
pub use page_wait::Reason;
pub use pages::Pages;
pub use pin::Pin;
pub use read::ReadOperation;
pub use share::InFlightMax;
pub use tree::Tag;
pub use write::{WriteOperation, WriteStart};
pub use writeback::SyncOperation;
