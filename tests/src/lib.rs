//! Support for the whole-stack tests: unmodified programs against the built libraries.
//!
//! ```text
//!  tests/*.rs   claims, most of them per library and backend
//!    │ Subject::launch                       │ Mount, Scratch        │ skip
//!  program.rs   runs it, with a deadline   mount.rs  real file     skip.rs  counted,
//!    │                                     systems on loop devices          never silent
//!  report.rs    the library's report of what it did
//! ```
//!
//! Environment:
//!
//! | variable | meaning |
//! |---|---|
//! | `NOWAIT_TEST_SUBJECT` | `system` runs the tests against the system's libaio (which proves the tests) and leaves out those of nowait's tools, `libaio` or `preload` runs only those of that library |
//! | `NOWAIT_TEST_BACKENDS` | the backends, default `uring,kaio,threads` |
//! | `NOWAIT_DIST` | the folder of the built files, default `dist` of the workspace |
//! | `NOWAIT_SKIPS` | a file to which each skip is appended |
//! | `NOWAIT_TEST_DISTURB` | a seed: a second thread disturbs the programs, unless a test excludes it, see `disturber.rs` |
//! | `NOWAIT_TEST_LIMIT` | `addresses` (RLIMIT_AS of 1 GiB) or `locked` (mlockall): a limit on the programs, unless a test excludes it, see `limiter.rs` |
//! | `NOWAIT_FULL` | `1` runs cross products and full-length cases |
//! | `NOWAIT_SEED`, `NOWAIT_REQUESTS` | the first seed of `order`, and the requests of each run |
//! | `NOWAIT_ROUNDS` | the rounds of each case of `borders`; default few, 10,000 at full length |

// Builders of a test support crate: a test shows a forgotten call at once.
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
