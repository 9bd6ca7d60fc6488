//! The engine's own thread: carries what no caller carries.
//!
//! It takes batches of requests that submit handed over, reads buffered files through its
//! io_uring, and every few milliseconds looks after contexts that have requests under way in
//! their own queue while nobody waits for them.

use crate::{
    Context, Engine, hold,
    operation::FileOperation,
    plug::{Place, Plug},
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use nowait_block::{Bio, BlockBackend, Completion, Fair};
use nowait_retry::{Request, RunList};
use nowait_sys::{Errno, thread, time::Deadline};
use parking_lot::Mutex;
use std::{
    sync::{Arc, Weak, mpsc},
    thread::JoinHandle,
};

/// Requests started before the next commit: an idle device is fed at once (measured: 1.3 times
/// the throughput of whole batches for buffered reads).
const CHUNK: usize = 2;
/// The same while requests are copied.
const COPIES: usize = 16;
/// How often contexts without a caller are looked after, in nanoseconds.
const TICK_NS: u64 = 5_000_000;

/// How long the driver stays awake after it has copied requests itself: they come every other
/// microsecond, and to wake it takes the submitter longer than all else it does.
const LINGER_NS: u64 = 50_000;

/// How long what was written to a user file stays in memory alone, in nanoseconds, about: the
/// process may be killed at any time.
const CLEAN_NS: u64 = 1_000_000_000;

/// What other threads know of the driver.
#[derive(Default)]
pub struct Driver {
    inbox: RunList<FileOperation>,
    /// Bios of the page cache, from threads that serve no queue.
    bios: Mutex<Vec<Bio>>,
    has_bios: AtomicBool,
    /// Requests were cancelled whose bios may still be with the driver.
    has_cancelled: AtomicBool,
    /// The driver knows that user files have something to write.
    knows_dirt: AtomicBool,
    /// Taken out before the driver drops it: its descriptors are that thread's to close.
    queue: Mutex<Option<Arc<dyn BlockBackend>>>,
    watched: Mutex<Vec<(Weak<Context>, Option<u64>)>>,
    stop: AtomicBool,
    handle: Mutex<Option<JoinHandle<()>>>,
}

impl Driver {
    pub(crate) fn queue(&self) -> Option<Arc<dyn BlockBackend>> {
        self.queue.lock().clone()
    }

    /// Hands a batch over in one step and wakes the driver if it sleeps.
    pub(crate) fn hand_over(&self, batch: &mut Vec<Arc<Request<FileOperation>>>) {
        if self.inbox.push_all(batch) {
            self.wake();
        }
    }

    /// Takes over bios of the page cache, and wakes the driver if it sleeps.
    pub(crate) fn hand_over_bios(&self, bios: &mut Vec<Bio>) {
        self.bios.lock().append(bios);
        self.has_bios.store(true, SeqCst);
        if self.inbox.news() {
            self.wake();
        }
    }

    /// Says that a request was cancelled, after it was marked and looked for in the queue.
    pub(crate) fn cancelled(&self) {
        self.has_cancelled.store(true, SeqCst);
        if self.inbox.news() {
            self.wake();
        }
    }

    /// Says that a user file has something to write.
    pub(crate) fn dirtied(&self) {
        if !self.knows_dirt.load(Relaxed) && !self.knows_dirt.swap(true, SeqCst) {
            self.wake(); // it may be in a sleep without end
        }
    }

    pub(crate) fn watch(&self, context: Weak<Context>) {
        let mut watched = self.watched.lock();
        watched.push((context, None));
        if watched.len() == 1 {
            self.wake(); // it may be in a sleep without end
        }
    }

    /// Ends the thread and waits for its end; nothing is under way.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.wake();
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            let _ = handle.join();
        }
    }

    /// Ends the use of the queue by others, so that its thread is the last to drop it: elsewhere
    /// other files have the numbers of its descriptors.
    fn give_up(&self, queue: &Arc<dyn BlockBackend>) {
        drop(self.queue.lock().take());
        while Arc::strong_count(queue) > 1 {
            std::thread::yield_now(); // somebody is just waking it
        }
    }

    fn wake(&self) {
        if let Some(queue) = self.queue() {
            queue.wake();
        }
    }

    fn tick(&self) -> bool {
        let watched = core::mem::take(&mut *self.watched.lock());
        let mut kept = Vec::with_capacity(watched.len());
        for (context, before) in watched {
            let Some(alive) = context.upgrade() else { continue };
            if let Some(now) = alive.tick(before) {
                kept.push((context, Some(now)));
            }
        }
        let mut watched = self.watched.lock();
        watched.append(&mut kept);
        !watched.is_empty()
    }
}

/// Starts the driver's thread; called on a thread with the engine's descriptor table.
pub(crate) fn spawn(engine: Arc<Engine>, ready: mpsc::Sender<Result<(), Errno>>) {
    let (failed, owner) = (ready.clone(), engine.clone());
    let Some(driver) = owner.driver() else { return };
    // Held until the handle is in: `stop` may come as soon as the thread says that it is ready.
    let mut handle = driver.handle.lock();
    let spawned = std::thread::Builder::new()
        .name("nowait-driver".to_owned())
        .stack_size(256 << 10)
        .spawn(move || {
            thread::block_signals();
            thread::never_preempt_on_wakeup();
            hold::enter_engine_table();
            match engine.new_driver_queue() {
                Ok(queue) => {
                    let Some(driver) = engine.driver() else { return };
                    *driver.queue.lock() = Some(queue.clone());
                    let _ = ready.send(Ok(()));
                    Run::new(engine.clone(), queue.clone()).run();
                    driver.give_up(&queue);
                }
                Err(errno) => drop(ready.send(Err(errno))),
            }
        });
    match spawned {
        Ok(spawned) => *handle = Some(spawned),
        Err(_) => drop(failed.send(Err(Errno::AGAIN))),
    }
}

