//! An image on an object store: runs the state machine of `nowait-image-format` on real stores.
//!
//! * [`url`]: the address of an image; `place`: the store itself, by the crate `object_store`;
//!   `folder`: a folder as a store, with the conditional PUT that it lacks
//! * [`client`]: carries out the state machine's operations on a store
//! * [`mod@cache`]: data that need not be read again, in memory or in a folder
//! * [`mod@probe`]: checks that the store respects conditions
//! * `driver`: the thread of an image, which owns the state machine; [`status`]: its state;
//!   `trouble`: reports to the user about the store
//! * [`image`]: an image, for its callers
//! * [`source`]: an image as the source of a block device; [`mod@open`]: opens images for serving
//! * [`transfer`]: import from files and NBD servers, and export to them
//! * `key_file`: reads the key of encrypted images
//! * [`mod@edit`]: snapshots, clones and larger sizes, beside the writer; [`mod@shrink`]: a smaller
//!   size, in the writer's place
//! * [`view`]: an image at one moment; `viewing`: the thread of an image that is only read
//! * [`mod@check`]: finds damage by reading; [`mod@repair`]: repairs an image whose log has lost a
//!   part; [`catalog`]: lists and removes the images of a store; `reader`: reads objects for these
//!   and for views
//!
//! All I/O of an image is on one thread, with a runtime of its own. A caller puts its request into
//! a queue, and the thread calls back when the request has ended.

pub mod cache;
pub mod catalog;
pub mod check;
pub mod client;
mod driver;
pub mod edit;
mod folder;
pub mod image;
mod key_file;
pub mod open;
mod place;
pub mod probe;
mod reader;
pub mod repair;
pub mod shrink;
pub mod source;
pub mod status;
pub mod transfer;
mod trouble;
pub mod url;
pub mod view;
mod viewing;

#[cfg(test)]
mod tests;

pub use cache::Cache;
pub use client::Client;
pub use image::StoredImage;
pub use key_file::read_key;
pub use nowait_image_format::{Edit, Failure, Head, ImageKey, Key, Request, Settings, Snapshot};
pub use place::{Place, StoreOptions};
pub use probe::Verdict;
pub use source::{Durability, Object, ObjectOptions};
pub use status::{CacheFigures, Figures, Status, Watch};
pub use url::{Scheme, StoreUrl};
pub use view::View;
