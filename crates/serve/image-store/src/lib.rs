//! Images on object stores: this crate runs the state machine of `nowait-image-format` on real
//! stores.
//!
//! * [`url`]: the address of an image; `place`: the store itself, by the crate `object_store`;
//!   `folder`: a folder as a store, with the conditional replacement that `object_store` lacks
//! * [`client`]: carries out the state machine's operations on a store
//! * [`mod@cache`]: keeps data that was read or written, in memory or in a folder
//! * [`mod@probe`]: checks that a store respects the conditions of PUTs
//! * `driver`: the thread of an image, which owns the state machine; [`status`]: the state that
//!   this thread publishes; `trouble`: reports to the user about the store
//! * [`image`]: an image on a store, as its callers use it
//! * [`source`]: an image as the source of a block device; [`mod@open`]: opens images for serving
//! * [`transfer`]: imports files and exports of NBD servers into images, and exports images to them
//! * `key_file`: reads the key of encrypted images
//! * [`mod@edit`]: makes snapshots, clones and larger sizes while the writer continues;
//!   [`mod@shrink`]: makes an image smaller, and replaces the writer for that
//! * [`view`]: reads an image in its state at one moment; `viewing`: the thread of an image that is
//!   only read
//! * [`mod@check`]: finds damage by reading; [`mod@repair`]: repairs an image whose log has lost a
//!   part; [`catalog`]: lists and removes the images of a store; `reader`: reads objects for
//!   checks, repairs, lists and views
//!
//! A [`StoredImage`] has one thread for its requests, with a runtime of its own. A caller puts its
//! request into a queue, and the thread calls the caller's function when the request has ended.

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
