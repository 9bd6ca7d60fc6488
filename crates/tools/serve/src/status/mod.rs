//! The status of a running server: on a local socket, in JSON and for Prometheus.
//!
//! ```text
//!  Server ── snapshot ──▶ Status ─┬─ JSON          GET /status
//!                                 ├─ prometheus    GET /metrics
//!                                 └─ line          on the terminal, once a second
//!  endpoint   answers on a socket        place   where such sockets are
//!  backing    stores and NBD servers behind images: a part of Status
//! ```

mod backing;
mod endpoint;
pub(crate) mod format;
mod line;
pub mod place;
mod prometheus;
mod snapshot;

pub use backing::{ConnectionStatus, StoreStatus};
pub use endpoint::{Endpoint, fetch};
pub use line::StatusLine;
pub use prometheus::metrics;
pub use snapshot::{CacheStatus, ClientsStatus, ExportStatus, KindStatus, Status, quantile_ns};
