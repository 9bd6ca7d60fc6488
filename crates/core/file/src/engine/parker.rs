//! Waiting on a thread of the application: a call that blocks is a thread that is kicked.

use crate::{Engine, engine::section::Section};
use core::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};
use nowait_sys::Errno;
use std::{
    sync::Arc,
    task::{Wake, Waker},
    thread::Thread,
};

/// Runs iterations to the end on the calling thread, which is kicked like a request.
pub(crate) fn sleep_through(
    engine: &Arc<Engine>,
    mut iterate: impl FnMut(&mut Vec<Bio>, &dyn Fn() -> WaitEntry) -> Step,
) -> Result<u32, Errno> {
    let parker = Parker::new();
    let waker = Waker::from(parker.clone());
    let mut bios = Vec::new();
    loop {
        let section = Section::enter(engine);
        let step = iterate(&mut bios, &|| WaitEntry::from(waker.clone()));
        engine.carry(&mut bios);
        drop(section);
        match step {
            Step::Done(result) => return result,
            Step::Queued | Step::Retry => parker.sleep(engine),
        }
    }
}

/// A thread that sleeps until it is kicked.
pub(crate) struct Parker {
    kicked: AtomicBool,
    thread: Thread,
}

impl Parker {
    pub(crate) fn new() -> Arc<Parker> {
        Arc::new(Parker { kicked: AtomicBool::new(false), thread: std::thread::current() })
    }

    pub(crate) fn sleep(&self, engine: &Arc<Engine>) {
        while !self.kicked.swap(false, Acquire) {
            engine.look_after_loops();
            if !engine.turn_for_sleeper() {
                std::thread::park();
            }
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        self.kicked.store(true, Release);
        self.thread.unpark();
    }
}
