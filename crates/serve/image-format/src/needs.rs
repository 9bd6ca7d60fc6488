//! The segments without live blocks that snapshots need.

use crate::head::Snapshot;
use crate::mistake::{self, Mistake};

/// A table for fast queries: there may be a thousand snapshots and a million segments.
#[derive(Debug)]
pub struct Needs {
    ends: Vec<u64>,
    /// The parts of the log from each snapshot's checkpoint to its end, ascending and joined.
    logs: Vec<(u64, u64)>,
}

impl Needs {
    /// Makes the table.
    pub fn of(snapshots: &[Snapshot]) -> Needs {
        let snapshots = if mistake::makes(Mistake::ForgetSnapshots) { &[] } else { snapshots };
        let mut ends: Vec<u64> = snapshots.iter().map(|it| it.end).collect();
        ends.sort_unstable();
        let mut all: Vec<(u64, u64)> =
            snapshots.iter().map(|it| (it.checkpoint.position, it.end)).collect();
        all.sort_unstable();
        let mut logs: Vec<(u64, u64)> = Vec::new();
        for (start, end) in all {
            match logs.last_mut() {
                Some(last) if start <= last.1 => last.1 = last.1.max(end),
                _ => logs.push((start, end)),
            }
        }
        if mistake::makes(Mistake::ForgetLog) {
            logs.clear();
        }
        Needs { ends, logs }
    }

    /// Returns `true` if a snapshot needs the segment at place `sequence`, which has no live block
    /// since place `dead_since`. A snapshot needs each segment before its end that is not in its
    /// checkpoint, or that still had a live block at its end.
    pub fn has(&self, sequence: u64, dead_since: u64) -> bool {
        let next = self.ends.partition_point(|end| *end <= sequence);
        let is_live = self.ends.get(next).is_some_and(|end| *end <= dead_since);
        let before = self.logs.partition_point(|(start, _)| *start <= sequence);
        is_live || before > 0 && sequence < self.logs[before - 1].1
    }
}
