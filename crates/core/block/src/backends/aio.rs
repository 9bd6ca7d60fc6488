//! Native AIO by its own system calls: through libaio the calls would reach our own drop-in
//! library.
//!
//! ```text
//! queue ─▶ iocb in its slot ── commit: io_submit ─▶ kernel ─▶ user-mapped ring ── reap ─▶ done
//! wake  ── cancels a poll that never fires, whose event ends the wait
//! ```

use super::aio_blocks::{self, Blocks};
use crate::{BioOp, BlockBackend, Completion, Limits, bio::Bio, gate::Gate, slab::Slab};
use core::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    aio::{AioContext, IoEvent, Iocb},
    eventfd::EventFd,
    file::IoVec,
    mistake::{self, Mistake},
    thread::this_thread,
    time::Deadline,
};
use std::sync::Arc;

/// `data` of the poll that ends a wait; keys of requests have bit 63 clear.
const ALARM: u64 = 1 << 63;
const POLLERR_POLLHUP: u16 = 0x8 | 0x10;
/// How long a wait lasts at most where it cannot be ended, in nanoseconds.
const DEAF_SLICE_NS: u64 = 1_000_000;
/// How many events one system call takes.
const EVENTS: usize = 64;

/// Bios carried by one context of the kernel's native AIO.
///
/// Asynchronous for O_DIRECT, fsync and polls; anything else blocks in `commit`. Streams fail
/// with `EINVAL`: there is no position -1. `cancel` reaches polls, and what is not committed.
/// Dropping it waits for what is in flight.
pub struct Kaio {
    // Before the blocks: its drop waits for the requests in flight, which name their memory.
    context: AioContext,
    blocks: Blocks,
    book: Mutex<Book>,
    /// What io_submit refused; to be reaped.
    failed: Mutex<Vec<Completion>>,
    any_failed: AtomicBool,
    /// The kernel had no room: some are still queued.
    starved: AtomicBool,
    cancels_total: AtomicU64,
    gate: Gate,
    /// The reaper sleeps on the gate, not in the kernel's ring: nothing is in flight.
    dozing: AtomicBool,
    armed: AtomicBool,
    /// This kernel has no polls.
    deaf: AtomicBool,
    /// What the alarm polls, for no event at all.
    anchor: EventFd,
    depth: usize,
}

struct Book {
    requests: Slab<Request>,
    /// Those queued, not submitted, each with the thread that has queued it; 0: the kernel had no
    /// room for it.
    pending: Vec<(i32, u64)>,
}

const ANY_THREAD: i32 = 0;

struct Request {
    token: u64,
    /// The events a poll asks for, those that need no asking included.
    poll: Option<u16>,
    cancelled: bool,
    _segments: Option<Arc<[IoVec]>>,
}

impl Kaio {
    /// The name in reports.
    pub const NAME: &str = "kaio";

    /// Returns what a context of this depth can take.
    pub const fn limits_of(depth: usize) -> Limits {
        Limits { depth, buffered_reads: false, writes: false, readiness: false }
    }

    /// Creates a context for up to `depth` bios in flight; it counts against `aio-max-nr`.
    ///
    /// # Errors
    /// `EAGAIN`: `aio-max-nr` is used up. `ENOSYS`, `EPERM`: refused by kernel or seccomp.
    /// `EMFILE`: no descriptors left.
    pub fn new(depth: u32) -> Result<Kaio, Errno> {
        let depth = depth.clamp(1, 1 << 16);
        Ok(Kaio {
            context: AioContext::new(depth + 1)?,
            blocks: Blocks::new(depth as usize + 1),
            book: Mutex::new(Book { requests: Slab::new(depth as usize), pending: Vec::new() }),
            failed: Mutex::default(),
            any_failed: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            cancels_total: AtomicU64::new(0),
            gate: Gate::default(),
            dozing: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            anchor: EventFd::new()?.moved_high(),
            depth: depth as usize,
        })
    }

    /// Tells, without a system call, whether `reap` would find something.
    pub fn has_completions(&self) -> bool {
        self.any_failed.load(Acquire) || self.context.has_events()
    }

    /// Submits in order; what the kernel refuses completes with its errno.
    fn submit(&self, keys: &[u64]) {
        let mut blocks: Vec<*mut Iocb> = keys.iter().map(|key| self.block(*key)).collect();
        let mut done = 0;
        while done < keys.len() {
            // SAFETY: the blocks' memory lives until their events: that of the bios by the
            // promise of `Bio::new`, the segment lists in `book`.
            match unsafe { self.context.submit(&mut blocks[done..]) } {
                Ok(0) | Err(Errno::AGAIN) => return self.put_back(&keys[done..]),
                Ok(submitted) => done += submitted,
                Err(errno) => {
                    self.fail(keys[done], errno);
                    done += 1;
                }
            }
        }
    }

