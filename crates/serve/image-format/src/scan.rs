//! Reads the headers of segments ahead, and returns them in the order of the log.
//!
//! ```text
//!   there  there  missing  there  missing …    behind the first missing segment, the scan reads as
//!                    └── next ──── WINDOW ───┘  many as may have been in flight with it
//! ```
//! A missing segment is the end of the log, unless a segment behind it shows that the missing one
//! was durable ([`Header::proves`]), or the head says that the log reaches farther. In both of
//! these cases the segment is lost, or the store has erred, so the caller requests it a few times
//! more. At the end of the log, the caller lists the segments from there on: none may lie farther
//! behind than a segment in flight.

use crate::head::Head;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::segment::{HEADER_BYTES_MAX, Header, WINDOW};
use crate::store::Key;
use std::collections::BTreeMap;

/// How often a missing object that should exist is requested again.
pub(crate) const MISSED_READS_MAX: u32 = 4;

#[derive(Debug)]
pub(crate) enum Next {
    /// A segment, and the offset of its data.
    Segment(Header, u32),
    /// The store has not answered yet for this place, or for a place that decides about it.
    Unknown,
    /// No segment: the log seems to end before this place.
    End,
    /// The segment is missing, but must have existed.
    Lost,
    Damaged,
}

/// The judgement about an apparent end of the log, by a list of the segments from there on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// The log ends there.
    Nothing,
    /// The store has erred, or a writer has put more segments since: the scan reads again.
    Again,
    /// The log continues: segments are lost, or an older head was restored.
    More,
}

#[derive(Debug)]
enum Entry {
    There(Header, u32),
    Missing,
    Damaged,
}

#[derive(Debug)]
pub(crate) struct Scan {
    /// The first place whose segment was not returned.
    next: u64,
    /// The first place whose segment was not requested.
    asked: u64,
    /// The number of segments to request ahead. Each segment that is found adds one, up to
    /// `ahead_max`.
    ahead: u64,
    ahead_max: u64,
    /// The log reaches at least the place `known`, and at most the place `end`.
    known: u64,
    end: u64,
    segments: BTreeMap<u64, Entry>,
    /// How often `doubt` has requested the segment at `next` again.
    missed: u32,
    /// The list of segments that was made when the scan first met an end of the log. The same list
    /// judges each later end, because the log may grow faster than the store can list it.
    listed: Option<Vec<u64>>,
    /// The last end that `judge_end` has read again because of the list.
    reread: u64,
}

impl Scan {
    pub(crate) fn new(head: &Head, ahead_max: u64) -> Scan {
        let next = head.checkpoint.position;
        Scan {
            next,
            asked: next,
            ahead: WINDOW + 1,
            ahead_max: ahead_max.max(WINDOW + 1),
            known: head.known_end(),
            end: if head.is_closed { head.end } else { u64::MAX },
            segments: BTreeMap::new(),
            missed: 0,
            listed: None,
            reread: 0,
        }
    }

    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    fn is_at_end(&self) -> bool {
        self.next >= self.end
    }

    pub(crate) fn take_list(&mut self, places: Vec<u64>) {
        self.listed = Some(places);
    }

    /// Returns `None` if the caller must first request a list of the segments.
    pub(crate) fn judge_end(&mut self, out: &mut Outbox) -> Option<Behind> {
        let listed = self.listed.as_deref()?;
        let reaches = |from: u64| listed.iter().any(|place| *place >= from);
        let (next, is_there) = (self.next, listed.contains(&self.next));
        if self.is_at_end() {
            return Some(if reaches(next) { Behind::More } else { Behind::Nothing });
        }
        if !is_there && !reaches(next.saturating_add(WINDOW)) {
            return Some(Behind::Nothing);
        }
        // A writer may have put the segment after the scan had read its place.
        if self.reread != next {
            self.reread = next;
            self.again(out);
            return Some(Behind::Again);
        }
        match is_there && self.doubt(out) {
            true => Some(Behind::Again),
            false => Some(Behind::More),
        }
    }

    pub(crate) fn ask(&mut self, out: &mut Outbox) {
        while self.asked < self.next.saturating_add(self.ahead).min(self.end) {
            let sequence = self.asked;
            out.get(Purpose::ReadSegment(sequence), Key::Segment(sequence), HEADER_BYTES_MAX);
            self.asked += 1;
        }
    }

    /// Returns `None` if the segment is damaged, or belongs to another place or image.
    pub(crate) fn take(
        &mut self,
        sequence: u64,
        bytes: &[u8],
        object_bytes: u64,
        head: &Head,
    ) -> Option<()> {
        let (header, len) = Header::parse(bytes, object_bytes, head.geometry).ok()?;
        if (header.image, header.sequence) != (head.image_of(Key::Segment(sequence)), sequence) {
            return None;
        }
        self.segments.insert(sequence, Entry::There(header, len));
        Some(())
    }

    pub(crate) fn miss(&mut self, sequence: u64) {
        self.segments.insert(sequence, Entry::Missing);
    }

    /// A damaged segment does not matter if the log ends before it.
    pub(crate) fn damage(&mut self, sequence: u64) {
        self.segments.insert(sequence, Entry::Damaged);
    }

    /// Returns the state of the next place. If this is a segment, advances to the place behind it.
    pub(crate) fn pop(&mut self) -> Next {
        if self.is_at_end() {
            return Next::End;
        }
        match self.segments.remove(&self.next) {
            None => Next::Unknown,
            Some(Entry::There(header, data_start)) => {
                self.next += 1;
                (self.missed, self.ahead) = (0, self.ahead_max.min(self.ahead + 1));
                Next::Segment(header, data_start)
            }
            Some(Entry::Damaged) => Next::Damaged,
            Some(Entry::Missing) => {
                self.miss(self.next);
                self.judge_gap()
            }
        }
    }

    fn judge_gap(&self) -> Next {
        let behind = self.next + 1..=self.next.saturating_add(WINDOW);
        if self.next < self.known {
            return Next::Lost;
        }
        if mistake::makes(Mistake::GapIsEnd) {
            return Next::End;
        }
        let mut behind = self.segments.range(behind).map(|(_, it)| it);
        let proves = |it: &Entry| matches!(it, Entry::There(header, _) if header.proves(self.next));
        if behind.clone().any(proves) {
            return Next::Lost;
        }
        match behind.by_ref().count() as u64 == WINDOW.min(self.end - self.next - 1) {
            true => Next::End,
            false => Next::Unknown,
        }
    }

    /// Requests the next segment again, because it must have existed. Returns `false` if it was
    /// requested again [`MISSED_READS_MAX`] times already.
    pub(crate) fn doubt(&mut self, out: &mut Outbox) -> bool {
        if self.missed == MISSED_READS_MAX {
            return false;
        }
        self.missed += 1;
        self.segments.remove(&self.next);
        self.asked = self.asked.max(self.next + 1);
        let purpose = Purpose::ReadSegment(self.next);
        out.get_later(purpose, Key::Segment(self.next), HEADER_BYTES_MAX, self.missed - 1);
        true
    }

    pub(crate) fn skip(&mut self, resume: u64) {
        self.next = resume;
        self.asked = self.asked.max(resume);
        self.segments.retain(|sequence, _| *sequence >= resume);
    }

    /// Forgets all answers from the next segment on, so that [`Scan::ask`] reads these places
    /// again, also beyond the end that the head names.
    pub(crate) fn again(&mut self, out: &mut Outbox) {
        out.errands.forget(|purpose| matches!(purpose, Purpose::ReadSegment(_)));
        self.segments.clear();
        (self.asked, self.end) = (self.next, u64::MAX);
    }
}
