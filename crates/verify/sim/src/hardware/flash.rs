//! Flash: cells that are accessed in parallel, behind one link that carries one transfer at a time.

use super::{machine::Job, transfer_ns};
use crate::delay::WorkKind;
use serde::Deserialize;
use std::{
    cmp::Reverse,
    collections::{BinaryHeap, VecDeque},
};

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Flash {
    /// Most requests whose cells are accessed at a time.
    units: usize,
    read_access_ns: u64,
    write_access_ns: u64,
    read_mb_per_s: f64,
    write_mb_per_s: f64,
    /// Time that a request occupies the link besides its transfer.
    read_command_ns: u64,
    write_command_ns: u64,
    flush_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Link {
    flash: Flash,
    waiting: VecDeque<Job>,
    events: BinaryHeap<Reverse<(u64, u64, Stage)>>,
    order: u64,
    accessing: usize,
    free_ns: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Stage {
    /// The cells are ready: number of the request, and the time that it will occupy the link.
    Accessed(u64, u64),
    Ended(u64),
}

impl Link {
    pub(super) fn new(flash: &Flash) -> Link {
        Link {
            flash: flash.clone(),
            waiting: VecDeque::new(),
            events: BinaryHeap::new(),
            order: 0,
            accessing: 0,
            free_ns: 0,
        }
    }

    pub(super) fn add(&mut self, job: Job, at_ns: u64) {
        self.waiting.push_back(job);
        self.access(at_ns);
    }

    pub(super) fn next_ns(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((ns, ..))| *ns)
    }

    pub(super) fn step(&mut self) -> Option<u64> {
        let Reverse((ns, _, stage)) = self.events.pop()?;
        match stage {
            Stage::Accessed(number, busy_ns) => {
                self.accessing -= 1;
                self.free_ns = self.free_ns.max(ns) + busy_ns;
                self.push(self.free_ns, Stage::Ended(number));
                self.access(ns);
                None
            }
            Stage::Ended(number) => Some(number),
        }
    }

    fn access(&mut self, at_ns: u64) {
        while self.accessing < self.flash.units {
            let Some(job) = self.waiting.pop_front() else { return };
            self.accessing += 1;
            let flash = &self.flash;
            let (access_ns, busy_ns) = match job.kind {
                WorkKind::Read => (
                    flash.read_access_ns,
                    flash.read_command_ns + transfer_ns(job.len, flash.read_mb_per_s),
                ),
                WorkKind::Write => (
                    flash.write_access_ns,
                    flash.write_command_ns + transfer_ns(job.len, flash.write_mb_per_s),
                ),
                WorkKind::Flush => (flash.flush_ns, 0),
            };
            self.push(at_ns + access_ns, Stage::Accessed(job.number, busy_ns));
        }
    }

    fn push(&mut self, ns: u64, stage: Stage) {
        self.order += 1;
        self.events.push(Reverse((ns, self.order, stage)));
    }
}
