//! A thread that has the system give memory to the page cache ahead of its use
//! ([`Frames::populate_next`]), where the cache is large.
//!
//! [`Frames::populate_next`]: nowait_cache::Frames::populate_next

use super::Engine;
use crate::parts::Executor;
use nowait_cache::Cache;
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::{Errno, own_thread::OwnThread, thread as sys_thread};
use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    thread::JoinHandle,
};

/// A smaller cache has its memory after a few requests.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// The thread, and what it sleeps on.
#[derive(Default)]
pub(crate) struct Populator {
    is_asked: AtomicBool,
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Default)]
struct State {
    thread: Option<JoinHandle<()>>,
    stops: bool,
}

impl Engine {
    /// Starts the threads that serve user files, unless they run: the cleaner, where there is no
    /// driver, and the populator.
    ///
    /// # Errors
    /// `EAGAIN`: no thread can be had. `ENOMEM`: no memory for the cache.
    pub(crate) fn serve_user_files(self: &Arc<Self>) -> Result<(), Errno> {
        if self.executor == Executor::Owner {
            return Ok(());
        }
        if let Some(cleaner) = &self.cleaner {
            cleaner.start(self)?;
        }
        match self.config.cache_bytes >= CACHE_BYTES_MIN {
            true => self.populator.start(&self.cache()?),
            false => Ok(()),
        }
    }
}

impl Populator {
    fn start(self: &Arc<Self>, cache: &Arc<Cache>) -> Result<(), Errno> {
        let mut state = self.state.lock();
        if state.thread.is_some() || state.stops {
            return Ok(());
        }
        let (populator, its_cache) = (self.clone(), cache.clone());
        let named = std::thread::Builder::new().name("nowait-populate".to_owned());
        let spawned = named.stack_size(256 << 10).spawn(move || {
            let _own = OwnThread::begin();
            sys_thread::never_preempt_on_wakeup();
            while populator.wait() {
                while its_cache.frames().populate_next() && !populator.state.lock().stops {}
            }
        });
        state.thread = Some(spawned.map_err(|_| Errno::AGAIN)?);
        let asked = Arc::downgrade(self);
        cache.frames().ask_to_populate(move || {
            asked.upgrade().iter().for_each(|populator| populator.ask());
        });
        Ok(())
    }

    fn ask(&self) {
        if !self.is_asked.swap(true, SeqCst) {
            let _between_look_and_sleep = self.state.lock();
            self.news.notify_all();
        }
    }

    /// Waits until it is asked; false: the thread is to end.
    fn wait(&self) -> bool {
        let mut state = self.state.lock();
        while !state.stops && !self.is_asked.swap(false, SeqCst) {
            self.news.wait(&mut state);
        }
        !state.stops
    }

    /// Ends the thread and waits for its end: for the system to clear a huge page at most.
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
