//! io_uring: queues shared with the kernel.
//!
//! ```text
//! queue   ── slot, entry ─▶ SQ ── commit: enter ─▶ kernel ─▶ CQ ── reap: pop, else enter ─▶ done
//! wake    ── changes a word of memory, or writes to an eventfd, for which the ring itself waits
//! ```
//! The submission queue and the completion queue each have a lock. No thread holds either lock
//! while it enters the ring, so several threads may enter at once: the kernel reads the submission
//! queue under a lock of its own.

use super::{
    uring_entry as entry,
    uring_requests::{Request, Requests},
};
use crate::{
    BlockBackend, Completion, Limits, Share,
    bio::{Bio, Descriptor},
    gate::Gate,
    probe::aside,
};
use core::sync::atomic::{
    AtomicBool, AtomicU32, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};
use nowait_sys::mutex::{Mutex, MutexGuard};
use nowait_sys::{
    Errno, eventfd,
    fork::ForkMark,
    thread::this_thread,
    time::Deadline,
    uring::{Completion as RingCompletion, Entry, Issuer, Ring, opcode},
};
use std::sync::Arc;

/// The longest wait in the kernel while no alarm is armed, in nanoseconds.
const SLICE_NS: u64 = 10_000_000;
/// The longest wait in the kernel after it has lacked memory, in nanoseconds.
const RETRY_NS: u64 = 1_000_000;

/// A backend that uses one io_uring.
///
/// With [`Issuer::Single`] only the issuer, the thread that made the backend, may call `reap` with
/// `min` > 0; every thread may call `queue`, `commit`, `wake` and `cancel`. A bio that another
/// thread commits starts when the issuer reaps (`commit` wakes the issuer for that), so the other
/// thread must keep the descriptor open until then.
///
/// Dropping the backend cancels the bios in flight and waits until they have ended. With
/// [`Issuer::Single`] this holds only if the issuer drops the backend. If another thread drops it,
/// the kernel ends the requests some time later: the requests' memory must then stay valid for
/// ever.
pub struct Uring {
    ring: Ring,
    completion: Mutex<()>,
    /// The lock also guards the submission queue.
    requests: Mutex<Requests>,
    /// Requests in flight, readable without the lock of `requests`; written under it.
    in_flight: AtomicUsize,
    /// Requests that wait for a device: the depth limits only these. Written under the lock of
    /// `requests`.
    on_devices: AtomicUsize,
    /// The keys of requests to cancel, until a thread that may enter the ring takes them.
    cancels: Mutex<Vec<u64>>,
    cancels_wait: AtomicBool,
    /// `true`: the kernel may keep completions for which the queue had no room.
    hides: AtomicBool,
    /// `true`: the kernel refused entries, mostly for lack of memory. The entries are still queued.
    starved: AtomicBool,
    alarm: Alarm,
    issuer: Issuer,
    issuer_thread: i32,
    process: ForkMark,
    depth: usize,
    looks: AtomicU32,
    share: Option<Share>,
}

struct Alarm {
    /// The gate, in a box because the kernel refers to it by its address.
    gate: Box<Gate>,
    /// `true`: an entry of the ring waits on the gate or on the eventfd.
    armed: AtomicBool,
    /// `true`: on this kernel the ring can wait on neither gate nor eventfd, so waits are cut into
    /// slices.
    deaf: AtomicBool,
    /// `None`: the ring waits on the gate's word, which needs no descriptor.
    counter: Option<Arc<dyn Descriptor>>,
}

enum WaitEnd {
    Again,
    Enough,
}

impl Uring {
    /// The name in reports.
    pub const NAME: &str = "uring";

    /// Returns the limits of a ring of this depth.
    pub const fn limits_of(depth: usize) -> Limits {
        Limits::of_all_kinds(depth)
    }

