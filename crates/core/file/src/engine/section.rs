//! Sections: the threads that run kicked requests.
//!
//! A kick puts a request on the engine's list, and may come from anywhere: from the end of another
//! request, or from the drop of a loan, under locks of others. The kick must not run requests
//! itself, and no kick may be forgotten. So there are two kinds of threads. One in a *section* runs
//! the list when the section ends; kicks that it makes meanwhile cost nothing more. A kick on any
//! other thread wakes one of the engine's, which runs the list. No thread sleeps in a section.

use super::Engine;
use core::{cell::Cell, ptr::null};
use std::sync::{Arc, Weak};

thread_local! {
    /// The engine whose list this thread will run.
    static SERVES: Cell<*const Engine> = const { Cell::new(null()) };
}

/// While it lives, this thread runs what it kicks: when it is dropped at the latest.
#[must_use]
pub(crate) struct Section<'e> {
    engine: &'e Arc<Engine>,
    before: *const Engine,
}

impl<'e> Section<'e> {
    /// Begins a section; they may be nested.
    pub(crate) fn enter(engine: &'e Arc<Engine>) -> Section<'e> {
        let this = Arc::as_ptr(engine);
        // A thread that is ending has none: its kicks wake another.
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
        {
            engine.threads.has_kicked();
        }
    })
}
