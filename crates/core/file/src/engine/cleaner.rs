//! Writes back user files, and runs what was kicked, where no driver does: the workers only carry
//! what they are given.

use super::{Engine, section::Section};
use crate::{
    parts::Executor,
    route::driver::CLEAN_NS,
    turn::{Loop, Next},
};
use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst},
    time::Duration,
};
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::{Errno, own_thread::OwnThread, time::Deadline};
use std::{
    sync::{Arc, Weak},
    thread::JoinHandle,
};

/// A thread that sleeps until something was kicked, or written, and then a while longer.
#[derive(Default)]
pub(crate) struct Cleaner {
    knows_dirt: AtomicBool,
    has_kicked: AtomicBool,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    thread: Option<JoinHandle<()>>,
    stops: bool,
}

impl Engine {
    /// Has user files cleaned from now on, and what waits for their loans run, where there is no
    /// driver.
    ///
    /// # Errors
    /// `EAGAIN`: no thread can be had.
    pub(crate) fn start_cleaner(self: &Arc<Self>) -> Result<(), Errno> {
        match &self.cleaner {
            Some(cleaner) if self.executor == Executor::Threads => cleaner.start(self),
            _ => Ok(()),
        }
    }
}

impl Cleaner {
    /// Starts the thread, unless it runs.
    ///
    /// # Errors
    /// `EAGAIN`: there are too many threads.
    fn start(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.thread.is_none() && !state.stops {
            let mut run = self.new_loop(engine);
            let spawned = OwnThread::spawn("nowait-cleaner", 256 << 10, move || run.run());
            state.thread = Some(spawned?);
        }
        Ok(())
    }

    /// Makes the loop of its thread.
    pub(crate) fn new_loop(self: &Arc<Self>, engine: &Arc<Engine>) -> Run {
        let (cleaner, engine) = (self.clone(), Arc::downgrade(engine));
        Run { cleaner, engine, due: Deadline::NEVER }
    }

    /// Says that a request was kicked on a thread that does not run it.
    pub(crate) fn has_kicked(&self) {
        if !self.has_kicked.swap(true, SeqCst) {
            let _between_look_and_sleep = self.state.lock();
            self.news.notify_all();
        }
    }

    /// Says that a user file has something to write.
    pub(crate) fn dirtied(&self) {
        if !self.knows_dirt.load(Relaxed) && !self.knows_dirt.swap(true, SeqCst) {
            let _between_look_and_sleep = self.state.lock();
            self.news.notify_all();
        }
    }

    /// Ends the thread and waits for its end.
    pub(crate) fn stop(&self) {
        let mut state = self.state.lock();
        state.stops = true;
        self.news.notify_all();
        let thread = state.thread.take();
        drop(state);
        if let Some(thread) = thread {
            let _ = thread.join();
        }
    }
}

/// The cleaner's loop.
pub(crate) struct Run {
    cleaner: Arc<Cleaner>,
    engine: Weak<Engine>,
    /// When what is dirty has been so for a while.
    due: Deadline,
}

impl Loop for Run {
    fn turn(&mut self) -> Next {
        let stops = self.cleaner.state.lock().stops;
        let Some(engine) = self.engine.upgrade().filter(|_| !stops) else { return Next::End };
        let round = || self.round(&engine);
        if engine.failures.caught("as the cleaner", round).is_none() {
            self.cleaner.knows_dirt.store(true, SeqCst); // once more, in a while
        }
        if self.due == Deadline::NEVER && self.cleaner.knows_dirt.load(SeqCst) {
            self.due = engine.clock().after_ns(CLEAN_NS);
        }
        Next::Sleep(self.due)
    }

    fn sleep(&mut self, deadline: Deadline) {
        let cleaner = &self.cleaner;
        let mut state = cleaner.state.lock();
        let news = || {
            let dirt = deadline == Deadline::NEVER && cleaner.knows_dirt.load(SeqCst);
            dirt || cleaner.has_kicked.load(SeqCst)
        };
        while !state.stops && !news() {
            match deadline.remaining_ns() {
                Some(0) => break,
                Some(ns) => drop(cleaner.news.wait_for(&mut state, Duration::from_nanos(ns))),
                None => cleaner.news.wait(&mut state),
            }
        }
    }
}

impl Run {
    fn round(&mut self, engine: &Arc<Engine>) {
        // What was kicked is run when this ends; a thread that kicks after the look says so again.
        let _section = Section::enter(engine);
        self.cleaner.has_kicked.store(false, SeqCst);
        if engine.clock().has_passed(self.due) {
            self.due = Deadline::NEVER;
            // Before the look: a thread that dirties a page after it says so again.
            self.cleaner.knows_dirt.store(false, SeqCst);
            let mut bios = Vec::new();
            if engine.clean(&mut bios) {
                self.cleaner.knows_dirt.store(true, SeqCst);
            }
            engine.carry(&mut bios);
        }
    }
}
