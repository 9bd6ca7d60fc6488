//! Headers of segments, read ahead and handed on in the order of the log.
//!
//! ```text
//!   there  there  missing  there  missing …    after the first that is missing, as many are read
//!                    └── next ──── WINDOW ───┘  as may have been in flight with it
//! ```
//! A segment that is missing is the end of the log, unless one behind it shows that it was durable
//! once ([`Header::proves`]), or the head says that the log reaches farther. Then it is lost; or
//! the store was wrong, so it is asked for a few times. And at the end, what is there from there on
//! is listed: nothing may be that lies farther than what was in flight.

use crate::head::Head;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::segment::{HEADER_BYTES_MAX, Header, WINDOW};
use crate::store::Key;
use std::collections::BTreeMap;

/// How often an object is asked for again that was there and is missing.
pub(crate) const MISSED_READS_MAX: u32 = 4;

/// What is at the next place of the log.
#[derive(Debug)]
pub(crate) enum Next {
    /// A segment, and where its data begin.
    Segment(Header, u32),
    /// The store has not answered.
    Unknown,
    /// Nothing: the log ends before it.
    End,
    /// Nothing, and there was a segment.
    Lost,
    /// One that is damaged.
    Damaged,
}

/// What a list says of the end of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Behind {
    /// It is the end.
    Nothing,
    /// The store was wrong, or more was put since: it is read again.
    Again,
    /// It goes on: segments are lost, or the head is an older one that was put back.
    More,
}

/// What the store has answered of a place.
#[derive(Debug)]
enum Entry {
    There(Header, u32),
    Missing,
    Damaged,
}

/// A way along the log.
#[derive(Debug)]
pub(crate) struct Scan {
    /// The first segment that was not handed on.
    next: u64,
    /// The first that was not asked for.
    asked: u64,
    /// How many are asked for at the same time: the more there are, the more, up to a limit.
    ahead: u64,
    ahead_max: u64,
    /// The log reaches at least so far, and no farther than that.
    known: u64,
    end: u64,
    segments: BTreeMap<u64, Entry>,
    /// How often the next one was asked for again.
    missed: u32,
    /// What was there, when the end was met for the first time. Of a log that grows, each end is
    /// judged by that: a list takes longer than a segment.
    listed: Option<Vec<u64>>,
    /// The end that was read again for what is listed.
    reread: u64,
}

impl Scan {
    /// Begins behind the map of a head.
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

    /// The first segment that was not handed on.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Tells whether the head says where the log ends, and it was read so far.
    fn is_at_end(&self) -> bool {
        self.next >= self.end
    }

    /// Takes a list of what is there from the first end on.
    pub(crate) fn take_list(&mut self, places: Vec<u64>) {
        self.listed = Some(places);
    }

    /// Judges the end of the log by what is listed; `None`: that is to be asked for.
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
        // What is listed may have been put after it was read.
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

    /// Asks for further segments.
    pub(crate) fn ask(&mut self, out: &mut Outbox) {
        while self.asked < self.next.saturating_add(self.ahead).min(self.end) {
            let sequence = self.asked;
            out.get(Purpose::ReadSegment(sequence), Key::Segment(sequence), HEADER_BYTES_MAX);
            self.asked += 1;
        }
    }

    /// Takes the front of a segment; `None` if it is none of the image.
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

    /// Notes that there is no such segment.
    pub(crate) fn miss(&mut self, sequence: u64) {
        self.segments.insert(sequence, Entry::Missing);
    }

    /// Notes that a segment stays damaged. Behind the end of the log it means nothing.
    pub(crate) fn damage(&mut self, sequence: u64) {
        self.segments.insert(sequence, Entry::Damaged);
    }

    /// Hands on what is at the next place; what follows a segment is the next then.
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

    /// Judges what it means that the next segment is missing.
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

    /// Asks for the next segment again, which was there; tells whether it was not asked for too
    /// often.
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

    /// Goes on behind a fence.
    pub(crate) fn skip(&mut self, resume: u64) {
        self.next = resume;
        self.asked = self.asked.max(resume);
        self.segments.retain(|sequence, _| *sequence >= resume);
    }

    /// Reads all from the next segment on once more: there is one, wherever the log was to end.
    pub(crate) fn again(&mut self, out: &mut Outbox) {
        out.errands.forget(|purpose| matches!(purpose, Purpose::ReadSegment(_)));
        self.segments.clear();
        (self.asked, self.end) = (self.next, u64::MAX);
    }
}
