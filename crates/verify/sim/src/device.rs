//! The simulated device: a backend that waits in virtual time.

use crate::{
    Hardware, Model, Prng, VirtualClock, faults::Faults, service::Queue, service::Service,
    store::Store,
};
use nowait_block::{Bio, BlockBackend, Completion, Limits};
use nowait_sys::{Errno, time::Deadline};
use parking_lot::Mutex;
use std::sync::Arc;

/// What a device is like.
#[derive(Clone, Debug)]
pub struct Config {
    /// Decides all that is drawn.
    pub seed: u64,
    /// Most bios in flight in one queue.
    pub depth: usize,
    /// What is written or lost as a whole, in bytes: 512 or 4096.
    pub sector_bytes: usize,
    /// How long requests take, and which is next.
    pub model: Model,
    /// A device that exists: replaces `model`. It does not give back what it was given, so that
    /// only requests that were not committed can be cancelled.
    pub hardware: Option<Hardware>,
    /// Whether data is kept. Without, reads leave memory as it was, and only sizes and times are
    /// real: for measurements that move more than fits into memory.
    pub contents: bool,
    /// What goes wrong.
    pub faults: Faults,
    /// Most events the trace keeps.
    pub trace_events_max: usize,
}

impl Config {
    /// Is a device without faults, for 64 bios that complete in any order, with 512-byte sectors.
    pub const fn new(seed: u64) -> Config {
        Config {
            seed,
            depth: 64,
            sector_bytes: 512,
            model: Model::any_order(),
            hardware: None,
            contents: true,
            faults: Faults::none(),
            trace_events_max: 256,
        }
    }
}

/// When the power fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// As this request arrives, counted from 0 as accepted: nothing of it is done.
    Queued(u64),
    /// As soon as this request has completed, counted from 0 as completed; if it was cancelled,
    /// after the next one that is served.
    Completed(u64),
}

/// A handle to one queue of a simulated device. Clones share the queue.
///
/// Bios take effect when they finish, in virtual time, with the data of that time; what changes
/// between `commit` and then is counted ([`SimDevice::unstable`]).
/// `reap` moves the clock on to the next completion, never sleeps, and reads deadlines on that
/// clock. A look that finds nothing takes 100 ns, so that a loop of looks gets on too.
///
/// Meant for one thread: a `reap` that only another thread could end panics. The wrappers of
/// `nowait_block::stacked` read deadlines on CLOCK_MONOTONIC: over this device they take
/// [`Deadline::NOW`] and [`Deadline::NEVER`] only.
#[derive(Clone, Debug)]
pub struct SimDevice {
    pub(crate) service: Arc<Mutex<Service>>,
    queue: usize,
    depth: usize,
}

/// How long a look takes that finds nothing.
const LOOK_NS: u64 = 100;

impl SimDevice {
    /// Makes a device without files, with a clock of its own at zero.
    pub fn new(config: &Config) -> SimDevice {
        SimDevice::with_clock(config, VirtualClock::new())
    }

    /// Makes a device without files that shares `clock` with others, which may move it too.
    ///
    /// # Panics
    /// The sector size is neither 512 nor 4096, or the depth is 0.
    pub fn with_clock(config: &Config, clock: Arc<VirtualClock>) -> SimDevice {
        let store = Store::new(config.sector_bytes, config.seed);
        SimDevice::over(config, clock, store)
    }

    fn over(config: &Config, clock: Arc<VirtualClock>, store: Store) -> SimDevice {
        assert!([512, 4096].contains(&config.sector_bytes), "sectors have 512 or 4096 bytes");
        assert!(config.depth > 0, "a device without depth takes nothing");
        let service = Service::new(config, clock, store);
        let service = Arc::new(Mutex::new(service));
        SimDevice { service, queue: 0, depth: 0 }.another_queue(config.depth)
    }

    /// Makes another queue to the same files, for `depth` bios: its completions are reaped there.
    #[must_use]
    pub fn another_queue(&self, depth: usize) -> SimDevice {
        let mut service = self.service.lock();
        let queue = service.queues.len();
        service.queues.push(Queue::default());
        drop(service);
        SimDevice { service: self.service.clone(), queue, depth }
    }

    /// Returns the clock on which deadlines are.
    pub fn clock(&self) -> Arc<VirtualClock> {
        self.service.lock().clock.clone()
    }

    /// Returns how many bios were accepted, over all queues.
    pub fn requests(&self) -> u64 {
        self.service.lock().accepted
    }

    /// Returns how many faults happened.
    pub fn fired(&self) -> u64 {
        self.service.lock().fired
    }

    /// Returns how many writes had their data changed while the device had them.
    pub fn unstable(&self) -> u64 {
        self.service.lock().unstable
    }

