//! Headers of segments, read ahead and handed on in the order of the log.

use crate::head::Head;
use crate::outbox::{Outbox, Purpose};
use crate::segment::{HEADER_BYTES_MAX, Header, WINDOW};
use crate::store::Key;
use std::collections::BTreeMap;

/// A segment's header and where its data begin, or none, as the store has answered.
pub(crate) type Segment = Option<(Header, u32)>;

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
    segments: BTreeMap<u64, Segment>,
}

impl Scan {
    pub(crate) fn new(position: u64, ahead_max: u64) -> Scan {
        let ahead = ahead_max.min(WINDOW);
        Scan { next: position, asked: position, ahead, ahead_max, segments: BTreeMap::new() }
    }

    /// The first segment that was not handed on.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    /// Asks for further segments.
    pub(crate) fn ask(&mut self, out: &mut Outbox) {
        while self.asked < self.next.saturating_add(self.ahead) {
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
        self.segments.insert(sequence, Some((header, len)));
        Some(())
    }

    /// Notes that there is no such segment.
    pub(crate) fn miss(&mut self, sequence: u64) {
        self.segments.insert(sequence, None);
    }

    /// Hands on the next segment, if the store has answered; what follows it is the next then.
    pub(crate) fn pop(&mut self) -> Option<Segment> {
        let segment = self.segments.remove(&self.next)?;
        if segment.is_some() {
            self.next += 1;
            self.ahead = self.ahead_max.min(self.ahead + 1);
        }
        Some(segment)
    }

    /// Goes on behind a fence.
    pub(crate) fn skip(&mut self, resume: u64) {
        self.next = resume;
        self.asked = self.asked.max(resume);
        self.segments.retain(|sequence, _| *sequence >= resume);
    }

    /// Reads all from the next segment on once more.
    pub(crate) fn again(&mut self, out: &mut Outbox) {
        out.errands.forget(|purpose| matches!(purpose, Purpose::ReadSegment(_)));
        self.segments.clear();
        self.asked = self.next;
    }
}
