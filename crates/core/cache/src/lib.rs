//! A page cache in user space. Reading cached pages normally needs no system call, lock or
//! allocation.
//!
//! | module | contents |
//! |---|---|
//! | `mapping` | the pages of one file: look-up, fill, change, writeback, removal |
//! | `tree`, `nodes` | from page index to folio, with tags; look-ups without a lock |
//! | `folio`, `pages` | the header of a run of frames (state, identity); a set of its pages |
//! | `pin`, `page_wait` | keeps the memory of a folio; operations that wait for a folio |
//! | `frames`, `buddy` | the memory of the cache; the allocator of its frames |
//! | `room`, `memory` | operations that wait for a frame; allocation of frames for operations |
//! | `file` | a cached file: mapping, sizes, how bios reach it |
//! | `read`, `write`, `writeback` | operations, whose iterations do not wait for I/O |
//! | `io`, `flush` | bios from issue to completion; group commit |
//! | `reclaim`, `policy` | makes frames free; chooses the folio to evict |
//! | `share` | limits on frames that are dirty or being read, for each device and file |
//! | `lend`, `copy` | lends bytes without a copy; copies to and from the application |
//! | `open_file`, `readahead` | the readahead of one open file; decides what to read ahead |
//! | `change`, `gate` | changes of a file that bypass the cache; keeps pages out meanwhile |
//! | `mistake` | deliberate bugs that tests must find |
//!
//! The owner of an operation calls `iterate` with a plug list and a function that makes a wait
//! entry. The owner then queues the bios of the list to a backend, and passes their completions to
//! [`Cache::complete`], which kicks the waiting operations when an I/O has ended.
//!
//! **Lock order.** Under a mapping's lock a thread may take the lock of the buddy of `frames`, of
//! the book of `nodes`, of the policy or of a shard of `page_wait`. A thread that holds one of
//! these four takes no other lock. Under the lock of the I/Os of `cache` a thread may take the lock
//! of `writes` of a file. A thread that takes the lock of a list of `room`, of the list of the
//! gate, of the book of `flush`, of the registry or of the files of `cache` holds no other of these
//! locks, and takes none. No thread kicks an entry while it holds one of these locks.
//!
//! **Floors.** A module imports only modules of lower floors (`cargo x tidy`), with one exception:
//! `cache`, `file`, `io` and `mapping` import each other. The cache lists its files, each file has
//! a mapping, a mapping takes frames from the cache, and I/O completes through all of them.

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
