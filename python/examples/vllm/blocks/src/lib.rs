//! A folder of blocks of one size, one file each: the engine of the tier for KV caches
//! (`nowait_vllm`).
//!
//! ```text
//!  folder.rs    BlockFolder: takes jobs, hands finished ones out; never waits
//!     │
//!  board.rs     jobs and blocks that wait, are in flight, or are over; admission.rs: who is next
//!     │
//!  carrier.rs   two threads, for loads and for stores: open, submit, reap, rename
//!     │
//!  evictor.rs   one thread: last uses, and eviction; sweep.rs: what it finds, and what goes
//!  usage.rs     bytes of the folder, counted by all processes that share it
//!  names.rs     keys as names of files
//! ```
//!
//! **A reader never sees half a block.** A store writes a file with a temporary name, and renames
//! it when it is complete.
//!
//! **A crash leaves no wrong block.** No index exists beside the files. A process that crashes
//! leaves only temporary files, which a later sweep removes, and a count of bytes that is too high,
//! which the next sweep corrects.

mod admission;
mod board;
mod carrier;
mod evictor;
mod folder;
mod names;
mod sweep;
mod usage;

pub use admission::Direction;
pub use board::{BlockFailure, Finished};
pub use folder::{BlockFolder, Config, Region};
