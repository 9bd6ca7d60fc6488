//! An image on an object store: the machine of `nowait-image-format`, driven by real stores.
//!
//! * [`url`]: where an image is; `place`: the store itself, by the crate `object_store`; `folder`:
//!   a folder as one, with the condition that it lacks
//! * [`client`]: operations of the machine, asked of a store
//! * [`mod@cache`]: data that need not be asked for again, in memory or in a folder
//! * [`mod@probe`]: whether the store keeps its conditions
//! * `driver`: the thread of an image, which has the machine; [`status`]: what it tells; `trouble`:
//!   what people should know of its store
//! * [`image`]: an image, for its callers
//! * [`source`]: an image as the source of a block device; [`mod@open`]: images opened for serving
//! * [`transfer`]: images filled from files and NBD servers, and copied to them
//! * `key_file`: where the key of encrypted images comes from
//! * [`mod@edit`]: snapshots, clones and larger sizes, beside the writer; [`mod@shrink`]: a smaller
//!   one, in its place
//! * [`view`]: an image as it is at one moment; `viewing`: the thread of one that is only read
//! * [`mod@check`]: what is wrong with an image, found by reading it; [`mod@repair`]: an image
//!   whose log has lost a part; [`catalog`]: which images a store has, and their removal;
//!   `reader`: what these and a view read by
//!
//! All I/O of an image is on one thread, by a runtime of its own. A caller puts its request into a
//! queue, and is called back.

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
