//! Images on a simulated object store, in virtual time and in one thread: a seed says how it goes.
//!
//! ```text
//!   run      writers that come, write, and are killed or replaced; how their requests may end
//!     edits      snapshots beside them, read from the objects themselves
//!     clones     what becomes of a snapshot
//!     sizes      how large the image may be
//!     leftovers  what may be in the store at the end of a run
//!     store    objects in memory, answers late, lost, repeated or damaged
//!     history  what an image may look like: a disk with a volatile cache
//! ```

pub mod clones;
pub mod edits;
pub mod history;
pub mod leftovers;
pub mod run;
pub mod sizes;
pub mod store;
pub mod strangers;
