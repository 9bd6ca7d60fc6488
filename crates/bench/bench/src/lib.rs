//! Interleaved measurements: of unmodified programs with and without nowait, fio first, of every
//! engine through its own interface, of servers, and of what no program asks for.
//!
//! ```text
//!  case         cases, their subjects, and what must come out
//!    └► runner  every subject of every case, every round: A B C, C B A …
//!         └► measurement ─► table, report (JSON, HTML)       runs, stats, verdict
//!
//!  the suites, each a table of cases and a way to make one run:
//!    submit     fio (submit, posix, demo)         fio, launch, seccomp
//!    parity     fio, every kind of work           submit
//!    workload   every engine, one process a run   peers
//!    serve      servers of images, asked by fio   server
//!    remote     images on an object store         server
//!    programs   programs as they are installed    server, seccomp, drivers of their own
//!    vector, fairness, mixed                      an engine in this process (rig)
//!    python     the benchmark of the Python package, run as it is
//!    paper      the sources' experiments, simulated; on a device: workload
//!
//!  layout, pattern, cache    test files and the page cache before a run
//!  compare                   two saved measurements
//! ```
//!
//! The binary `nowait-bench` of this package puts [`Bench`] on a command line. `serve` and `remote`
//! start `nowait-serve`, a program of another package.

#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests use figures that are exact"))]

mod args;
mod busy;
mod cache;
mod case;
mod command;
mod compare;
mod error;
mod fairness;
mod fio;
mod futures;
mod gap;
mod host;
mod interrupt;
mod launch;
mod layout;
mod measurement;
mod memory;
mod metric;
mod mixed;
mod offsets;
mod pace;
mod paper;
mod parity;
mod pattern;
mod peers;
mod programs;
mod progress;
mod python;
mod remote;
mod report;
mod rig;
mod runner;
mod runs;
mod seccomp;
mod serve;
mod server;
mod stats;
mod submit;
mod table;
mod units;
mod usage;
mod vector;
mod verdict;
mod workload;

pub use command::Bench;
pub use error::{BenchError, Result};
