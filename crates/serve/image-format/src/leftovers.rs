//! Objects that earlier writers may have left and that no head names: segments behind a fence, and
//! parts of a checkpoint.
//!
//! The next writer knows the possible names of these objects, so it needs no list. A writer numbers
//! its checkpoints, so its unfinished checkpoint has the number after its newest finished one. The
//! next writer reads the parts of that number to find which exist. A writer puts at most
//! `IN_FLIGHT_MAX` parts at the same time, so after as many missing parts in a row there are no
//! more.

use crate::head::Head;
use crate::mistake::{self, Mistake};
use crate::outbox::{Outbox, Purpose};
use crate::publication::IN_FLIGHT_MAX;
use crate::stamp::STAMP_BYTES;
use crate::store::Key;
use std::ops::Range;

/// The most earlier writers, and the most fences, whose leftovers a writer deletes.
pub const WRITERS_MAX: u64 = 16;

#[derive(Debug)]
struct Begun {
    epoch: u64,
    nth: u32,
    /// The first part that was not requested, and the place behind the last part to request.
    asked: u32,
    end: u32,
    unanswered: u32,
    found: Vec<u32>,
}

#[derive(Debug)]
pub(crate) struct Leftovers {
    known: Vec<Key>,
    begun: Vec<Begun>,
}

impl Leftovers {
    pub(crate) fn new(head: &Head, fences: &[Range<u64>]) -> Leftovers {
        let mut known = Vec::new();
        if mistake::makes(Mistake::LeaveBehind) {
            return Leftovers { known, begun: Vec::new() };
        }
        for fence in fences.iter().rev().take(WRITERS_MAX as usize) {
            // Segments behind a fence of a base belong to the base: this writer must not delete
            // them.
            let first = head.bases.end().max(fence.start + 1);
            known.extend((first..fence.end).map(Key::Segment));
        }
        let first = head.checkpoint.epoch.max(head.epoch.saturating_sub(WRITERS_MAX));
        let first = first.max(head.bases.epoch() + 1);
        let begun = (first..head.epoch).map(|epoch| {
            let nth = head.checkpoint.next_nth(epoch);
            let end = IN_FLIGHT_MAX as u32;
            Begun { epoch, nth, asked: 0, end, unanswered: 0, found: Vec::new() }
        });
        Leftovers { known, begun: begun.collect() }
    }

    pub(crate) fn go_on(&mut self, out: &mut Outbox) -> Vec<Key> {
        let mut keys = core::mem::take(&mut self.known);
        // Checks one checkpoint after the other: there is no hurry.
        while let Some(begun) = self.begun.last_mut() {
            while begun.asked < begun.end {
                let (epoch, nth, number) = (begun.epoch, begun.nth, begun.asked);
                let purpose = Purpose::LookForPart { epoch, number };
                out.get(purpose, Key::Part { epoch, nth, number }, STAMP_BYTES);
                begun.asked += 1;
                begun.unanswered += 1;
            }
            if begun.unanswered > 0 {
                break;
            }
            // The last part is deleted first: if this writer dies meanwhile, the next writer finds
            // the others.
            begun.found.sort_unstable_by(|a, b| b.cmp(a));
            let (epoch, nth) = (begun.epoch, begun.nth);
            keys.extend(begun.found.iter().map(|number| Key::Part { epoch, nth, number: *number }));
            self.begun.pop();
        }
        keys
    }

    pub(crate) fn looked(&mut self, epoch: u64, number: u32, is_there: bool) {
        let Some(begun) = self.begun.last_mut().filter(|it| it.epoch == epoch) else { return };
        begun.unanswered -= 1;
        if is_there {
            begun.found.push(number);
            begun.end = begun.end.max(number.saturating_add(1 + IN_FLIGHT_MAX as u32));
        }
    }
}
