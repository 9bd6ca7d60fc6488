//! Interleaved measurements: of unmodified programs, such as fio, with and without nowait; of every
//! engine through its own interface; of servers; and of work that no program does by itself.
//!
//! ```text
//!  the suites, each a table of cases and a way to make one run:
//!    fio        an unmodified fio: submit, posix, parity, demo
//!    workload   every engine, one process a run   nowait-peers
//!    python     the benchmark of the Python package, run as it is
//!    paper      the sources' experiments, simulated; on a device: workload
//!
//!  nowait-programs   serve, remote, programs, kv, futures
//!  nowait-harness    cases, the runner, verdicts, reports; two saved measurements compared
//! ```
//!
//! The binary `nowait-bench` of this package puts [`Bench`] on a command line. `serve` and `remote`
//! start `nowait-serve`, a program of another package.

#![cfg_attr(test, allow(clippy::float_cmp, reason = "tests use figures that are exact"))]

mod command;
mod fio;
mod paper;
mod python;
mod workload;

pub use command::Bench;
#[cfg(test)]
use nowait_harness::testing;
use nowait_harness::{
    args, cache, case, error, interrupt, launch, layout, measurement, metric, pattern, progress,
    report, runs, seccomp, table, units,
};
