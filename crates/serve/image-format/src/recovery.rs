//! How a writer opens an image: it makes the image, or takes it over.
//!
//! ```text
//!   head is read ─▶ head is put, with the next epoch ─▶ parts of the map are read
//!     ─▶ segments from there on, to the end of the log (`scan`) ─▶ there a fence is put
//!     ─▶ head is read: it still names this writer
//! ```
//!
//! If the map or the log is damaged and the writer has sent no fence, it gives the head back to the
//! previous writer, with all edits made since: the next attempt finds the same state.
//!
//! The PUT of the fence ends the earlier writer's log. If the earlier writer puts a segment at the
//! fence's place first, that segment is part of the log, and the fence goes behind it. Once the
//! fence is in the store, the earlier writer can make no further segment durable.

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
use crate::scan::{Behind, MISSED_READS_MAX, Next, Scan};
use crate::segment::{Content, Header, WINDOW};
use crate::stamp::ImageId;
use crate::store::{Answer, Key, Tag};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

/// The most parts of the map, and the most segments, that a writer reads at the same time.
const READS_MAX: u64 = 32;

/// How often a writer reads an object again that looks damaged: the damage may be only in transit.
pub(crate) const DAMAGED_READS_MAX: u32 = 8;

const LOST: &str = "a part of its log is lost, or an older head was put back: \
                    see nowait image check, and nowait image repair";

const SEGMENT_IS_DAMAGED: &str = "a segment of its log is damaged: \
                                  see nowait image check, and nowait image repair";
const PART_IS_DAMAGED: &str = "a part of its map is damaged: see nowait image check";

/// The origin of a writer's image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The writer makes an empty image, where none exists.
    Create {
        /// The random number of the image, which no other image has.
        image: ImageId,
        /// The block size, the size, and the encryption: `Some` if and only if the settings have a
        /// key.
        geometry: Geometry,
    },
    /// The writer takes over an existing image.
    TakeOver,
}

#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) head: Head,
    pub(crate) tag: Tag,
    pub(crate) cipher: Option<Cipher>,
    pub(crate) map: Map,
    /// The place where the log continues.
    pub(crate) next: u64,
    /// The number of segments behind the checkpoint, without fences.
    pub(crate) replayed: u64,
    pub(crate) leftovers: Leftovers,
    /// The time when the operation was sent that proved that the writer has the image.
    pub(crate) proof_ns: u64,
    /// `true`: no earlier writer still serves the image.
    pub(crate) is_alone: bool,
}

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
    is_mapped: bool,
    scan: Option<Scan>,
    replayed: u64,
    /// The highest epoch of the checkpoint and the segments so far. No segment of an earlier epoch
    /// may follow.
    reached: u64,
    /// For each fence its place, and the place where the log continues.
    fences: Vec<Range<u64>>,
    is_fencing: bool,
    /// The head that this writer has replaced.
    before: Option<Head>,
    fence_is_sent: bool,
}

