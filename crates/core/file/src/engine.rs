//! The engine: backends, threads, held files and the order of requests.

mod counters;
mod descriptors;
pub(crate) mod devices;
mod known;
pub mod owner;
pub(crate) mod parker;
pub(crate) mod queues;
pub(crate) mod section;
pub(crate) mod starter;
mod threads;

use crate::{
    Config, Context, Parts,
    cached::CachedFiles,
    failure::Failures,
    hold::Holds,
    limits::Throttle,
    order::{Orders, StreamQueues},
    parts::{Clock, Executor},
    request::unordered::Unordered,
    route::{Place, Plug},
};
use core::sync::atomic::Ordering::Relaxed;
use known::Known;
use nowait_block::Bio;
use nowait_retry::Closes;
use nowait_sys::{Errno, fdtable};
use queues::Queues;
use section::Section;
use std::sync::{Arc, Weak};
use threads::Threads;

/// An engine. Its threads start with it, and end with the process or with [`Engine::shutdown`].
pub struct Engine {
    config: Config,
    pub(crate) parts: Parts,
    pub(crate) queues: Queues,
    pub(crate) threads: Threads,
    pub(crate) holds: Holds,
    pub(crate) orders: Orders,
    pub(crate) unordered: Arc<Unordered>,
    pub(crate) stream_queues: StreamQueues,
    pub(crate) known: Known,
    pub(crate) user_files: CachedFiles,
    pub(crate) throttle: Throttle,
    pub(crate) failures: Failures,
}

impl Engine {
    /// Starts an engine on the real machine with the backend of `config`. Reports show `reason`.
    ///
    /// # Errors
    /// The errors of [`Engine::start`].
    pub fn on_machine(config: Config, reason: String) -> Result<Arc<Engine>, Errno> {
        let parts = Parts::of_machine(&config, reason);
        Engine::start(config, parts)
    }

    /// Starts an engine that consists of `parts`.
    ///
    /// # Errors
    /// `EMFILE`: no descriptors are left. `EAGAIN`, `ENOMEM`: threads cannot be started.
    pub fn start(config: Config, parts: Parts) -> Result<Arc<Engine>, Errno> {
        let (local, remote) = fdtable::channel()?;
        let executor = parts.executor;
        let queues = Queues::new(parts.backends.as_ref());
        let engine = Arc::new_cyclic(|engine: &Weak<Engine>| Engine {
            threads: Threads::new(engine, executor),
            queues,
            parts,
            holds: Holds::new(local.moved_high(), remote.raw()),
            orders: Orders::default(),
            unordered: Arc::default(),
            stream_queues: StreamQueues::default(),
            known: Known::default(),
            user_files: CachedFiles::default(),
            throttle: Throttle::new(config.limits),
            failures: Failures::default(),
            config,
        });
        let started = match executor {
            Executor::Threads => {
                let counter = engine.new_counter()?;
                engine.start_threads(remote.raw(), counter)?
            }
            Executor::Owner => {
                engine.start_workers(None)?;
                engine.start_owned()
            }
        };
        if let Err(errno) = started {
            // The engine's threads have references to the engine, too. These threads must not drop
            // the last reference, because the engine has descriptors in the application's table.
            engine.shutdown();
            return Err(errno);
        }
        // The channel's remote end is in the engine's table by now, unless the engine shares the
        // application's.
        let is_shared = engine.holds.is_table_shared();
        engine.holds.keep_remote(if is_shared { remote } else { remote.moved_high() });
        Ok(engine)
    }

    /// Returns how many panics the engine has caught.
    pub fn failures(&self) -> u64 {
        self.failures.count.load(Relaxed)
    }

    /// Runs `work`. If `work` panics, counts the panic, whose report names `doing`, and returns
    /// `None`.
    pub fn caught<T>(&self, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
        self.failures.caught(doing, work)
    }

    /// Returns a line about the first panic, once. Without such a line, takes no lock.
    pub fn untold_failure(&self) -> Option<String> {
        self.failures.untold()
    }

    /// Returns the configuration of the engine.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the name of the backend in use.
    pub fn backend(&self) -> &'static str {
        self.parts.backends.name()
    }

    /// Returns the reason why this backend is in use.
    pub fn reason(&self) -> &str {
        &self.parts.reason
    }

    /// Returns the engine's own descriptors in the application's table.
    pub fn descriptors(&self) -> Vec<i32> {
        let mut ours = self.holds.descriptors().collect::<Vec<_>>();
        ours.extend(self.threads.driver.counter.get());
        self.user_files.all().iter().for_each(|file| ours.extend(file.descriptors()));
        ours
    }

    /// Returns the clock of the engine.
    pub fn clock(&self) -> &Clock {
        &self.parts.clock
    }

    /// Returns the counts of how often the application's descriptors were closed.
    pub fn closes(&self) -> &Arc<Closes> {
        &self.known.closes
    }

    /// `served`: the context whose own queue gets bios.
    pub(crate) fn run(
        self: &Arc<Self>,
        place: Place,
        served: Option<&Arc<Context>>,
        work: impl FnOnce(&mut Plug),
    ) {
        let _section = Section::enter(self);
        let mut plug = Plug::take(self, place);
        work(&mut plug);
        plug.flush(served);
        plug.run_kicked(served);
        Plug::put_back(plug);
    }

    /// Called on threads without a queue: the driver or the workers get the bios.
    pub(crate) fn carry(self: &Arc<Self>, bios: &mut Vec<Bio>) {
        if !bios.is_empty() {
            self.run(Place::Caller, None, |plug| plug.cache_bios.append(bios));
        }
    }

    /// With `true`, makes the driver reap own queues every 0.2 ms, because the process waits for
    /// all requests in flight; `false` ends that.
    pub fn hurry(&self, hurries: bool) {
        self.threads.driver.hurry(hurries);
    }

    pub(crate) fn run_kicked(self: &Arc<Self>) {
        if !self.threads.kicked.is_empty() {
            let mut plug = Plug::take(self, Place::Caller);
            plug.run_kicked(None);
            Plug::put_back(plug);
        }
    }
}
