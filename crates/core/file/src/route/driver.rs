//! The driver: the engine's one thread with a queue, for requests that neither a caller nor a
//! worker carries.
//!
//! The driver takes batches of requests that submit has handed over; with io_uring it also reads
//! buffered files. Every 5 ms (for calm contexts: rarely) it looks for requests of contexts for
//! which no caller comes.

use super::{Place, Plug};
use crate::{
    Context, Engine,
    context::LastTick,
    engine::{section::Section, starter::Starter},
    hold::{self, BothTables},
    parts::{Clock, Counter},
    request::FileOperation,
    turn::{Loop, Next},
};
use core::sync::atomic::{AtomicBool, Ordering::Relaxed, Ordering::SeqCst};
use nowait_block::{Bio, BlockBackend, Completion, Fair};
use nowait_retry::{Request, RunList};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    own_thread::{OwnHandle, OwnThread, STACK_BYTES},
    time::Deadline,
};
use std::sync::{Arc, OnceLock, Weak};

/// Requests started before the next commit. An idle device gets work at once; for buffered reads
/// this gave 1.3 times the throughput of whole batches.
const CHUNK: usize = 2;
/// Requests started before the next commit if each joins the bio of the one before.
const JOINED: usize = 16;
/// The time between two checks of a context, in nanoseconds.
const TICK_NS: u64 = 5_000_000;
/// The tick while the process waits for all requests in flight.
const HURRIED_TICK_NS: u64 = 200_000;

/// The approximate age at which dirty data of user files are written back: the process may be
/// killed at any time.
pub(crate) const CLEAN_NS: u64 = 1_000_000_000;

/// The part of the driver that other threads use.
#[derive(Default)]
pub struct Driver {
    inbox: RunList<FileOperation>,
    /// Requests that were handed over and not started; only the driver's thread uses them.
    waiting: Mutex<Waiting>,
    bios: Mutex<Vec<Bio>>,
    has_bios: AtomicBool,
    /// `true`: requests were cancelled whose bios the driver may still have.
    has_cancelled: AtomicBool,
    knows_dirt: AtomicBool,
    /// The driver's queue. The driver takes it out of here before its end, because only the
    /// driver's thread may close the queue's descriptors.
    queue: Mutex<Option<Arc<dyn BlockBackend>>>,
    /// The number, in the application's table, of the eventfd that wakes the queue's thread.
    pub(crate) counter: OnceLock<i32>,
    watched: Mutex<Vec<Watched>>,
    /// `true`: the driver next checks its contexts later than at the next tick. Changed under the
    /// lock of `watched`.
    is_slow: AtomicBool,
    /// `true`: the driver must check its contexts now, in spite of `is_slow`.
    is_hastened: AtomicBool,
    hurries: AtomicBool,
    stop: AtomicBool,
    handle: Mutex<Option<OwnHandle>>,
}

impl Driver {
    pub(crate) fn queue(&self) -> Option<Arc<dyn BlockBackend>> {
        self.queue.lock().clone()
    }

    pub(crate) fn hand_over(&self, batch: &mut Vec<Arc<Request<FileOperation>>>) {
        if self.inbox.push_all(batch) {
            self.wake();
        }
    }

    pub(crate) fn hand_over_bios(&self, bios: &mut Vec<Bio>) {
        self.bios.lock().append(bios);
        self.has_bios.store(true, SeqCst);
        self.tell();
    }

    fn sort_in(&self, batch: &mut Vec<Arc<Request<FileOperation>>>) {
        if !self.inbox.is_empty() {
            let mut waiting = self.waiting.lock();
            self.inbox.take(batch, usize::MAX);
            for request in batch.drain(..) {
                waiting.push(flow(&request), request);
            }
        }
    }

    /// Called after a request was marked as cancelled and its bio was searched for in the queue.
    pub(crate) fn cancelled(&self) {
        self.has_cancelled.store(true, SeqCst);
        self.tell();
    }

    /// Wakes the driver if it sleeps, after news for the driver were made visible.
    pub(crate) fn tell(&self) {
        if self.inbox.news() {
            self.wake();
        }
    }

    pub(crate) fn dirtied(&self) {
        if !self.knows_dirt.load(Relaxed) && !self.knows_dirt.swap(true, SeqCst) {
            self.wake(); // the driver may sleep without a deadline
        }
    }

    pub(crate) fn watch(&self, context: Weak<Context>) {
        let mut watched = self.watched.lock();
        watched.push(Watched { context, last: LastTick::default(), due: AT_TICK });
        if watched.len() == 1 || self.is_slow.load(Relaxed) {
            self.hasten();
        }
    }

