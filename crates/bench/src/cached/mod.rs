//! `bench cached`: our own page cache against every peer.
//!
//! ```text
//!  CachedArgs ─► suite ─► cases        what is measured, and the targets
//!                  │
//!                  ├─ layout, cache, interleave      as for `bench submit`
//!                  └─ launch ─► run                  the same program, one run a process
//!                                ├─ spec             what it is told, what it tells
//!                                ├─ offsets          where requests go
//!                                ├─ pattern          what files hold, so that reads are checked
//!                                └─ peers            the ways to read and write
//! ```

mod args;
mod cases;
mod offsets;
mod pattern;
mod peers;
mod report;
mod results;
mod run;
mod spec;
mod suite;
mod usage;

pub use args::{CachedArgs, run_cached};
pub use results::CachedResults;
