//! Native AIO by its system calls: calls through libaio could reach nowait's own drop-in library.
//!
//! ```text
//! queue ─▶ iocb in its slot ── commit: io_submit ─▶ kernel ─▶ user-mapped ring ── reap ─▶ done
//! wake  ── cancels a poll that never fires, and the poll's event ends the wait
//! ```

mod book;

use super::aio_blocks::{self, Blocks};
use crate::slab::Slab;
use crate::{BioOp, BlockBackend, Completion, Limits, Refused, Share, bio::Bio, gate::Gate};
use book::{ANY_THREAD, Before, Book, Claim, Request, claimable, finish, outcome};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    aio::{AioContext, IoEvent, Iocb},
    eventfd::EventFd,
    file::rwf,
    futex,
    mistake::{self, Mistake},
    thread::this_thread,
    time::Deadline,
};

/// The `data` of the alarm: a poll whose event ends a wait. Keys of requests have bit 63 clear.
const ALARM: u64 = 1 << 63;
const POLLOUT: u16 = 0x4;
const POLLERR_POLLHUP: u16 = 0x8 | 0x10;
/// The longest wait in the kernel while no alarm is armed, or while bios wait for room in the
/// kernel; in nanoseconds.
const DEAF_SLICE_NS: u64 = 1_000_000;
const EVENTS: usize = 8;

/// A backend that uses one context of the kernel's native AIO.
///
/// Direct I/O, syncs and polls are mostly asynchronous; other bios may block in `commit`, and
/// [`Kaio::without_waiting`] avoids most of these waits. Transfers of streams (offset -1) fail with
/// `EINVAL`. `cancel` can end polls, and bios that are not committed. Dropping the backend waits
/// for the bios in flight.
pub struct Kaio {
    // Declared, and so dropped, before `blocks`: the context's drop waits for the requests in
    // flight, which use the memory of the blocks.
    context: AioContext,
    blocks: Blocks,
    book: Mutex<Book>,
    /// Written under the book's lock.
    count: AtomicUsize,
    /// Completions that the next `reap` or `collect` returns, and that are not in the kernel's
    /// ring: of refused and cancelled bios, and those that [`Kaio::refused`] has taken out of the
    /// ring.
    failed: Mutex<Vec<Completion>>,
    any_failed: AtomicBool,
    /// `true`: the kernel had no room for some bios, which are still queued.
    starved: AtomicBool,
    cancels_total: AtomicU64,
    gate: Gate,
    /// `true`: the reaper sleeps on the gate, not in the kernel, because nothing is in flight.
    dozing: AtomicBool,
    /// `true`: the reaper sleeps in the kernel although nothing is in flight.
    sleeps_idle: AtomicBool,
    /// `true`: a submission found a dozing reaper and had to wake it, so an idle reaper now sleeps
    /// in the kernel. A call of `wake` that finds an idle reaper in the kernel clears this flag.
    was_nudged: AtomicBool,
    armed: AtomicBool,
    /// `true`: this kernel's AIO has no polls, so there is no alarm.
    deaf: AtomicBool,
    /// The eventfd that the alarm polls: for no event, or for `POLLOUT` to fire at once.
    anchor: EventFd,
    depth: usize,
    share: Option<Share>,
    /// Flags (RWF_*) that a transfer gets in addition to its own, unless it has an eventfd or may
    /// wait.
    rw_flags: u32,
}

impl Kaio {
    /// The name in reports.
    pub const NAME: &str = "kaio";

    /// Returns the limits of a context of this depth.
    pub const fn limits_of(depth: usize) -> Limits {
        Limits { depth, buffered_reads: false, writes: false, readiness: false }
    }