    /// Called when no request is in flight.
    pub(crate) fn stop(&self) {
        self.stop.store(true, Relaxed);
        self.wake();
        let handle = self.handle.lock().take();
        if let Some(handle) = handle {
            handle.join();
        }
    }

    /// Ends the use of the queue by other threads, so that the driver's thread is the last to drop
    /// the queue. In another descriptor table, the numbers of the queue's descriptors mean other
    /// files.
    pub(crate) fn give_up(&self, run: Run) {
        let queue = run.queue.clone();
        // The loop is dropped without the lock, because values that it owns may wake the driver.
        let shared = self.queue.lock().take();
        drop((run, shared));
        while Arc::strong_count(&queue) > 1 {
            std::thread::yield_now(); // another thread is waking the queue
        }
    }

    pub(crate) fn hurry(&self, hurries: bool) {
        self.hurries.store(hurries, SeqCst);
        self.wake();
    }

    pub(crate) fn wake(&self) {
        if let Some(queue) = self.queue() {
            queue.wake();
        }
    }

    pub(crate) fn hasten(&self) {
        self.is_hastened.store(true, SeqCst);
        self.wake();
    }

    /// Checks the contexts that are due. All contexts that are not calm are due together, at
    /// `tick`. Returns the time when the next context is due.
    fn tick(&self, clock: &Clock, tick: &mut Deadline) -> Deadline {
        let hurries = self.hurries.load(SeqCst);
        let is_tick = hurries || *tick == Deadline::NEVER || clock.has_passed(*tick);
        let watched = core::mem::take(&mut *self.watched.lock());
        let mut kept = Vec::with_capacity(watched.len());
        for mut it in watched {
            let Some(context) = it.context.upgrade() else { continue };
            if it.due != AT_TICK && !context.is_calm() {
                // A thread has ended the calm of this context, whose last check was long ago.
                it = Watched { due: AT_TICK, last: LastTick::default(), ..it };
            }
            let is_due = if it.due == AT_TICK { is_tick } else { clock.has_passed(it.due) };
            if is_due || hurries {
                let Some(last) = context.tick(it.last, hurries) else { continue };
                let is_calm = context.is_calm() && !hurries;
                let due = if is_calm { clock.after_ns(context.calm_pause_ns()) } else { AT_TICK };
                it = Watched { last, due, ..it };
            }
            kept.push(it);
        }
        let mut watched = self.watched.lock();
        watched.append(&mut kept);
        let is_slow = watched.iter().all(|it| it.due != AT_TICK);
        self.is_slow.store(is_slow, Relaxed);
        if is_slow {
            *tick = Deadline::NEVER;
        } else if is_tick {
            *tick = clock.after_ns(if hurries { HURRIED_TICK_NS } else { TICK_NS });
        }
        let calm = watched.iter().map(|it| it.due).filter(|due| *due != AT_TICK);
        calm.fold(*tick, Deadline::min)
    }
}

struct Watched {
    context: Weak<Context>,
    last: LastTick,
    due: Deadline,
}

/// The context is not calm: the driver checks it at each tick.
const AT_TICK: Deadline = Deadline::NOW;

/// `counter` is the eventfd that wakes the thread of the loop, if the queue needs one.
pub(crate) fn new_loop(
    engine: &Arc<Engine>,
    counter: Option<Arc<BothTables>>,
) -> Result<Run, Errno> {
    let queue = engine.parts.backends.driver_queue(counter.map(|it| it as Counter))?;
    *engine.threads.driver.queue.lock() = Some(queue.clone());
    Ok(Run::new(engine.clone(), queue))
}

/// Called on a thread with the engine's descriptor table, which the driver's thread shares.
pub(crate) fn spawn(engine: Arc<Engine>, counter: Option<Arc<BothTables>>, starter: Starter) {
    let owner = engine.clone();
    // Locked until the handle is stored: `stop` may be called as soon as the thread reports that it
    // runs.
    let mut handle = owner.threads.driver.handle.lock();
    let spawned = OwnThread::spawn("nowait-driver", STACK_BYTES, move || {
        hold::enter_engine_table();
        match new_loop(&engine, counter) {
            Ok(mut run) => {
                starter.ended(Ok(()));
                // One section for all turns: the thread does not sleep while there are kicked
                // requests.
                let section = Section::enter(&engine);
                run.run();
                drop(section);
                engine.threads.driver.give_up(run);
            }
            Err(errno) => starter.ended(Err(errno)),
        }
    });
    *handle = spawned.ok();
}

type Waiting = Fair<Arc<Request<FileOperation>>>;

