//! Images served to clients: what `nowait serve` runs.
//!
//! ```text
//!  command ─▶ server ─▶ nbd ─▶ nowait_export
//!         └──▶ vhost ─────────────┘
//! ```
//!
//! * [`nbd`]: the protocol, without sockets
//! * [`server`]: sockets, and the threads that serve them
//! * [`vhost`]: devices of virtual machines, and the threads that serve them
//! * [`status`]: what it tells about itself
//! * [`command`]: the command: listeners, signals, ends

pub mod command;
mod error;
pub mod nbd;
pub mod server;
pub mod status;
pub mod vhost;

pub use command::{ServeArgs, TopArgs, serve, top};
pub use error::ServeError;
