//! A thread that has the system give memory to the page cache ahead of its use
//! ([`Frames::populate_next`]), where the cache is large.
//!
//! [`Frames::populate_next`]: nowait_cache::Frames::populate_next

use super::{Engine, helper::Helper};
use crate::parts::Executor;
use core::sync::atomic::{AtomicBool, Ordering::SeqCst};
use nowait_cache::Cache;
use nowait_sys::time::Deadline;
use std::sync::Arc;

/// A smaller cache has its memory after a few requests.
const CACHE_BYTES_MIN: u64 = 64 << 20;

/// The thread, and what it sleeps on.
#[derive(Default)]
pub(crate) struct Populator {
    is_asked: AtomicBool,
    /// Its end waits for the system to clear a huge page at most.
    pub(super) helper: Helper,
}

impl Engine {
    /// Has the system give memory to a large cache ahead of its use from now on. Without a thread
    /// for that, requests wait for it.
    pub(crate) fn populate_cache(self: &Arc<Self>) {
        let is_large = self.config.cache_bytes >= CACHE_BYTES_MIN;
        if is_large
            && self.parts.executor == Executor::Threads
            && let Some(cache) = self.user_files.cache()
        {
            self.threads.populator.start(cache, self);
        }
    }
}

impl Populator {
    fn start(self: &Arc<Self>, cache: &Arc<Cache>, engine: &Arc<Engine>) {
        let (populator, engine) = (self.clone(), Arc::downgrade(engine));
        let asked = Arc::downgrade(self);
        cache.frames().ask_to_populate(move || {
            asked.upgrade().iter().for_each(|populator| populator.ask());
        });
        // Without one it is tried again by the next open.
        let _ = self.helper.start("nowait-populate", move || {
            while populator.wait()
                && let Some(engine) = engine.upgrade()
            {
                engine.failures.caught("as it touched memory", || populator.populate(&engine));
            }
        });
    }

    fn populate(&self, engine: &Engine) {
        let Some(cache) = engine.user_files.cache() else { return };
        while cache.frames().populate_next() && !self.helper.stops() {}
    }

    fn ask(&self) {
        if !self.is_asked.swap(true, SeqCst) {
            self.helper.tell();
        }
    }

    /// Waits until it is asked; false: the thread is to end.
    fn wait(&self) -> bool {
        self.helper.sleep(Deadline::NEVER, || self.is_asked.swap(false, SeqCst));
        !self.helper.stops()
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
        let touched = || engine.user_files.cache().unwrap().frames().free_touched();
        while touched() < 1024 {
            assert!(!limit.has_passed(), "{} frames", touched());
            std::thread::yield_now();
        }
        engine.shutdown();
        assert!(!engine.threads.populator.helper.runs(), "it has ended");
        assert_eq!(engine.failures(), 0);
    }

    #[test]
    fn a_small_cache_has_no_such_thread() {
        let engine = with_a_page(CACHE_BYTES_MIN - 1);
        assert!(!engine.threads.populator.helper.runs());
        engine.shutdown();
    }

    #[test]
    fn what_asks_after_the_end_starts_nothing() {
        let engine = with_a_page(CACHE_BYTES_MIN);
        engine.threads.populator.helper.stop();
        engine.populate_cache();
        engine.threads.populator.ask();
        assert!(!engine.threads.populator.helper.runs());
        engine.shutdown();
    }
}
