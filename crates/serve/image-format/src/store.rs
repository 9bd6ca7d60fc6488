//! The operations of an object store, and its answers.

use crate::mistake::{self, Mistake};
use crate::stamp::ImageId;
use core::fmt;
use std::ops::Range;
use std::sync::Arc;

/// The key of an object of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The head.
    Head,
    /// The segment at a place of the log.
    Segment(u64),
    /// A part of a checkpoint.
    Part {
        /// The epoch of the writer.
        epoch: u64,
        /// The number of the checkpoint among the checkpoints of this writer.
        nth: u32,
        /// The number of the part.
        number: u32,
    },
}

impl Key {
    /// Returns the name of the object, relative to the path of its image. Except for the head, the
    /// name contains digits of the image's number. So late operations on segments and parts of a
    /// removed image cannot touch objects of the next image at that path.
    pub fn name(self, image: ImageId) -> String {
        let image = format!("{:032x}", u128::from_be_bytes(image));
        let image = &image[..NAME_DIGITS];
        match self {
            Key::Head => "head".to_owned(),
            _ if mistake::makes(Mistake::NameByPath) => self.to_string(),
            Key::Segment(sequence) => format!("log/{image}-{sequence:020}"),
            Key::Part { epoch, nth, number } => {
                format!("map/{image}-{epoch:020}-{nth:010}/{number:05}")
            }
        }
    }

    /// Returns the place of an image's segment by the segment's name; `None` for other names.
    pub fn segment_of(name: &str, image: ImageId) -> Option<u64> {
        let (_, sequence) = name.strip_prefix("log/")?.split_once('-')?;
        let sequence = sequence.parse().ok()?;
        (Key::Segment(sequence).name(image) == name).then_some(sequence)
    }
}

/// Half of the number distinguishes images that have the same path one after the other.
const NAME_DIGITS: usize = 16;

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Key::Head => f.write_str("head"),
            Key::Segment(sequence) => write!(f, "log/{sequence:020}"),
            Key::Part { epoch, nth, number } => {
                write!(f, "map/{epoch:020}-{nth:010}/{number:05}")
            }
        }
    }
}

/// The store's identifier of an object's contents, such as an ETag.
pub type Tag = String;

/// The number by which an answer finds its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// An operation of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Puts an object if none with this key exists.
    PutIfAbsent {
        /// The image of the object.
        image: ImageId,
        /// The key of the object.
        key: Key,
        /// The whole object.
        body: Arc<Vec<u8>>,
    },
    /// Puts a head if the existing one has this tag.
    PutIfMatch {
        /// The key of the head.
        key: Key,
        /// The whole object.
        body: Arc<Vec<u8>>,
        /// The tag of the previous head.
        tag: Tag,
    },
    /// Gets those bytes of a range that the object has.
    Get {
        /// The path of the object's image in the store, if that image is a base of the state
        /// machine's image.
        of: Option<Arc<str>>,
        /// The number of the image that the object belongs to.
        image: ImageId,
        /// The key of the object.
        key: Key,
        /// The range of bytes.
        range: Range<u64>,
        /// `Some`: the bytes are data of a segment.
        data: Option<Data>,
    },
    /// Lists segments of an image.
    List {
        /// The image.
        image: ImageId,
        /// The first place of the log to list.
        from: u64,
    },
    /// Deletes an object.
    Delete {
        /// The image of the object.
        image: ImageId,
        /// The key of the object.
        key: Key,
    },
}

/// Marks a GET of a segment's data. The data never changes, so a cache may answer. The state
/// machine uses only the bytes of the answer, and not the tag or the length of the object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// `true`: the store itself must answer: the object looked damaged or was missing.
    pub anew: bool,
}

/// The answer to an operation. The program that carries out the operations gives exactly one answer
/// to each operation. If the store does not answer in time, the program answers [`Answer::Failed`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The store has put the object, which has this tag.
    Put(Tag),
    /// The store has not put the object, because the condition of the PUT is not met.
    Refused,
    /// The bytes of the object.
    Got {
        /// The bytes.
        bytes: Vec<u8>,
        /// The length of the whole object.
        object_bytes: u64,
        /// The tag of the object.
        tag: Tag,
    },
    /// The places of existing segments, in any order. If there are many segments, some may be left
    /// out.
    Listed(Vec<u64>),
    /// The object does not exist.
    Missing,
    /// The object was deleted, or did not exist.
    Deleted,
    /// The outcome is unknown after a time-out, an error of the server, or a lost connection. The
    /// store may still carry out the operation later.
    Failed,
}

/// Counts of the operations of a state machine so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// PUTs.
    pub puts: u64,
    /// The bytes of the PUTs.
    pub bytes_put: u64,
    /// GETs.
    pub gets: u64,
    /// The bytes that the GETs requested.
    pub bytes_got: u64,
    /// LISTs.
    pub lists: u64,
    /// DELETEs.
    pub deletes: u64,
    /// Segments whose collection has ended: all their live blocks were moved or replaced.
    pub segments_collected: u64,
    /// The bytes of the blocks that the collector has moved.
    pub bytes_moved: u64,
}

impl Costs {
    pub(crate) fn add(&mut self, operation: &Operation) {
        match operation {
            Operation::PutIfAbsent { body, .. } | Operation::PutIfMatch { body, .. } => {
                self.puts += 1;
                self.bytes_put += body.len() as u64;
            }
            Operation::Get { range, .. } => {
                self.gets += 1;
                self.bytes_got += range.end - range.start;
            }
            Operation::List { .. } => self.lists += 1,
            Operation::Delete { .. } => self.deletes += 1,
        }
    }
}
