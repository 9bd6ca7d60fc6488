//! Writes back user files where no driver does: the workers only carry what they are given.

use crate::{Engine, driver::CLEAN_NS};
use core::{
    sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst},
    time::Duration,
};
use nowait_sys::thread;
use parking_lot::{Condvar, Mutex};
use std::{
    sync::{Arc, Weak},
    thread::JoinHandle,
    time::Instant,
};

/// A thread that sleeps until something was written, and a while longer.
#[derive(Default)]
pub(crate) struct Cleaner {
    knows_dirt: AtomicBool,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    thread: Option<JoinHandle<()>>,
    stops: bool,
}

impl Cleaner {
    /// Starts the thread, unless it runs. Without it, for want of threads, what is written stays in
    /// memory until a sync, the last close, or the end of the engine.
    pub(crate) fn start(self: &Arc<Self>, engine: &Arc<Engine>) {
        let mut state = self.state.lock();
        if state.thread.is_none() && !state.stops {
            let (cleaner, engine) = (self.clone(), Arc::downgrade(engine));
            let named = std::thread::Builder::new().name("nowait-cleaner".to_owned());
            let spawned = named.stack_size(256 << 10).spawn(move || {
                thread::block_signals();
                cleaner.run(&engine);
            });
            state.thread = spawned.ok();
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
        while self.sleep() {
            let Some(engine) = engine.upgrade() else { return };
            // Before the look: who dirties a page after it says so again.
            self.knows_dirt.store(false, SeqCst);
            let mut bios = Vec::new();
            if engine.clean(&mut bios) {
                self.knows_dirt.store(true, SeqCst);
            }
            engine.carry(&mut bios);
            engine.run_kicked();
        }
    }

    /// Sleeps until something has been dirty for a while; false: the engine ends.
    fn sleep(&self) -> bool {
        let mut state = self.state.lock();
        while !state.stops && !self.knows_dirt.load(SeqCst) {
            self.news.wait(&mut state);
        }
        let end = Instant::now() + Duration::from_nanos(CLEAN_NS);
        while !state.stops && !self.news.wait_until(&mut state, end).timed_out() {}
        !state.stops
    }
}
