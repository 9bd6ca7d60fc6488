//! The order in which requests take effect: that of their submission, where a program can tell.
//!
//! 1. A request that is accepted and not in the kernel's hands has its place in the order of its
//!    inode. Later requests that depend on it wait for its end ([`Reach`]: the same bytes, or a
//!    write that moves the end of the file and a read beyond it).
//! 2. A direct request on a context's own queue has no place while the kernel carries it out. A
//!    request that depends on one of its own submission has that committed first, and so knows what
//!    the kernel refuses (`submit/uncommitted.rs`). One that the kernel may carry out late, or
//!    refuse late, takes its place when a request comes that depends on it
//!    (`request/unordered.rs`).
//! 3. A request that the kernel refuses takes its place before the next request begins.
//!
//! * [`overlap`]: requests that touch the same bytes of a file, or depend on where it ends
//! * [`reach`]: which bytes those are
//! * `stream_queue`: requests on the same stream
//! * [`link`]: a request that begins when another has succeeded

pub mod link;
pub mod overlap;
pub mod reach;
mod stream_queue;

pub use link::{Link, Links};
pub(crate) use overlap::Way;
pub use overlap::{Orders, Ticket};
pub use reach::{Access, FileState, InodeKey, Reach};
pub(crate) use stream_queue::{StreamQueues, StreamTicket};
