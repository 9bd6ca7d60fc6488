//! Operations that are retried. Nothing here knows pages, devices, or what a descriptor names.
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
//! * [`operation`]: the trait of all operations, and the three outcomes of an iteration
//! * [`kick`]: the right to run an operation (rules R1–R5 of ARCHITECTURE.md)
//! * [`request`]: an operation with its kick; [`run_list`]: requests that were kicked
//! * [`event_ring`]: completions, laid out as the kernel's user-mapped ring
//! * [`waiters`]: threads that wait for completions
//! * [`watch`]: a periodic check of requests that no thread waits for, only while there are any
//! * [`deferred`]: accepted requests in no queue, run by the first free thread
//! * [`closes`]: closes of descriptors, and the threads that are in a system call on one
//! * [`counter`]: counters of two sides: of two threads that meet, at least one sees the other
//! * [`outcome`]: an outcome in the application's memory, and the threads that sleep for it
//! * [`presence`]: counts the threads inside a part of the code, and waits until there are none
//! * [`context`]: slots, completions, waiting, destruction
//! * [`stats`]: counters and the histogram of a report

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
