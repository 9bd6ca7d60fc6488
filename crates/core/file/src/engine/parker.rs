//! Blocking calls on a thread of the application, which sleeps until the operation wakes it.

use crate::{Engine, engine::section::Section};
use core::sync::atomic::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};
use nowait_block::Bio;
use nowait_retry::{Step, WaitEntry};
use nowait_sys::{Errno, futex, time::Deadline};
use std::{
    sync::Arc,
    task::{Wake, Waker},
};

/// Runs iterations on the calling thread, which sleeps between them.
pub(crate) fn sleep_through(
    engine: &Arc<Engine>,
    mut iterate: impl FnMut(&mut Vec<Bio>, &dyn Fn() -> WaitEntry) -> Step,
) -> Result<u32, Errno> {
    let parker = Parker::new();
    let waker = Waker::from(parker.clone());
    let mut bios = Vec::new();
    loop {
        let section = Section::enter(engine);
        let step = iterate(&mut bios, &|| waker.clone());
        engine.carry(&mut bios);
        drop(section);
        match step {
            Step::Done(result) => return result,
            Step::Queued | Step::Retry => parker.sleep(engine),
        }
    }
}

/// A thread that sleeps until it is woken. std's park cannot be used: it needs thread-local data,
/// which is gone when destructors of thread data (pthread_key_create(3)) run.
pub(crate) struct Parker(AtomicU32);

const IDLE: u32 = 0;
const KICKED: u32 = 1;
const SLEEPS: u32 = 2;

impl Parker {
    pub(crate) fn new() -> Arc<Parker> {
        Arc::new(Parker(AtomicU32::new(IDLE)))
    }

    pub(crate) fn sleep(&self, engine: &Arc<Engine>) {
        while self.0.swap(IDLE, Acquire) != KICKED {
            engine.threads.look_after_loops();
            let sleeps = !engine.turn_for_sleeper()
                && self.0.compare_exchange(IDLE, SLEEPS, Relaxed, Relaxed).is_ok();
            if sleeps {
                let _ = futex::wait(&self.0, SLEEPS, Deadline::NEVER);
            }
        }
    }
}

impl Wake for Parker {
    fn wake(self: Arc<Self>) {
        if self.0.swap(KICKED, Release) == SLEEPS {
            futex::wake(&self.0, 1);
        }
    }
}
