//! An image that is a log of objects on an object store: its format and its state machine.
//!
//! ```text
//!   head                the writer's epoch, the newest checkpoint, snapshots; replaced as a whole
//!    └─▶ map/EPOCH-NTH/ a checkpoint: the place of each block after all segments before a position
//!   log/POSITION …      segments from there on: the changes since, in order
//! ```
//!
//! * [`image`]: the state machine. Requests of a front and answers of the store go in, operations
//!   for the store and ends of requests come out
//!   * `recovery`: a writer makes an image, or takes it over
//!   * `serving`: reads, writes, flushes; `tail`: segments in memory; `publication`: checkpoints,
//!     and the deletions that follow them; `collector`: moves live blocks out of segments with
//!     many dead ones; [`leftovers`]: finds objects that earlier writers have left; [`needs`]: the
//!     segments without live blocks that snapshots need
//! * [`edit`]: another state machine, which edits the head for snapshots, clones, larger sizes and
//!   removal
//! * `scan`: reads the log ahead; `outbox`: the output of a state machine; `errands`: operations in
//!   flight, and operations to repeat
//! * [`request`], [`store`]: the two interfaces of the state machine
//! * [`head`], [`segment`], [`checkpoint`]: the three kinds of objects; each begins with a
//!   [`stamp`]
//! * [`base`]: the images that a clone reads
//! * [`block`]: a block of data as stored; [`cipher`]: its encryption, and the keys
//! * [`geometry`]: block size, size and encryption of an image
//! * [`map`]: the place of each block, in [`extents`]
//! * `wire`: fields of objects, whose lengths are checked before any allocation
//! * [`mistake`]: deliberate mistakes, for the simulation in `crates/verify/objects`
//!
//! This crate does no I/O, has no threads, and does not read the clock.

pub mod base;
pub mod block;
pub mod checkpoint;
pub mod cipher;
mod collector;
pub mod edit;
mod errands;
pub mod extents;
pub mod geometry;
pub mod head;
pub mod image;
pub mod leftovers;
pub mod map;
pub mod mistake;
pub mod needs;
mod outbox;
mod publication;
mod recovery;
pub mod request;
mod scan;
pub mod segment;
mod serving;
mod settings;
pub mod stamp;
pub mod store;
mod tail;
mod wire;

pub use base::{Base, Bases};
pub use block::BlockCodec;
pub use checkpoint::Part;
pub use cipher::{Cipher, Encryption, ImageKey};
pub use edit::{Edit, Editor};
pub use extents::{Extent, Piece};
pub use geometry::Geometry;
pub use head::{Checkpoint, CloneOf, Head, Snapshot, Writer};
pub use image::{Image, Status};
pub use map::Map;
pub use outbox::Over;
pub use recovery::Origin;
pub use request::{Failure, Request, RequestEnd, RequestId, told_runs};
pub use segment::{Change, Content, Header, Record};
pub use serving::PROOF_NS;
pub use settings::{Settings, Usage};
pub use stamp::{ImageId, Stamp};
pub use store::{Answer, Costs, Data, Key, Operation, Tag, Ticket};
pub use wire::Damage;
