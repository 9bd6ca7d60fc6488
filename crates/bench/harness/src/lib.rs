//! One harness for all suites: cases, interleaved runs, verdicts and reports.
//!
//! ```text
//!  args ─► case         cases, their subjects, and the targets
//!           └► runner   every subject of every case, every round: A B C, C B A …
//!               └► measurement ─► table, report (JSON, HTML)       runs, stats, verdict
//!
//!  a run      launch, server, fio, seccomp     processes, and their use of the machine
//!             layout, pattern, order           test files, and places in them
//!             cache, busy                      the machine before and beside a run
//!  compare    two saved measurements
//! ```
//!
//! Above it: `nowait-programs`, the suites that need other programs, and `nowait-bench`, all others
//! and the command line.

#![allow(missing_docs, reason = "fields of tables are called what they are")]
#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests use figures that are exact"))]

pub mod args;
pub mod busy;
pub mod cache;
pub mod case;
pub mod cases;
pub mod compare;
pub mod error;
pub mod fio;
pub mod host;
pub mod interrupt;
pub mod launch;
pub mod layout;
pub mod measurement;
pub mod memory;
pub mod metric;
pub mod order;
pub mod pattern;
pub mod progress;
pub mod random;
pub mod report;
pub mod runner;
pub mod runs;
pub mod seccomp;
pub mod server;
pub mod stats;
pub mod suite;
pub mod table;
pub mod testing;
pub mod units;
pub mod usage;
pub mod verdict;
