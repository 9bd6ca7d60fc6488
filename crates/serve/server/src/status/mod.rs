//! The status of a running server: on sockets, in JSON and for Prometheus.
//!
//! ```text
//!  Server ── snapshot ──▶ Status ─┬─ JSON          GET /status
//!                                 └─ prometheus    GET /metrics
//!  endpoint   answers on a socket        own_socket   the socket that `nowait top` finds
//!  http       parses a request, and makes the answer
//!  backing    stores and NBD servers behind images: a part of Status
//! ```

mod backing;
mod endpoint;
mod http;
pub(crate) mod own_socket;
mod prometheus;
mod snapshot;

pub use endpoint::Endpoint;
pub use prometheus::metrics;
pub use snapshot::snapshot;