impl Recovery {
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
            scan: None,
            replayed: 0,
            reached: 0,
            before: None,
            fence_is_sent: false,
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
            end: 1,
            is_closed: false,
            is_quiet: false,
            geometry,
            checkpoint: Checkpoint { position: 1, parts: 0, epoch: 1, nth: 0 },
            retired: Vec::new(),
            snapshots: Vec::new(),
            bases: Bases::default(),
        };
        let body = Arc::new(head.encode());
        out.know(&head);
        self.head = Some(head);
        out.put_if_absent(Purpose::CreateHead, Key::Head, body);
    }

    pub(crate) fn answer(
        &mut self,
        errand: Errand<Purpose>,
        answer: Answer,
        out: &mut Outbox,
    ) -> Result<Option<Found>, Over> {
        match (errand.purpose, answer) {
            // The head in the store shows whose PUT has succeeded.
            (Purpose::TakeHead | Purpose::CreateHead, Answer::Refused) => {
                out.get(Purpose::ReadHead, Key::Head, HEAD_BYTES_MAX);
                Ok(None)
            }
            (Purpose::GiveBack(why), Answer::Put(_)) => Err(Over::Failed(why)),
            // An earlier try of this PUT had succeeded, or another process has replaced the head.
            (Purpose::GiveBack(why), Answer::Refused) => {
                judge(why, out);
                Ok(None)
            }
            (Purpose::CreateHead, Answer::Put(tag)) => {
                self.tag = tag;
                Ok(self.found(errand.sent_ns))
            }
            (Purpose::TakeHead, Answer::Put(tag)) => {
                self.tag = tag;
                self.read_parts(out);
                self.read_on(out);
                Ok(None)
            }
            (Purpose::ConfirmEnd, Answer::Listed(places)) => {
                self.take_list(places, out);
                Ok(None)
            }
            (Purpose::PutFence(at), Answer::Put(_)) => {
                self.pass_fence(at, resume(at));
                if mistake::makes(Mistake::ServeAtOnce) {
                    return Ok(self.found(errand.sent_ns));
                }
                confirm(out);
                Ok(None)
            }
            (Purpose::PutFence(_), Answer::Refused) => {
                // There is an object at the fence's place. The scan may have read this place and
                // the next ones before their segments were put.
                self.read_again(out);
                Ok(None)
            }
            (_, Answer::Got { bytes, object_bytes, tag }) => {
                self.got(errand, &bytes, object_bytes, tag, out)
            }
            (Purpose::ReadSegment(sequence), Answer::Missing) => {
                self.scan.iter_mut().for_each(|scan| scan.miss(sequence));
                self.replay(out);
                Ok(None)
            }
            // The store may be wrong, so the writer asks again.
            (_, Answer::Missing) if errand.damaged < MISSED_READS_MAX => {
                out.errands.reread(errand, out.now_ns);
                Ok(None)
            }
            (Purpose::ReadHead | Purpose::ConfirmHead | Purpose::Judge(_), Answer::Missing) => {
                Err(Over::Failed("no such image"))
            }
            (_, Answer::Missing) => {
                judge("a part of its map is missing: see nowait image check", out);
                Ok(None)
            }
            _ => {
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
                let known = self.head.as_ref().zip(self.scan.as_mut());
                let take = |(head, scan): (&Head, &mut Scan)| {
                    scan.take(sequence, bytes, object_bytes, head)
                };
                known.and_then(take).is_some()
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
            match errand.purpose {
                Purpose::ReadPart(_) => judge(PART_IS_DAMAGED, out),
                Purpose::ReadSegment(sequence) => {
                    self.scan.iter_mut().for_each(|scan| scan.damage(sequence));
                    self.replay(out);
                }
                _ => return Err(Over::Failed("the head is damaged: see nowait image check")),
            }
            return Ok(None);
        }
        if matches!(errand.purpose, Purpose::ReadPart(_)) {
            self.read_parts(out);
            self.read_on(out);
            return Ok(None);
        }
        self.replay(out);
        Ok(None)
    }

    fn take_head(
        &mut self,
        errand: &Errand<Purpose>,
        head: Head,
        tag: Tag,
        out: &mut Outbox,
    ) -> Result<Option<Found>, Over> {
        let is_own = head.writer.nonce == self.writer.nonce;
        out.know(&head);
        if let Purpose::Judge(why) = errand.purpose {
            return match self.before.clone().filter(|_| !self.fence_is_sent) {
                Some(before) if is_own => {
                    let Head { epoch, writer, is_closed, is_quiet, .. } = before;
                    let revision = head.revision + 1;
                    let back = Head { revision, epoch, writer, is_closed, is_quiet, ..head };
                    out.put_head(Purpose::GiveBack(why), back.encode(), &tag);
                    Ok(None)
                }
                // This writer has given the head back: each later writer has a larger epoch.
                Some(before) if before.epoch == head.epoch => Err(Over::Failed(why)),
                _ => Err(verdict(is_own, head, why)),
            };
        }
        if errand.purpose == Purpose::ConfirmHead && !is_own {
            return Err(verdict(false, head, ""));
        }
        if !is_own && matches!(self.origin, Origin::Create { .. }) {
            return Err(Over::Failed("the image exists"));
        }
        self.unlock(head.geometry)?;
        if errand.purpose == Purpose::ConfirmHead {
            (self.tag, self.head) = (tag, Some(head));
            return Ok(self.found(errand.sent_ns));
        }
        if is_own {
            self.scan.get_or_insert_with(|| Scan::new(&head, READS_MAX));
            (self.tag, self.head) = (tag, Some(head));
            if matches!(self.origin, Origin::Create { .. }) {
                return Ok(self.found(errand.sent_ns));
            }
            self.read_parts(out);
            self.read_on(out);
            return Ok(None);
        }
        let writer = self.writer.clone();
        let (revision, epoch) = (head.revision + 1, head.epoch + 1);
        // The scan gets the previous head: if that head is closed, the scan reads the log only up
        // to its `end`.
        self.scan = Some(Scan::new(&head, READS_MAX));
        self.before = Some(head.clone());
        let (is_closed, is_quiet) = (false, false);
        let next = Head { revision, epoch, writer, is_closed, is_quiet, ..head };
        out.put_head(Purpose::TakeHead, next.encode(), &tag);
        self.head = Some(next);
        Ok(None)
    }

    fn head(&self) -> &Head {
        self.head.as_ref().expect("the head comes first")
    }

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

    fn read_on(&mut self, out: &mut Outbox) {
        let Checkpoint { position, parts, .. } = self.head().checkpoint;
        if !self.is_mapped {
            if self.parts.len() < parts as usize {
                return;
            }
            let parts: Vec<Part> = core::mem::take(&mut self.parts).into_values().collect();
            let map = assemble(&parts, position, self.head().geometry);
            match map {
                Ok(map) => self.map = map,
                Err(damage) => return self.give_up(damage.0, out),
            }
            self.is_mapped = true;
        }
        self.replay(out);
    }

    fn replay(&mut self, out: &mut Outbox) {
        while !self.is_fencing {
            let Some(scan) = &mut self.scan else { break };
            match scan.pop() {
                Next::Unknown => return scan.ask(out),
                Next::End => self.judge_end(out),
                Next::Lost if scan.doubt(out) => {}
                Next::Lost => self.give_up(LOST, out),
                Next::Damaged => self.give_up(SEGMENT_IS_DAMAGED, out),
                Next::Segment(header, data_start) => {
                    if let Err(why) = self.follow(header, data_start, out) {
                        self.give_up(why, out);
                    }
                }
            }
        }
    }

    fn follow(
        &mut self,
        header: Header,
        data_start: u32,
        out: &mut Outbox,
    ) -> Result<(), &'static str> {
        let Head { epoch, .. } = *self.head();
        let is_own = header.writer == self.writer.nonce || mistake::makes(Mistake::IgnoreNonce);
        if header.epoch > epoch || (header.epoch == epoch && !is_own) {
            return Err("the log goes on after this head: an older head was put back");
        }
        let reached = self.reached.max(self.head().checkpoint.epoch);
        self.reached = reached.max(header.epoch);
        if header.epoch < reached {
            return Err("a segment of an earlier writer follows one of a later writer");
        }
        if header.leads_over(self.head().known_end()) {
            return Err("the log ends before a snapshot does");
        }
        match header.content {
            Content::Changes(records) => {
                self.map.replay(header.sequence, data_start, &records);
                self.replayed += 1;
            }
            Content::Fence { resume, .. } => {
                self.pass_fence(header.sequence, resume);
                if header.epoch == epoch {
                    self.is_fencing = true;
                    confirm(out);
                }
            }
        }
        Ok(())
    }

    fn pass_fence(&mut self, at: u64, resume: u64) {
        self.map.fence(at);
        self.fences.push(at..resume);
        self.scan.iter_mut().for_each(|scan| scan.skip(resume));
    }

    fn judge_end(&mut self, out: &mut Outbox) {
        let Some(scan) = &mut self.scan else { return };
        if mistake::makes(Mistake::GapIsEnd) {
            return self.fence(out);
        }
        match scan.judge_end(out) {
            None => {
                self.is_fencing = true;
                out.list_from(Purpose::ConfirmEnd, scan.next());
            }
            Some(Behind::Again) => {}
            Some(Behind::Nothing) => self.fence(out),
            Some(Behind::More) => self.give_up(LOST, out),
        }
    }

    fn take_list(&mut self, places: Vec<u64>, out: &mut Outbox) {
        if let Some(scan) = &mut self.scan {
            scan.take_list(places);
        }
        self.is_fencing = false;
        self.replay(out);
    }

    /// Reads the head, and then ends the opening with the reason `why`, unless a later writer has
    /// the image. The later writer may have deleted the missing object. If the image has grown, the
    /// later writer may have put the object that looks damaged.
    fn give_up(&mut self, why: &'static str, out: &mut Outbox) {
        self.is_fencing = true;
        judge(why, out);
    }

    fn read_again(&mut self, out: &mut Outbox) {
        self.is_fencing = false;
        self.scan.iter_mut().for_each(|scan| scan.again(out));
        self.replay(out);
    }

    fn fence(&mut self, out: &mut Outbox) {
        self.is_fencing = true;
        if mistake::makes(Mistake::NoFence) {
            return confirm(out);
        }
        self.fence_is_sent = true;
        let (at, head) = (self.next(), self.head());
        let content = Content::Fence { resume: resume(at), writer: self.writer.name.clone() };
        let Head { image, epoch, .. } = *head;
        let (sequence, durable, writer) = (at, at, self.writer.nonce);
        let header = Header { image, epoch, writer, sequence, durable, content };
        let body = Arc::new(header.encode(head.geometry));
        out.put_if_absent(Purpose::PutFence(at), Key::Segment(at), body);
    }

    fn next(&self) -> u64 {
        self.scan.as_ref().map_or(1, Scan::next)
    }

    fn found(&mut self, proof_ns: u64) -> Option<Found> {
        let (map, tag) = (core::mem::take(&mut self.map), core::mem::take(&mut self.tag));
        let (cipher, next, replayed) = (self.cipher.take(), self.next(), self.replayed);
        // `None`: this writer has made the image.
        let is_alone = self.before.as_ref().is_none_or(|before| before.is_quiet);
        self.head.take().map(|head| {
            let leftovers = Leftovers::new(&head, &self.fences);
            Found { head, tag, cipher, map, next, replayed, leftovers, proof_ns, is_alone }
        })
    }
}

/// Reads the head again. If this writer has had the image all the time, no later writer has deleted
/// segments before this writer read them. So a segment that was missing never existed.
fn confirm(out: &mut Outbox) {
    out.get(Purpose::ConfirmHead, Key::Head, HEAD_BYTES_MAX);
}

/// Segments that the earlier writer has in flight lie before the place where the log continues.
fn resume(at: u64) -> u64 {
    if mistake::makes(Mistake::ResumeBehind) { at + 1 } else { at + WINDOW }
}

/// Reads the head, because an object is missing or is not as expected.
pub(crate) fn judge(why: &'static str, out: &mut Outbox) {
    out.get(Purpose::Judge(why), Key::Head, HEAD_BYTES_MAX);
}

pub(crate) fn verdict(is_own: bool, head: Head, why: &'static str) -> Over {
    match is_own {
        true => Over::Failed(why),
        false => Over::Fenced { epoch: head.epoch, writer: head.writer.name },
    }
}
