//! The status of a running server: on a local socket, in JSON and for Prometheus.
//!
//! ```text
//!  Server ── snapshot ──▶ Status ─┬─ JSON          GET /status
//!                                 ├─ prometheus    GET /metrics
//!                                 └─ line          on the terminal, once a second
//!  endpoint   answers on a socket        place   where such sockets are
//!  asker      a client of it, by http     fetch   asks another server
//!  backing    stores and NBD servers behind images: a part of Status
//! ```

mod asker;
mod backing;
mod endpoint;
mod fetch;
pub(crate) mod format;
mod http;
mod line;
pub mod place;
mod prometheus;
mod snapshot;

pub use backing::{ConnectionStatus, StoreStatus};
pub use endpoint::Endpoint;
pub use fetch::fetch;
pub use line::StatusLine;
pub use prometheus::metrics;
pub use snapshot::{CacheStatus, ClientsStatus, ExportStatus, KindStatus, Status, quantile_ns};

/// How long a question and its answer may take together.
const PATIENCE: core::time::Duration = core::time::Duration::from_secs(2);
