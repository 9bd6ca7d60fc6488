//! The parts that nowait's interfaces share: the choice of the backend, the environment, the
//! report.
//!
//! This crate is internal and makes no promise: its interface changes with every version. Programs
//! use the crate `nowait`.
//!
//! ```text
//!  nowait · capi · python · cli    libaio · posix ── process
//!          │                               │
//!          └──────────┬────────────────────┘
//!                     ▼
//!  options   what the environment asks for
//!  probe     tries each backend, and says why one cannot be used
//!  choice    the backend that works here, with the reason; starts the engine
//!  report    what the contexts of a process did
//!                     │
//!                     ▼
//!  nowait-file        Engine, Context, Submission, Command
//! ```
//!
//! This crate re-exports types of the engine for the frontends.

pub mod choice;
pub mod options;
pub mod report;

pub use choice::start_engine;
pub use nowait_block::{Segments, probe};
pub use nowait_cache::cache::IoCounts as CacheCounts;
pub use nowait_file::{
    BackendChoice, Command, Config, Context, Engine, Kind, Sink, SubmitMode, command,
    limits::Limits,
    outcome, presence,
    submit::{EventTarget, Started, Submission},
};
pub use options::Options;
