//! The cleaner: where there is no driver, writes back user files and runs the requests that were
//! woken. Workers only carry bios.

use super::{Engine, helper::Helper, section::Section};
use crate::{
    parts::Executor,
    route::driver::CLEAN_NS,
    turn::{Loop, Next},
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use nowait_sys::{Errno, time::Deadline};
use std::sync::{Arc, Weak};

/// A thread that sleeps until a request was woken, or until a user file has been dirty for a while.
#[derive(Default)]
pub(crate) struct Cleaner {
    knows_dirt: AtomicBool,
    has_kicked: AtomicBool,
    pub(super) helper: Helper,
}

impl Engine {
    /// Starts the cleaner if there is no driver. The cleaner writes back user files, and runs
    /// requests that waited until another request stopped using their pages.
    ///
    /// # Errors
    /// `EAGAIN`: no thread can be started.
    pub(crate) fn start_cleaner(self: &Arc<Self>) -> Result<(), Errno> {
        match self.parts.executor == Executor::Threads && self.threads.driver().is_none() {
            true => self.threads.cleaner.start(self),
            false => Ok(()),
        }
    }
}

impl Cleaner {
    fn start(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), Errno> {
        let mut run = self.new_loop(engine);
        self.helper.start("nowait-cleaner", move || run.run())
    }

    /// Makes the loop of the cleaner's thread.
    pub(crate) fn new_loop(self: &Arc<Self>, engine: &Arc<Engine>) -> Run {
        let (cleaner, engine) = (self.clone(), Arc::downgrade(engine));
        Run { cleaner, engine, due: Deadline::NEVER }
    }

    /// Called when a request was woken on a thread that does not run it.
    pub(crate) fn has_kicked(&self) {
        if !self.has_kicked.swap(true, SeqCst) {
            self.helper.tell();
        }
    }

    /// Called when a user file has become dirty.
    pub(crate) fn dirtied(&self) {
        if !self.knows_dirt.load(Relaxed) && !self.knows_dirt.swap(true, SeqCst) {
            self.helper.tell();
        }
    }
}

/// The cleaner's loop.
pub(crate) struct Run {
    cleaner: Arc<Cleaner>,
    engine: Weak<Engine>,
    /// The time of the next writeback; `NEVER`: nothing is dirty.
    due: Deadline,
}

impl Loop for Run {
    fn turn(&mut self) -> Next {
        let stops = self.cleaner.helper.stops();
        let Some(engine) = self.engine.upgrade().filter(|_| !stops) else { return Next::End };
        let round = || self.round(&engine);
        if engine.failures.caught("as the cleaner", round).is_none() {
            // Tries the writeback once more, in a while.
            self.cleaner.knows_dirt.store(true, SeqCst);
        }
        if self.due == Deadline::NEVER && self.cleaner.knows_dirt.load(SeqCst) {
            self.due = engine.clock().after_ns(CLEAN_NS);
        }
        Next::Sleep(self.due)
    }

    fn sleep(&mut self, deadline: Deadline) {
        let cleaner = &self.cleaner;
        cleaner.helper.sleep(deadline, || {
            let dirt = deadline == Deadline::NEVER && cleaner.knows_dirt.load(SeqCst);
            dirt || cleaner.has_kicked.load(SeqCst)
        });
    }
}

impl Run {
    fn round(&mut self, engine: &Arc<Engine>) {
        // The woken requests run when this section ends; a thread that wakes one later sets the
        // flag again.
        let _section = Section::enter(engine);
        self.cleaner.has_kicked.store(false, SeqCst);
        if engine.clock().has_passed(self.due) {
            self.due = Deadline::NEVER;
            // Cleared before the writeback: a thread that dirties a page afterwards sets it again.
            self.cleaner.knows_dirt.store(false, SeqCst);
            let mut bios = Vec::new();
            if engine.user_files.clean(&mut bios) {
                self.cleaner.knows_dirt.store(true, SeqCst);
            }
            engine.carry(&mut bios);
        }
    }
}
