//! The server behind `nowait serve`: serves images to clients.
//!
//! ```text
//!  command ─▶ server ─┬▶ nbd ───┬─▶ nowait_device
//!                     ├▶ fuse ──┤
//!                     ├▶ vhost ─┤
//!                     └▶ ublk ──┘
//! ```
//!
//! * [`nbd`]: the NBD protocol, without sockets
//! * [`fuse`]: an image as a file, by the kernel's FUSE
//! * [`server`]: sockets of NBD clients, and the threads that serve NBD, FUSE and ublk
//! * [`vhost`]: devices of virtual machines, and the threads that serve them
//! * [`ublk`]: an image as a block device, by the kernel's ublk
//! * [`status`]: counters of the server, for `nowait top` and Prometheus
//! * [`access`]: the rules that say which clients may use which exports
//! * `identity`: identifies files that the server has made, so that the server removes no other
//!   files
//! * `caught`: runs work on threads that must not end, and catches the work's panics
//! * `os_text`: splits arguments of the command line, whose paths need not be UTF-8
//! * [`command`]: the command `nowait serve`: options, start, signals, shutdown
//!
//! A module imports only modules of lower floors, which `cargo x tidy` checks. The floors from the
//! highest down: `command`; `status` and [`vhost`]; [`server`]; [`fuse`] and [`ublk`]; [`access`]
//! and `caught`; the rest.

// Unit tests include support code of the integration tests, which names this crate `nowait_server`.
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
