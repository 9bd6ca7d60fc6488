//! Images on a simulated object store, in virtual time and in one thread: a seed decides all random
//! choices.
//!
//! ```text
//!   run      writers that come, write, and are killed or replaced; how their requests may end
//!     edits      snapshots beside them, read from the objects themselves
//!     clones     what becomes of a snapshot
//!     sizes      how large the image may be
//!     leftovers  what may be in the store at the end of a run
//!     store    objects in memory, answers late, lost, repeated or damaged
//!     history  what an image may look like: a disk with a volatile cache
//!   world    writers and editors for programs of their own:
//!     removals   an image is removed below its writer, and another made in its place
//!     stale      a writer stands still while others come and go
//!     losses     an object is lost, or an older head put back
//!     damages    every object, damaged in every way
//!     crowd      clients that flush at their own times
//! ```

pub mod clones;
pub mod crowd;
pub mod damages;
pub mod edits;
pub mod history;
pub mod leftovers;
pub mod losses;
pub mod removals;
pub mod run;
pub mod sizes;
pub mod stale;
pub mod store;
pub mod strangers;
pub mod world;
