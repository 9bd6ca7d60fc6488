//! Images served to clients: what `nowait serve` runs.
//!
//! ```text
//!  command ─▶ server ─┬▶ nbd ───┬─▶ nowait_device
//!                     ├▶ fuse ──┤
//!                     ├▶ vhost ─┤
//!                     └▶ ublk ──┘
//! ```
//!
//! * [`nbd`]: the protocol, without sockets
//! * [`fuse`]: the image as a file, by the kernel
//! * [`server`]: sockets, and the threads that serve them
//! * [`vhost`]: devices of virtual machines, and the threads that serve them
//! * [`ublk`]: the image as a block device, by the kernel
//! * [`status`]: what it tells about itself
//! * [`access`]: access to exports
//! * `identity`: whether what a name stands for was made here
//! * `os_text`: paths of the command line
//! * [`command`]: the command: listeners, signals, ends

// What the integration tests have in common is used by tests of this crate, too.
#[cfg(test)]
extern crate self as nowait_server;

pub mod access;
pub mod command;
mod error;
#[cfg(test)]
mod failure;
pub mod fuse;
mod identity;
pub mod nbd;
mod os_text;
mod say;
pub mod server;
pub mod status;
pub mod ublk;
pub mod vhost;

pub use command::{ServeArgs, bytes, serve};
pub use error::ServeError;