    /// Returns `true` if rings can wait on a word of memory (Linux 6.7). Makes a ring on another
    /// thread, because the end of a ring interrupts the waits of the thread that made it.
    pub fn waits_on_words() -> bool {
        let can = |ring: Ring| ring.supports(opcode::FutexWait::CODE);
        aside(move || Ring::new(1, Issuer::Any).is_ok_and(can)).unwrap_or(false)
    }

    /// Creates a ring for up to `depth` bios (1 to 8192) that wait for a device, and any number of
    /// bios that wait for readiness. If `counter` is `None`, wake-ups reach the ring by a word of
    /// memory, otherwise by the eventfd `counter`, which must have a number in the descriptor table
    /// of each calling thread. If the ring can wait on neither, `reap` cuts its waits into slices
    /// of ten milliseconds.
    ///
    /// # Errors
    /// `ENOSYS`, `EPERM`: the kernel, a sysctl or a seccomp filter refuses io_uring. `ENOMEM`:
    /// RLIMIT_MEMLOCK is too low. `EMFILE`: no descriptors left. Also the errors of
    /// [`Descriptor::number`].
    pub fn new(
        depth: u32,
        issuer: Issuer,
        counter: Option<Arc<dyn Descriptor>>,
    ) -> Result<Uring, Errno> {
        if let Some(counter) = &counter {
            counter.number()?;
        }
        let depth = depth.clamp(1, 8192);
        let mut ring = Ring::new(depth.next_power_of_two().max(4), issuer)?;
        if issuer != Issuer::Single {
            ring = ring.moved_high();
        }
        let depth = depth as usize;
        Ok(Uring {
            ring,
            completion: Mutex::new(()),
            in_flight: AtomicUsize::new(0),
            on_devices: AtomicUsize::new(0),
            requests: Mutex::new(Requests::new(depth)),
            cancels: Mutex::new(Vec::new()),
            cancels_wait: AtomicBool::new(false),
            hides: AtomicBool::new(false),
            starved: AtomicBool::new(false),
            alarm: Alarm {
                gate: Box::default(),
                armed: AtomicBool::new(false),
                deaf: AtomicBool::new(false),
                counter,
            },
            issuer,
            issuer_thread: this_thread(),
            process: ForkMark::new(),
            depth,
            looks: AtomicU32::new(0),
            share: None,
        })
    }

    /// Makes `has_room` also count the requests that other queues have at the disk, by `share`.
    #[must_use]
    pub fn sharing(mut self, share: Share) -> Uring {
        self.share = Some(share);
        self
    }

    /// Returns `true` if the completion queue is not empty, or if the kernel holds completions back
    /// until a thread enters the ring. Makes no system call.
    pub fn has_completions(&self) -> bool {
        let queue = self.completion.lock();
        // SAFETY: the lock of the completion queue is held.
        let there = unsafe { self.ring.has_completions() };
        drop(queue);
        there || self.holds_back()
    }

    /// Returns the ring's descriptor, readable while there are completions.
    pub fn raw_fd(&self) -> i32 {
        self.ring.raw_fd()
    }

    fn may_enter(&self) -> bool {
        self.issuer != Issuer::Single || this_thread() == self.issuer_thread
    }

    fn holds_back(&self) -> bool {
        if self.issuer == Issuer::Any {
            return false;
        }
        let _queue = self.requests.lock();
        // SAFETY: the lock of the submission queue is held.
        unsafe { self.ring.holds_back() }
    }

    /// Returns `true` for every 64th check of a ring with [`Issuer::InTurn`] and requests in
    /// flight. Such a check must enter the kernel: if a thread has submitted to several rings, the
    /// kernel marks only one of these rings as holding completions back.
    fn enters_now_and_then(&self) -> bool {
        const LOOKS: u32 = 64;
        let counts = self.issuer == Issuer::InTurn && self.in_flight() > 0;
        counts && self.looks.fetch_add(1, Relaxed) % LOOKS == LOOKS - 1
    }

