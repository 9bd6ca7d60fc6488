//! The pool of workers: how threads add work, wake and start workers, and deliver completions.

use super::{
    Carry, Deliver, OnPanic, ThreadsConfig,
    ready::{Ready, Work, cancelled},
    run::BioRunner,
    watch::{PollSet, WatchStart, Watches},
};
use crate::{
    Completion, Lane,
    bio::{Bio, BioOp},
    inbox::Inbox,
};
use core::sync::atomic::{
    AtomicU32, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    fork::ForkMark,
    futex,
    own_thread::{self, OwnHandle, OwnThread, STACK_BYTES},
    thread as sys_thread,
    time::Deadline,
};
use std::{
    collections::VecDeque,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

/// The longest time that a worker stays idle before it ends, if another worker is idle, too.
const IDLE_NS_MAX: u64 = 3_000_000_000;
/// The most bios of one lane that run in one turn, and the most completions that one call of
/// [`take_done`] collects.
const LANE_TURN: usize = 32;

type FirstTask = Box<dyn FnOnce() + Send>;

/// The futex word of one worker: 0 if the worker is idle, 1 if a thread has woken it.
#[derive(Default)]
struct IdleSlot(AtomicU32);

impl IdleSlot {
    fn call(&self) {
        self.0.store(1, Release);
        futex::wake(&self.0, 1);
    }
}

#[derive(Default)]
struct State {
    ready: Ready,
    /// The worker that became idle last is woken first, because its caches are warm. A worker that
    /// became idle while no other was idle sleeps without a time limit.
    idle: Vec<Arc<IdleSlot>>,
    /// `true`: a thread has woken a worker that does not run yet. That worker sees all ready work.
    called: bool,
    workers: usize,
    starting: usize,
    started_total: usize,
    handles: Vec<OwnHandle>,
    spawning: usize,
    closing: bool,
}

enum Successor {
    Call(Arc<IdleSlot>),
    Start,
    None,
}

impl State {
    /// Takes the worker that became idle last out of `idle`: the caller must wake it. `None`: there
    /// is no work, no worker is idle, or a woken worker does not run yet.
    fn call_idle(&mut self) -> Option<Arc<IdleSlot>> {
        if self.called || self.ready.is_empty() {
            return None;
        }
        let slot = self.idle.pop();
        self.called = slot.is_some();
        slot
    }

    /// Finds a successor for a worker that begins work now: an idle worker if more work is ready.
    /// If no worker is idle, woken or starting, it is a new worker, as far as `workers_max` allows:
    /// the work may take long, and threads that commit start no workers.
    fn successor(&mut self, workers_max: usize) -> Successor {
        if let Some(slot) = self.call_idle() {
            return Successor::Call(slot);
        }
        let somebody = self.called || self.starting > 0 || !self.idle.is_empty();
        if somebody || self.closing || self.workers >= workers_max {
            return Successor::None;
        }
        self.count_start();
        Successor::Start
    }

    /// Called by a worker that has slept in `slot`; `is_late`: its idle time has passed. Returns
    /// `true` if the worker ends, and then no longer counts it: until it has ended, other workers
    /// may have to start a new one.
    fn wakes(&mut self, slot: &Arc<IdleSlot>, is_late: bool) -> bool {
        let Some(index) = self.idle.iter().position(|idle| Arc::ptr_eq(idle, slot)) else {
            self.called = false;
            return false;
        };
        self.idle.remove(index);
        let ends = is_late && !self.idle.is_empty();
        self.workers -= usize::from(ends);
        ends
    }

    fn count_start(&mut self) {
        self.workers += 1;
        self.starting += 1;
        self.started_total += 1;
    }
}

#[derive(Default)]
struct PendingBios {
    bios: Vec<Bio>,
    closed: bool,
}

pub(super) struct Pool {
    /// A thread that takes both locks takes this one before `state`.
    pending: Mutex<PendingBios>,
    state: Mutex<State>,
    watches: Watches,
    in_flight: AtomicUsize,
    depth: usize,
    inbox: Inbox,
    deliver: Deliver,
    workers_max: usize,
    each: fn(),
    carry: Carry,
    failed: OnPanic,
    name: String,
    process: ForkMark,
}

impl Pool {
    pub(super) fn start(config: ThreadsConfig, depth: usize) -> Result<Arc<Pool>, Errno> {
        let pool = Arc::new(Pool {
            pending: Mutex::default(),
            state: Mutex::default(),
            watches: Watches::default(),
            in_flight: AtomicUsize::new(0),
            depth,
            inbox: Inbox::default(),
            deliver: config.deliver,
            workers_max: config.max_workers.max(1),
            each: config.each,
            carry: config.carry,
            failed: config.failed,
            name: config.name,
            process: ForkMark::new(),
        });
        pool.state.lock().count_start();
        pool.start_worker(config.first)?;
        Ok(pool)
    }

    pub(super) fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let mut pending = self.pending.lock();
        if self.in_flight.load(Acquire) >= self.depth || pending.closed {
            return Err(bio);
        }
        self.in_flight.fetch_add(1, AcqRel);
        pending.bios.push(bio);
        Ok(())
    }

    pub(super) fn commit(&self) {
        let mut pending = self.pending.lock();
        if pending.bios.is_empty() {
            return;
        }
        let mut state = self.state.lock();
        pending.bios.drain(..).for_each(|bio| state.ready.add(bio));
        let slot = state.call_idle();
        drop(state);
        drop(pending);
        slot.inspect(|slot| slot.call());
    }

    pub(super) fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        let result = self.inbox.reap(done, min, deadline);
        self.in_flight.fetch_sub(done.len() - before, AcqRel);
        result
    }

    pub(super) fn wake(&self) {
        if let Deliver::Queue = self.deliver {
            return self.inbox.wake();
        }
        let mut state = self.state.lock();
        state.ready.add_urgent(Work::Wake);
        let slot = state.call_idle();
        drop(state);
        slot.inspect(|slot| slot.call());
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Acquire)
    }

    pub(super) fn workers(&self) -> usize {
        self.state.lock().workers
    }

    pub(super) fn cancel(&self, token: u64) {
        let mut pending = self.pending.lock();
        let mut state = self.state.lock();
        let queued = pending.bios.iter().position(|bio| bio.token == token);
        let removed = queued.map(|index| pending.bios.remove(index));
        let removed = removed.or_else(|| state.ready.take(token));
        // `drop` releases the bio's file before the completion is reported.
        if removed.map(drop).is_some() {
            let completion = Completion { token, result: Err(Errno::CANCELED) };
            match &self.deliver {
                Deliver::Queue => self.inbox.add(&mut vec![completion]),
                // A worker calls the receiver: the thread that cancels may hold locks that the
                // receiver takes.
                Deliver::Call(_) => state.ready.add_urgent(cancelled(token)),
            }
        } else if self.watches.cancel(token) {
            state.ready.add_urgent(Work::Poke);
        }
        let slot = state.call_idle();
        drop(state);
        drop(pending);
        slot.inspect(|slot| slot.call());
    }

    pub(super) fn deliver_on_worker(&self, completions: &mut Vec<Completion>) {
        self.in_flight.fetch_add(completions.len(), AcqRel);
        let mut state = self.state.lock();
        completions.drain(..).for_each(|it| state.ready.add_urgent(Work::Done(it)));
        let slot = state.call_idle();
        drop(state);
        slot.inspect(|slot| slot.call());
    }

    pub(super) fn shutdown(&self) {
        // A forked child has the memory of the pool, but none of its threads.
        if !self.process.is_here() {
            return;
        }
        let mut pending = self.pending.lock();
        let mut state = self.state.lock();
        pending.closed = true;
        state.closing = true;
        state.ready.cancel_all(&mut pending.bios);
        self.watches.close();
        let idle = core::mem::take(&mut state.idle);
        drop((state, pending));
        for slot in idle {
            slot.call();
        }
        self.join();
    }

    fn join(&self) {
        // Workers may start other workers until they have seen `closing`, so this loop takes one
        // handle at a time.
        loop {
            let mut state = self.state.lock();
            let (handle, spawning) = (state.handles.pop(), state.spawning);
            drop(state);
            match handle {
                None if spawning > 0 => std::thread::yield_now(),
                None => return,
                // This thread is the worker itself, which ends later.
                Some(handle) if handle.is_this() => {}
                Some(handle) => handle.join(),
            }
        }
    }

    /// The caller has counted the worker with [`State::count_start`].
    fn start_worker(self: &Arc<Pool>, first: Option<FirstTask>) -> Result<(), Errno> {
        let name = format!("{}{}", self.name, self.state.lock().started_total - 1);
        let pool = self.clone();
        let started = self.spawn(&name, move || pool.work(first));
        if started.is_err() {
            let mut state = self.state.lock();
            state.workers -= 1;
            state.starting -= 1;
        }
        started
    }

    fn spawn(&self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), Errno> {
        let mask = sys_thread::swap_signal_mask(sys_thread::ALL_SIGNALS);
        self.state.lock().spawning += 1;
        let handle = own_thread::start(name, STACK_BYTES, body);
        sys_thread::swap_signal_mask(mask);
        let mut state = self.state.lock();
        state.spawning -= 1;
        handle.map(|handle| state.handles.push(handle))
    }

    fn work(self: &Arc<Pool>, first: Option<FirstTask>) {
        let _own = OwnThread::begin();
        if let Some(first) = first {
            first();
        }
        (self.each)();
        let runner = BioRunner::new(self.carry.clone(), self.failed.clone());
        let mut batch = Vec::new();
        let slot = Arc::new(IdleSlot::default());
        self.state.lock().starting -= 1;
        while let Some(work) = self.next(&slot) {
            self.attend(work, &runner, &mut batch);
        }
        // When the pool closes, the watcher must check for that. A worker wakes the watcher; the
        // thread in `shutdown` cannot, because the watcher's eventfd is in the workers' descriptor
        // table.
        self.watches.rouse();
        self.drop_handle();
    }

    /// Waits for work; `None`: the pool is closing, or this worker was idle too long. The worker is
    /// then no longer counted.
    fn next(self: &Arc<Pool>, slot: &Arc<IdleSlot>) -> Option<Work> {
        let mut state = self.state.lock();
        loop {
            if let Some(work) = take_work(&mut state, &self.watches) {
                let help = state.successor(self.workers_max);
                drop(state);
                match help {
                    Successor::Call(slot) => slot.call(),
                    // If no thread can be started, the existing workers must be enough.
                    Successor::Start => drop(self.start_worker(None)),
                    Successor::None => {}
                }
                return Some(work);
            }
            if state.closing {
                state.workers -= 1;
                return None;
            }
            let lowest = state.idle.is_empty();
            let deadline = if lowest { Deadline::NEVER } else { Deadline::after_ns(IDLE_NS_MAX) };
            slot.0.store(0, Relaxed);
            state.idle.push(slot.clone());
            drop(state);
            let slept = futex::wait(&slot.0, 0, deadline);
            state = self.state.lock();
            if state.wakes(slot, slept == Err(Errno::TIMEDOUT)) {
                return None;
            }
        }
    }

    fn attend(self: &Arc<Pool>, work: Work, runner: &BioRunner, batch: &mut Vec<Completion>) {
        match work {
            Work::Bio(bio) => batch.push(runner.run(&bio)),
            Work::Lane(lane) => self.drain(&lane, runner, batch),
            Work::Poll(bio, id) => self.watch(bio, id, batch),
            Work::Poke => self.watches.poke(batch),
            Work::Wake => return self.deliver_all(batch),
            Work::Done(completion) => {
                batch.push(completion);
                take_done(&mut self.state.lock(), batch);
            }
        }
        self.deliver(batch);
    }

    /// Delivers completions before the next bio or joined write starts, which may block for long.
    fn drain(self: &Arc<Pool>, lane: &Arc<Lane>, runner: &BioRunner, batch: &mut Vec<Completion>) {
        let (mut again, mut had) = (true, Vec::with_capacity(LANE_TURN));
        let mut run = Vec::new();
        while again && had.len() < LANE_TURN {
            again = lane.pop_run(&mut run, LANE_TURN - had.len());
            had.extend(run.iter().map(|(bio, number)| (bio.token, *number)));
            let mut bios: VecDeque<Bio> = run.drain(..).map(|(bio, _)| bio).collect();
            if bios.len() > 1 {
                self.run_joined(bios, runner, batch);
            } else if let Some(bio) = bios.pop_front() {
                self.run(bio, runner, batch);
                self.deliver(batch);
            }
        }
        let again = again && lane.pause();
        self.state.lock().ready.end_turn(lane, &had, again);
    }

    /// Drops the bio, and with it the reference to its file, before the completion is reported.
    fn run(self: &Arc<Pool>, bio: Bio, runner: &BioRunner, batch: &mut Vec<Completion>) {
        match bio.op {
            BioOp::Poll(events) => {
                let id = self.watches.add(&bio, events);
                self.watch(bio, id, batch);
            }
            _ => batch.push(runner.run(&bio)),
        }
    }

    fn run_joined(&self, bios: VecDeque<Bio>, runner: &BioRunner, batch: &mut Vec<Completion>) {
        let mut bios = bios;
        let whole = runner.run_joined(&bios);
        let (mut written, mut untold) = (whole.unwrap_or(0), whole.err());
        while let Some(bio) = bios.pop_front_if(|bio| bio.segments.len() <= written) {
            let len = bio.segments.len();
            written -= len;
            batch.push(Completion { token: bio.token, result: Ok(len as u32) });
        }
        self.deliver(batch);
        // The kernel reports some errors only once, for example of an earlier writeback. If no
        // repeated write fails, the first repeated write gets the error of the joined call.
        let mut first = None;
        for bio in bios {
            let end = runner.run(&bio);
            drop(bio);
            if end.result.is_err() {
                untold = None;
            }
            match untold {
                Some(_) if first.is_none() => first = Some(end),
                Some(_) => batch.push(end),
                None => batch.extend(first.take().into_iter().chain([end])),
            }
            self.deliver(batch);
        }
        let failed = |it: Completion, errno| Completion { result: Err(errno), ..it };
        batch.extend(first.zip(untold).map(|(it, errno)| failed(it, errno)));
        self.deliver(batch);
    }

    fn watch(self: &Arc<Pool>, bio: Bio, id: u64, batch: &mut Vec<Completion>) {
        let BioOp::Poll(events) = bio.op else { return };
        let begin = || self.watches.begin(id, bio, events);
        let begun = catch_unwind(AssertUnwindSafe(begin)).unwrap_or_else(|cause| {
            (self.failed)(cause.as_ref());
            self.watches.end(id, Err(Errno::IO)).map(WatchStart::Ended)
        });
        match begun {
            Some(WatchStart::Ended(completion)) => batch.push(completion),
            Some(WatchStart::Unwatched(poll_set)) => self.start_watcher(poll_set, batch),
            Some(WatchStart::Watched) | None => {}
        }
    }

    fn start_watcher(self: &Arc<Pool>, poll_set: Arc<PollSet>, batch: &mut Vec<Completion>) {
        let pool = self.clone();
        let started = self.spawn(&format!("{}-poll", self.name), move || {
            let _own = OwnThread::begin();
            (pool.each)();
            let watch = || pool.watches.watch(&poll_set, |done| pool.deliver(done));
            if let Err(cause) = catch_unwind(AssertUnwindSafe(watch)) {
                (pool.failed)(cause.as_ref());
                let mut ended = Vec::new();
                pool.watches.fail_all(Errno::IO, &mut ended);
                pool.deliver(&mut ended);
            }
        });
        if let Err(errno) = started {
            // No thread watches the polls, so they fail instead of waiting for ever.
            self.watches.fail_all(errno, batch);
        }
    }

    fn deliver(&self, batch: &mut Vec<Completion>) {
        if !batch.is_empty() {
            self.deliver_all(batch);
        }
    }

    /// Delivers the completions; calls the receiver even if there are none.
    fn deliver_all(&self, batch: &mut Vec<Completion>) {
        match &self.deliver {
            Deliver::Queue => self.inbox.add(batch),
            Deliver::Call(receiver) => {
                self.in_flight.fetch_sub(batch.len(), AcqRel);
                let mut left = batch.len() + 1;
                while batch.len() < left {
                    left = batch.len();
                    if let Err(cause) = catch_unwind(AssertUnwindSafe(|| receiver(batch))) {
                        (self.failed)(cause.as_ref());
                    }
                    if batch.is_empty() {
                        break;
                    }
                }
            }
        }
        batch.clear();
    }

    fn drop_handle(&self) {
        let mut state = self.state.lock();
        if !state.closing {
            state.handles.retain(|handle| !handle.is_this());
        }
    }
}

