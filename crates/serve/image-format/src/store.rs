//! What is asked of an object store, and what it answers.

use crate::mistake::{self, Mistake};
use crate::stamp::ImageId;
use core::fmt;
use std::ops::Range;
use std::sync::Arc;

/// Which object of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The head.
    Head,
    /// The segment at a place of the log.
    Segment(u64),
    /// A part of a checkpoint.
    Part {
        /// The epoch of its writer.
        epoch: u64,
        /// Which of that writer's.
        nth: u32,
        /// Which part.
        number: u32,
    },
}

impl Key {
    /// Returns the name of the object behind the path of its image. The number of the image is part
    /// of it: what is still on its way when an image is removed is none of the next one's at that
    /// path. Only the head has the same name for all.
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

    /// Returns the place of the segment whose name this is, in the log of an image.
    pub fn segment_of(name: &str, image: ImageId) -> Option<u64> {
        let (_, sequence) = name.strip_prefix("log/")?.split_once('-')?;
        let sequence = sequence.parse().ok()?;
        (Key::Segment(sequence).name(image) == name).then_some(sequence)
    }
}

/// Digits of an image's number in the names of its objects: half of it tells those apart that have
/// the same path one after the other.
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

/// What the store calls the content of an object, an ETag say.
pub type Tag = String;

/// By which an answer finds what it is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Ticket(pub(crate) u64);

/// What is asked of the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Put an object if none is there.
    PutIfAbsent {
        /// Its image.
        image: ImageId,
        /// Which of its objects.
        key: Key,
        /// All of it.
        body: Arc<Vec<u8>>,
    },
    /// Put a head if the one that is there has this tag.
    PutIfMatch {
        /// That of the head.
        key: Key,
        /// All of it.
        body: Arc<Vec<u8>>,
        /// The tag of the one before.
        tag: Tag,
    },
    /// Get bytes of an object, of a shorter one those that are there.
    Get {
        /// The image that it is of, if not this one: its path in the store.
        of: Option<Arc<str>>,
        /// That image.
        image: ImageId,
        /// Which of its objects.
        key: Key,
        /// Which bytes.
        range: Range<u64>,
        /// They are data of a segment.
        data: Option<Data>,
    },
    /// List segments of an image.
    List {
        /// That.
        image: ImageId,
        /// From this place of the log on.
        from: u64,
    },
    /// Delete an object.
    Delete {
        /// Its image.
        image: ImageId,
        /// Which of its objects.
        key: Key,
    },
}

/// Data of a segment never change, so a cache may answer. Of such an answer only the bytes count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Data {
    /// What came before looked damaged: the store itself is to be asked.
    pub anew: bool,
}

/// What the store answers. Each operation has one answer within a time that the caller limits:
/// what has none then has [`Answer::Failed`], whatever may still happen to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// The object is put, and has this tag.
    Put(Tag),
    /// The condition of the PUT is not met.
    Refused,
    /// Bytes of the object.
    Got {
        /// Those.
        bytes: Vec<u8>,
        /// How long the whole object is.
        object_bytes: u64,
        /// Its tag.
        tag: Tag,
    },
    /// The places of segments that are there, some of the first in any order.
    Listed(Vec<u64>),
    /// There is no such object.
    Missing,
    /// It is deleted, or was not there.
    Deleted,
    /// It was done, or not, or will be: a time-out, an error of the server, a connection lost.
    Failed,
}

/// What was asked of the store so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Costs {
    /// PUTs.
    pub puts: u64,
    /// Bytes of them.
    pub bytes_put: u64,
    /// GETs.
    pub gets: u64,
    /// Bytes asked for by them.
    pub bytes_got: u64,
    /// LISTs.
    pub lists: u64,
    /// DELETEs.
    pub deletes: u64,
    /// Segments whose live blocks were all moved, so that they could be deleted.
    pub segments_collected: u64,
    /// Bytes of those blocks; they are among the bytes of PUTs.
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
