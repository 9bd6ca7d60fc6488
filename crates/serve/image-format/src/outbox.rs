//! The output of a state machine: operations for the store, ends of requests, and lost data.

use crate::base::Bases;
use crate::errands::Errands;
use crate::extents::Extent;
use crate::head::Head;
use crate::request::{Failure, RequestEnd, RequestId};
use crate::stamp::ImageId;
use crate::store::{Data, Key, Operation, Tag};
use std::collections::{BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    CreateHead,
    ReadHead,
    TakeHead,
    ReadPart(u32),
    ReadSegment(u64),
    PutFence(u64),
    ConfirmHead,
    ConfirmEnd,
    /// Puts the head back as it was, because the image cannot be opened.
    GiveBack(&'static str),
    PutSegment(u64),
    LookAtSegment(u64),
    PutPart(u32),
    LookAtPart(u32),
    AdvanceHead,
    LookAtHead,
    CloseHead,
    ProveHead,
    /// Reads the head, because a segment that a read needs is missing.
    ProveLoss {
        read: u64,
        sequence: u64,
    },
    ReadData {
        read: u64,
        block: u64,
        extent: Extent,
    },
    ReadVictim(u64),
    ReadLive {
        sequence: u64,
        start: u32,
        blocks: u32,
    },
    /// Checks whether an earlier writer has left a part of a checkpoint.
    LookForPart {
        epoch: u64,
        number: u32,
    },
    DeleteSegment(u64),
    DeletePart {
        epoch: u64,
        nth: u32,
    },
    DeleteLeftover,
    /// Reads the head, because an object is missing or is not as expected.
    Judge(&'static str),
}

impl Purpose {
    /// Returns `true` for the purposes of reads of the head while the image is served.
    pub(crate) fn is_of_head(self) -> bool {
        use Purpose::{Judge, LookAtHead, ProveHead, ProveLoss};
        matches!(self, LookAtHead | ProveHead | ProveLoss { .. } | Judge(_))
    }
}

/// The reason why the writer does not have the image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Over {
    /// Another writer has taken the image over.
    Fenced {
        /// The epoch of that writer.
        epoch: u64,
        /// The name of that writer.
        writer: String,
    },
    /// A description of the failure.
    Failed(&'static str),
    /// The image was closed, and all data is durable.
    Closed,
}

#[derive(Debug)]
pub(crate) struct Outbox {
    pub(crate) errands: Errands<Purpose>,
    pub(crate) ends: VecDeque<RequestEnd>,
    pub(crate) image: ImageId,
    pub(crate) bases: Bases,
    /// Segments with lost data, each segment once: its image, its place, and the problem.
    pub(crate) losses: VecDeque<(ImageId, u64, &'static str)>,
    lost: BTreeSet<u64>,
    pub(crate) now_ns: u64,
}

impl Outbox {
    pub(crate) fn new(now_ns: u64) -> Outbox {
        let (errands, ends) = (Errands::new(), VecDeque::new());
        let (image, bases) = (ImageId::default(), Bases::default());
        let (losses, lost) = (VecDeque::new(), BTreeSet::new());
        Outbox { errands, ends, image, bases, losses, lost, now_ns }
    }

    pub(crate) fn end(&mut self, id: RequestId, result: Result<Vec<u8>, Failure>) {
        self.ends.push_back(RequestEnd { id, result });
    }

    pub(crate) fn note_loss(&mut self, sequence: u64, what: &'static str) {
        if self.lost.insert(sequence) {
            let (_, image) = self.bases.owner(Key::Segment(sequence), self.image);
            self.losses.push_back((image, sequence, what));
        }
    }

    pub(crate) fn get(&mut self, purpose: Purpose, key: Key, bytes_max: usize) {
        self.get_range(purpose, key, 0..bytes_max as u64);
    }

    /// Like [`Outbox::get`], but after the pause that follows `tries` repetitions.
    pub(crate) fn get_later(&mut self, purpose: Purpose, key: Key, bytes_max: usize, tries: u32) {
        let (of, image) = self.bases.owner(key, self.image);
        let get = Operation::Get { of, image, key, range: 0..bytes_max as u64, data: None };
        self.errands.send_later(purpose, get, tries, self.now_ns);
    }

    pub(crate) fn get_range(&mut self, purpose: Purpose, key: Key, range: Range<u64>) {
        let (of, image) = self.bases.owner(key, self.image);
        let get = Operation::Get { of, image, key, range, data: None };
        self.errands.send(purpose, get, self.now_ns);
    }

    /// Like [`Outbox::get_range`], for data of a segment: a cache may answer.
    pub(crate) fn get_data(&mut self, purpose: Purpose, key: Key, range: Range<u64>) {
        let (of, image) = self.bases.owner(key, self.image);
        let get = Operation::Get { of, image, key, range, data: Some(Data { anew: false }) };
        self.errands.send(purpose, get, self.now_ns);
    }

    pub(crate) fn know(&mut self, head: &Head) {
        (self.image, self.bases) = (head.image, head.bases.clone());
    }

    pub(crate) fn list_from(&mut self, purpose: Purpose, from: u64) {
        let image = self.image;
        self.errands.send(purpose, Operation::List { image, from }, self.now_ns);
    }

    pub(crate) fn put_if_absent(&mut self, purpose: Purpose, key: Key, body: Arc<Vec<u8>>) {
        let image = self.image;
        self.errands.send(purpose, Operation::PutIfAbsent { image, key, body }, self.now_ns);
    }

    pub(crate) fn put_head(&mut self, purpose: Purpose, body: Vec<u8>, tag: &Tag) {
        let (key, body, tag) = (Key::Head, Arc::new(body), tag.clone());
        self.errands.send(purpose, Operation::PutIfMatch { key, body, tag }, self.now_ns);
    }

    pub(crate) fn delete(&mut self, purpose: Purpose, key: Key) {
        let image = self.image;
        self.errands.send(purpose, Operation::Delete { image, key }, self.now_ns);
    }
}
