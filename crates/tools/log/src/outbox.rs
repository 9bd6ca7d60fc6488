//! What an image has to say: operations for the store, ends of requests; and what ends it.

use crate::base::Bases;
use crate::errands::Errands;
use crate::extents::Extent;
use crate::request::{Failure, RequestEnd, RequestId};
use crate::stamp::ImageId;
use crate::store::{Data, Key, Operation, Tag};
use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

/// What an operation of the store is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    // While it is opened.
    CreateHead,
    ReadHead,
    TakeHead,
    ReadPart(u32),
    ReadSegment(u64),
    PutFence(u64),
    ConfirmHead,
    // While it is served.
    PutSegment(u64),
    LookAtSegment(u64),
    PutPart(u32),
    LookAtPart(u32),
    AdvanceHead,
    LookAtHead,
    ProveHead,
    ReadData {
        read: u64,
        block: u64,
        extent: Extent,
    },
    /// The header of a segment that is collected, and blocks of it, from an index on.
    ReadVictim(u64),
    ReadLive {
        sequence: u64,
        start: u32,
        blocks: u32,
    },
    /// A part of a checkpoint that a writer before may have left, by its epoch.
    LookForPart {
        epoch: u64,
        number: u32,
    },
    DeleteSegment(u64),
    /// A part of a checkpoint that nothing needs any more.
    DeletePart {
        epoch: u64,
        nth: u32,
    },
    DeleteLeftover,
    /// Something is not as this writer left it: is the image still its own?
    Judge(&'static str),
}

/// Why an image is not served any more.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Another writer has taken it over.
    Fenced {
        /// Its epoch.
        epoch: u64,
        /// Its name.
        writer: String,
    },
    /// What is wrong with it.
    Failed(&'static str),
}

/// What an image has to say.
#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) errands: Errands<Purpose>,
    pub(crate) ends: VecDeque<RequestEnd>,
    /// Of which images objects are read.
    pub(crate) bases: Bases,
    /// The time of the call that is carried out.
    pub(crate) now_ns: u64,
}

impl Outbox {
    pub(crate) fn new(now_ns: u64) -> Outbox {
        let (errands, ends) = (Errands::new(), VecDeque::new());
        Outbox { errands, ends, bases: Bases::default(), now_ns }
    }

    pub(crate) fn end(&mut self, id: RequestId, result: Result<Vec<u8>, Failure>) {
        self.ends.push_back(RequestEnd { id, result });
    }

    pub(crate) fn get(&mut self, purpose: Purpose, key: Key, bytes_max: usize) {
        self.get_range(purpose, key, 0..bytes_max as u64);
    }

    pub(crate) fn get_range(&mut self, purpose: Purpose, key: Key, range: Range<u64>) {
        let of = self.bases.of(key).map(|base| Arc::clone(&base.path));
        self.errands.send(purpose, Operation::Get { of, key, range, data: None }, self.now_ns);
    }

    /// As [`Outbox::get_range`], of data; `image` is this one.
    pub(crate) fn get_data(
        &mut self,
        purpose: Purpose,
        image: ImageId,
        key: Key,
        range: Range<u64>,
    ) {
        let (of, image) = self.bases.owner(key, image);
        let data = Some(Data { image, anew: false });
        self.errands.send(purpose, Operation::Get { of, key, range, data }, self.now_ns);
    }

    pub(crate) fn put_if_absent(&mut self, purpose: Purpose, key: Key, body: Arc<Vec<u8>>) {
        self.errands.send(purpose, Operation::PutIfAbsent { key, body }, self.now_ns);
    }

    pub(crate) fn put_head(&mut self, purpose: Purpose, body: Vec<u8>, tag: &Tag) {
        let (key, body, tag) = (Key::Head, Arc::new(body), tag.clone());
        self.errands.send(purpose, Operation::PutIfMatch { key, body, tag }, self.now_ns);
    }
}