    /// Creates a context for up to `depth` bios in flight, at most 65,536. The context counts
    /// against `aio-max-nr`.
    ///
    /// # Errors
    /// `EAGAIN`: `aio-max-nr` is used up. `ENOSYS`, `EPERM`: the kernel or a seccomp filter refuses
    /// native AIO. `EMFILE`: no descriptors left.
    pub fn new(depth: u32) -> Result<Kaio, Errno> {
        let depth = depth.clamp(1, 1 << 16);
        Ok(Kaio {
            context: AioContext::new(depth + 1)?,
            blocks: Blocks::new(depth as usize + 1),
            book: Mutex::new(Book {
                requests: Slab::new(depth as usize),
                pending: Vec::new(),
                asking: 0,
                dealt_with: 0,
                events_total: 0,
                waits_in_vain: 0,
            }),
            count: AtomicUsize::new(0),
            failed: Mutex::default(),
            any_failed: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            cancels_total: AtomicU64::new(0),
            gate: Gate::default(),
            dozing: AtomicBool::new(false),
            sleeps_idle: AtomicBool::new(false),
            was_nudged: AtomicBool::new(false),
            armed: AtomicBool::new(false),
            deaf: AtomicBool::new(false),
            anchor: EventFd::new()?.moved_high(),
            depth: depth as usize,
            share: None,
            rw_flags: 0,
        })
    }

    /// Asks the kernel not to wait in `commit` for a lock, for metadata or for blocks, except for
    /// bios with an eventfd. A transfer for which the kernel would wait ends short, or with
    /// `EAGAIN`; on a file system without RWF_NOWAIT it ends with `EOPNOTSUPP`. On a frozen file
    /// system `commit` waits nevertheless. Source: RWF_NOWAIT in preadv2(2).
    #[must_use]
    pub fn without_waiting(self) -> Kaio {
        Kaio { rw_flags: rwf::NOWAIT, ..self }
    }

    /// Makes `has_room` also count the requests that other queues have at the disk, by `share`.
    #[must_use]
    pub fn sharing(self, share: Share) -> Kaio {
        Kaio { share: Some(share), ..self }
    }

    fn publish(&self, book: &Book) {
        self.count.store(book.requests.len(), Release);
        self.share.iter().for_each(|share| share.publish(book.requests.len()));
    }

    /// Returns `true` if `reap` would find a completion, or the event of the alarm. Makes no system
    /// call.
    pub fn has_completions(&self) -> bool {
        self.any_failed.load(Acquire) || self.context.has_events()
    }

    /// If the kernel refuses a request and the committing thread gets it (`give_back`), records
    /// this for `refused`. Any other refused request stays queued after `EAGAIN`; after another
    /// errno it completes with that errno.
    fn submit(&self, keys: &[u64], claim: Claim) {
        let mut blocks: Vec<*mut Iocb> = keys.iter().map(|key| self.block(*key)).collect();
        let mut done = 0;
        while done < keys.len() {
            // SAFETY: the blocks' memory lives until their events: the memory of the bios by the
            // promise of `Bio::new`, the segment lists in `book`.
            match unsafe { self.context.submit(&mut blocks[done..]) } {
                Ok(0) | Err(Errno::AGAIN) => {
                    let is_kept = |key: &u64| !self.give_back(*key, Errno::AGAIN, claim);
                    let kept: Vec<u64> = keys[done..].iter().copied().filter(is_kept).collect();
                    if !kept.is_empty() {
                        self.put_back(&kept);
                    }
                    return;
                }
                Ok(submitted) => done += submitted,
                Err(errno) => {
                    if !self.give_back(keys[done], errno, claim) {
                        self.fail(keys[done], errno);
                    }
                    done += 1;
                }
            }
        }
    }

    /// Takes the bios that the calling thread has queued, and those for which the kernel had no
    /// room. Leaves the bios of each other thread to that thread: otherwise that thread's `commit`
    /// would find nothing to submit, and the thread could close a file before the kernel has a
    /// reference to it.
    fn take_pending(&self, claim: Claim) -> (Vec<u64>, Before) {
        let me = this_thread();
        let mut keys = Vec::with_capacity(8);
        let mut book = self.book.lock();
        let is_mine = |thread| thread == me || thread == ANY_THREAD;
        let all = mistake::makes(Mistake::CommitForOthers);
        let mine = book.pending.extract_if(.., |(thread, _)| is_mine(*thread) || all);
        keys.extend(mine.map(|(_, key)| key));
        for key in &keys {
            let request = book.requests.get_mut(*key).filter(|it| it.claimable.is_some());
            request.into_iter().for_each(|it| it.claim = claim);
        }
        self.publish(&book);
        let before = Before { tail: self.context.tail(), events_total: book.events_total };
        (keys, before)
    }

