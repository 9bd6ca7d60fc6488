//! Threads, processors and a device in virtual time, driven by one real thread.
//!
//! ```text
//!   tasks (futures)  ──cpu──▶ processors, a first come first served queue
//!        │    ▲
//!      bios   │ kick: a wait entry of the cache is a waker of the task
//!        ▼    │
//!   page cache (real) ──bios──▶ device model ──completions──▶ `Cache::complete`, or the task
//! ```
//!
//! Time goes on only when no task can run: to the end of the earliest processor burst, or to the
//! next completion of the device, whichever is earlier. The order of everything follows from the
//! order of the tasks, so two runs of one seed are the same.

use crate::costs;
use async_executor::LocalExecutor;
use nowait_block::{Bio, BioOp, BlockBackend, Completion, Segments};
use nowait_cache::Cache;
use nowait_retry::{Step, WaitEntry};
use nowait_sim::{Config, Hardware, SimDevice, VirtualClock};
use nowait_sys::{Errno, file::IoVec, time::Deadline};
use std::{
    cell::{Cell, RefCell},
    collections::{BTreeMap, VecDeque},
    future::{Future, poll_fn},
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::{Poll, Wake, Waker},
};

/// The most bios that the device takes at a time; more wait in `pending`.
const DEPTH: usize = 4096;

/// Clones are handles to the same world.
#[derive(Clone)]
pub(crate) struct World(Rc<State>);

struct State {
    device: SimDevice,
    clock: Arc<VirtualClock>,
    /// The time from which on each processor is free.
    processors: RefCell<Vec<u64>>,
    busy_ns: Cell<u64>,
    timers: RefCell<BTreeMap<(u64, u64), Waker>>,
    tasks: LocalExecutor<'static>,
    pending: RefCell<VecDeque<Bio>>,
    /// The results of the tasks' own bios, or the tasks that wait for them, by token.
    answers: RefCell<BTreeMap<u64, Answer>>,
    cache: RefCell<Option<Arc<Cache>>>,
    numbers: Cell<u64>,
}

enum Answer {
    Awaited(Waker),
    Ended(Result<u32, Errno>),
}

struct Kick {
    kicked: AtomicBool,
    task: Waker,
}

impl Wake for Kick {
    fn wake(self: Arc<Self>) {
        self.kicked.store(true, Relaxed);
        self.task.wake_by_ref();
    }
}

/// A thread of the simulated machine, which does one thing at a time.
#[derive(Clone, Default)]
pub(crate) struct Thread(Rc<Cell<u64>>);

impl World {
    pub(crate) fn new(hardware: &Hardware, processors: usize, seed: u64) -> World {
        let config = Config {
            depth: DEPTH,
            sector_bytes: 4096,
            hardware: Some(hardware.clone()),
            contents: false,
            trace_events_max: 0,
            ..Config::new(seed)
        };
        let device = SimDevice::new(&config);
        World(Rc::new(State {
            clock: device.clock(),
            device,
            processors: RefCell::new(vec![0; processors]),
            busy_ns: Cell::new(0),
            timers: RefCell::default(),
            tasks: LocalExecutor::new(),
            pending: RefCell::default(),
            answers: RefCell::default(),
            cache: RefCell::new(None),
            numbers: Cell::new(0),
        }))
    }

    pub(crate) fn device(&self) -> &SimDevice {
        &self.0.device
    }

    pub(crate) fn now_ns(&self) -> u64 {
        self.0.clock.now_ns()
    }

    pub(crate) fn busy_ns(&self) -> u64 {
        self.0.busy_ns.get()
    }

    /// The cache gets the completions of bios with odd tokens.
    pub(crate) fn set_cache(&self, cache: &Arc<Cache>) {
        *self.0.cache.borrow_mut() = Some(cache.clone());
    }

    fn number(&self) -> u64 {
        self.0.numbers.set(self.0.numbers.get() + 1);
        self.0.numbers.get()
    }

