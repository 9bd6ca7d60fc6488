//! Publication of checkpoints, and deletion of the objects that they make superfluous.
//!
//! ```text
//!   the map between two segments ─▶ its parts are put ─▶ all segments before it are durable
//!     ─▶ the head that names this checkpoint is put ─▶ the writer deletes the previous checkpoint,
//!        and segments without a live block in this one, unless a snapshot needs them
//! ```
//! If the head was edited meanwhile (`edit`), the writer adds the checkpoint to the edited head.

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

/// The most PUTs of parts in flight, and the most deletions in flight.
pub(crate) const IN_FLIGHT_MAX: usize = 4;

const EXTENT_BYTES: u64 = 24;

/// The least bytes of segments between two checkpoints, for each byte of the map. So checkpoints
/// add at most about a 24th to the bytes put, unless many small segments or discards cause them.
const MAP_SHARE: u64 = 24;

#[derive(Debug)]
struct Draft {
    position: u64,
    parts: u32,
    epoch: u64,
    nth: u32,
    unsent: VecDeque<(u32, Arc<Vec<u8>>)>,
    sent: BTreeSet<u32>,
    head: Option<Head>,
    /// The size that the image gets with this checkpoint, if it becomes smaller.
    size_bytes: Option<u64>,
    /// Segments without live blocks in this map, each with the place since which it has none. The
    /// checkpoint still needs segments that lose their last live block later.
    dead: Vec<(u64, u64)>,
}

#[derive(Debug)]
struct Retirement {
    checkpoint: Checkpoint,
    /// The first part whose deletion was not requested.
    next: u32,
    /// The number of parts whose deletion was not acknowledged.
    left: u32,
}

#[derive(Debug)]
pub(crate) struct Publication {
    draft: Option<Draft>,
    /// The number and the bytes of the segments since the last checkpoint began.
    segments: u64,
    bytes: u64,
    /// An upper bound for the data bytes of segments that were dead when the last checkpoint began
    /// and still exist.
    dead_bytes: u64,
    deletions: VecDeque<(Purpose, Key)>,
    deletions_in_flight: usize,
    retirements: Vec<Retirement>,
    /// The first segment that belongs to no base.
    own_from: u64,
    /// Segments whose deletion is queued or in flight.
    doomed: BTreeSet<u64>,
}

impl Publication {
    /// The log has `segments` segments behind the head's checkpoint.
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

    pub(crate) fn count(&mut self, bytes: usize) {
        self.segments += 1;
        self.bytes += bytes as u64;
    }

    pub(crate) fn checkpoint(&self) -> Option<Checkpoint> {
        self.draft.as_ref().map(Draft::checkpoint)
    }

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

    /// Returns `true` if no checkpoint is in progress and less than half of [`RETIRED_MAX`] retired
    /// checkpoints wait for their deletion. If the store deletes nothing, the log grows, but the
    /// head stays readable.
    pub(crate) fn may_begin(&self, head: &Head) -> bool {
        // The next head does not list checkpoints whose objects are all deleted.
        let gone = self.retirements.iter().filter(|it| it.left == 0).count();
        self.draft.is_none() && head.retired.len().saturating_sub(gone) < RETIRED_MAX / 2
    }

    /// Begins a checkpoint of the map of all segments before `position`, unless it would have too
    /// many parts. The caller must check [`Publication::may_begin`] first.
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

    pub(crate) fn head_is_not_put(&mut self) {
        if let Some(draft) = &mut self.draft {
            draft.head = None;
        }
    }

    pub(crate) fn sent_head(&self) -> Option<Head> {
        self.draft.as_ref().and_then(|draft| draft.head.clone())
    }

    /// Ends the checkpoint in progress, because `head` is in the store and names it. If
    /// `with_fences` is `false`, an earlier writer may not have noticed that it was replaced. A
    /// later checkpoint then deletes the fences.
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

    fn retire(&mut self, head: &Head) {
        self.retirements.retain(|it| head.retired.contains(&it.checkpoint));
        for checkpoint in &head.retired {
            if self.retirements.iter().all(|it| it.checkpoint != *checkpoint) {
                let left = checkpoint.parts;
                self.retirements.push(Retirement { checkpoint: *checkpoint, next: 0, left });
            }
        }
    }

    pub(crate) fn clean(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.deletions.extend(keys.into_iter().map(|key| (Purpose::DeleteLeftover, key)));
    }

    pub(crate) fn delete(&mut self, dead: Vec<u64>) {
        for sequence in dead {
            if sequence >= self.own_from && self.doomed.insert(sequence) {
                self.deletions
                    .push_back((Purpose::DeleteSegment(sequence), Key::Segment(sequence)));
            }
        }
    }

    pub(crate) fn deletions(&self) -> usize {
        let unasked = |it: &Retirement| (it.checkpoint.parts - it.next) as usize;
        let parts: usize = self.retirements.iter().map(unasked).sum();
        self.deletions.len() + self.deletions_in_flight + parts
    }

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

    fn advance(&self, before: &Head, durable: u64) -> Head {
        let mut head = before.advanced(self.checkpoint(), durable);
        head.geometry.size_bytes = self.size_bytes.unwrap_or(before.geometry.size_bytes);
        head
    }
}
