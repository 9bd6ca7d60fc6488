//! An image as one file, by the kernel's FUSE, for losetup, mkfs and mount.
//!
//! ```text
//!  mount    the file appears and disappears    mount_point  the file below, and the mounts of
//!                                                           killed servers
//!                   threads of fuser                serving threads
//!  kernel ─▶ fuser ─▶ Front ─── FuseRequest, an order ───▶ Pending ─▶ nowait_device
//!    ▲                                                  │
//!    └─────────────────── fuser's reply ◀───────────────┘
//!  image_file  the state of the file, which all these threads share
//! ```
//! The crate fuser mounts, negotiates, and encodes the messages. A thread of fuser passes a request
//! for the image to a serving thread. The serving thread answers the request after the device has
//! completed it, and neither thread waits meanwhile.

mod front;
mod image_file;
mod mount;
mod mount_point;
mod pending;
mod request;

pub use front::Front;
pub use image_file::{ImageFile, Rights};
pub use mount::{Mount, UnmountOutcome};
pub(crate) use mount_point::MountPoint;
pub(crate) use pending::{RequestTable, is_file};
pub(crate) use request::{Buffers, FuseRequest};
