//! The status of image servers and of programs under `nowait run`: its format, its place, and how
//! to fetch it.
//!
//! ```text
//!  server ── a socket ──▶ fetch ──▶ Status     place    where sockets and figures are
//!  program ── a file ───▶ place::figures       format   figures on a terminal
//! ```

mod backing;
mod fetch;
pub mod format;
pub mod place;
mod status;

pub use backing::{ConnectionStatus, StoreStatus};
pub use fetch::fetch;
pub use status::{CacheStatus, ClientsStatus, ExportStatus, KindStatus, Status, quantile_ns};

/// Time limit, at the server and at its client, for one request and its answer together.
pub const PATIENCE: core::time::Duration = core::time::Duration::from_secs(2);