/// Tells requests of different contexts apart; those that take their places in the order when they
/// are started, by their inode: they must be started as they were submitted, whoever did that. The
/// driver has the right to run what it was handed.
fn flow(request: &Arc<Request<FileOperation>>) -> u64 {
    request.prepare(|operation, _| match operation.inode {
        Some((dev, ino)) if operation.enters_late => dev.rotate_left(32) ^ ino,
        _ => Arc::as_ptr(&operation.target.context) as u64,
    })
}

struct Run {
    engine: Arc<Engine>,
    queue: Arc<dyn BlockBackend>,
    plug: Plug,
    /// Handed over, not started.
    waiting: Fair<Arc<Request<FileOperation>>>,
    done: Vec<Completion>,
    next_tick: Deadline,
    next_clean: Deadline,
    /// Awake until then, whatever comes.
    lingers: Deadline,
}

impl Run {
    fn new(engine: Arc<Engine>, queue: Arc<dyn BlockBackend>) -> Run {
        let plug = Plug::new(engine.clone(), Place::Driver);
        Run {
            engine,
            queue,
            plug,
            waiting: Fair::default(),
            done: Vec::new(),
            next_tick: Deadline::NEVER,
            next_clean: Deadline::NEVER,
            lingers: Deadline::NOW,
        }
    }

    fn run(&mut self) {
        let engine = self.engine.clone();
        let Some(driver) = engine.driver() else { return };
        let mut batch = Vec::new();
        while !driver.stop.load(Relaxed) {
            let batch_max = if self.plug.copied_now() { COPIES } else { CHUNK };
            self.plug.next_pass();
            driver.inbox.take(&mut batch, usize::MAX);
            for request in batch.drain(..) {
                self.waiting.push(flow(&request), request);
            }
            let started = self.start_some(batch_max);
            let started = self.take_bios(driver) || started;
            if driver.has_cancelled.load(Relaxed) && driver.has_cancelled.swap(false, SeqCst) {
                self.plug.end_cancelled();
            }
            self.plug.flush(None);
            // A request may end here without a bio: copied, cancelled, or its file is gone. Others
            // may have waited for it.
            self.plug.run_kicked(None);
            let _ = self.queue.reap(&mut self.done, 0, Deadline::NOW);
            let reaped = self.complete();
            if self.next_tick.has_passed() {
                self.tick(driver);
            }
            self.clean(driver);
            if self.plug.copied_now() && engine.cpus() > 1 {
                self.lingers = Deadline::after_ns(LINGER_NS);
            }
            match started || reaped {
                true => {}
                false if self.lingers.has_passed() => self.sleep(driver),
                false => (0..16).for_each(|_| core::hint::spin_loop()),
            }
        }
        self.drain(driver);
    }

    /// Completes what the page cache has under way, and nobody waits for: pages read ahead. Each
    /// bio keeps its file and the whole cache.
    fn drain(&mut self, driver: &Driver) {
        let engine = self.engine.clone();
        let Some(cache) = engine.cache_in_use() else { return };
        self.take_bios(driver);
        self.plug.flush(None);
        while cache.has_ios() && self.queue.in_flight() > 0 {
            let _ = self.queue.reap(&mut self.done, 1, Deadline::NEVER);
            self.complete();
        }
    }

    /// Starts a few of the requests that wait, those of different contexts in turn, if the queue
    /// has room for them: one that is in the queue cannot be overtaken any more.
    fn start_some(&mut self, count: usize) -> bool {
        let mut started = false;
        for _ in 0..count {
            if self.plug.is_backed_up() || !self.queue.has_room(CHUNK) {
                break;
            }
            let Some(request) = self.waiting.pop() else { break };
            request.run(&mut self.plug, None);
            started = true;
        }
        started
    }

    fn take_bios(&mut self, driver: &Driver) -> bool {
        let any = driver.has_bios.load(Relaxed) && driver.has_bios.swap(false, SeqCst);
        if any {
            self.plug.cache_bios().append(&mut driver.bios.lock());
        }
        any
    }

    fn sleep(&mut self, driver: &Driver) {
        self.engine.holds().tidy();
        if self.next_tick == Deadline::NEVER {
            self.tick(driver);
        }
        let news = || driver.has_bios.load(SeqCst) || driver.has_cancelled.load(SeqCst);
        if driver.inbox.may_sleep() && !news() {
            self.plug.next_pass();
            let _ = self.queue.reap(&mut self.done, 1, self.next_tick.min(self.next_clean));
            self.complete();
        }
        driver.inbox.awake();
    }

    /// Writes back what has been dirty for a while.
    fn clean(&mut self, driver: &Driver) {
        let Some(cache) = self.engine.cache_in_use() else { return };
        if self.next_clean == Deadline::NEVER {
            if driver.knows_dirt.load(Relaxed) {
                self.next_clean = Deadline::after_ns(CLEAN_NS);
            }
        } else if self.next_clean.has_passed() {
            // Before the look: who dirties a page after it says so again.
            driver.knows_dirt.store(false, SeqCst);
            self.next_clean = Deadline::NEVER;
            cache.clean(u64::MAX, self.plug.cache_bios());
            self.plug.flush(None);
        }
    }

    fn tick(&mut self, driver: &Driver) {
        self.next_tick = if driver.tick() { Deadline::after_ns(TICK_NS) } else { Deadline::NEVER };
    }

    fn complete(&mut self) -> bool {
        let any = !self.done.is_empty();
        for completion in self.done.drain(..) {
            self.plug.complete(completion.token, completion.result);
        }
        if any {
            self.plug.flush(None);
            self.plug.run_kicked(None);
        }
        any
    }
}
