//! The order in which requests take effect: that of their submission, where a program can tell.
//!
//! 1. A request on a file with offsets that goes on outside submit has a place in the order of its
//!    inode, except as in rule 2. Later requests that depend on it wait for its end ([`Reach`]: the
//!    same bytes, or a write that moves the end of the file and a read beyond that end).
//! 2. A direct request on a context's own queue has no place while the kernel carries it out. If a
//!    later request of the same submission depends on it, the engine commits the direct request
//!    first, and so learns whether the kernel refuses it (`submit/uncommitted.rs`). If the kernel
//!    may carry out or refuse the direct request later, it gets a place when a request comes that
//!    depends on it (`request/unordered.rs`).
//! 3. A request that the kernel refuses gets its place before a request that depends on it begins.

pub mod link;
pub mod overlap;
pub mod reach;
mod stream_queue;

pub use link::{Link, Links};
pub(crate) use overlap::Way;
pub use overlap::{Orders, Ticket};
pub use reach::{Access, FileState, InodeKey, Reach};
pub(crate) use stream_queue::{StreamQueues, StreamTicket};
