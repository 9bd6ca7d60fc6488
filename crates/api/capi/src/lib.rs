//! The C API behind `include/nowait.h`, which is its documentation.
//!
//! ```text
//!  nowait.h ── engine.rs    Nowait and its options
//!              file.rs      File, requests that block        functions that can fail: guard.rs,
//!              loan.rs      Lent                             which turns errors into numbers and
//!              queue.rs     Queue<u64, BorrowedMemory>       a text, and stops panics
//!              request.rs   what a request asks for
//!              version.rs
//! ```
//!
//! A queue of the C API is a queue of the Rust API, whose buffers are [`BorrowedMemory`]. People
//! write the header by hand. A test compiles the header with the declarations that cbindgen makes
//! of this crate, and fails if the two differ.

// The header states the caller's promises, for the program's author.
#![allow(clippy::missing_safety_doc)]

mod engine;
mod file;
mod guard;
mod loan;
mod queue;
mod request;
mod text;
mod version;

pub use engine::*;
pub use file::*;
pub use guard::{nowait_error_text, nowait_strerror};
pub use loan::*;
pub use queue::*;
pub use request::{BorrowedMemory, LINK, Request, op};
pub use version::*;
