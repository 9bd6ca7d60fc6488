//! The ABI of libaio on the engine, linked into `libaio.so.1` and `libnowait_preload.so`.
//!
//! ```text
//! exports.c, libaio.map      symbols and their versions
//! preload.c, preload.map     the same, and the calls that are watched
//! signals.c                  the program's handlers, between calls of the library (preload only)
//!      │ extern "C"
//! [`exports`]    the functions that C calls
//! [`calls`]      each call, with the kernel's order of errors
//! [`decode`]     iocb to command
//! [`watch`]      calls that could close the library's descriptors, or bypass the library
//! ```

pub mod calls;
pub mod decode;
pub mod exports;
pub mod watch;
