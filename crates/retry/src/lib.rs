//! The retry engine: it knows no pages, no files and no devices.
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
//!
//! * [`operation`]: what an operation is, and the three outcomes of an iteration
//! * [`kick`]: who may run an operation now (rules R1–R5 of ARCHITECTURE.md)
//! * [`request`]: an operation with its kick; [`run_list`]: requests that were kicked
//! * [`event_ring`]: completions, laid out as the kernel's user-mapped ring
//! * [`waiters`]: threads that wait for completions
//! * [`watch`]: who looks after what nobody waits for
//! * [`outcome`]: how a request ended, in the application's memory, and who sleeps for that
//! * [`context`]: slots, completions, waiting, destruction
//! * [`stats`]: counters and the histogram of a report

pub mod context;
pub mod event_ring;
pub mod kick;
pub mod operation;
pub mod outcome;
pub mod request;
pub mod ring_memory;
pub mod run_list;
pub mod stats;
pub mod sync;
pub mod wait;
pub mod waiters;
pub mod watch;

pub use context::{IoContext, Pump, Sink, Wanted};
pub use operation::{Operation, Step};
pub use request::Request;
pub use run_list::RunList;
pub use wait::WaitEntry;
