//! Direct requests that the kernel may carry out after later ones, in all contexts of an engine.
//!
//! A program may expect the order of one thread's submissions, also to several contexts. Between
//! the direct requests of different threads there is no order.

use crate::{Command, Context, Kind};
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use nowait_sys::{
    mistake::{self, Mistake},
    mutex::Mutex,
    thread,
};
use std::sync::{Arc, Weak};

#[derive(Default)]
pub(crate) struct Unordered {
    /// The numbers of unordered reads and writes in flight, in all contexts. Mostly both are 0, and
    /// no table is searched.
    counts: [AtomicUsize; 2],
    /// The contexts, each with the mark ([`thread::mark`]) of the thread that has last added a
    /// direct request to it.
    contexts: Mutex<Vec<(Arc<AtomicUsize>, Weak<Context>)>>,
}

impl Unordered {
    pub(crate) fn add(&self, context: &Arc<Context>) {
        let mut contexts = self.contexts.lock();
        contexts.retain(|(_, context)| context.strong_count() > 0);
        contexts.push((context.own.direct.submitter.clone(), Arc::downgrade(context)));
    }

    /// Returns `true` if there is none. A request that goes on moves from here to the order, so a
    /// thread that needs both empty checks the order after this.
    pub(crate) fn is_empty(&self) -> bool {
        self.counts.iter().all(|count| count.load(Acquire) == 0)
    }

    pub(super) fn entered(&self, kind: Kind) {
        self.counts[usize::from(kind == Kind::Write)].fetch_add(1, Relaxed);
    }

    pub(super) fn left(&self, kind: Kind) {
        self.counts[usize::from(kind == Kind::Write)].fetch_sub(1, Release);
    }

    /// Gives places in the order to the requests that `later`, a command for `own`, must not
    /// overtake. Searches `own`, and the other contexts whose last direct request this thread has
    /// added. `end` is the end of the file of `later`. Adds the contexts of such requests to
    /// `ordered`.
    pub(crate) fn take_places_before(
        &self,
        (later, end): (&Command, u64),
        own: &Arc<Context>,
        ordered: &mut Vec<Arc<Context>>,
    ) {
        let [reads, writes] = &self.counts;
        let is_free = match later.kind {
            Kind::Poll(_) => true,
            Kind::Read => writes.load(Acquire) == 0,
            Kind::Write => writes.load(Acquire) + reads.load(Acquire) == 0,
            // A sync may wait also for writes that the kernel carries out in order.
            Kind::Fsync | Kind::Fdatasync => {
                !own.own.direct.syncs_cover && writes.load(Acquire) == 0
            }
        };
        if is_free {
            return;
        }
        let orders = &own.engine().orders;
        // Kept until after the loop: a reference dropped here may be the last of its context, and
        // must not be dropped under the lock.
        let contexts = self.of_this_thread(own);
        for context in core::iter::once(own).chain(&contexts) {
            if context.own.direct.take_places_before(later, end, orders) {
                ordered.push(context.clone());
            }
        }
    }

    fn of_this_thread(&self, own: &Arc<Context>) -> Vec<Arc<Context>> {
        if mistake::makes(Mistake::OvertakeElsewhere) {
            return Vec::new();
        }
        let this_thread = thread::mark();
        let contexts = self.contexts.lock();
        let is_other = |(submitter, _): &&(Arc<AtomicUsize>, _)| {
            submitter.load(Relaxed) == this_thread
                && !Arc::ptr_eq(submitter, &own.own.direct.submitter)
        };
        contexts.iter().filter(is_other).filter_map(|(_, context)| context.upgrade()).collect()
    }
}
