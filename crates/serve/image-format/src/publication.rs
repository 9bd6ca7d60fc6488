//! Checkpoints of the map as they are made, and deletion of what they make superfluous.
//!
//! ```text
//!   the map between two segments ─▶ its parts are put ─▶ all segments before are durable
//!     ─▶ the head that names it is put ─▶ the checkpoint before, and segments without live blocks
//!        as of this one, are deleted, unless a snapshot needs them
//! ```
//! A head may have been edited meanwhile (`edit`): then the checkpoint goes into the edited one.

use crate::Part;
use crate::head::{Checkpoint, Head, PARTS_MAX, RETIRED_MAX};
use crate::map::{Map, SegmentUse};
use crate::mistake::{self, Mistake};
use crate::needs::Needs;
use crate::outbox::{Outbox, Purpose};
use crate::settings::Settings;
use crate::store::{Key, Tag};
use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

/// How many parts are put, or objects deleted, at the same time.
pub(crate) const IN_FLIGHT_MAX: usize = 4;

/// Bytes of memory and of a checkpoint that an extent takes.
const EXTENT_BYTES: u64 = 24;

/// So many bytes of segments come before a checkpoint for each of its own: they add a part of as
/// much to all that is put.
const MAP_SHARE: u64 = 24;

/// A checkpoint on its way.
#[derive(Debug)]
struct Draft {
    position: u64,
    parts: u32,
    epoch: u64,
    nth: u32,
    /// Parts that were not sent.
    unsent: VecDeque<(u32, Arc<Vec<u8>>)>,
    /// Parts that were sent and are not known to be put.
    sent: BTreeSet<u32>,
    /// The head that names it, when that was sent.
    head: Option<Head>,
    /// The smaller size that the image has with it.
    size_bytes: Option<u64>,
    /// Segments without live blocks as of this map, and since when. Later ones are needed as long
    /// as this is the newest.
    dead: Vec<(u64, u64)>,
}

/// A checkpoint whose parts are being deleted.
#[derive(Debug)]
struct Retirement {
    checkpoint: Checkpoint,
    /// The first part whose deletion was not asked for.
    next: u32,
    /// Parts that are not known to be deleted.
    left: u32,
}

/// The checkpoints of an image.
#[derive(Debug)]
pub(crate) struct Publication {
    draft: Option<Draft>,
    /// Segments since the checkpoint before, and bytes of them.
    segments: u64,
    bytes: u64,
    /// Bytes of data in segments without live blocks that it knew of and that are still there.
    dead_bytes: u64,
    deletions: VecDeque<(Purpose, Key)>,
    deletions_in_flight: usize,
    retirements: Vec<Retirement>,
    /// The first segment that is not of a base.
    own_from: u64,
    /// Segments that are deleted, or will be.
    doomed: BTreeSet<u64>,
}

impl Publication {
    /// Begins with a head, and so many segments behind its checkpoint.
    pub(crate) fn new(head: &Head, segments: u64) -> Publication {
        let mut publication = Publication {
            draft: None,
            segments,
            bytes: 0,
            dead_bytes: 0,
            deletions: VecDeque::new(),
            deletions_in_flight: 0,
            retirements: Vec::new(),
            own_from: head.bases.end(),
            doomed: BTreeSet::new(),
        };
        if !mistake::makes(Mistake::LeaveBehind) {
            publication.retire(head);
        }
        publication
    }

