//! An image as a block device of this machine, `/dev/ublkbN`, by the kernel's ublk.
//!
//! ```text
//!  drive     the device appears and disappears; devices of killed servers
//!  queue ──▶ session ──▶ nowait_device
//!    ▲          │           a device has one or more queues, each with a session
//!    └─ results ┘
//!  served    the queues of one serving thread
//! ```
//! The kernel copies the data of a request into or out of memory of the queue. If the medium can
//! borrow that memory, the device below reads or writes it directly, otherwise the session copies
//! the data once more. The serving thread does not wait for requests in flight.

mod drive;
mod served;
mod session;

pub use drive::{Drive, Limits, RemoveOutcome};
pub(crate) use served::{Queues, Setup, is_queue};
pub use session::{Kernel, Session};
