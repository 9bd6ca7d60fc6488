//! How a writer comes by an image: it makes it, or takes it over.
//!
//! ```text
//!   head is read ─▶ head is put, with the next epoch ─▶ parts of the map are read
//!     ─▶ segments from there on, to the first that is missing ─▶ there a fence is put
//!     ─▶ head is read: it is this writer's still
//! ```
//!
//! The fence decides. What the writer before puts at its place first is part of the log, and the
//! fence goes behind it; once it is there, no segment can become durable before it.

use crate::Part;
use crate::base::Bases;
use crate::checkpoint::{PART_BYTES_MAX, assemble};
use crate::cipher::{Cipher, Encryption, ImageKey};
use crate::errands::Errand;
use crate::geometry::Geometry;
use crate::head::{Checkpoint, HEAD_BYTES_MAX, Head, Writer};
use crate::leftovers::Leftovers;
use crate::map::Map;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Over, Purpose};
use crate::scan::Scan;
use crate::segment::{Content, Header, WINDOW};
use crate::stamp::ImageId;
use crate::store::{Answer, Key, Tag};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// How many objects are read at the same time.
const READS_MAX: u64 = 16;

/// How often an object is read that looks damaged: it may have been so on its way only.
pub(crate) const DAMAGED_READS_MAX: u32 = 8;

/// How a writer comes by an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// It makes an empty one, where none is.
    Create {
        /// Its number: drawn, no other image has it.
        image: ImageId,
        /// Its blocks; encrypted by the key of the settings, if there is one.
        geometry: Geometry,
    },
    /// It takes over one that is there.
    TakeOver,
}

/// An image that a writer has come by.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) head: Head,
    pub(crate) tag: Tag,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) map: Map,
    /// Where the log goes on.
    pub(crate) next: u64,
    /// Segments that were read behind the checkpoint.
    pub(crate) replayed: u64,
    /// What writers before may have left.
    pub(crate) leftovers: Leftovers,
    /// When what proves that the image is this writer's was asked for.
    pub(crate) proof_ns: u64,
}

/// The way to an image.
#[derive(Debug)]
pub(crate) struct Recovery {
    writer: Writer,
    key: Option<ImageKey>,
    origin: Origin,
    head: Option<Head>,
    tag: Tag,
    cipher: Option<Cipher>,
    parts: BTreeMap<u32, Part>,
    parts_asked: u32,
    map: Map,
    /// The map is that of the checkpoint and what was replayed.
    is_mapped: bool,
    scan: Scan,
    replayed: u64,
    /// Fences, and where the log goes on behind each.
    fences: Vec<Range<u64>>,
    is_fencing: bool,
}

impl Recovery {
    /// Begins with the image that is there, or makes it, if the key is that of its blocks.
    pub(crate) fn begin(
        writer: Writer,
        key: Option<ImageKey>,
        origin: Origin,
        out: &mut Outbox,
    ) -> Result<Recovery, Over> {
        let mut recovery = Recovery {
            writer,
            key,
            origin,
            head: None,
            tag: Tag::new(),
            cipher: None,
            parts: BTreeMap::new(),
            parts_asked: 0,
            map: Map::default(),
            is_mapped: false,
            scan: Scan::new(1, READS_MAX),
            replayed: 0,
            fences: Vec::new(),
            is_fencing: false,
        };
        match recovery.origin {
            Origin::Create { image, geometry } => {
                recovery.unlock(geometry)?;
                recovery.create(image, geometry, out);
            }
            Origin::TakeOver => out.get(Purpose::ReadHead, Key::Head, HEAD_BYTES_MAX),
        }
        Ok(recovery)
    }

    /// Compares the key with that of the image.
    fn unlock(&mut self, geometry: Geometry) -> Result<(), Over> {
        match Encryption::cipher(geometry.encryption.as_ref(), self.key.as_ref()) {
            Ok(cipher) => self.cipher = cipher,
            Err(_) if mistake::makes(Mistake::TakeOverFirst) => {}
            Err(why) => return Err(Over::Failed(why)),
        }
        Ok(())
    }

    fn create(&mut self, image: ImageId, geometry: Geometry, out: &mut Outbox) {
        let head = Head {
            image,
            revision: 1,
            epoch: 1,
            writer: self.writer.clone(),
            geometry,
            checkpoint: Checkpoint { position: 1, parts: 0, epoch: 1, nth: 0 },
            retired: Vec::new(),
            snapshots: Vec::new(),
            bases: Bases::default(),
        };
        let body = Arc::new(head.encode());
        self.head = Some(head);
        out.put_if_absent(Purpose::CreateHead, Key::Head, body);
    }