    fn pending(&self) -> u32 {
        let _queue = self.requests.lock();
        // SAFETY: the lock of the submission queue is held.
        unsafe { self.ring.pending() as u32 }
    }

    /// If the queue is full and this thread may enter the ring, first submits the queued entries.
    fn push(&self, entry: &Entry) -> bool {
        for _ in 0..2 {
            if self.push_now(&self.requests.lock(), entry) {
                return true;
            }
            if !self.may_enter() {
                return false;
            }
            self.submit();
        }
        false
    }

    fn push_now(&self, _queue: &MutexGuard<'_, Requests>, entry: &Entry) -> bool {
        // SAFETY: the lock is held. The entry's memory lives until its completion: the bio's memory
        // by the promise of `Bio::new`, and its segment list in `requests`. The alarm's word is in
        // `self.alarm`, which is dropped after the ring, and whose drop ends the wait on the word.
        unsafe { self.ring.push(entry) }
    }

    /// Entries that the kernel does not take, mostly for lack of memory, stay queued.
    fn submit(&self) {
        loop {
            let pending = self.pending();
            if pending == 0 {
                self.starved.store(false, Relaxed);
                return;
            }
            match self.ring.enter(pending, 0, Deadline::NOW) {
                // The kernel took all entries, or another thread's call took them or will take
                // them.
                Ok(n) if n == 0 || n as u32 >= pending => {
                    self.starved.store(false, Relaxed);
                    return;
                }
                // Fewer than requested: the kernel stops after a malformed entry.
                Ok(_) | Err(Errno::INTR) => {}
                // EAGAIN, EBUSY, ENOMEM. The thread that sleeps in `reap` must submit the entries
                // later.
                Err(_) => {
                    self.starved.store(true, Relaxed);
                    if self.alarm.gate.nudge() {
                        self.alarm.rouse();
                    }
                    return;
                }
            }
        }
    }

    /// A thread that may enter the ring, this one or another, passes the cancellations to the
    /// kernel.
    fn stop(&self, keys: &[u64]) {
        self.cancels.lock().extend_from_slice(keys);
        self.cancels_wait.store(true, Relaxed);
        self.commit();
    }

    fn push_cancels(&self) {
        if !self.cancels_wait.load(Relaxed) {
            return;
        }
        let mut cancels = self.cancels.lock();
        while let Some(key) = cancels.last() {
            if !self.push(&entry::cancel(*key)) {
                return;
            }
            cancels.pop();
        }
        self.cancels_wait.store(false, Relaxed);
    }

    /// Returns the number of entries taken, including the completions of the ring's own entries.
    /// There may be more completions than the completion queue holds, because any number of polls
    /// may end. When the queue is full, the kernel keeps further completions until a thread enters
    /// the ring, so this function enters the ring after a full queue.
    fn take(&self, done: &mut Vec<Completion>) -> usize {
        let mut total = 0;
        loop {
            let taken = self.take_shown(done);
            total += taken;
            let hidden = taken >= self.ring.completions_max() || self.hides.swap(false, Relaxed);
            if !hidden {
                return total;
            }
            if !self.may_enter() || self.ring.enter(0, 0, Deadline::NOW).is_err() {
                self.hides.store(true, Relaxed); // for the next reaper
                return total;
            }
        }
    }

    fn take_shown(&self, done: &mut Vec<Completion>) -> usize {
        let _queue = self.completion.lock();
        // SAFETY: the lock of the completion queue is held.
        if !unsafe { self.ring.has_completions() } {
            return 0;
        }
        let mut requests = self.requests.lock();
        let mut taken = 0;
        // SAFETY: the lock of the completion queue is held.
        while let Some(completion) = unsafe { self.ring.pop() } {
            taken += 1;
            match completion.user_data {
                entry::ALARM => self.alarm.gone_off(completion.result),
                entry::CANCEL => {}
                key => {
                    let request = requests.remove(key);
                    done.extend(request.map(|request| finish(&request, completion)));
                }
            }
        }
        self.count(&requests);
        taken
    }

