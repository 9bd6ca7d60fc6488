//! Threads that serve rings. Each thread runs one loop over the kicks of its rings and the requests
//! to their images.

use super::{
    Counter, Ring,
    ring::{Setup, TakeOutcome},
};
use crate::{
    ServeError,
    server::{Closes, DISK, EventLoop, INBOX, Inbox, Shared},
};
use nowait::Errno;
use nowait_block::Slab;
use nowait_device::{AnySource, Medium};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    epoll,
    time::{Deadline, now_ns},
};
use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
        mpsc::{SyncSender, sync_channel},
    },
    thread,
};

#[derive(Debug)]
pub(crate) struct Workers {
    threads: Mutex<Vec<ThreadHandle>>,
    inboxes: Vec<Arc<Inbox<Order>>>,
    next: AtomicUsize,
}

type ThreadHandle = thread::JoinHandle<Result<(), ServeError>>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RingHandle {
    thread: usize,
    key: u64,
}

#[derive(Debug)]
pub(crate) struct StoppedRing {
    pub(super) next_available: u16,
    pub(super) kick: Counter,
    pub(super) call: Option<Counter>,
    pub(super) error: Option<Counter>,
}

#[derive(Debug)]
enum Order {
    Start(Box<Setup<AnySource>>, Counter, SyncSender<Result<u64, Errno>>),
    Stop(u64, SyncSender<StoppedRing>),
    Quit,
}

impl Workers {
    /// Starts `count` threads, at least one, each with `memory_bytes` for transfers.
    ///
    /// # Errors
    /// No descriptors or threads left. If a started thread cannot make its queue, [`Workers::quit`]
    /// returns that error.
    pub(crate) fn start(
        shared: &Arc<Shared>,
        count: usize,
        memory_bytes: usize,
    ) -> Result<Workers, ServeError> {
        let mut workers =
            Workers { threads: Mutex::default(), inboxes: Vec::new(), next: AtomicUsize::new(0) };
        for _ in 0..count.max(1) {
            let inbox = Inbox::new().map_err(ServeError::descriptors)?;
            let (shared, orders) = (shared.clone(), inbox.clone());
            let named = thread::Builder::new().name("nowait-vhost".to_owned());
            // The thread that uses the queue must make it.
            let thread = named.spawn(move || {
                let _closes = Closes(orders.clone());
                Worker::new(&shared, orders, memory_bytes)?.run()
            });
            let thread = thread.map_err(|error| ServeError::io("cannot start a thread", &error))?;
            workers.threads.get_mut().push(thread);
            workers.inboxes.push(inbox);
        }
        Ok(workers)
    }

    /// Passes a ring to the next thread in turn, and waits until that thread serves the ring.
    pub(crate) fn serve(
        &self,
        setup: Setup<AnySource>,
        kick: Counter,
    ) -> Result<RingHandle, Errno> {
        let thread = self.next.fetch_add(1, Relaxed) % self.inboxes.len();
        let (answer, answered) = sync_channel(1);
        self.inboxes[thread].put(Order::Start(Box::new(setup), kick, answer));
        let key = answered.recv().map_err(|_| Errno::IO)??;
        Ok(RingHandle { thread, key })
    }

    /// Stops a ring: its thread takes no more requests from it. Waits until its requests in flight
    /// have ended.
    pub(crate) fn stop(&self, running: RingHandle) -> Result<StoppedRing, Errno> {
        let (answer, answered) = sync_channel(1);
        self.inboxes[running.thread].put(Order::Stop(running.key, answer));
        answered.recv().map_err(|_| Errno::IO)
    }

    /// Tells each thread to end as soon as it has no rings. Then waits for the end of the threads
    /// in their order, up to the first that has failed.
    pub(crate) fn quit(&self) -> Result<(), ServeError> {
        self.inboxes.iter().for_each(|inbox| inbox.put(Order::Quit));
        let ended = |thread: ThreadHandle| {
            thread.join().unwrap_or_else(|_| Err(ServeError::new("a serving thread has panicked")))
        };
        core::mem::take(&mut *self.threads.lock()).into_iter().try_for_each(ended)
    }
}

#[derive(Debug)]
struct ActiveRing {
    ring: Ring<AnySource>,
    kick: Counter,
    stopping: Option<SyncSender<StoppedRing>>,
}

#[derive(Debug)]
struct Worker {
    shared: Arc<Shared>,
    event_loop: EventLoop,
    inbox: Arc<Inbox<Order>>,
    /// Orders taken from the inbox and not carried out yet.
    orders: VecDeque<Order>,
    rings: Slab<ActiveRing>,
    /// Rings to settle in this round.
    touched: Vec<u64>,
    /// Rings to continue in the next round: they have requests left, but other rings have their
    /// turn first.
    waiting: Vec<u64>,
    /// The pool has refused memory to a ring, so the next round lets all rings try again.
    lacks_memory: bool,
    quits: bool,
}

const RINGS_MAX: usize = 1 << 16;

impl Worker {
    fn new(
        shared: &Arc<Shared>,
        inbox: Arc<Inbox<Order>>,
        memory_bytes: usize,
    ) -> Result<Worker, ServeError> {
        let event_loop = EventLoop::new(shared, inbox.raw(), memory_bytes)?;
        Ok(Worker {
            shared: shared.clone(),
            event_loop,
            inbox,
            orders: VecDeque::new(),
            rings: Slab::new(RINGS_MAX),
            touched: Vec::new(),
            waiting: Vec::new(),
            lacks_memory: false,
            quits: false,
        })
    }