    /// Goes on with an answer of the store; returns the image when it is this writer's.
    pub(crate) fn answer(
        &mut self,
        errand: Errand<Purpose>,
        answer: Answer,
        out: &mut Outbox,
    ) -> Result<Option<Found>, Over> {
        match (errand.purpose, answer) {
            // The head that is there says whether the PUT was done.
            (Purpose::TakeHead | Purpose::CreateHead, Answer::Refused) => {
                out.get(Purpose::ReadHead, Key::Head, HEAD_BYTES_MAX);
                Ok(None)
            }
            (Purpose::CreateHead, Answer::Put(tag)) => {
                self.tag = tag;
                Ok(self.found(errand.sent_ns))
            }
            (Purpose::TakeHead, Answer::Put(tag)) => {
                self.tag = tag;
                self.read_parts(out);
                self.read_on(out)
            }
            (Purpose::PutFence(at), Answer::Put(_)) => {
                self.scan.skip(resume(at));
                self.fences.push(at..self.scan.next());
                if mistake::makes(Mistake::ServeAtOnce) {
                    return Ok(self.found(errand.sent_ns));
                }
                confirm(out);
                Ok(None)
            }
            (Purpose::PutFence(_), Answer::Refused) => {
                // What was read of later places may be older than what is here.
                self.scan.again(out);
                self.is_fencing = false;
                self.read_on(out)
            }
            (_, Answer::Got { bytes, object_bytes, tag }) => {
                self.got(errand, &bytes, object_bytes, tag, out)
            }
            (Purpose::ReadSegment(sequence), Answer::Missing) => {
                self.scan.miss(sequence);
                self.replay(out)
            }
            (Purpose::ReadHead | Purpose::ConfirmHead | Purpose::Judge(_), Answer::Missing) => {
                Err(Over::Failed("there is no image"))
            }
            (_, Answer::Missing) => {
                judge("a part of the map is missing", out);
                Ok(None)
            }
            (_, Answer::Failed | Answer::Put(_) | Answer::Refused | Answer::Deleted) => {
                out.errands.again(errand, out.now_ns);
                Ok(None)
            }
        }
    }

    fn got(
        &mut self,
        errand: Errand<Purpose>,
        bytes: &[u8],
        object_bytes: u64,
        tag: Tag,
        out: &mut Outbox,
    ) -> Result<Option<Found>, Over> {
        let read = match errand.purpose {
            Purpose::ReadPart(number) => self.take_part(number, bytes).is_some(),
            Purpose::ReadSegment(sequence) => {
                let head = self.head.as_ref();
                head.and_then(|it| self.scan.take(sequence, bytes, object_bytes, it)).is_some()
            }
            Purpose::ReadHead | Purpose::ConfirmHead | Purpose::Judge(_) => {
                match Head::parse(bytes) {
                    Ok(head) => return self.take_head(&errand, head, tag, out),
                    Err(_) => false,
                }
            }
            _ => false,
        };
        if !read {
            if errand.damaged < DAMAGED_READS_MAX {
                out.errands.reread(errand, out.now_ns);
                return Ok(None);
            }
            const WHY: &str = "an object is damaged";
            if matches!(errand.purpose, Purpose::ReadPart(_) | Purpose::ReadSegment(_)) {
                // Or a later writer has put it, into an image that has grown since.
                judge(WHY, out);
                return Ok(None);
            }
            return Err(Over::Failed(WHY));
        }
        if matches!(errand.purpose, Purpose::ReadPart(_)) {
            self.read_parts(out);
            return self.read_on(out);
        }
        self.replay(out)
    }

    /// Goes on with the head that is there.
    fn take_head(
        &mut self,
        errand: &Errand<Purpose>,
        head: Head,
        tag: Tag,
        out: &mut Outbox,
    ) -> Result<Option<Found>, Over> {
        let is_own = head.writer.nonce == self.writer.nonce;
        out.bases = head.bases.clone();
        if let Purpose::Judge(why) = errand.purpose {
            return Err(verdict(is_own, head, why));
        }
        if errand.purpose == Purpose::ConfirmHead && !is_own {
            return Err(verdict(false, head, ""));
        }
        if !is_own && matches!(self.origin, Origin::Create { .. }) {
            return Err(Over::Failed("there is an image already"));
        }
        self.unlock(head.geometry)?;
        if errand.purpose == Purpose::ConfirmHead {
            (self.tag, self.head) = (tag, Some(head));
            return Ok(self.found(errand.sent_ns));
        }
        if is_own {
            (self.tag, self.head) = (tag, Some(head));
            if matches!(self.origin, Origin::Create { .. }) {
                return Ok(self.found(errand.sent_ns));
            }
            self.read_parts(out);
            return self.read_on(out);
        }
        let writer = self.writer.clone();
        let next = Head { revision: head.revision + 1, epoch: head.epoch + 1, writer, ..head };
        out.put_head(Purpose::TakeHead, next.encode(), &tag);
        self.head = Some(next);
        Ok(None)
    }

    /// The head, which is there when anything behind it is read.
    fn head(&self) -> &Head {
        self.head.as_ref().expect("the head comes first")
    }