    /// Takes what the calling thread has queued, and what the kernel had no room for. Not what
    /// others have: they would find nothing to submit, return, and close a file that the kernel has
    /// not been told of yet.
    fn take_pending(&self) -> Vec<u64> {
        let me = this_thread();
        let mut book = self.book.lock();
        let is_mine = |thread| thread == me || thread == ANY_THREAD;
        let all = mistake::makes(Mistake::CommitForOthers);
        let mine = book.pending.extract_if(.., |(thread, _)| is_mine(*thread) || all);
        mine.map(|(_, key)| key).collect()
    }

    fn block(&self, key: u64) -> *mut Iocb {
        self.blocks.address(key as u32 as usize)
    }

    /// Keeps what the kernel has no room for; the next `commit` or `reap` tries again.
    fn put_back(&self, keys: &[u64]) {
        let kept = keys.iter().map(|key| (ANY_THREAD, *key));
        self.book.lock().pending.splice(0..0, kept);
        self.starved.store(true, Relaxed);
        self.nudge();
    }

    fn fail(&self, key: u64, errno: Errno) {
        let request = self.book.lock().requests.remove(key);
        let failed = request.map(|request| Completion { token: request.token, result: Err(errno) });
        self.failed.lock().extend(failed);
        self.any_failed.store(true, Release);
        self.nudge();
    }

    fn take_failed(&self, done: &mut Vec<Completion>) {
        if self.any_failed.swap(false, AcqRel) {
            done.append(&mut self.failed.lock());
        }
    }

    /// Takes events, waiting for one if `min` is 1; returns how many came, our own included.
    fn events(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<usize, Errno> {
        let mut events = [IoEvent::default(); EVENTS];
        let mut total = 0;
        loop {
            let min = if total == 0 { min } else { 0 };
            let count = self.context.events(min, &mut events, deadline)?;
            total += count;
            let mut book = self.book.lock();
            for event in &events[..count] {
                if event.data == ALARM {
                    self.armed.store(false, Relaxed);
                } else if let Some(request) = book.requests.remove(event.data) {
                    done.push(finish(&request, event.res));
                }
            }
            if count < EVENTS {
                return Ok(total);
            }
        }
    }

    /// Sleeps until an event, a wake-up or the deadline; false: return with what is there.
    fn wait(&self, done: &mut Vec<Completion>, deadline: Deadline) -> Result<bool, Errno> {
        // All that a waking thread must find is in place before the wait is announced.
        let idle = self.book.lock().requests.is_empty();
        self.dozing.store(idle, Relaxed);
        if !idle {
            self.arm();
        }
        let Some(seen) = self.gate.begin() else {
            self.dozing.store(false, Relaxed);
            return Ok(false);
        };
        let waited = if idle { self.doze(seen, deadline) } else { self.sleep(done, deadline) };
        let woken = self.gate.end();
        self.dozing.store(false, Relaxed);
        match waited {
            // Both at once: the wake-up is spent now, and a second wait would miss it.
            Err(Errno::INTR) if woken => Ok(false),
            waited => waited.map(|()| !woken),
        }
    }

    /// Sleeps on the gate, unless something has been queued meanwhile: a third of what it costs
    /// to be called back from the ring, and no event will come.
    fn doze(&self, seen: u32, deadline: Deadline) -> Result<(), Errno> {
        if self.any_failed.load(Acquire) || !self.book.lock().requests.is_empty() {
            return Ok(());
        }
        match self.gate.sleep(seen, deadline) {
            Err(Errno::INTR) => Err(Errno::INTR),
            _ => Ok(()),
        }
    }

    /// Sleeps in the kernel until an event comes, the alarm's included.
    fn sleep(&self, done: &mut Vec<Completion>, deadline: Deadline) -> Result<(), Errno> {
        if self.any_failed.load(Acquire) {
            return Ok(());
        }
        let cut = !self.armed.load(Relaxed) || self.starved.load(Relaxed);
        let slice = if cut { Deadline::after_ns(DEAF_SLICE_NS) } else { Deadline::NEVER };
        self.events(done, 1, deadline.min(slice)).map(drop)
    }

    /// Submits the poll whose cancellation ends a wait.
    fn arm(&self) {
        if self.armed.load(Relaxed) || self.deaf.load(Relaxed) {
            return;
        }
        let armed = match self.submit_alarm(self.anchor.raw()) {
            // The application closed the anchor, or this thread has another descriptor table.
            Err(Errno::BADF) => EventFd::new().and_then(|fresh| self.submit_alarm(fresh.raw())),
            armed => armed,
        };
        self.armed.store(armed.is_ok(), Relaxed);
        self.deaf.store(armed == Err(Errno::INVAL), Relaxed);
    }

    fn submit_alarm(&self, fd: i32) -> Result<(), Errno> {
        let block = self.blocks.address(self.depth);
        // SAFETY: only the reaper uses this block, and only while the poll is not in flight.
        unsafe { block.write(aio_blocks::poll(fd, 0, ALARM)) };
        // SAFETY: the block lives as long as the context; a poll names no other memory.
        match unsafe { self.context.submit(&mut [block]) } {
            Ok(0) => Err(Errno::AGAIN),
            submitted => submitted.map(drop),
        }
    }

    fn nudge(&self) {
        if self.gate.nudge() {
            self.rouse();
        }
    }

    /// Ends the sleep of the reaper. That it had ended by itself is no error.
    fn rouse(&self) {
        if self.dozing.load(Relaxed) {
            return self.gate.rouse();
        }
        // SAFETY: the block lives as long as `self`.
        let _ = unsafe { self.context.cancel(self.blocks.address(self.depth)) };
    }

    fn cancel_in_kernel(&self, key: u64) {
        // SAFETY: the block lives as long as `self`.
        let _ = unsafe { self.context.cancel(self.block(key)) };
    }
}

impl BlockBackend for Kaio {
    fn name(&self) -> &'static str {
        Kaio::NAME
    }

