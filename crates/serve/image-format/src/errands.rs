//! Operations of the store in flight, and operations to repeat later.

use crate::store::{Costs, Operation, Ticket};
use std::collections::{BTreeMap, VecDeque};

/// The least pause before the first repetition. Each further repetition doubles the pause, up to
/// [`BACK_OFF_NS_MAX`].
const BACK_OFF_NS: u64 = 50_000_000;

/// The longest pause, before [`Errands::again`] lengthens it. [`Errands::again`] makes each pause
/// up to three quarters longer, to spread errands.
const BACK_OFF_NS_MAX: u64 = 10_000_000_000;

#[derive(Debug)]
pub(crate) struct Errand<P> {
    pub(crate) purpose: P,
    operation: Operation,
    pub(crate) retries: u32,
    /// How often the object was read again because it looked damaged or was missing.
    pub(crate) damaged: u32,
    pub(crate) sent_ns: u64,
}

#[derive(Debug)]
pub(crate) struct Errands<P> {
    tickets: u64,
    ready: VecDeque<(Ticket, Operation)>,
    in_flight: BTreeMap<Ticket, Errand<P>>,
    /// Operations to repeat, by the time to repeat them and a sequence number.
    later: BTreeMap<(u64, u64), Errand<P>>,
    pub(crate) costs: Costs,
}

impl<P> Errands<P> {
    pub(crate) fn new() -> Errands<P> {
        let (ready, in_flight, later) = (VecDeque::new(), BTreeMap::new(), BTreeMap::new());
        Errands { tickets: 0, ready, in_flight, later, costs: Costs::default() }
    }

    pub(crate) fn send(&mut self, purpose: P, operation: Operation, now_ns: u64) {
        self.start(Errand { purpose, operation, retries: 0, damaged: 0, sent_ns: now_ns });
    }

    pub(crate) fn send_later(&mut self, purpose: P, operation: Operation, tries: u32, now_ns: u64) {
        let errand = Errand { purpose, operation, retries: tries, damaged: 0, sent_ns: now_ns };
        self.again(errand, now_ns);
    }

    fn start(&mut self, errand: Errand<P>) {
        self.tickets += 1;
        self.costs.add(&errand.operation);
        self.ready.push_back((Ticket(self.tickets), errand.operation.clone()));
        self.in_flight.insert(Ticket(self.tickets), errand);
    }

    pub(crate) fn pop(&mut self) -> Option<(Ticket, Operation)> {
        self.ready.pop_front()
    }

    pub(crate) fn answered(&mut self, ticket: Ticket) -> Option<Errand<P>> {
        self.in_flight.remove(&ticket)
    }

    pub(crate) fn again(&mut self, errand: Errand<P>, now_ns: u64) {
        self.tickets += 1;
        let wait_ns = (BACK_OFF_NS << errand.retries.min(16)).min(BACK_OFF_NS_MAX);
        let apart_ns = wait_ns / 4 * (self.tickets.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 62);
        let retries = errand.retries + 1;
        let due = (now_ns + wait_ns + apart_ns, self.tickets);
        self.later.insert(due, Errand { retries, ..errand });
    }

    /// Repeats a read of an object that looks damaged or is missing, past any cache.
    pub(crate) fn reread(&mut self, errand: Errand<P>, now_ns: u64) {
        let (damaged, mut operation) = (errand.damaged + 1, errand.operation);
        if let Operation::Get { data: Some(data), .. } = &mut operation {
            data.anew = true;
        }
        self.again(Errand { operation, damaged, ..errand }, now_ns);
    }

    pub(crate) fn turn(&mut self, now_ns: u64) {
        while let Some(entry) = self.later.first_entry().filter(|entry| entry.key().0 <= now_ns) {
            let errand = entry.remove();
            self.start(Errand { sent_ns: now_ns, ..errand });
        }
    }

    pub(crate) fn next_ns(&self) -> Option<u64> {
        self.later.first_key_value().map(|(due, _)| due.0)
    }

    /// Does not send selected errands that were not sent, and ignores the answers to the other
    /// selected errands.
    pub(crate) fn forget(&mut self, which: impl Fn(&P) -> bool) {
        self.in_flight.retain(|_, errand| !which(&errand.purpose));
        self.later.retain(|_, errand| !which(&errand.purpose));
        let in_flight = &self.in_flight;
        self.ready.retain(|(ticket, _)| in_flight.contains_key(ticket));
    }
}