    fn count(&self, requests: &Requests) {
        self.on_devices.store(requests.on_devices(), Relaxed);
        self.share.iter().for_each(|share| share.publish(requests.on_devices()));
        self.in_flight.store(requests.len(), Release);
    }

    /// Submits entries that wait for this thread, makes the kernel show completions that it holds
    /// back, and takes the completions.
    fn catch_up(&self, done: &mut Vec<Completion>) {
        let foreign_work = self.issuer == Issuer::Single && self.pending() > 0;
        let behind = foreign_work || self.starved.load(Relaxed) || self.cancels_wait.load(Relaxed);
        if behind {
            self.push_cancels();
            self.submit();
        }
        let held_back = self.holds_back() || self.enters_now_and_then();
        if held_back {
            let _ = self.ring.enter(0, 0, Deadline::NOW);
        }
        if behind || held_back {
            self.take(done);
        }
    }

    /// Enters the ring and sleeps there until an entry completes, the alarm's included, or the
    /// deadline has passed; while no alarm is armed, at most [`SLICE_NS`].
    fn wait(&self, done: &mut Vec<Completion>, deadline: Deadline) -> Result<WaitEnd, Errno> {
        let Some(seen) = self.alarm.gate.begin() else { return Ok(WaitEnd::Enough) };
        self.push_cancels();
        self.arm(seen);
        let pending = self.pending();
        // Waits for one completion even if more are wanted: the alarm is a single completion, too,
        // and must end the wait.
        let slice = self.alarm.slice(deadline);
        let entered = self.ring.enter(pending, 1, slice);
        let woken = self.alarm.gate.end();
        let taken = self.take(done);
        if woken {
            return Ok(WaitEnd::Enough);
        }
        match entered {
            // If a signal ends the wait after the kernel has taken entries, the kernel returns
            // their number, and not EINTR.
            Ok(n) if n > 0 && n as u32 == pending && taken == 0 && !slice.has_passed() => {
                Err(Errno::INTR)
            }
            Ok(_) | Err(Errno::TIME) => Ok(WaitEnd::Again),
            Err(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => {
                // The kernel lacks memory for new requests; a request that ends frees some.
                let _ = self.ring.enter(0, 1, deadline.min(Deadline::after_ns(RETRY_NS)));
                self.take(done);
                Ok(WaitEnd::Again)
            }
            Err(errno) => Err(errno),
        }
    }

    fn arm(&self, seen: u32) {
        let alarm = &self.alarm;
        if alarm.armed.load(Relaxed) || alarm.deaf.load(Relaxed) {
            return;
        }
        let entry = match alarm.number() {
            None => entry::wait_on_word(alarm.gate.address(), seen),
            Some(number) => entry::wait_on_counter(number),
        };
        // If there is no room for the entry, `slice` cuts the wait short.
        alarm.armed.store(self.push(&entry), Relaxed);
    }
}

impl BlockBackend for Uring {
    fn name(&self) -> &'static str {
        Uring::NAME
    }

    fn limits(&self) -> Limits {
        Uring::limits_of(self.depth)
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let request = Request {
            token: bio.token,
            cancelled: false,
            endless: bio.is_endless(),
            _segments: bio.segments.list().cloned(),
        };
        let mut requests = self.requests.lock();
        let Some(key) = requests.insert(request) else { return Err(bio) };
        let entry = entry::of_bio(&bio, key);
        self.count(&requests);
        let pushed = self.push_now(&requests, &entry);
        drop(requests);
        if pushed || self.push(&entry) {
            return Ok(());
        }
        let mut requests = self.requests.lock();
        requests.remove(key);
        self.count(&requests);
        Err(bio)
    }