    /// Changes what goes wrong from the next request on.
    pub fn set_faults(&self, faults: Faults) {
        self.service.lock().faults = faults;
    }

    /// Releases stuck requests: they complete like any other.
    pub fn release_stuck(&self) {
        self.service.lock().release_stuck();
    }

    /// Makes the power fail at a point to come; replaces an earlier one.
    pub fn cut_at(&self, cut: Cut) {
        self.service.lock().cut = Some(cut);
    }

    /// Turns the power off now. All bios in flight, and all to come, end with `EIO`.
    pub fn cut_power(&self) {
        self.service.lock().cut_power();
    }

    /// Tells whether the power is off.
    pub fn is_off(&self) -> bool {
        self.service.lock().off.is_some()
    }

    /// Returns the device as it is after a power cut, with what is left of its files under the
    /// same descriptors; cuts the power if it is still on.
    ///
    /// What is left is drawn from `prng` by the faults of this device. May be called again, for
    /// another draw. The new device is made by `config`; it keeps the clock, the sector size, and
    /// the bad sectors as far as `config` has any.
    #[must_use]
    pub fn reboot(&self, config: &Config, prng: &mut Prng) -> SimDevice {
        let mut service = self.service.lock();
        service.cut_power();
        let served = service.off.as_deref().unwrap_or_default();
        let store = service.store.rebooted(|index, file| {
            let served = served.iter().filter(|(of, _)| *of == index);
            let served: Vec<_> = served.map(|(_, change)| change.clone()).collect();
            file.remains(&served, &service.faults, prng)
        });
        let config = Config { sector_bytes: store.sector_bytes, ..config.clone() };
        SimDevice::over(&config, service.clock.clone(), store)
    }

    /// Returns a hash over all that happened: the same for two runs that were the same.
    pub fn trace_hash(&self) -> u64 {
        self.service.lock().trace.hash()
    }

    /// Returns a copy of the trace, to print.
    pub fn trace(&self) -> crate::trace::Trace {
        self.service.lock().trace.clone()
    }
}

impl BlockBackend for SimDevice {
    fn name(&self) -> &'static str {
        "sim"
    }

    fn limits(&self) -> Limits {
        Limits::of_all_kinds(self.depth)
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let mut service = self.service.lock();
        if service.queues[self.queue].in_flight >= self.depth {
            return Err(bio);
        }
        service.accept(self.queue, bio);
        Ok(())
    }

    fn commit(&self) {
        let mut service = self.service.lock();
        service.catch_up();
        service.start(self.queue);
    }

    /// Adds completions to `done`, see [`BlockBackend::reap`]; never fails.
    ///
    /// # Panics
    /// It would hang: nothing of this queue will complete by itself, the deadline is
    /// [`Deadline::NEVER`], and no thread has called `wake`.
    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let mut service = self.service.lock();
        let before = done.len();
        let (begin_ns, end_ns) = (service.clock.now_ns(), deadline.ns());
        loop {
            service.catch_up();
            let queue = &mut service.queues[self.queue];
            queue.in_flight -= queue.ended.len();
            done.append(&mut queue.ended);
            let got = done.len() - before;
            let now_ns = service.clock.now_ns();
            if got >= min || end_ns.is_some_and(|end| end <= now_ns) {
                if got == 0 && now_ns == begin_ns && service.next_finish_ns().is_some() {
                    service.clock.advance(LOOK_NS);
                }
                return Ok(());
            }
            if core::mem::take(&mut service.queues[self.queue].woken) {
                return Ok(());
            }
            service.wait(self.queue, end_ns);
        }
    }

    fn wake(&self) {
        self.service.lock().queues[self.queue].woken = true;
    }

    fn cancel(&self, token: u64) {
        let mut service = self.service.lock();
        service.catch_up();
        service.cancel(self.queue, token);
    }

    fn in_flight(&self) -> usize {
        self.service.lock().queues[self.queue].in_flight
    }
}

impl Service {
    /// Finishes what is due: others may have moved the clock.
    fn catch_up(&mut self) {
        self.run_until(self.clock.now_ns());
    }

    /// Moves time on to the next completion of any queue, or to the end of the wait.
    fn wait(&mut self, queue: usize, end_ns: Option<u64>) {
        let next_ns = self.next_finish_ns();
        match (next_ns, end_ns) {
            (Some(next_ns), Some(end_ns)) => self.run_until(next_ns.min(end_ns)),
            (Some(next_ns), None) if self.is_awaited(queue) => self.run_until(next_ns),
            (None, Some(end_ns)) => self.run_until(end_ns),
            (_, None) => panic!(
                "would hang: {} in flight here, {} of them not committed, {} stuck\n{}",
                self.queues[queue].in_flight,
                self.queues[queue].queued.len(),
                self.stuck_count(),
                self.trace,
            ),
        }
    }
}
