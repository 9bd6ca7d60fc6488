//! Checkpoints of the map as they are made, and deletion of what they make superfluous.
//!
//! ```text
//!   the map between two segments ─▶ its parts are put ─▶ all segments before are durable
//!     ─▶ the head that names it is put ─▶ the checkpoint before, and segments without live blocks
//!        as of this one, are deleted, unless a snapshot needs them
//! ```

use crate::Part;
use crate::head::{Checkpoint, Head, PARTS_MAX, Snapshot};
use crate::map::Map;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::serving::Settings;
use crate::store::{Key, Operation, Tag};
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
    is_head_sent: bool,
    /// Segments without live blocks as of this map. Later ones are needed as long as this is the
    /// newest.
    dead: Vec<u64>,
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
    /// Segments that are deleted, or will be.
    doomed: BTreeSet<u64>,
}

impl Publication {
    /// Begins behind a checkpoint and so many segments.
    pub(crate) fn new(segments: u64) -> Publication {
        Publication {
            draft: None,
            segments,
            bytes: 0,
            dead_bytes: 0,
            deletions: VecDeque::new(),
            deletions_in_flight: 0,
            doomed: BTreeSet::new(),
        }
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
        if !is_due || self.draft.is_some() {
            return;
        }
        let parts = Part::of(map, head.image, head.epoch, position);
        if parts.len() > PARTS_MAX as usize {
            return;
        }
        let unsent: VecDeque<(u32, Arc<Vec<u8>>)> =
            parts.iter().map(|part| (part.number, Arc::new(part.encode()))).collect();
        let (parts, sent) = (parts.len() as u32, BTreeSet::new());
        let dead = map.dead();
        let (epoch, nth) = (head.epoch, head.checkpoint.next_nth(head.epoch));
        self.draft =
            Some(Draft { position, parts, epoch, nth, unsent, sent, is_head_sent: false, dead });
        (self.segments, self.bytes, self.dead_bytes) = (0, 0, dead_bytes);
    }

    /// Sends what can be sent now; all segments before `durable` are that.
    pub(crate) fn go_on(&mut self, head: &Head, tag: &Tag, durable: u64, out: &mut Outbox) {
        while self.deletions_in_flight < IN_FLIGHT_MAX
            && let Some((purpose, key)) = self.deletions.pop_front()
        {
            self.deletions_in_flight += 1;
            out.errands.send(purpose, Operation::Delete { key }, out.now_ns);
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
        if is_put && is_durable && !draft.is_head_sent {
            draft.is_head_sent = true;
            out.put_head(Purpose::AdvanceHead, draft.advance(head).encode(), tag);
        }
    }

    pub(crate) fn part_is_put(&mut self, number: u32) {
        if let Some(draft) = &mut self.draft {
            draft.sent.remove(&number);
        }
    }

    /// Notes that the head is still the one before.
    pub(crate) fn head_is_not_put(&mut self) {
        if let Some(draft) = &mut self.draft {
            draft.is_head_sent = false;
        }
    }

    /// Notes that the head names the checkpoint now, and returns it.
    pub(crate) fn head_is_put(&mut self, before: &Head) -> Option<Head> {
        let mut draft = self.draft.take()?;
        let head = draft.advance(before);
        let pins = |it: &Snapshot| Some(it.checkpoint) == head.retired;
        if let Some(retired) = head.retired.filter(|_| !head.snapshots.iter().any(pins)) {
            let keys = (0..retired.parts).map(|number| retired.key(number));
            self.deletions.extend(keys.map(|key| (Purpose::DeletePart, key)));
        }
        let pinned = head.snapshots.iter().map(|it| it.end).max().unwrap_or(0);
        draft.dead.retain(|sequence| *sequence >= pinned);
        self.delete(draft.dead);
        Some(head)
    }

    /// Deletes objects that a writer before has left.
    pub(crate) fn clean(&mut self, keys: impl IntoIterator<Item = Key>) {
        self.deletions.extend(keys.into_iter().map(|key| (Purpose::DeleteLeftover, key)));
    }

    /// Deletes segments that no map needs.
    pub(crate) fn delete(&mut self, dead: Vec<u64>) {
        for sequence in dead {
            if self.doomed.insert(sequence) {
                self.deletions
                    .push_back((Purpose::DeleteSegment(sequence), Key::Segment(sequence)));
            }
        }
    }

    /// Notes that an object is deleted.
    pub(crate) fn deleted(&mut self, purpose: Purpose, map: &mut Map) {
        self.deletions_in_flight -= 1;
        if let Purpose::DeleteSegment(sequence) = purpose {
            map.forget(sequence);
            self.doomed.remove(&sequence);
        }
    }
}

impl Draft {
    fn checkpoint(&self) -> Checkpoint {
        let Draft { position, parts, epoch, nth, .. } = *self;
        Checkpoint { position, parts, epoch, nth }
    }

    /// Returns the head that names it.
    fn advance(&self, head: &Head) -> Head {
        let checkpoint = self.checkpoint();
        let retired = Some(head.checkpoint).filter(|it| it.parts > 0);
        Head { revision: head.revision + 1, checkpoint, retired, ..head.clone() }
    }
}
