//! The queues of an engine, and the requests that each carries.

use crate::{
    parts::Backends,
    route::{Queue, Route},
};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use nowait_block::Limits;
use nowait_sys::Errno;

/// The most contexts with a queue of their own; further contexts use the driver's queue.
const OWN_QUEUES_MAX: usize = 64;

pub(crate) const NO_QUEUES: Limits =
    Limits { depth: 0, buffered_reads: false, writes: false, readiness: false };

pub(crate) struct Queues {
    pub(crate) limits: Limits,
    own: AtomicUsize,
}

impl Queues {
    pub(super) fn new(backends: &dyn Backends) -> Queues {
        let limits = backends.limits().unwrap_or(NO_QUEUES);
        Queues { limits, own: AtomicUsize::new(0) }
    }

    pub(crate) fn are_there(&self) -> bool {
        self.limits.depth > 0
    }

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

    pub(crate) fn driver_kind(&self) -> Queue {
        if self.are_there() { Queue::of(self.limits) } else { Queue::None }
    }

    pub(crate) fn route_past_own(&self) -> Route {
        if self.are_there() { Route::Driver } else { Route::Workers }
    }

    /// Returns the route of polls and streams outside a context's own queue. Native AIO carries no
    /// polls and streams, because each wait would take one of its few request slots.
    pub(crate) fn stream_route(&self) -> Route {
        if self.limits.readiness { Route::Driver } else { Route::Workers }
    }

    pub(crate) fn route_off_own_queue(&self, endless: bool) -> Route {
        if endless { self.stream_route() } else { self.route_past_own() }
    }

    /// Returns the route of a transfer that the kernel refused because it would have waited in
    /// submit.
    pub(crate) fn route_of_refused(&self) -> Route {
        if self.limits.writes { Route::Driver } else { Route::Workers }
    }
}
