//! An image file as a block device: the part that NBD, FUSE, vhost-user and ublk share.
//!
//! ```text
//!  front ── read, write, flush, task ───▶ Medium ──▶ Disk ─┬─ a queue of nowait: reads, writes,
//!    ▲        chunks of a Pool                             │  flushes; direct by default
//!    └────────────── RequestEnd ◀──────────────────────────┴─ BlockingTasks: threads for calls
//!                                                             that block: holes, extents, edges
//! ```
//!
//! * [`image`]: an image: a window of a file, its size and its permissions; `claim`:
//!   claims against other programs
//! * `request`: the requests of a front and their ends; `mailbox`: brings ends from other threads
//! * [`medium`]: carries requests out; [`disk`] does so by a queue of nowait, a burst in two halves
//!   (`burst`)
//! * [`blocking_tasks`]: requests that only a blocking call can carry out, in `turns`; `stripes`:
//!   locks between writes of parts of blocks and of whole blocks; `flushes`: tells all clients of a
//!   failed flush
//! * [`backing`]: names of files and servers; [`source`]: the trait of an opened one; [`remote`]:
//!   an image on an NBD server. Other crates add sources.
//! * [`nbd`]: the numbers of the protocol
//! * [`pages`]: the index of a cache's pages
//! * [`buffer`]: aligned memory, reused and bounded; [`lent`]: memory of another owner
//! * [`stats`]: counters and latencies of an image
//!
//! A front knows no files, and in this crate only [`remote`] speaks a protocol. Each thread has one
//! [`Disk`] for any number of images, and several threads may serve one image.
//!
//! **Durability** is that of a disk: when a flush succeeds, every write that ended before it began
//! is durable; a write with `durable` is durable when it succeeds. For an image in a file, a failed
//! flush also fails all overlapping flushes, and the next flush of each other client; of
//! overlapping durable writes it fails those that are blocking tasks, and with [`Cache::Host`] all.
//! An NBD server or an object store behind the image tells only the client whose flush fails.

pub mod backing;
pub mod blocking_tasks;
pub mod buffer;
mod burst;
mod claim;
pub mod disk;
mod error;
mod flushes;
pub mod image;
pub mod lent;
mod mailbox;
pub mod medium;
pub mod nbd;
pub mod pages;
pub mod remote;
mod request;
pub mod source;
pub mod stats;
mod stripes;
mod turns;

pub use backing::Backing;
pub use blocking_tasks::BlockingTasks;
pub use buffer::{Chunk, PIECE_BYTES, Pool, SMALL_BYTES};
pub use disk::Disk;
pub use flushes::KnownFailures;
pub use image::{Cache, Image, ImageOptions, Properties};
pub use lent::LentMemory;
pub use mailbox::Mailbox;
pub use medium::{Loan, Medium};
pub use remote::{Cache as ServerCache, CacheCounts, ConnectionCounts, Patience, Remote};
pub use request::{BlockingTask, Extent, RequestEnd, Tag};
pub use source::{AnySource, Messages, Source, Transfers};
pub use stats::{Kind, Stats};
pub use stripes::Shared;
