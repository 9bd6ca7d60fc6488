//! The queues of an engine, and the requests that each carries.

use crate::{
    parts::Backends,
    route::{Queue, Route},
};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use nowait_block::Limits;
use nowait_sys::Errno;

/// The most contexts with a queue of their own; more contexts share the driver's.
const OWN_QUEUES_MAX: usize = 64;

/// The limits of a queue that takes nothing.
pub(crate) const NO_QUEUES: Limits =
    Limits { depth: 0, buffered_reads: false, writes: false, readiness: false };

/// The limits of an engine's queues, and the number of its contexts with a queue of their own.
pub(crate) struct Queues {
    pub(crate) limits: Limits,
    own: AtomicUsize,
}

impl Queues {
    pub(super) fn new(backends: &dyn Backends) -> Queues {
        let limits = backends.limits().unwrap_or(NO_QUEUES);
        Queues { limits, own: AtomicUsize::new(0) }
    }

    /// Returns `true` if there are queues; otherwise workers carry all bios.
    pub(crate) fn are_there(&self) -> bool {
        self.limits.depth > 0
    }

    /// Makes a queue for a context by `make`. Returns `None` if workers carry all bios, the most
    /// queues exist, or `make` fails.
    pub(super) fn own_queue<T>(&self, make: impl FnOnce() -> Result<T, Errno>) -> Option<T> {
        if !self.are_there() {
            return None;
        }
        let may_be = self.own.fetch_add(1, Relaxed) < OWN_QUEUES_MAX;
        let queue = may_be.then(make).and_then(Result::ok);
        if queue.is_none() {
            self.own_queue_dropped();
        }
        queue
    }

    pub(crate) fn own_queue_dropped(&self) {
        self.own.fetch_sub(1, Relaxed);
    }

    /// Returns the requests that the driver's queue carries.
    pub(crate) fn driver_kind(&self) -> Queue {
        if self.are_there() { Queue::of(self.limits) } else { Queue::None }
    }

    /// Returns the route of a request that must not use its context's own queue.
    pub(crate) fn route_past_own(&self) -> Route {
        if self.are_there() { Route::Driver } else { Route::Workers }
    }

    /// Returns the route of polls and streams outside a context's own queue: a ring of the driver,
    /// or the workers' watcher. The kernel's AIO is not used, because each wait would take one of
    /// its few request slots.
    pub(crate) fn stream_route(&self) -> Route {
        if self.limits.readiness { Route::Driver } else { Route::Workers }
    }

    /// Returns the route of a request that must leave its context's own queue.
    pub(crate) fn route_off_own_queue(&self, endless: bool) -> Route {
        if endless { self.stream_route() } else { self.route_past_own() }
    }

    /// Returns the route of a transfer that the kernel refused because it would have waited in
    /// submit.
    pub(crate) fn route_of_refused(&self) -> Route {
        if self.limits.writes { Route::Driver } else { Route::Workers }
    }
}
