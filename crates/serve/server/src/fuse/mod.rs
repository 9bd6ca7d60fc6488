//! An image as one file, by the kernel's FUSE: what losetup, mkfs and mount can use.
//!
//! ```text
//!  mount    the file appears and disappears    mount_point  what is below it, and what a crash
//!                                                           has left behind
//!                   threads of fuser                serving threads
//!  kernel ─▶ fuser ─▶ Front ─── FuseRequest, an order ───▶ Pending ─▶ nowait_device
//!    ▲                                                  │
//!    └─────────────────── fuser's reply ◀───────────────┘
//!  face     what all of them know of the file
//! ```
//! The crate fuser mounts, shakes hands and has the messages. A request goes from its thread to a
//! serving one, which answers it when the device has done it; meanwhile it holds no thread.

mod face;
mod front;
mod mount;
mod mount_point;
mod pending;
mod request;

pub use face::{Face, Rights};
pub use front::Front;
pub use mount::{Mount, UnmountOutcome};
pub(crate) use mount_point::MountPoint;
pub(crate) use pending::{RequestTable, is_file};
pub(crate) use request::{Buffers, FuseRequest};
