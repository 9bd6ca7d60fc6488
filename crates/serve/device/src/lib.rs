//! An image as a block device: the code that the fronts NBD, FUSE, vhost-user-blk and ublk share.
//!
//! ```text
//!  front ── read, write, flush, task ───▶ Medium ──▶ Disk ─┬─ a queue of nowait: reads, writes,
//!    ▲        chunks of a Pool                             │  flushes; direct by default
//!    └────────────── RequestEnd ◀──────────────────────────┴─ BlockingTasks: threads for calls
//!                                                             that block: holes, extents, edges
//! ```
//!
//! * [`image`]: a window of a file or of another source, with its size and permissions; `claim`:
//!   locks files against other programs
//! * `request`: the requests of a front and their ends; `mailbox`: brings the ends of requests from
//!   other threads
//! * [`medium`]: the trait for the storage behind fronts; [`disk`]: implements the trait, for files
//!   by a queue of nowait; `burst`: hands a burst of requests to this queue in two halves
//! * [`blocking_tasks`]: requests that only a blocking call can carry out; `turns`: lets clients
//!   take turns; `stripes`: locks between writes of parts of blocks and writes of whole blocks;
//!   `flushes`: reports a failed flush of a file to each client of the image
//! * [`backing`]: names of files and servers; [`source`]: the trait of an opened file or server;
//!   [`remote`]: an image on an NBD server. Other crates add sources.
//! * [`nbd`]: the numbers of the protocol
//! * [`pages`]: the index of the pages in a cache
//! * [`buffer`]: aligned memory, reused and bounded; [`lent`]: memory of another owner
//! * [`stats`]: counters and latencies of an image
//!
//! A front does not access image files, and in this crate only [`remote`] speaks a protocol. Each
//! serving thread has one [`Disk`] for any number of images, and several threads may serve one
//! image.
//!
//! **Durability** is like that of a disk. When a flush succeeds, every write that ended before the
//! flush began is durable, unless an earlier flush has failed. A write with `durable` is durable
//! when the write succeeds. For an image in a file, a failed flush also fails all flushes that
//! overlap with it, and the next flush of each other client that is connected then. A failed flush
//! also fails durable writes that overlap with it: blocking tasks, and with [`Cache::Host`] all.
//! For an image on an NBD server or an object store, this crate reports a failed flush only to the
//! client that sent it.

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