    fn block(&self, key: u64) -> *mut Iocb {
        self.blocks.address(key as u32 as usize)
    }

    /// Keeps the requests for which the kernel has no room; the next `commit` or `reap` tries
    /// again.
    fn put_back(&self, keys: &[u64]) {
        let kept = keys.iter().map(|key| (ANY_THREAD, *key));
        self.book.lock().pending.splice(0..0, kept);
        self.starved.store(true, Relaxed);
        self.nudge();
    }

    fn give_back(&self, key: u64, errno: Errno, claim: Claim) -> bool {
        let result = -i64::from(errno.raw());
        self.book.lock().requests.get_mut(key).is_some_and(|it| it.give_back(result, claim))
    }

    fn fail(&self, key: u64, errno: Errno) {
        let mut book = self.book.lock();
        let Some(request) = book.requests.get_mut(key) else { return };
        let failed = Completion { token: request.token, result: Err(errno) };
        book.requests.remove(key);
        self.publish(&book);
        drop(book);
        self.end_here(&mut vec![failed]);
    }

    fn end_here(&self, completions: &mut Vec<Completion>) {
        self.failed.lock().append(completions);
        self.any_failed.store(true, Release);
        self.nudge();
    }

    fn take_failed(&self, done: &mut Vec<Completion>) {
        if self.any_failed.swap(false, AcqRel) {
            done.append(&mut self.failed.lock());
        }
    }