/// Returns the flow of a request, which is its context. Only the driver may call this, for requests
/// that were handed over to it.
fn flow(request: &Arc<Request<FileOperation>>) -> u64 {
    request.prepare(|operation, _| Arc::as_ptr(&operation.target.context) as u64)
}

pub(crate) struct Run {
    engine: Arc<Engine>,
    queue: Arc<dyn BlockBackend>,
    plug: Plug,
    batch: Vec<Arc<Request<FileOperation>>>,
    done: Vec<Completion>,
    next_tick: Deadline,
    /// The next tick of the contexts that are not calm; `NEVER`: there are none.
    tick_of_all: Deadline,
    next_clean: Deadline,
    waits: bool,
    ended: bool,
}

impl Loop for Run {
    /// Makes a turn; called inside a section.
    fn turn(&mut self) -> Next {
        let engine = self.engine.clone();
        let driver = &engine.threads.driver;
        let round = || match driver.stop.load(Relaxed) {
            false => self.round(&engine, driver),
            true => self.drain(&engine, driver),
        };
        // After a panic, the requests that the round was handling are still in their lists.
        engine.failures.caught("as the driver", round).unwrap_or(Next::Rest)
    }

    fn sleep(&mut self, deadline: Deadline) {
        let engine = self.engine.clone();
        let driver = &engine.threads.driver;
        let news = || {
            driver.has_bios.load(SeqCst)
                || driver.has_cancelled.load(SeqCst)
                || !engine.threads.kicked.is_empty()
        };
        if driver.inbox.may_sleep() && !news() {
            let reap = || self.queue.reap(&mut self.done, 1, deadline);
            let _ = engine.failures.caught("as the driver", reap);
        }
        driver.inbox.awake();
    }
}

impl Run {
    fn new(engine: Arc<Engine>, queue: Arc<dyn BlockBackend>) -> Run {
        let plug = Plug::new(engine.clone(), Place::Driver);
        Run {
            waits: false,
            ended: false,
            engine,
            queue,
            plug,
            batch: Vec::new(),
            done: Vec::new(),
            next_tick: Deadline::NEVER,
            tick_of_all: Deadline::NEVER,
            next_clean: Deadline::NEVER,
        }
    }

    fn round(&mut self, engine: &Engine, driver: &Driver) -> Next {
        #[cfg(test)]
        crate::failure::inject(0, crate::failure::At::Round);
        engine.look_at_devices();
        self.ended |= self.complete();
        engine.holds.make_room();
        driver.sort_in(&mut self.batch);
        let started = self.start_some(driver);
        let started = self.take_bios(driver) || started;
        if driver.has_cancelled.load(Relaxed) && driver.has_cancelled.swap(false, SeqCst) {
            self.plug.end_cancelled();
        }
        self.plug.flush(None);
        // A request may have ended here without a bio: copied, cancelled, or because its file is
        // gone. Other requests may have waited for it.
        self.plug.run_kicked(None);
        let _ = self.queue.reap(&mut self.done, 0, Deadline::NOW);
        let reaped = self.complete();
        self.ended |= reaped;
        let is_due = engine.clock().has_passed(self.next_tick) || driver.hurries.load(Relaxed);
        if is_due || driver.is_hastened.load(Relaxed) && driver.is_hastened.swap(false, SeqCst) {
            self.tick(driver);
        }
        self.clean(driver);
        if started || reaped {
            return Next::Turn;
        }
        engine.holds.tidy();
        if self.next_tick == Deadline::NEVER {
            self.tick(driver);
        }
        let until = self.next_tick.min(self.next_clean);
        // No thread wakes the driver when request tags are given back.
        Next::Sleep(if self.waits { until.min(engine.clock().after_ns(TICK_NS)) } else { until })
    }

    /// Completes the page cache's bios for which no request waits, such as those of readahead. Each
    /// of these bios holds its file and the whole cache.
    fn drain(&mut self, engine: &Engine, driver: &Driver) -> Next {
        let Some(cache) = engine.user_files.cache() else { return Next::End };
        self.take_bios(driver);
        driver.has_cancelled.store(false, SeqCst);
        self.plug.flush(None);
        let _ = self.queue.reap(&mut self.done, 0, Deadline::NOW);
        self.complete();
        match cache.has_ios() && self.queue.in_flight() > 0 {
            true => Next::Sleep(Deadline::NEVER),
            false => Next::End,
        }
    }