    fn commit(&self) {
        if self.may_enter() {
            self.push_cancels();
            self.submit();
        } else if self.alarm.gate.nudge() {
            self.alarm.rouse();
        }
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        self.take(done);
        if done.len() - before < min.max(1) && self.may_enter() {
            self.catch_up(done);
        }
        while done.len() - before < min && !deadline.has_passed() {
            match self.wait(done, deadline) {
                Ok(WaitEnd::Again) => {}
                Ok(WaitEnd::Enough) => break,
                Err(_) if done.len() > before => break,
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn collect(&self, done: &mut Vec<Completion>) {
        self.take(done);
    }

    fn wake(&self) {
        if self.alarm.gate.wake() {
            self.alarm.rouse();
        }
    }

    fn cancel(&self, token: u64) {
        let marked = self.requests.lock().cancel(token);
        if let Some(key) = marked {
            self.stop(&[key]); // `push_cancels` takes the two locks the other way round
        }
    }

    fn descriptors(&self) -> Vec<i32> {
        core::iter::once(self.ring.raw_fd()).chain(self.alarm.number()).collect()
    }

    fn readable(&self) -> Option<i32> {
        (self.issuer != Issuer::Single).then(|| self.ring.raw_fd())
    }

    fn in_flight(&self) -> usize {
        self.in_flight.load(Acquire)
    }

    fn has_room(&self, more: usize) -> bool {
        let own = self.on_devices.load(Relaxed);
        own + more <= self.depth
            && self.share.as_ref().is_none_or(|share| share.has_room(own, more))
    }
}

impl Drop for Uring {
    fn drop(&mut self) {
        // A forked child shares the ring with its parent, and the requests are the parent's.
        if !self.may_enter() || !self.process.is_here() {
            return;
        }
        let mut done = Vec::new();
        while self.in_flight() > 0 {
            let marked = self.requests.lock().cancel_all();
            self.stop(&marked);
            match self.reap(&mut done, 1, Deadline::NEVER) {
                Ok(()) | Err(Errno::INTR) => done.clear(),
                Err(_) => return, // the application closed the descriptor
            }
        }
    }
}

impl Drop for Alarm {
    /// Wakes the ring's wait on the gate before the gate is freed. The kernel destroys a ring some
    /// time later, and the ring's wait for the word lasts until then. If the memory became the
    /// futex word of another thread meanwhile, the ring would take a wake-up of that thread.
    fn drop(&mut self) {
        self.gate.rouse();
    }
}

impl Alarm {
    /// The process has two tables: `Uring::new` has checked that the eventfd has a number in one,
    /// and the caller of `Uring::new` checks the other.
    fn number(&self) -> Option<i32> {
        self.counter.as_ref().and_then(|counter| counter.number().ok())
    }

    fn rouse(&self) {
        match self.number() {
            None => self.gate.rouse(),
            Some(number) => eventfd::signal(number),
        }
    }

    fn gone_off(&self, result: i32) {
        self.armed.store(false, Relaxed);
        if let Some(number) = self.number() {
            eventfd::drain(number);
        }
        // EAGAIN: the word changed before the kernel read it. ECANCELED: the thread that submitted
        // the entry has ended. Other errors mean that the ring cannot wait in this way.
        let fails = result < 0;
        if fails && ![Errno::AGAIN, Errno::CANCELED].contains(&Errno::new(-result)) {
            self.deaf.store(true, Relaxed);
        }
    }

    fn slice(&self, deadline: Deadline) -> Deadline {
        match self.armed.load(Relaxed) {
            true => deadline,
            false => deadline.min(Deadline::after_ns(SLICE_NS)),
        }
    }
}

fn finish(request: &Request, completion: RingCompletion) -> Completion {
    let result = match completion.result {
        // EINTR comes from a worker thread of the kernel that the cancellation has interrupted.
        result if request.cancelled && result == -Errno::INTR.raw() => Err(Errno::CANCELED),
        result if result < 0 => Err(Errno::new(-result)),
        result => Ok(result as u32),
    };
    Completion { token: request.token, result }
}

#[cfg(test)]
mod tests;
