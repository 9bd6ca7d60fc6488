//! The Rust code of `libaio.so.1` and `libnowait_preload.so`, in one archive. Both are linked from
//! it, each with the C files that export its symbols (`xtask/src/dist.rs`). The linker leaves out
//! the functions that a library does not export.

pub use nowait_libaio;
pub use nowait_posix;

use nowait_sys::allocator::Allocator;

/// The library has its own allocator: a signal handler of the program may wait for a request while
/// the thread holds malloc's lock.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;
