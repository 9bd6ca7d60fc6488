//! An image as a block device of this machine, `/dev/ublkbN`, by the kernel's ublk.
//!
//! ```text
//!  drive     the device appears and disappears; devices of killed servers
//!  queue ──▶ session ──▶ nowait_device
//!    ▲          │           a device has a queue for each serving thread, with a session
//!    └─ results ┘
//!  served    the queues of one thread
//! ```
//! The kernel copies the data of a request into and out of memory of the queue; the device below
//! reads and writes that same memory. A request in flight occupies no thread.

mod drive;
mod served;
mod session;

pub use drive::{Drive, Limits, RemoveOutcome};
pub(crate) use served::{Queues, Setup, is_queue};
pub use session::{Kernel, Session};