fn take_work(state: &mut State, watches: &Watches) -> Option<Work> {
    Some(match state.ready.next()? {
        Work::Bio(bio) => match bio.op {
            BioOp::Poll(events) => {
                let id = watches.add(&bio, events);
                Work::Poll(bio, id)
            }
            _ => Work::Bio(bio),
        },
        work => work,
    })
}

fn take_done(state: &mut State, batch: &mut Vec<Completion>) {
    while batch.len() < LANE_TURN
        && let Some(completion) = state.ready.next_done()
    {
        batch.push(completion);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_that_ends_leaves_its_place_to_another_at_once() {
        let (long, short) = (Arc::new(IdleSlot::default()), Arc::new(IdleSlot::default()));
        let idle = vec![long.clone(), short.clone()];
        let mut state = State { idle, workers: 2, ..State::default() };
        assert!(state.wakes(&short, true), "another is idle");
        state.ready.add_urgent(Work::Wake);
        state.ready.add_urgent(Work::Wake);
        assert!(state.call_idle().is_some_and(|slot| Arc::ptr_eq(&slot, &long)));
        assert!(!state.wakes(&long, true), "it was called");
        assert!(state.ready.next().is_some());
        assert!(matches!(state.successor(2), Successor::Start), "work is left, and one works");
    }

    #[test]
    fn the_last_idle_worker_stays() {
        let slot = Arc::new(IdleSlot::default());
        let mut state = State { idle: vec![slot.clone()], workers: 1, ..State::default() };
        assert!(!state.wakes(&slot, true));
        assert_eq!((state.workers, state.idle.len()), (1, 0));
    }
}
