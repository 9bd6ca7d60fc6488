//! The Rust code of `libaio.so.1` and `libnowait_preload.so`, in one archive. `xtask/src/dist.rs`
//! links both libraries from the archive, each with the C files that export its symbols. The linker
//! leaves out the functions that no exported symbol needs.

pub use nowait_libaio;
pub use nowait_posix;

use nowait_sys::allocator::Allocator;

/// The library has its own allocator: a signal handler of the program may wait for a request while
/// the interrupted thread holds malloc's lock.
#[global_allocator]
static ALLOCATOR: Allocator = Allocator;
