//! Eventfds that wake threads that wait in a queue.
//!
//! Each eventfd has a descriptor in both descriptor tables, because threads of both signal it.

use super::Engine;
use crate::{
    hold::{BothTables, HeldFd},
    parts::Counter,
};
use nowait_block::BlockBackend;
use nowait_sys::{Errno, Fd, eventfd::EventFd, uring::Issuer};
use std::sync::Arc;

impl Engine {
    pub(super) fn new_counter(&self) -> Result<Option<Arc<BothTables>>, Errno> {
        self.parts.backends.need_counters().then(|| self.make_counter()).transpose()
    }

    fn make_counter(&self) -> Result<Arc<BothTables>, Errno> {
        let counter = EventFd::new()?.moved_high();
        self.in_both_tables(Fd::from_raw(counter.into_raw()), None)
    }

    pub(crate) fn own_queue(&self, issuer: Issuer) -> Option<Arc<dyn BlockBackend>> {
        let backends = &self.parts.backends;
        self.queues.own_queue(|| {
            let needed = backends.own_need_counters();
            let counter = needed.then(|| self.make_counter()).transpose()?;
            if let Some(counter) = &counter {
                self.await_arrival(&counter.there)?;
            }
            backends.own_queue(counter.map(|it| it as Counter), issuer)
        })
    }

    /// Waits at most a second.
    fn await_arrival(&self, held: &HeldFd) -> Result<(), Errno> {
        const MOMENTS: usize = 100;
        for _ in 0..MOMENTS {
            if let Some(arrival) = held.arrival() {
                return arrival;
            }
            self.await_receiver();
        }
        held.arrival().unwrap_or(Err(Errno::AGAIN))
    }
}
