//! Asynchronous file I/O for Linux whose submit does not wait for data: the native Rust API.
//!
//! ```text
//!  Nowait ──────── File ──────────── read_at, write_at, sync_all …       blocks
//!  one engine:       │
//!  backend, threads  └── Queue ───── read, write, sync, poll             takes a buffer
//!                          ├──────── submit                              waits for no data
//!                          ├──────── wait, pop, reap                     gives it back
//!                          └──────── cancel, timeout, link               never wait
//!            AsyncFile, Stream ────── read_at, write_at, read, ready …    futures
//! ```
//!
//! * [`Nowait`]: an engine, started by its [`Builder`]; ends with its last handle
//! * [`File`], [`OpenOptions`], [`CacheMode`]: open files, and blocking requests
//! * [`Queue`]: many requests at a time; the queue owns each buffer until its request is popped
//! * [`AsyncFile`], [`Stream`]: the same requests as futures, for every executor; transfers, syncs
//!   and polls are [`Operation`]s
//! * [`IoBuffer`], [`IoBufferMut`], [`AlignedBuffer`]: the types of buffers
//! * [`Error`]: the action that failed, and the reason
//!
//! ```
//! # fn main() -> Result<(), nowait::Error> {
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("file");
//! use nowait::{File, Nowait};
//!
//! let nowait = Nowait::new()?;
//! let file = File::create(&nowait, &path)?;
//! file.write_all_at(b"durable", 0)?;
//! file.sync_all()?;
//!
//! let mut bytes = [0; 16];
//! let count = File::open(&nowait, &path)?.read_at(&mut bytes, 3)?;
//! assert_eq!(&bytes[..count], b"able");
//! # Ok(())
//! # }
//! ```
//!
//! The documented items are the whole API. The crates `nowait-*` hold the engine. Their interfaces,
//! and the hidden items here, which the project's other interfaces use, may change with every
//! version.

mod align;
mod allocation;
mod async_file;
mod buffer;
mod builder;
mod calls;
#[cfg(any(feature = "futures-io", feature = "tokio"))]
mod cursor;
mod error;
mod file;
mod lent;
mod open;
mod operation;
mod queue;
mod reactor;
mod request;
mod stream;
mod timer;

pub use align::Alignment;
pub use allocation::Zeroing;
pub use async_file::AsyncFile;
pub use buffer::{AlignedBuffer, IoBuffer, IoBufferMut};
pub use builder::{Builder, Nowait};
#[cfg(any(feature = "futures-io", feature = "tokio"))]
pub use cursor::Cursor;
pub use error::Error;
pub use file::File;
pub use lent::Lent;
pub use nowait_engine::{BackendChoice, Limits, SubmitMode};
pub use nowait_sys::{Errno, file::Advice};
pub use open::{CacheMode, OpenOptions};
pub use operation::{FileSync, Operation, Readiness, Transfer, VectoredTransfer};
pub use queue::{Completion, POLL_IN, POLL_OUT, Queue, Refused, RequestId};
pub use request::Buffers;
pub use stream::Stream;
