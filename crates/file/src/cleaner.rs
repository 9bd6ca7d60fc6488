//! Writes back user files, and runs what was kicked, where no driver does: the workers only carry
//! what they are given.

use crate::{Engine, driver::CLEAN_NS, section::Section};
use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst},
    time::Duration,
};
use nowait_sys::{Errno, thread};
use parking_lot::{Condvar, Mutex};
use std::{
    sync::{Arc, Weak},
    thread::JoinHandle,
    time::Instant,
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

impl Cleaner {
    /// Starts the thread, unless it runs.
    ///
    /// # Errors
    /// `EAGAIN`: there are too many threads.
    pub(crate) fn start(self: &Arc<Self>, engine: &Arc<Engine>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.thread.is_none() && !state.stops {
            let (cleaner, engine) = (self.clone(), Arc::downgrade(engine));
            let named = std::thread::Builder::new().name("nowait-cleaner".to_owned());
            let spawned = named.stack_size(256 << 10).spawn(move || {
                thread::block_signals();
                cleaner.run(&engine);
            });
            state.thread = Some(spawned.map_err(|_| Errno::AGAIN)?);
        }
        Ok(())
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

    fn run(&self, engine: &Weak<Engine>) {
        let mut due = None;
        while self.sleep(&mut due) {
            let Some(engine) = engine.upgrade() else { return };
            if engine.failures.caught("as the cleaner", || self.round(&engine, &mut due)).is_none()
            {
                self.knows_dirt.store(true, SeqCst); // once more, in a while
            }
        }
    }

    fn round(&self, engine: &Arc<Engine>, due: &mut Option<Instant>) {
        // What was kicked is run when this ends; who kicks after the look says so again.
        let _section = Section::enter(engine);
        self.has_kicked.store(false, SeqCst);
        if due.is_some_and(|due| due <= Instant::now()) {
            *due = None;
            // Before the look: who dirties a page after it says so again.
            self.knows_dirt.store(false, SeqCst);
            let mut bios = Vec::new();
            if engine.clean(&mut bios) {
                self.knows_dirt.store(true, SeqCst);
            }
            engine.carry(&mut bios);
        }
    }

    /// Sleeps until something was kicked, or has been dirty for a while, which is `due` then;
    /// false: the engine ends.
    fn sleep(&self, due: &mut Option<Instant>) -> bool {
        let mut state = self.state.lock();
        while !state.stops && !self.has_kicked.load(SeqCst) {
            if due.is_none() && self.knows_dirt.load(SeqCst) {
                *due = Some(Instant::now() + Duration::from_nanos(CLEAN_NS));
            }
            match *due {
                Some(due) if due <= Instant::now() => break,
                Some(due) => drop(self.news.wait_until(&mut state, due)),
                None => self.news.wait(&mut state),
            }
        }
        !state.stops
    }
}
