//! The order of threads that have a processor each, by their clocks.

use super::{Cpu, SLEEP_MAX_NS, State, Thread, World};
use crate::cores::{self, Cores};

impl Thread {
    fn continues_at(&self) -> Option<u64> {
        match self.state {
            State::Ready => Some(self.clock),
            State::Asleep { until, .. } => until,
            State::Ended => None,
        }
    }
}

impl World {
    /// `None`: all threads have ended, or none will run within an hour.
    pub(super) fn choose_earliest(&mut self) -> Option<usize> {
        loop {
            let threads = self.threads.iter().enumerate();
            let next = threads.filter_map(|(id, it)| Some((it.continues_at()?, id))).min();
            let is_first = |event: u64| next.is_none_or(|(at, _)| event <= at);
            if self.events.first().is_some_and(|(event, _)| is_first(*event)) {
                let (event_at, event) = self.events.remove(0);
                self.now = event_at;
                event(self);
                continue;
            }
            let (at, id) = next?;
            if at.saturating_sub(self.now) > SLEEP_MAX_NS {
                return None;
            }
            (self.now, self.threads[id].state) = (at, State::Ready);
            return Some(id);
        }
    }

    fn is_ahead(&self) -> bool {
        let is_earlier =
            |id: usize| self.threads[id].continues_at().is_some_and(|at| at < self.now);
        (0..self.threads.len()).any(|id| id != self.running && is_earlier(id))
            || self.events.first().is_some_and(|(at, _)| *at <= self.now)
    }
}

impl Cpu<'_> {
    pub(crate) fn keep_order(&mut self) {
        if self.cores.is_some() && self.is_ahead() {
            self.hand_over();
        }
    }

    pub(crate) fn touch(&mut self, line: u64, writes: bool, code: u64) {
        let is_contended = |cores: &Cores| cores.lines.is_contended(line);
        if self.cores.as_ref().is_some_and(is_contended) {
            self.keep_order();
        }
        let (me, now) = (self.me, self.now);
        if let Some(cores) = &mut self.cores {
            self.now = cores.lines.access(line, me, writes, code, now) + cores::STEP_NS;
        }
    }
}
