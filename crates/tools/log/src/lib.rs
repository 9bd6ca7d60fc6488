//! An image that is a log of objects on an object store: its format.
//!
//! ```text
//!   head                the writer's epoch, the newest checkpoint, snapshots; replaced as a whole
//!    └─▶ map/POSITION/  a checkpoint: which block is where, all segments before POSITION done
//!   log/POSITION …      segments from there on: what was written since, in order
//! ```
//!
//! * [`head`], [`segment`], [`checkpoint`]: the three kinds of objects; each begins with a
//!   [`stamp`]
//! * [`geometry`]: the blocks of an image
//! * [`map`], of [`extents`]: which block is in which segment
//! * `wire`: fields of objects, whose lengths are checked before anything is allocated
//!
//! Nothing here does I/O, has a thread, or knows the time.

pub mod checkpoint;
pub mod extents;
pub mod geometry;
pub mod head;
pub mod map;
pub mod segment;
pub mod stamp;
mod wire;

pub use checkpoint::Part;
pub use extents::{Extent, Piece};
pub use geometry::Geometry;
pub use head::{Checkpoint, Head, Snapshot, Writer};
pub use map::Map;
pub use segment::{Change, Content, Header, Record};
pub use stamp::{ImageId, Stamp};
pub use wire::Damage;