    /// Starts a few of the waiting requests, in turn from different contexts, if the queue has
    /// room: a request in the queue cannot be overtaken any more. Adjoining durable writes that are
    /// started together become one bio with one flush. If requests have ended since the last call,
    /// one request starts even without room in the queue. Otherwise bios of the page cache, which
    /// do not wait, would fill the queue.
    fn start_some(&mut self, driver: &Driver) -> bool {
        let (mut started, mut joined) = (0, false);
        self.waits = false;
        let ended = core::mem::take(&mut self.ended);
        while started < CHUNK || joined && started < JOINED {
            let in_turn = ended && started == 0;
            if self.plug.is_backed_up() || !in_turn && !self.queue.has_room(CHUNK) {
                self.waits = !driver.waiting.lock().is_empty();
                break;
            }
            let Some(request) = driver.waiting.lock().pop() else { break };
            joined = self.plug.run_joining(&request);
            started += 1;
        }
        self.engine.driver_waits(self.waits);
        started > 0
    }

    fn take_bios(&mut self, driver: &Driver) -> bool {
        let any = driver.has_bios.load(Relaxed) && driver.has_bios.swap(false, SeqCst);
        if any {
            self.plug.cache_bios.append(&mut driver.bios.lock());
        }
        any
    }

    fn clean(&mut self, driver: &Driver) {
        if self.next_clean == Deadline::NEVER {
            if driver.knows_dirt.load(Relaxed) {
                self.next_clean = self.engine.clock().after_ns(CLEAN_NS);
            }
        } else if self.engine.clock().has_passed(self.next_clean) {
            // Cleared before the writeback: a thread that dirties a page afterwards sets the flag
            // again.
            driver.knows_dirt.store(false, SeqCst);
            // Set even if no thread dirties a page again: the next call of `clean` releases the
            // files whose data are written now.
            self.next_clean = match self.engine.user_files.clean(&mut self.plug.cache_bios) {
                true => self.engine.clock().after_ns(CLEAN_NS),
                false => Deadline::NEVER,
            };
            self.plug.flush(None);
        }
    }

    fn tick(&mut self, driver: &Driver) {
        self.engine.holds.tick();
        self.next_tick = driver.tick(self.engine.clock(), &mut self.tick_of_all);
    }

    fn complete(&mut self) -> bool {
        let any = !self.done.is_empty();
        self.done.reverse();
        // Taken one by one, so that after a panic the later completions stay in the list.
        while let Some(completion) = self.done.pop() {
            self.plug.complete(completion.token, completion.result);
        }
        if any {
            self.plug.flush(None);
            self.plug.run_kicked(None);
        }
        any
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Config};
    use nowait_sys::aio::IoEvent;

    /// Otherwise the submitter of a request that follows soon would have to wake the driver.
    #[test]
    fn a_context_is_looked_after_for_a_tenth_of_a_second_more_and_then_no_longer() {
        let config = Config { backend: BackendChoice::Kaio, ..Config::default() };
        let Ok(engine) = Engine::on_machine(config, "test".to_owned()) else {
            return nowait_block::skip::note_skip_here("native AIO is refused");
        };
        let context = Context::new(&engine, 0, 1).unwrap();
        let (mut last, mut ticks) = (LastTick::default(), 0);
        while let Some(now) = context.tick(last, false) {
            (last, ticks) = (now, ticks + 1);
            assert!(ticks < 1000, "it goes on for ever");
        }
        assert_eq!(ticks * TICK_NS, 100_000_000);
        context.destroy().unwrap();
        engine.shutdown();
    }

    #[test]
    fn a_context_whose_callers_come_by_calls_is_calm_until_it_needs_the_driver() {
        // The test makes the ticks itself; the driver does not watch the context.
        let backend = BackendChoice::Threads;
        let config = Config { backend, answers_as_aio: true, ..Config::default() };
        let engine = Engine::on_machine(config, "test".to_owned()).unwrap();
        let context = Context::new(&engine, 0, 1).unwrap();
        let ticks = |calls: bool| {
            let mut last = LastTick::default();
            for _ in 0..300 {
                (0..usize::from(calls)).for_each(|_| context.looked_for_events());
                last = context.tick(last, false).unwrap_or_default();
            }
            context.is_calm()
        };
        assert!(!ticks(false), "no caller has come yet");
        assert!(!ticks(true), "no caller has taken an event yet");
        context.io().reserve(1).unwrap();
        context.io().complete_batch(&[IoEvent::default()]);
        assert_eq!(context.wait_events(1, 1, Deadline::NEVER, None, |_, _| Ok(())), Ok(1));
        assert!(ticks(true));
        assert!(ticks(false), "there is nothing to come for");
        context.watch_closely();
        assert!(!context.is_calm());
        assert!(ticks(true));
        assert_eq!(context.wait_events(0, 1, Deadline::NOW, Some(0), |_, _| Ok(())), Ok(0));
        assert!(!context.is_calm(), "a caller with a mask serves no queue");
        context.destroy().unwrap();
        engine.shutdown();
    }
}
