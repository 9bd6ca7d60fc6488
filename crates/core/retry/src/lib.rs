//! Operations that are retried, without knowledge of files and devices.
//!
//! ```text
//!            submit                                 a condition comes true
//!              │                                            │ kick
//!              ▼                                            ▼
//!   Request ── iterate ──► Step::Retry  (wait entry armed) ─┤ run list ──► iterate again
//!              │      └──► Step::Queued (a backend owns it) ─── completion ──► complete
//!              ▼
//!            Step::Done ──► finish ──► event ring ──► waiters (exclusive, last in first out)
//! ```

pub mod closes;
pub mod context;
pub mod counter;
pub mod deferred;
pub mod event_ring;
mod hint;
pub mod kick;
pub mod operation;
pub mod outcome;
pub mod presence;
pub mod primitives;
pub mod request;
pub mod ring_memory;
pub mod run_list;
pub mod stats;
pub mod wait;
pub mod waiters;
pub mod watch;

pub use closes::Closes;
pub use context::{IoContext, Pump, Sink, WaitOptions};
pub use deferred::{Deferred, DeferredList};
pub use operation::{Operation, Step};
pub use request::Request;
pub use run_list::RunList;
pub use wait::WaitEntry;
