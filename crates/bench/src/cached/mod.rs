//! `bench cached`: our own page cache against every peer.
//!
//! ```text
//!  CachedArgs ─► suite ─► cases        what is measured, and the targets
//!                  │
//!                  ├─ layout, cache, interleave      as for `bench submit`
//!                  └─ launch ─► run                  the same program, one run a process
//!                                ├─ spec             what it is told, what it tells
//!                                ├─ crate::offsets   where requests go
//!                                ├─ crate::pattern   what files hold, so that reads are checked
//!                                └─ crate::peers     the ways to read and write
//! ```

mod args;
mod cases;
mod report;
mod results;
mod run;
mod spec;
mod suite;

pub use args::{CachedArgs, run_cached};
pub use results::CachedResults;
