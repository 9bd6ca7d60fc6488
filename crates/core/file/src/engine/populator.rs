//! A thread that has the system give memory to the page cache ahead of its use
//! ([`Frames::populate_next`]), where the cache is large.
//!
//! [`Frames::populate_next`]: nowait_cache::Frames::populate_next

use super::Engine;
use crate::parts::Executor;
use nowait_cache::Cache;
use nowait_sys::mutex::{Condvar, Mutex};
use nowait_sys::{own_thread::OwnThread, thread as sys_thread};
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
    /// Has the system give memory to a large cache ahead of its use from now on. Without a thread
    /// for that, requests wait for it.
    pub(crate) fn populate_cache(self: &Arc<Self>) {
        let is_large = self.config.cache_bytes >= CACHE_BYTES_MIN;
        if is_large
            && self.executor == Executor::Threads
            && let Some(cache) = self.cache_in_use()
        {
            self.populator.start(cache, self);
        }
    }
}

impl Populator {
    fn start(self: &Arc<Self>, cache: &Arc<Cache>, engine: &Arc<Engine>) {
        let mut state = self.state.lock();
        if state.thread.is_some() || state.stops {
            return;
        }
        let (populator, engine) = (self.clone(), Arc::downgrade(engine));
        let asked = Arc::downgrade(self);
        cache.frames().ask_to_populate(move || {
            asked.upgrade().iter().for_each(|populator| populator.ask());
        });
        let spawned = OwnThread::spawn("nowait-populate", 256 << 10, move || {
            sys_thread::never_preempt_on_wakeup();
            while populator.wait()
                && let Some(engine) = engine.upgrade()
            {
                engine.failures.caught("as it touched memory", || populator.populate(&engine));
            }
        });
        state.thread = spawned.ok();
    }

    fn populate(&self, engine: &Engine) {
        let Some(cache) = engine.cache_in_use() else { return };
        while cache.frames().populate_next() && !self.state.lock().stops {}
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Config, UserFile, UserOperation};
    use nowait_block::Segments;
    use nowait_sys::{file::IoVec, time::Deadline};
    use std::os::fd::AsRawFd;

    /// Writes a page to a new file in a cache of this size; returns the engine.
    fn with_a_page(cache_bytes: u64) -> Arc<Engine> {
        let config = Config { backend: BackendChoice::Threads, cache_bytes, ..Config::default() };
        let engine = Engine::on_machine(config, "test".to_owned()).unwrap();
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let mut options = std::fs::OpenOptions::new();
        let path = folder.path().join("file");
        let file = options.read(true).write(true).create(true).truncate(true).open(path).unwrap();
        let user = UserFile::open(&engine, file.as_raw_fd()).unwrap();
        let mut data = [2; 4096];
        let segment = IoVec { base: data.as_mut_ptr(), len: data.len() };
        // SAFETY: `run` returns when the operation is over.
        let write = unsafe { UserOperation::write(&user, 0, Segments::One(segment), None) };
        assert_eq!(write.run(&engine), Ok(4096));
        engine
    }

    #[test]
    fn the_first_page_of_a_large_cache_has_others_touched() {
        let engine = with_a_page(CACHE_BYTES_MIN);
        let limit = Deadline::after_ns(60_000_000_000);
        let touched = || engine.cache_in_use().unwrap().frames().free_touched();
        while touched() < 1024 {
            assert!(!limit.has_passed(), "{} frames", touched());
            std::thread::yield_now();
        }
        engine.shutdown();
        assert!(engine.populator.state.lock().thread.is_none(), "it has ended");
        assert_eq!(engine.failures(), 0);
    }

    #[test]
    fn a_small_cache_has_no_such_thread() {
        let engine = with_a_page(CACHE_BYTES_MIN - 1);
        assert!(engine.populator.state.lock().thread.is_none());
        engine.shutdown();
    }

    #[test]
    fn what_asks_after_the_end_starts_nothing() {
        let engine = with_a_page(CACHE_BYTES_MIN);
        engine.populator.stop();
        engine.populate_cache();
        engine.populator.ask();
        assert!(engine.populator.state.lock().thread.is_none());
        engine.shutdown();
    }
}
