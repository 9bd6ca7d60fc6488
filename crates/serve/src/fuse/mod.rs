//! An image as one file, by the kernel's FUSE: what losetup, mkfs and mount can use.
//!
//! ```text
//!  mount     the file appears and disappears; what a crash has left behind
//!  device ─▶ landing ─▶ session ─▶ nowait_export
//!    ▲                     │          a file has one session for each serving thread
//!    └───── answers ───────┘
//!  face      what all of them know of the file          wire    the protocol's numbers
//! ```
//! A request is read into the memory that it is written from, and answered from the memory it was
//! read into; while the device works it holds no thread.

mod device;
mod face;
mod landing;
mod mount;
mod mounts;
mod session;
mod wire;

pub use device::Device;
pub use face::{Face, Rights};
pub use landing::Landing;
pub use mount::{Mount, Unmounted};
pub(crate) use mounts::{Mounts, is_mount};
pub use session::{Kernel, Session};
