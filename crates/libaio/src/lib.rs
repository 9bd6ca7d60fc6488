//! The ABI of libaio on the engine, linked into `libaio.so.1` and `libnowait_preload.so`.
//!
//! ```text
//! exports.c, libaio.map      symbols and their versions
//! preload.c, preload.map     the same, and the calls that are watched
//! plain.c                    reads, writes and their like on cached descriptors (preload only)
//!      │ extern "C"
//! [`exports`]    panics and errno end here
//! [`calls`]      each call, with the kernel's order of errors
//! [`decode`]     iocb to command        [`memory`]   pointers that may be anything
//! [`cached`]     descriptors that go through the cache of the engine, and plain calls on them
//! [`process`]    the one engine of the process, its contexts, fork and exit
//! [`watch`]      descriptors of ours that the application must not close
//! ```

pub mod cached;
pub mod calls;
pub mod decode;
pub mod exports;
pub mod memory;
pub mod process;
pub mod watch;
