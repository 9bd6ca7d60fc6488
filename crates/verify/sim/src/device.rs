//! The simulated device: a backend that waits in virtual time.

use crate::{
    Hardware, Model, Prng, VirtualClock, faults::Faults, service::Queue, service::Service,
    store::Store,
};
use nowait_block::{Bio, BlockBackend, Completion, Limits};
use nowait_sys::{Errno, time::Deadline};
use parking_lot::Mutex;
use std::sync::Arc;

/// The properties of a device.
#[derive(Clone, Debug)]
pub struct Config {
    /// Seed of all random choices.
    pub seed: u64,
    /// Most bios in flight in the first queue.
    pub depth: usize,
    /// The unit that is written or lost as a whole, in bytes: 512 or 4096.
    pub sector_bytes: usize,
    /// The service times of requests, and the order of service.
    pub model: Model,
    /// An existing device, which replaces `model`. It can cancel only stuck or uncommitted
    /// requests.
    pub hardware: Option<Hardware>,
    /// The device stores data. If false, reads leave memory unchanged, and only sizes and times are
    /// real.
    pub contents: bool,
    /// The faults of the device.
    pub faults: Faults,
    /// Most events the trace keeps.
    pub trace_events_max: usize,
}

impl Config {
    /// Returns a device without faults, for 64 bios that complete in any order.
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

/// The moment of a power failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// At the arrival of this request, counted from 0; the device does nothing of the request.
    Queued(u64),
    /// Right after this completion, counted from 0. If the completion is a cancellation, the power
    /// fails after the next request that is served.
    Completed(u64),
}

/// A handle to one queue of a simulated device. Clones share the queue.
///
/// Bios take effect when they finish, in virtual time, with the data of that time.
/// [`SimDevice::unstable`] counts writes whose data changed after `commit`. `reap` never sleeps: it
/// advances the clock to the next completion, and interprets deadlines on this clock. A reap that
/// finds nothing and does not wait takes 100 ns while requests are being served, so that a polling
/// loop makes progress.
///
/// One thread uses the device: a `reap` that only another thread could end panics. Code that reads
/// CLOCK_MONOTONIC can give this device only the deadlines [`Deadline::NOW`] and
/// [`Deadline::NEVER`].
#[derive(Clone, Debug)]
pub struct SimDevice {
    pub(crate) service: Arc<Mutex<Service>>,
    queue: usize,
    depth: usize,
}

const LOOK_NS: u64 = 100;

impl SimDevice {
    /// Makes a device without files, with its own clock at zero.
    pub fn new(config: &Config) -> SimDevice {
        SimDevice::with_clock(config, VirtualClock::new())
    }

    /// Makes a device without files that shares `clock` with others, which may advance it too.
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

    /// Makes another queue for the same files, for `depth` bios, and returns its handle.
    #[must_use]
    pub fn another_queue(&self, depth: usize) -> SimDevice {
        let mut service = self.service.lock();
        let queue = service.queues.len();
        service.queues.push(Queue::default());
        drop(service);
        SimDevice { service: self.service.clone(), queue, depth }
    }

    /// Returns the clock of the deadlines.
    pub fn clock(&self) -> Arc<VirtualClock> {
        self.service.lock().clock.clone()
    }

    /// Returns the number of accepted bios, over all queues.
    pub fn requests(&self) -> u64 {
        self.service.lock().accepted
    }

    /// Returns how many errors, short transfers, stuck requests, partial writes and bad sectors
    /// there were.
    pub fn fired(&self) -> u64 {
        self.service.lock().fired
    }

    /// Returns the number of writes whose data changed between commit and completion.
    pub fn unstable(&self) -> u64 {
        self.service.lock().unstable
    }

    /// Changes the faults. Requests that the device has accepted keep their fates.
    pub fn set_faults(&self, faults: Faults) {
        self.service.lock().faults = faults;
    }

    /// Releases the requests that the fault `stuck` holds, so that they complete like others.
    pub fn release_stuck(&self) {
        self.service.lock().release_stuck();
    }

    /// Schedules a power failure; replaces one that was scheduled earlier.
    pub fn cut_at(&self, cut: Cut) {
        self.service.lock().cut = Some(cut);
    }

    /// Turns the power off now. Unfinished and later bios end with `EIO`.
    pub fn cut_power(&self) {
        self.service.lock().cut_power();
    }

    /// Returns `true` if the power is off.
    pub fn is_off(&self) -> bool {
        self.service.lock().off.is_some()
    }

    /// Returns the device after a power cut, with the remains of its files under the same
    /// descriptors; first cuts the power if needed.
    ///
    /// `prng` and the faults of this device decide the remains. A second call makes another draw.
    /// The new device has `config`, and keeps the clock, the sector size, and the choice of bad
    /// sectors.
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

    /// Returns a hash over all events: equal for two equal runs.
    pub fn trace_hash(&self) -> u64 {
        self.service.lock().trace.hash()
    }

    /// Returns a copy of the trace, for printing.
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
    /// The call would hang: no request of this queue will complete by itself, the deadline is
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
    /// Finishes the requests that are due: others may have advanced the clock.
    fn catch_up(&mut self) {
        self.run_until(self.clock.now_ns());
    }

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
