//! Support for the whole-stack tests, which run unmodified programs with the built libraries.
//!
//! ```text
//!  tests/*.rs   test cases, most of them for each library and backend
//!    │ Subject::launch                       │ Mount, Scratch        │ skip
//!  program.rs   runs a program with        mount.rs  mounts        skip.rs  records
//!    │          a deadline                 real file systems                skipped tests
//!  report.rs    reads the report that nowait writes when the program exits
//! ```
//!
//! Environment:
//!
//! | variable | meaning |
//! |---|---|
//! | `NOWAIT_TEST_SUBJECT` | `system` runs the tests with the system's libaio, to check the tests themselves, and leaves out tests of nowait's tools; `libaio` or `preload` leaves out tests that are declared for another library |
//! | `NOWAIT_TEST_BACKENDS` | the backends to test, default `uring,kaio,threads` |
//! | `NOWAIT_DIST` | the folder of the built files, default `dist` of the workspace |
//! | `NOWAIT_SKIPS` | a file to which `skip.rs` appends a line for each skip |
//! | `NOWAIT_TEST_DISTURB` | a seed: in each program that a `Subject` launches a second thread disturbs the others, unless the test excludes it, see `disturber.rs` |
//! | `NOWAIT_TEST_LIMIT` | `addresses` (RLIMIT_AS of 1 GiB) or `locked` (mlockall): a limit on each program that a `Subject` launches, unless the test excludes it, see `limiter.rs` |
//! | `NOWAIT_FULL` | `1` runs cross products and full-length cases |
//! | `NOWAIT_SEED`, `NOWAIT_REQUESTS` | the first seed of `order`, and the requests of each run |
//! | `NOWAIT_ROUNDS` | the rounds of most cases of `borders`; default few, 10,000 at full length |

// The builder methods have no `#[must_use]`: only the tests of this project call them.
#![allow(clippy::return_self_not_must_use)]

pub mod aio;
pub mod bare;
pub mod blocks;
pub mod cache;
pub mod container;
pub mod contexts;
pub mod differences;
pub mod direct;
pub mod disturber;
pub mod fio;
pub mod fuse;
pub mod hang;
pub mod harness;
pub mod http;
pub mod limiter;
pub mod mount;
pub mod pki;
pub mod posix;
pub mod program;
pub mod qemu;
pub mod ready;
pub mod report;
pub mod request;
pub mod scratch;
pub mod seccomp;
pub mod server;
#[cfg(target_arch = "x86_64")]
pub mod shared_lines;
pub mod skip;
pub mod stepper;
pub mod store_proxy;
pub mod stored;
pub mod stores;
pub mod subject;
#[cfg(target_arch = "x86_64")]
pub mod symbols;
pub mod thread_state;
pub mod xml_puts;

/// Returns `true` if the long form of the tests was chosen (`NOWAIT_FULL=1`).
pub fn full() -> bool {
    std::env::var("NOWAIT_FULL").is_ok_and(|value| value == "1")
}