    /// Serves until the order to quit has come and no ring is left.
    fn run(mut self) -> Result<(), ServeError> {
        let shared = self.shared.clone();
        while !(self.quits && self.rings.is_empty()) {
            match shared.caught("as it served rings", || self.round()) {
                Some(outcome) => outcome?,
                None => self.begin_anew()?,
            }
        }
        Ok(())
    }

    fn round(&mut self) -> Result<(), ServeError> {
        self.sleep()?;
        let now_ns = now_ns();
        self.read_ready();
        // Before it handles the ends of requests, the thread starts requests that the disk has held
        // back.
        self.event_loop.disk.start();
        self.collect(now_ns);
        self.settle(now_ns);
        self.event_loop.disk.start();
        Ok(())
    }

    /// Answers all requests in flight as failed after a panic, because the panic's damage is
    /// unknown.
    fn begin_anew(&mut self) -> Result<(), ServeError> {
        self.event_loop.renew(&self.shared)?;
        self.touched.clear();
        for key in self.rings.keys().collect::<Vec<_>>() {
            let Some(served) = self.rings.get_mut(key) else { continue };
            served.ring.give_up(now_ns());
            // The next round takes requests that have come meanwhile, even without a kick.
            self.waiting.push(key);
        }
        Ok(())
    }

    fn sleep(&mut self) -> Result<(), ServeError> {
        // After a panic the orders behind the failed one are left.
        let is_idle = self.waiting.is_empty() && self.orders.is_empty();
        self.event_loop.sleep(if is_idle { Deadline::NEVER } else { Deadline::NOW })
    }

    fn read_ready(&mut self) {
        self.touched.append(&mut self.waiting);
        for index in 0..self.event_loop.ready.len() {
            let Some(event) = self.event_loop.ready.get(index) else { break };
            match event.token {
                DISK => {}
                INBOX => self.orders.extend(self.inbox.take()),
                key => self.touched.push(key),
            }
        }
        while let Some(order) = self.orders.pop_front() {
            self.carry_out(order);
        }
    }

    fn carry_out(&mut self, order: Order) {
        match order {
            Order::Start(setup, kick, answer) => {
                let started = self.add_ring(*setup, kick);
                self.touched.extend(started.ok());
                // The send fails only if no thread waits for the answer any more.
                let _ = answer.send(started);
            }
            Order::Stop(key, answer) => {
                if let Some(served) = self.rings.get_mut(key) {
                    served.ring.stop();
                    served.stopping = Some(answer);
                    self.touched.push(key);
                }
            }
            Order::Quit => self.quits = true,
        }
    }

    fn add_ring(&mut self, setup: Setup<AnySource>, kick: Counter) -> Result<u64, Errno> {
        let raw = kick.raw();
        let mut ring = Ring::new(0, setup)?;
        let place = |key| {
            ring.owner = key;
            ActiveRing { ring, kick, stopping: None }
        };
        let key = self.rings.insert_with(place).ok_or(Errno::NOMEM)?;
        // Each kick is reported once, so this thread need not read the eventfd. A read could block:
        // the VMM shares the eventfd, and may have emptied it and cleared O_NONBLOCK.
        self.event_loop
            .epoll
            .add(raw, epoll::IN | epoll::EDGE, key)
            .inspect_err(|_| drop(self.rings.remove(key)))?;
        Ok(key)
    }

    fn collect(&mut self, now_ns: u64) {
        while let Some(ended) = self.event_loop.disk.pop() {
            let key = ended.tag.owner;
            // The thread keeps a ring until all its requests have ended.
            if let Some(served) = self.rings.get_mut(key) {
                #[cfg(test)]
                crate::failure::inject(crate::failure::At::End, self.shared.exports[0].name());
                served.ring.end(ended, &mut self.event_loop.disk, now_ns);
                if self.touched.last() != Some(&key) {
                    self.touched.push(key);
                }
            }
        }
    }

    fn settle(&mut self, now_ns: u64) {
        if core::mem::take(&mut self.lacks_memory) {
            self.touched = self.rings.keys().collect();
        }
        self.touched.sort_unstable();
        self.touched.dedup();
        let touched = core::mem::take(&mut self.touched);
        for key in &touched {
            let Some(served) = self.rings.get_mut(*key) else { continue };
            #[cfg(test)]
            crate::failure::inject(crate::failure::At::Ring, self.shared.exports[0].name());
            if served.ring.take(&mut self.event_loop.disk, now_ns) == TakeOutcome::More {
                self.waiting.push(*key);
            }
            served.ring.notify();
            if served.stopping.is_some() && served.ring.in_flight() == 0 {
                self.release(*key);
            }
        }
        self.touched = touched;
        self.touched.clear();
        self.lacks_memory |= self.event_loop.disk.pool().take_refused();
    }

    fn release(&mut self, key: u64) {
        let Some(ActiveRing { ring, kick, stopping }) = self.rings.remove(key) else { return };
        let _ = self.event_loop.epoll.remove(kick.raw());
        let next_available = ring.next_available();
        let (call, error) = ring.into_counters();
        if let Some(answer) = stopping {
            let _ = answer.send(StoppedRing { next_available, kick, call, error });
        }
    }
}
