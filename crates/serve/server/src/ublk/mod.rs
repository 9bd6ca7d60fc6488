//! An image as a block device of this machine, `/dev/ublkbN`, by the kernel's ublk.
//!
//! ```text
//!  drive     the device appears and disappears; what a server that was killed has left behind
//!  queue ──▶ session ──▶ nowait_device
//!    ▲          │           a device has a queue for each serving thread, with a session
//!    └─ results ┘
//!  served    the queues of one thread
//! ```
//! The kernel copies the data of a request into and out of memory of the queue; the device below
//! reads and writes that very memory. While it works a request holds no thread.

mod drive;
mod served;
mod session;

pub use drive::{Drive, Limits, RemoveOutcome};
pub(crate) use served::{Queues, Setup, is_queue};
pub use session::{Kernel, Session};
