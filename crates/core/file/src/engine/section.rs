//! Sections: periods of a thread, at whose end the thread runs the requests that were kicked (woken
//! for their next iteration).
//!
//! A kick puts a request on the engine's list. The kicking thread may hold locks, so a kick runs no
//! request. A thread in a section runs the list when its outermost section ends; a kick outside a
//! section wakes the driver, which runs the list. No thread sleeps in a section before it has run
//! the requests that it has kicked.

use super::Engine;
use core::{cell::Cell, ptr::null};
use nowait_sys::mistake::{self, Mistake};
use std::sync::{Arc, Weak};

thread_local! {
    /// The engine whose list this thread will run at the end of its section.
    static SERVES: Cell<*const Engine> = const { Cell::new(null()) };
}

#[must_use]
pub(crate) struct Section<'e> {
    engine: &'e Arc<Engine>,
    before: *const Engine,
}

impl<'e> Section<'e> {
    /// Sections may be nested.
    pub(crate) fn enter(engine: &'e Arc<Engine>) -> Section<'e> {
        let this = Arc::as_ptr(engine);
        // A thread that is ending has no thread-local data left: its kicks wake the driver.
        let before = SERVES.try_with(|serves| serves.replace(this)).unwrap_or(this);
        Section { engine, before }
    }
}

impl Drop for Section<'_> {
    fn drop(&mut self) {
        if self.before != Arc::as_ptr(self.engine) {
            self.engine.run_kicked();
            let _ = SERVES.try_with(|serves| serves.set(self.before));
        }
    }
}

/// Returns the function that a kick calls after it has put a request on the list of `engine`.
pub(crate) fn wake(engine: Weak<Engine>) -> Box<dyn Fn() + Send + Sync> {
    Box::new(move || {
        let serves = SERVES.try_with(Cell::get).unwrap_or(null());
        if serves != engine.as_ptr()
            && let Some(engine) = engine.upgrade()
            && !mistake::makes(Mistake::KickNoThread)
        {
            engine.threads.driver.tell();
        }
    })
}