    fn limits(&self) -> Limits {
        Kaio::limits_of(self.depth)
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let mut book = self.book.lock();
        let request = Request {
            token: bio.token,
            poll: match bio.op {
                BioOp::Poll(events) => Some(events | POLLERR_POLLHUP),
                _ => None,
            },
            cancelled: false,
            _segments: bio.segments.list().cloned(),
        };
        let Ok(key) = book.requests.insert(request) else { return Err(bio) };
        let block = aio_blocks::of_bio(&bio, key);
        // SAFETY: the slot is ours until the request is removed; the lock keeps others away.
        unsafe { self.block(key).write(block) };
        book.pending.push((this_thread(), key));
        Ok(())
    }

    fn commit(&self) {
        self.starved.store(false, Relaxed);
        let keys = self.take_pending();
        if keys.is_empty() {
            return;
        }
        let cancels = self.cancels_total.load(Acquire);
        self.submit(&keys);
        // Now there is something to sleep for in the kernel. (The book's lock orders this load:
        // a reaper that did not see the bios has set the flag before.)
        if self.dozing.load(Relaxed) {
            self.nudge();
        }
        if self.cancels_total.load(Acquire) == cancels {
            return;
        }
        // A cancel that came while its bio was on the way to the kernel has missed it.
        for key in keys {
            let cancelled = self.book.lock().requests.get_mut(key).is_some_and(|it| it.cancelled);
            if cancelled {
                self.cancel_in_kernel(key);
            }
        }
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        loop {
            self.collect(done);
            if self.starved.load(Relaxed) {
                self.commit();
            }
            if done.len() - before >= min || deadline.has_passed() {
                return Ok(());
            }
            match self.wait(done, deadline) {
                Ok(true) => {}
                Err(errno) if done.len() == before => return Err(errno),
                Ok(false) | Err(_) => return Ok(()),
            }
        }
    }

    fn collect(&self, done: &mut Vec<Completion>) {
        self.take_failed(done);
        if self.context.has_events() {
            let _ = self.events(done, 0, Deadline::NOW);
        }
    }

    fn wake(&self) {
        if self.gate.wake() {
            self.rouse();
        }
    }

    fn cancel(&self, token: u64) {
        let mut book = self.book.lock();
        let Some(key) = book.requests.find(|it| it.token == token && !it.cancelled) else { return };
        if let Some(index) = book.pending.iter().position(|(_, pending)| *pending == key) {
            book.pending.remove(index);
            drop(book);
            return self.fail(key, Errno::CANCELED);
        }
        let Some(request) = book.requests.get_mut(key).filter(|it| it.poll.is_some()) else {
            return;
        };
        request.cancelled = true;
        self.cancels_total.fetch_add(1, AcqRel);
        drop(book);
        self.cancel_in_kernel(key);
    }

    fn in_flight(&self) -> usize {
        self.book.lock().requests.len() + self.failed.lock().len()
    }
}

fn finish(request: &Request, result: i64) -> Completion {
    let result = match (result, request.poll) {
        (0, Some(_)) if request.cancelled => Err(Errno::CANCELED),
        (result, _) if result < 0 => Err(Errno::new(-result as i32)),
        // The kernel adds what else it was told when the events came (POLLRDNORM).
        (ready, Some(events)) => Ok(ready as u32 & u32::from(events)),
        (bytes, None) => Ok(bytes as u32),
    };
    Completion { token: request.token, result }
}
