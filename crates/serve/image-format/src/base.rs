//! The bases of a clone. A clone begins as a snapshot of another image, and reads objects of that
//! image.
//!
//! ```text
//!   segments   of the oldest base │ of the next one │ … │ its own
//!              ───────────────── end ────────────── end ─────────▶
//! ```
//! The clone continues the base's numbers of the log and of the epochs, so an object's number shows
//! which image has the object. The writer of the clone never puts or deletes an object of a base. A
//! snapshot in the head of the base keeps the objects that the clone reads.

use crate::head::{COUNT_MAX, NAME_BYTES_MAX};
use crate::stamp::ImageId;
use crate::store::Key;
use crate::wire::{Damage, Fields, put_count, put_text};
use std::sync::Arc;

/// The longest path of an image in its store, in bytes.
pub const PATH_BYTES_MAX: usize = 1024;

/// The most bases of an image.
pub const BASES_MAX: usize = 64;

/// A base: an image with a snapshot from which another image was cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Base {
    /// The number of the image.
    pub image: ImageId,
    /// The path of the image in the store.
    pub path: Arc<str>,
    /// The name of the snapshot.
    pub snapshot: String,
    /// The place of the log behind the segments of this base.
    pub end: u64,
    /// The last epoch whose writer may have put a map that the clone reads from this base.
    pub epoch: u64,
}

/// The bases of an image, the oldest first.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Bases(pub(crate) Vec<Base>);

impl From<Vec<Base>> for Bases {
    fn from(bases: Vec<Base>) -> Bases {
        Bases(bases)
    }
}

impl Bases {
    /// Returns the base with the snapshot from which this image was cloned; `None`: the image is no
    /// clone.
    pub fn last(&self) -> Option<&Base> {
        self.0.last()
    }

    /// Returns the base that has an object; `None`: the object is the image's own.
    pub fn of(&self, key: Key) -> Option<&Base> {
        match key {
            Key::Head => None,
            Key::Segment(sequence) => self.0.iter().find(|base| sequence < base.end),
            Key::Part { epoch, .. } => self.0.iter().find(|base| epoch <= base.epoch),
        }
    }

    /// Returns path and number of the base that has an object; for an own object, no path and
    /// `image`.
    pub fn owner(&self, key: Key, image: ImageId) -> (Option<Arc<str>>, ImageId) {
        let base = self.of(key);
        (base.map(|base| Arc::clone(&base.path)), base.map_or(image, |base| base.image))
    }

    pub(crate) fn end(&self) -> u64 {
        self.last().map_or(0, |base| base.end)
    }

    pub(crate) fn epoch(&self) -> u64 {
        self.last().map_or(0, |base| base.epoch)
    }

    pub(crate) fn put(&self, bytes: &mut Vec<u8>) {
        put_count(bytes, self.0.len());
        for Base { image, path, snapshot, end, epoch } in &self.0 {
            bytes.extend(image);
            put_text(bytes, path, PATH_BYTES_MAX);
            put_text(bytes, snapshot, NAME_BYTES_MAX);
            bytes.extend(end.to_le_bytes());
            bytes.extend(epoch.to_le_bytes());
        }
    }

    pub(crate) fn read(fields: &mut Fields<'_>) -> Result<Bases, Damage> {
        let mut bases: Vec<Base> = Vec::new();
        for _ in 0..fields.count(BASE_BYTES_MIN)? {
            let (image, path) = (fields.array()?, fields.text(PATH_BYTES_MAX)?.into());
            let snapshot = fields.text(NAME_BYTES_MAX)?;
            let base = Base { image, path, snapshot, end: fields.u64()?, epoch: fields.u64()? };
            let follows = |before: &Base| before.end <= base.end && before.epoch <= base.epoch;
            let is_counted = (1..=COUNT_MAX).contains(&base.end) && base.epoch <= COUNT_MAX;
            if !is_counted || base.path.is_empty() || !bases.last().is_none_or(follows) {
                return Err(Damage("bases out of order"));
            }
            bases.push(base);
        }
        match bases.len() <= BASES_MAX {
            true => Ok(Bases(bases)),
            false => Err(Damage("too many levels of clones")),
        }
    }
}

const BASE_BYTES_MIN: usize = 16 + 2 + 2 + 8 + 8;
