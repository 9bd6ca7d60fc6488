//! The server behind `nowait serve`: serves images to clients.
//!
//! ```text
//!  command ─▶ server ─┬▶ nbd ───┬─▶ nowait_device
//!                     ├▶ fuse ──┤
//!                     ├▶ vhost ─┤
//!                     └▶ ublk ──┘
//! ```
//!
//! * [`nbd`]: the protocol, without sockets
//! * [`fuse`]: an image as a file, by the kernel's FUSE
//! * [`server`]: sockets, and the threads that serve them
//! * [`vhost`]: devices of virtual machines, and the threads that serve them
//! * [`ublk`]: an image as a block device, by the kernel's ublk
//! * [`status`]: counters of the server, for `nowait top` and Prometheus
//! * [`access`]: access to exports
//! * `identity`: identifies files that the server has made
//! * `caught`: work on threads that must survive its panics
//! * `os_text`: paths of the command line
//! * [`command`]: the command: listeners, signals, ends
//!
//! A module imports only modules of lower floors; the highest floor is `command`, then `status` and
//! [`vhost`], [`server`], [`fuse`] and [`ublk`] (`cargo x tidy`).

// Tests of this crate use the support code of the integration tests.
#[cfg(test)]
extern crate self as nowait_server;

pub mod access;
mod caught;
pub mod command;
mod error;
#[cfg(test)]
mod failure;
pub mod fuse;
mod identity;
pub mod nbd;
mod os_text;
pub mod server;
pub mod status;
pub mod ublk;
pub mod vhost;

pub use command::{ServeArgs, bytes, serve};
pub use error::ServeError;