    /// Counts a segment.
    pub(crate) fn count(&mut self, bytes: usize) {
        self.segments += 1;
        self.bytes += bytes as u64;
    }

    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        self.draft.as_ref().map(Draft::checkpoint)
    }

    /// Begins a checkpoint of the map, which is that of all segments before `position`, if it is
    /// time for one.
    pub(crate) fn begin(&mut self, settings: &Settings, head: &Head, map: &Map, position: u64) {
        let map_bytes = EXTENT_BYTES * map.extents().len() as u64;
        let bytes = settings.checkpoint_bytes.max(MAP_SHARE * map_bytes);
        let dead_bytes = map.dead_blocks() * u64::from(head.geometry.block_bytes);
        self.dead_bytes = self.dead_bytes.min(dead_bytes);
        let is_due = self.bytes >= bytes
            || dead_bytes - self.dead_bytes >= bytes
            || self.segments >= settings.checkpoint_segments;
        if is_due && self.may_begin(head) {
            self.draft(head, map, position, None);
        }
    }

    /// Tells whether there is no checkpoint on its way, and room for one more in the head: without
    /// deletions the log grows, and the head stays one that can be read.
    pub(crate) fn may_begin(&self, head: &Head) -> bool {
        // The next head does not have those.
        let gone = self.retirements.iter().filter(|it| it.left == 0).count();
        self.draft.is_none() && head.retired.len().saturating_sub(gone) < RETIRED_MAX / 2
    }

    /// Begins a checkpoint of the map, perhaps with a smaller size of the image, for which
    /// [`Publication::may_begin`] was asked.
    pub(crate) fn draft(&mut self, head: &Head, map: &Map, position: u64, size_bytes: Option<u64>) {
        let parts = Part::of(map, head, position);
        if parts.len() > PARTS_MAX as usize {
            return;
        }
        let unsent: VecDeque<(u32, Arc<Vec<u8>>)> =
            parts.iter().map(|part| (part.number, Arc::new(part.encode()))).collect();
        let (parts, sent) = (parts.len() as u32, BTreeSet::new());
        let dead = map.dead();
        let dead_bytes = map.dead_blocks() * u64::from(head.geometry.block_bytes);
        let (epoch, nth) = (head.epoch, head.checkpoint.next_nth(head.epoch));
        let head = None;
        self.draft =
            Some(Draft { position, parts, epoch, nth, unsent, sent, head, size_bytes, dead });
        (self.segments, self.bytes, self.dead_bytes) = (0, 0, dead_bytes);
    }

    /// Sends what can be sent now; all segments before `durable` are that.
    pub(crate) fn go_on(&mut self, head: &Head, tag: &Tag, durable: u64, out: &mut Outbox) {
        while self.deletions_in_flight < IN_FLIGHT_MAX
            && let Some((purpose, key)) = self.next_deletion()
        {
            self.deletions_in_flight += 1;
            out.delete(purpose, key);
        }
        let Some(draft) = &mut self.draft else { return };
        while draft.sent.len() < IN_FLIGHT_MAX
            && let Some((number, body)) = draft.unsent.pop_front()
        {
            draft.sent.insert(number);
            let key = draft.checkpoint().key(number);
            out.put_if_absent(Purpose::PutPart(number), key, body);
        }
        let is_put = draft.unsent.is_empty() && draft.sent.is_empty();
        let is_durable = durable >= draft.position || mistake::makes(Mistake::HeadFirst);
        if is_put && is_durable && draft.head.is_none() {
            let mut next = draft.advance(head, durable);
            let is_gone = |it: &Checkpoint| {
                self.retirements.iter().any(|gone| gone.left == 0 && gone.checkpoint == *it)
            };
            next.retired.retain(|it| !is_gone(it));
            out.put_head(Purpose::AdvanceHead, next.encode(), tag);
            draft.head = Some(next);
        }
    }

    fn next_deletion(&mut self) -> Option<(Purpose, Key)> {
        let mut retirements = self.retirements.iter_mut();
        let part = || {
            let retirement = retirements.find(|it| it.next < it.checkpoint.parts)?;
            retirement.next += 1;
            let Checkpoint { epoch, nth, .. } = retirement.checkpoint;
            let key = retirement.checkpoint.key(retirement.next - 1);
            Some((Purpose::DeletePart { epoch, nth }, key))
        };
        self.deletions.pop_front().or_else(part)
    }

    pub(crate) fn part_is_put(&mut self, number: u32) {
        if let Some(draft) = &mut self.draft {
            draft.sent.remove(&number);
        }
    }

    /// Notes that the head that was sent was not put.
    pub(crate) fn head_is_not_put(&mut self) {
        if let Some(draft) = &mut self.draft {
            draft.head = None;
        }
    }

    /// Returns the head that was sent, as it is now that it was put.
    pub(crate) fn sent_head(&self) -> Option<Head> {
        self.draft.as_ref().and_then(|draft| draft.head.clone())
    }

    /// Notes that a head names the checkpoint. Fences stay as long as a writer may be there that
    /// does not know that it was replaced; a later checkpoint deletes them.
    pub(crate) fn head_is_put(&mut self, head: &Head, map: &Map, with_fences: bool) {
        let Some(draft) = self.draft.take() else { return };
        self.retire(head);
        let needs = Needs::of(&head.snapshots);
        let is_fence = |at: u64| map.segments().get(&at).is_some_and(SegmentUse::is_fence);
        let dead = draft.dead.into_iter().filter(|(sequence, since)| {
            !needs.has(*sequence, *since) && (with_fences || !is_fence(*sequence))
        });
        self.delete(dead.map(|(sequence, _)| sequence).collect());
    }

    /// Deletes the checkpoints that a head says nothing needs any more.
    fn retire(&mut self, head: &Head) {
        self.retirements.retain(|it| head.retired.contains(&it.checkpoint));
        for checkpoint in &head.retired {
            if self.retirements.iter().all(|it| it.checkpoint != *checkpoint) {
                let left = checkpoint.parts;
                self.retirements.push(Retirement { checkpoint: *checkpoint, next: 0, left });
            }
        }
    }

    /// Deletes objects that a writer before has left.
    pub(crate) fn clean(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.deletions.extend(keys.into_iter().map(|key| (Purpose::DeleteLeftover, key)));
    }

    /// Deletes segments that no map needs; those of a base are the base's.
    pub(crate) fn delete(&mut self, dead: Vec<u64>) {
        for sequence in dead {
            if sequence >= self.own_from && self.doomed.insert(sequence) {
                self.deletions
                    .push_back((Purpose::DeleteSegment(sequence), Key::Segment(sequence)));
            }
        }
    }

    /// Returns how many objects are to be deleted, for all that is known now.
    pub(crate) fn deletions(&self) -> usize {
        let unasked = |it: &Retirement| (it.checkpoint.parts - it.next) as usize;
        let parts: usize = self.retirements.iter().map(unasked).sum();
        self.deletions.len() + self.deletions_in_flight + parts
    }

    /// Notes that an object is deleted.
    pub(crate) fn deleted(&mut self, purpose: Purpose, map: &mut Map) {
        self.deletions_in_flight -= 1;
        match purpose {
            Purpose::DeleteSegment(sequence) => {
                map.forget(sequence);
                self.doomed.remove(&sequence);
            }
            Purpose::DeletePart { epoch, nth } => {
                let mut retirements = self.retirements.iter_mut();
                let of = retirements.find(|it| it.checkpoint.id() == (epoch, nth));
                of.into_iter().for_each(|it| it.left -= 1);
            }
            _ => {}
        }
    }
}

impl Draft {
    fn checkpoint(&self) -> Checkpoint {
        let Draft { position, parts, epoch, nth, .. } = *self;
        Checkpoint { position, parts, epoch, nth }
    }

    /// Returns the head that names it, and but for a smaller size is otherwise as the one before.
    fn advance(&self, before: &Head, durable: u64) -> Head {
        let mut head = before.advanced(self.checkpoint(), durable);
        head.geometry.size_bytes = self.size_bytes.unwrap_or(before.geometry.size_bytes);
        head
    }
}
