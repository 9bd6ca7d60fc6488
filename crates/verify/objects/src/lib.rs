//! Images on a simulated object store, in virtual time and in one thread: a seed decides all random
//! choices.
//!
//! ```text
//!   run      writers that start, write, and are killed or replaced; the ends of their requests
//!     edits      snapshots beside them, read from the objects themselves
//!     clones     images cloned from a snapshot
//!     sizes      the possible sizes of the image
//!     leftovers  objects of dead writers that must be gone at the end of a run
//!     strangers  writers without the key of an encrypted image
//!     store    objects in memory, with late, lost, repeated or damaged answers
//!     history  the possible contents of an image, as of a disk with a volatile cache
//!   world    writers and editors for programs of their own:
//!     removals   an image is removed below its writer, and another made in its place
//!     stale      a writer stands still while others come and go
//!     losses     an object is lost, or the head is replaced by an older one
//!     damages    each object, damaged in each of six ways
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
