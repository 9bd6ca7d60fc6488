//! The order in which requests take effect: that of their submission, where a program can tell.
//!
//! * [`overlap`]: requests that touch the same bytes of a file
//! * `stream_queue`: requests on the same stream
//! * [`link`]: a request that begins when another has succeeded

pub mod link;
pub mod overlap;
mod stream_queue;

pub use link::{Link, Links};
pub use overlap::{Access, InodeKey, Orders, Ticket};
pub(crate) use overlap::{Way, reach};
pub(crate) use stream_queue::{StreamQueues, StreamTicket};