    /// Asks for further parts of the map.
    fn read_parts(&mut self, out: &mut Outbox) {
        let checkpoint = self.head().checkpoint;
        let end = checkpoint.parts.min(self.parts.len() as u32 + READS_MAX as u32);
        for number in self.parts_asked..end {
            out.get(Purpose::ReadPart(number), checkpoint.key(number), PART_BYTES_MAX);
        }
        self.parts_asked = self.parts_asked.max(end);
    }

    fn take_part(&mut self, number: u32, bytes: &[u8]) -> Option<()> {
        let part = Part::parse(bytes).ok()?;
        let head = self.head();
        let image = head.image_of(head.checkpoint.key(number));
        let expected = (image, head.checkpoint.position, number);
        if (part.image, part.position, part.number) != expected {
            return None;
        }
        self.parts.insert(number, part);
        Some(())
    }

    /// Asks for further segments, if the map is there.
    fn read_on(&mut self, out: &mut Outbox) -> Result<Option<Found>, Over> {
        let Checkpoint { position, parts, .. } = self.head().checkpoint;
        if !self.is_mapped {
            if self.parts.len() < parts as usize {
                return Ok(None);
            }
            let parts: Vec<Part> = core::mem::take(&mut self.parts).into_values().collect();
            let map = assemble(&parts, position, self.head().geometry);
            self.map = map.map_err(|damage| Over::Failed(damage.0))?;
            (self.scan, self.is_mapped) = (Scan::new(position, READS_MAX), true);
        }
        self.scan.ask(out);
        Ok(None)
    }

    /// Does what the segments that were read say, in their order, up to the first that is missing.
    fn replay(&mut self, out: &mut Outbox) -> Result<Option<Found>, Over> {
        while !self.is_fencing
            && let Some(segment) = self.scan.pop()
        {
            let known_end = self.head().known_end();
            let Some((header, data_start)) = segment else {
                match self.scan.next() < known_end {
                    true => judge("a segment is missing", out),
                    false => self.fence(out),
                }
                return Ok(None);
            };
            let own = self.head().epoch;
            match header.content {
                _ if header.epoch > own => {
                    judge("a segment is of a later writer", out);
                    return Ok(None);
                }
                Content::Changes(records) => {
                    self.map.replay(header.sequence, data_start, &records);
                    self.replayed += 1;
                }
                _ if header.leads_over(known_end) => {
                    judge("the log ends before a snapshot does", out);
                    return Ok(None);
                }
                Content::Fence { resume, .. } => {
                    self.fences.push(header.sequence..resume);
                    self.scan.skip(resume);
                    if header.epoch == own {
                        self.is_fencing = true;
                        confirm(out);
                    }
                }
            }
        }
        if self.is_fencing { Ok(None) } else { self.read_on(out) }
    }

    /// Ends the log of the writer before where its first segment is missing.
    fn fence(&mut self, out: &mut Outbox) {
        self.is_fencing = true;
        if mistake::makes(Mistake::NoFence) {
            return confirm(out);
        }
        let (at, head) = (self.scan.next(), self.head());
        let content = Content::Fence { resume: resume(at), writer: self.writer.name.clone() };
        let header = Header { image: head.image, epoch: head.epoch, sequence: at, content };
        let body = Arc::new(header.encode(head.geometry));
        out.put_if_absent(Purpose::PutFence(at), Key::Segment(at), body);
    }

    fn found(&mut self, proof_ns: u64) -> Option<Found> {
        let (map, tag) = (core::mem::take(&mut self.map), core::mem::take(&mut self.tag));
        let (cipher, next, replayed) = (self.cipher.take(), self.scan.next(), self.replayed);
        self.head.take().map(|head| {
            let leftovers = Leftovers::new(&head, &self.fences);
            Found { head, tag, cipher, map, next, replayed, leftovers, proof_ns }
        })
    }
}

/// Asks for the head once more. Was it this writer's all the time, no later one has deleted
/// segments before they were read: the one that seemed to be missing was.
fn confirm(out: &mut Outbox) {
    out.get(Purpose::ConfirmHead, Key::Head, HEAD_BYTES_MAX);
}

/// Returns where the log goes on behind a fence at `at`: what the writer before has in flight lies
/// in between.
fn resume(at: u64) -> u64 {
    if mistake::makes(Mistake::ResumeBehind) { at + 1 } else { at + WINDOW }
}

/// Asks for the head, because something is not as this writer left it.
pub(crate) fn judge(why: &'static str, out: &mut Outbox) {
    out.get(Purpose::Judge(why), Key::Head, HEAD_BYTES_MAX);
}

/// Says what it means that something is not as this writer left it.
pub(crate) fn verdict(is_own: bool, head: Head, why: &'static str) -> Over {
    match is_own {
        true => Over::Failed(why),
        false => Over::Fenced { epoch: head.epoch, writer: head.writer.name },
    }
}