    /// The returned number counts the alarm's event, too.
    fn events(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<usize, Errno> {
        let mut alarm = false;
        let mut book = self.book.lock();
        if book.asking == 0 {
            // SAFETY: no thread asks the kernel for events or begins to, because the lock is held.
            let taken =
                unsafe { self.context.take(|event| alarm |= self.end(&mut book, event, done)) };
            book.dealt_with = self.context.head();
            book.events_total += taken as u64;
            self.publish(&book);
            if taken >= min {
                drop(book);
                self.pass_on(alarm && min == 0);
                return Ok(taken);
            }
        }
        book.asking += 1;
        drop(book);
        let mut events = [IoEvent::default(); EVENTS];
        let asked = self.context.events(min, &mut events, deadline);
        let mut book = self.book.lock();
        book.asking -= 1;
        let count = asked?;
        for event in &events[..count] {
            alarm |= self.end(&mut book, *event, done);
        }
        book.dealt_with = self.context.after(book.dealt_with, count as u32);
        book.events_total += count as u64;
        self.publish(&book);
        drop(book);
        self.pass_on(alarm && min == 0);
        Ok(count)
    }

    /// Returns `true` for the event of the alarm.
    fn end(&self, book: &mut Book, event: IoEvent, done: &mut Vec<Completion>) -> bool {
        if event.data == ALARM {
            self.armed.store(false, Release);
            return true;
        }
        let claimed = book.requests.get_mut(event.data).is_some_and(|it| it.claims(event.res));
        if !claimed && let Some(request) = book.requests.remove(event.data) {
            done.push(finish(&request, event.res));
        }
        false
    }

    /// Triggers the alarm again if `is_taken`: this thread has taken the alarm's event, which was
    /// to wake a reaper. The kernel has woken the reaper, but the reaper finds an empty ring and
    /// sleeps on.
    ///
    /// Both this function and a reaper that announces its wait write the word of the gate. So this
    /// function sees that a reaper waits, or the reaper announces its wait later and sees that
    /// there is no alarm (`sleep`).
    fn pass_on(&self, is_taken: bool) {
        let is_due = is_taken && self.gate.is_waiting();
        if is_due && !self.armed.swap(true, AcqRel) {
            // The anchor is always writable, so this poll's event is there at once.
            self.armed.store(self.submit_alarm(POLLOUT).is_ok(), Release);
        }
    }

    /// Takes the requests that the kernel refused or ended short before io_submit returned.
    fn refused(&self, keys: &[u64], before: Before) -> Refused {
        // Another thread may have taken an event of these requests and not processed it yet. After
        // `VAIN_MAX` commits that waited for another thread in vain, this thread does not wait.
        const MOMENTS: usize = 50;
        const MOMENT_NS: u64 = 20_000;
        const VAIN_MAX: u32 = 3;
        // This thread takes the events of refused requests out of the ring. The events would fill
        // the ring, because no thread takes events while nothing is in flight.
        let mut others = Vec::new();
        let mut refused = Refused::default();
        for left in (0..MOMENTS).rev() {
            let mut book = self.book.lock();
            let mut unfinished = false;
            // If no thread has taken an event since the submission, this thread begins to look at
            // `before.tail`, the first slot that was filled after it.
            let no_others =
                book.events_total == before.events_total && book.dealt_with == self.context.head();
            let head = self.context.look(no_others.then_some(before.tail), |event| {
                let request = book.requests.get_mut(event.data);
                unfinished |= request.is_some_and(|it| it.is_unfinished(event.res));
            });
            if unfinished {
                drop(book);
                let _ = self.events(&mut others, 0, Deadline::NOW);
                book = self.book.lock();
            }
            let is_dealt_with = head == book.dealt_with || mistake::makes(Mistake::MissRefusal);
            let all_seen = !unfinished && is_dealt_with && head == self.context.head();
            for key in keys {
                if let Some(request) = book.requests.get_mut(*key)
                    && let Claim::Refused(result) = request.claim
                {
                    refused.bios.push((request.token, outcome(result)));
                    book.requests.remove(*key);
                }
            }
            self.publish(&book);
            if all_seen {
                book.waits_in_vain = 0;
            } else if left == 0 {
                book.waits_in_vain += 1;
            }
            if all_seen || left == 0 || book.waits_in_vain >= VAIN_MAX {
                for key in keys {
                    let Some(request) = book.requests.get_mut(*key) else { continue };
                    if request.claim == Claim::Committer {
                        request.claim = Claim::Reaper;
                        if !all_seen {
                            refused.undecided.push(request.token);
                        }
                    }
                }
                break;
            }
            drop(book);
            if !unfinished {
                let _ = futex::wait(&AtomicU32::new(0), 0, Deadline::after_ns(MOMENT_NS));
            }
        }
        if !others.is_empty() {
            self.end_here(&mut others);
        }
        refused
    }

    fn commit_as(&self, claim: Claim) -> (Vec<u64>, Before) {
        self.starved.store(false, Relaxed);
        let (keys, before) = self.take_pending(claim);
        if keys.is_empty() {
            return (keys, before);
        }
        let cancels = self.cancels_total.load(Acquire);
        self.submit(&keys, claim);
        self.call_dozing();
        if self.cancels_total.load(Acquire) == cancels {
            return (keys, before);
        }
        // Another thread may have cancelled a bio before it was in the kernel, so this thread
        // repeats the cancellation.
        for key in &keys {
            let cancelled = self.book.lock().requests.get_mut(*key).is_some_and(|it| it.cancelled);
            if cancelled {
                self.cancel_in_kernel(*key);
            }
        }
        (keys, before)
    }

    /// Makes a dozing reaper wait in the kernel, because events may come now. (The book's lock
    /// orders this load: if `doze` did not see the bios in the book, the reaper had set `dozing`
    /// before, and this thread sees it.)
    fn call_dozing(&self) {
        if self.dozing.load(Relaxed) {
            self.was_nudged.store(true, Relaxed);
            self.nudge();
        }
    }

    fn enter(&self, book: &mut Book, bio: &Bio, rw_flags: u32) -> Option<u64> {
        let request = Request {
            token: bio.token,
            poll: match bio.op {
                BioOp::Poll(events) => Some(events | POLLERR_POLLHUP),
                _ => None,
            },
            cancelled: false,
            claimable: claimable(bio).filter(|_| rw_flags & rwf::NOWAIT != 0),
            claim: Claim::Reaper,
            is_counted: bio.counter.is_some(),
            _segments: bio.segments.list().cloned(),
        };
        let key = book.requests.insert(request).ok()?;
        let block = aio_blocks::of_bio(bio, key, rw_flags);
        // SAFETY: this backend owns the slot until the request is removed; the lock excludes other
        // threads.
        unsafe { self.block(key).write(block) };
        // The count is stored before this thread checks for a sleeping reaper.
        self.count.store(book.requests.len(), SeqCst);
        Some(key)
    }

    /// Returns `false` after a wake-up: the caller should then return the available completions.
    fn wait(&self, done: &mut Vec<Completion>, deadline: Deadline) -> Result<bool, Errno> {
        // The alarm and the flags that a waking thread reads are set before `gate.begin` announces
        // the wait.
        let idle = self.book.lock().requests.is_empty();
        let may_doze = idle && !self.was_nudged.load(Relaxed);
        if !may_doze {
            self.arm();
        }
        // Without an alarm no thread could wake a reaper that sleeps in the kernel.
        let dozes = may_doze || idle && !self.armed.load(Acquire);
        self.dozing.store(dozes, Relaxed);
        self.sleeps_idle.store(idle && !dozes, Relaxed);
        let Some(seen) = self.gate.begin() else {
            self.dozing.store(false, Relaxed);
            return Ok(false);
        };
        let waited = if dozes { self.doze(seen, deadline) } else { self.sleep(done, deadline) };
        let woken = self.gate.end();
        self.dozing.store(false, Relaxed);
        match waited {
            // Both a signal and a wake-up came. `gate.end` has cleared the wake-up, so a second
            // wait would not see it.
            Err(Errno::INTR) if woken => Ok(false),
            waited => waited.map(|()| !woken),
        }
    }

    /// Sleeps on the gate, unless a bio has been queued meanwhile. While nothing is in flight, no
    /// event comes, and waking a thread on the gate costs a third of waking one in the kernel's
    /// ring.
    fn doze(&self, seen: u32, deadline: Deadline) -> Result<(), Errno> {
        if self.any_failed.load(Acquire) || !self.book.lock().requests.is_empty() {
            return Ok(());
        }
        match self.gate.sleep(seen, deadline) {
            Err(Errno::INTR) => Err(Errno::INTR),
            _ => Ok(()),
        }
    }

    /// Sleeps in the kernel until an event arrives, the alarm's included, or `deadline` has passed;
    /// at most [`DEAF_SLICE_NS`] without an alarm, or while bios wait for room in the kernel.
    fn sleep(&self, done: &mut Vec<Completion>, deadline: Deadline) -> Result<(), Errno> {
        if self.any_failed.load(Acquire) {
            return Ok(());
        }
        let cut = !self.armed.load(Acquire) || self.starved.load(Relaxed);
        let slice = if cut { Deadline::after_ns(DEAF_SLICE_NS) } else { Deadline::NEVER };
        self.events(done, 1, deadline.min(slice)).map(drop)
    }

    /// Submits the alarm, a poll whose cancellation ends a wait, unless it is armed.
    fn arm(&self) {
        if self.deaf.load(Relaxed) || self.armed.swap(true, AcqRel) {
            return;
        }
        let armed = self.submit_alarm(0);
        self.deaf.store(armed == Err(Errno::INVAL), Relaxed);
        self.armed.store(armed.is_ok(), Release);
    }

    /// Only the thread that has set `armed` calls this function.
    fn submit_alarm(&self, events: u16) -> Result<(), Errno> {
        match self.submit_poll(self.anchor.raw(), events) {
            // The application closed the anchor, or this thread has another descriptor table.
            Err(Errno::BADF) => {
                EventFd::new().and_then(|fresh| self.submit_poll(fresh.raw(), events))
            }
            submitted => submitted,
        }
    }

    fn submit_poll(&self, fd: i32, events: u16) -> Result<(), Errno> {
        let block = self.blocks.address(self.depth);
        // SAFETY: only the thread that has set `armed` uses this block, and only while the poll is
        // not in flight.
        unsafe { block.write(aio_blocks::poll(fd, events, ALARM)) };
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
        // The kernel may wait for a bio with an eventfd, because it would signal the eventfd for a
        // refusal, too.
        let rw_flags = if bio.counter.is_some() { 0 } else { self.rw_flags };
        let Some(key) = self.enter(&mut book, &bio, rw_flags) else { return Err(bio) };
        book.pending.push((this_thread(), key));
        Ok(())
    }

    fn commit(&self) {
        self.commit_as(Claim::Reaper);
    }

    fn commit_or_refuse(&self) -> Refused {
        if self.rw_flags & rwf::NOWAIT == 0 || mistake::makes(Mistake::RefuseLate) {
            self.commit();
            return Refused::default();
        }
        let (keys, before) = self.commit_as(Claim::Committer);
        if keys.is_empty() { Refused::default() } else { self.refused(&keys, before) }
    }

    /// Submits no bios that threads have queued: their descriptors may belong to another table.
    /// Submits one bio at a time: if one call submitted several bios, the kernel would start no bio
    /// at the device before it has blocks for the last bio, unless the kernel sleeps meanwhile
    /// (AIO_PLUG_THRESHOLD, fs/aio.c).
    fn submit_now(&self, bio: Bio, may_wait: bool) -> Result<Refused, Bio> {
        let rw_flags = if may_wait { 0 } else { self.rw_flags };
        let mut book = self.book.lock();
        let Some(key) = self.enter(&mut book, &bio, rw_flags) else { return Err(bio) };
        let request = book.requests.get_mut(key);
        request.into_iter().filter(|it| it.claimable.is_some()).for_each(Request::is_committed);
        self.publish(&book);
        let before = Before { tail: self.context.tail(), events_total: book.events_total };
        drop(book);
        // SAFETY: the block's memory lives until its event, as in `submit`.
        let submitted = unsafe { self.context.submit(&mut [self.block(key)]) };
        if let Ok(1..) = submitted {
            self.call_dozing();
            if may_wait {
                return Ok(Refused::default());
            }
            if self.context.tail() != before.tail {
                return Ok(self.refused(&[key], before));
            }
            // No new event: if another thread has processed this bio's event, the book has the
            // result.
            let mut book = self.book.lock();
            let mut refused = Refused::default();
            if let Some(request) = book.requests.get_mut(key) {
                let claim = core::mem::replace(&mut request.claim, Claim::Reaper);
                if let Claim::Refused(result) = claim {
                    refused.bios.push((request.token, outcome(result)));
                    book.requests.remove(key);
                    self.publish(&book);
                }
            }
            return Ok(refused);
        }
        let mut book = self.book.lock();
        book.requests.remove(key);
        self.publish(&book);
        match submitted {
            Ok(_) | Err(Errno::AGAIN) => Err(bio),
            Err(errno) => Ok(Refused { bios: vec![(bio.token, Err(errno))], undecided: vec![] }),
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
            if self.sleeps_idle.load(Relaxed) {
                self.was_nudged.store(false, Relaxed);
            }
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

    fn descriptors(&self) -> Vec<i32> {
        vec![self.anchor.raw()]
    }

    fn has_room(&self, more: usize) -> bool {
        let own = self.in_flight();
        own + more <= self.depth
            && self.share.as_ref().is_none_or(|share| share.has_room(own, more))
    }

    fn in_flight(&self) -> usize {
        let failed = if self.any_failed.load(Acquire) { self.failed.lock().len() } else { 0 };
        self.count.load(SeqCst) + failed
    }
}

#[cfg(test)]
mod tests;