    /// Starts a task, which begins to run in [`World::run`].
    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.0.tasks.spawn(future).detach();
    }

    /// Panics if tasks wait and nothing is in flight.
    pub(crate) fn run(&self) {
        loop {
            while self.0.tasks.try_tick() {}
            self.feed();
            if !self.advance() {
                break;
            }
        }
        assert!(self.0.tasks.is_empty(), "some tasks wait for ever");
    }

    fn feed(&self) {
        let mut pending = self.0.pending.borrow_mut();
        while let Some(bio) = pending.pop_front() {
            if let Err(bio) = self.0.device.queue(bio) {
                pending.push_front(bio);
                break;
            }
        }
        self.0.device.commit();
    }

    /// Returns `false` if there is no event.
    fn advance(&self) -> bool {
        let timer_ns = self.0.timers.borrow().keys().next().map(|(ns, _)| *ns);
        let mut done = Vec::new();
        if self.0.device.in_flight() > 0 {
            let deadline = timer_ns.map_or(Deadline::NEVER, Deadline::at_ns);
            self.0.device.reap(&mut done, 1, deadline).expect("a simulated device never fails");
        } else if let Some(ns) = timer_ns {
            self.0.clock.advance_to(ns);
        } else {
            return false;
        }
        done.into_iter().for_each(|completion| self.complete(completion));
        let now_ns = self.now_ns();
        let later = self.0.timers.borrow_mut().split_off(&(now_ns + 1, 0));
        let due = self.0.timers.replace(later);
        due.into_values().for_each(Waker::wake);
        true
    }

    fn complete(&self, Completion { token, result }: Completion) {
        if token & 1 == 1 {
            let cache = self.0.cache.borrow().clone().expect("only a cache has odd tokens");
            let mut plug = Vec::new();
            cache.complete(token, result, &mut plug);
            return self.plug(plug);
        }
        let before = self.0.answers.borrow_mut().insert(token, Answer::Ended(result));
        if let Some(Answer::Awaited(waker)) = before {
            waker.wake();
        }
    }

    pub(crate) fn plug(&self, bios: Vec<Bio>) {
        self.0.pending.borrow_mut().extend(bios);
    }

    /// Keeps `thread` and a processor busy for `ns`, once both are free.
    pub(crate) async fn cpu(&self, thread: &Thread, ns: u64) {
        let end_ns = self.book(thread, ns);
        self.until(end_ns).await;
    }

    /// The burst begins as soon as the thread and a processor are free. Returns its end.
    fn book(&self, thread: &Thread, ns: u64) -> u64 {
        let mut processors = self.0.processors.borrow_mut();
        let free = processors.iter_mut().min().expect("a machine has processors");
        let end_ns = self.now_ns().max(thread.0.get()).max(*free) + ns;
        *free = end_ns;
        thread.0.set(end_ns);
        self.0.busy_ns.set(self.busy_ns() + ns);
        end_ns
    }

    async fn until(&self, ns: u64) {
        let key = (ns, self.number());
        poll_fn(|context| {
            if ns <= self.now_ns() {
                self.0.timers.borrow_mut().remove(&key);
                return Poll::Ready(());
            }
            self.0.timers.borrow_mut().insert(key, context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Sends one request to the device, not through the page cache, and waits for its end.
    pub(crate) async fn transfer(&self, op: BioOp, fd: i32, offset: u64, len: u64) {
        let token = self.number() << 1;
        let base = core::ptr::without_provenance_mut(4096);
        let segments = Segments::One(IoVec { base, len: len as usize });
        // SAFETY: the device keeps no data (`contents: false`), and so touches no memory.
        let bio = unsafe { Bio::new(op, fd, segments, offset as i64, token) };
        self.plug(vec![bio]);
        let result = poll_fn(|context| {
            let mut answers = self.0.answers.borrow_mut();
            if let Some(Answer::Ended(result)) = answers.get(&token) {
                let result = *result;
                answers.remove(&token);
                return Poll::Ready(result);
            }
            answers.insert(token, Answer::Awaited(context.waker().clone()));
            Poll::Pending
        })
        .await;
        assert_eq!(result, Ok(len as u32), "a transfer within the file is whole");
    }

    pub(crate) async fn reap(&self, thread: &Thread, events: &Semaphore, count: usize) {
        self.cpu(thread, costs::SYSCALL_NS).await;
        if events.acquire(count).await {
            self.cpu(thread, costs::SWITCH_NS).await;
        }
    }

    /// After each wait, `thread` needs `retry_ns` to continue. The wait entry wakes this task, so
    /// requests and callers that wait inside the call share this code.
    pub(crate) async fn drive(
        &self,
        thread: &Thread,
        retry_ns: u64,
        mut iterate: impl FnMut(&mut Vec<Bio>, &dyn Fn() -> WaitEntry) -> Step,
    ) -> Result<u32, Errno> {
        let task = poll_fn(|context| Poll::Ready(context.waker().clone())).await;
        loop {
            let kick = Arc::new(Kick { kicked: AtomicBool::new(false), task: task.clone() });
            let entry = || Waker::from(kick.clone());
            let mut plug = Vec::new();
            let step = iterate(&mut plug, &entry);
            let issue_ns = plug.iter().map(bio_ns).sum();
            self.plug(plug);
            self.cpu(thread, issue_ns).await;
            match step {
                Step::Done(result) => return result,
                Step::Retry | Step::Queued => {}
            }
            poll_fn(|_| match kick.kicked.load(Relaxed) {
                true => Poll::Ready(()),
                false => Poll::Pending,
            })
            .await;
            self.cpu(thread, retry_ns).await;
        }
    }
}

pub(crate) fn bio_ns(bio: &Bio) -> u64 {
    costs::device_ns(bio.segments.len() as u64)
}

/// A counting semaphore for tasks. Its permits are, for example, the slots of a context.
#[derive(Clone, Default)]
pub(crate) struct Semaphore(Rc<RefCell<(usize, VecDeque<Waker>)>>);

impl Semaphore {
    pub(crate) fn new(count: usize) -> Semaphore {
        let semaphore = Semaphore::default();
        semaphore.0.borrow_mut().0 = count;
        semaphore
    }

    pub(crate) fn available(&self) -> usize {
        self.0.borrow().0
    }

    pub(crate) fn release(&self, count: usize) {
        let mut state = self.0.borrow_mut();
        state.0 += count;
        state.1.drain(..).for_each(Waker::wake);
    }

    /// Takes `count` permits as soon as so many are free. Returns `true` if it had to wait.
    pub(crate) async fn acquire(&self, count: usize) -> bool {
        let mut waited = false;
        poll_fn(|context| {
            let mut state = self.0.borrow_mut();
            if state.0 >= count {
                state.0 -= count;
                return Poll::Ready(());
            }
            waited = true;
            state.1.push_back(context.waker().clone());
            Poll::Pending
        })
        .await;
        waited
    }
}
