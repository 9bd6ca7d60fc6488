//! The parts of an engine: what differs between an engine on a machine and one in a simulation.

use crate::{BackendChoice, Config, turn::Next};
use nowait_block::{
    BlockBackend, Completion, Limits, Submitter, Tags, VirtualClock,
    backends::{
        aio::Kaio,
        threads::{Threads, ThreadsConfig},
        uring::Uring,
    },
    bio::Descriptor,
};
use nowait_sys::{
    Errno,
    time::{self, Deadline},
    uring::Issuer,
};
use std::sync::Arc;

/// Requests a queue of the machine may have in flight: well below the 256 request tags of the
/// devices that make the kernel sleep when they run out.
const DEPTH: u32 = 192;

/// The parts of an engine.
pub struct Parts {
    /// Carry its bios.
    pub backends: Box<dyn Backends>,
    /// Why these backends, for reports.
    pub reason: String,
    /// The clock from which the engine reads the time.
    pub clock: Clock,
    /// Makes the turns of its loops.
    pub executor: Executor,
}

/// The clock of an engine.
#[derive(Clone, Debug)]
pub enum Clock {
    /// CLOCK_MONOTONIC.
    Machine,
    /// A clock that moves when a test sets it.
    Virtual(Arc<VirtualClock>),
}

impl Clock {
    /// Returns the time in nanoseconds.
    pub fn now_ns(&self) -> u64 {
        match self {
            Clock::Machine => time::now_ns(),
            Clock::Virtual(clock) => clock.now_ns(),
        }
    }

    /// Returns the time `ns` nanoseconds from now.
    pub fn after_ns(&self, ns: u64) -> Deadline {
        Deadline::at_ns(self.now_ns().saturating_add(ns))
    }

    /// Returns `true` if the time has come; looks at the clock only if that matters.
    pub fn has_passed(&self, deadline: Deadline) -> bool {
        deadline.ns().is_some_and(|ns| ns == 0 || self.now_ns() >= ns)
    }
}

/// The executor: threads, or a caller, that makes the turns of an engine's loops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// Threads of the engine, which have a descriptor table of their own where that is possible.
    Threads,
    /// The owner of the engine, by [`Engine::turn`]: the engine has no threads, and all that it
    /// does it does in calls. One thread makes all calls.
    ///
    /// A call that sleeps until another request has ended makes turns meanwhile, or never returns:
    /// so does a call of [`Context::wait_events`] that may wait.
    ///
    /// [`Engine::turn`]: crate::Engine::turn
    /// [`Context::wait_events`]: crate::Context::wait_events
    Owner,
}

impl Parts {
    /// Is the machine with the backend of `config`, which must be usable; `Auto` is threads only.
    pub fn of_machine(config: &Config, reason: String) -> Parts {
        let backends: Box<dyn Backends> = match config.backend {
            BackendChoice::Uring => {
                let callers_enter = !config.callers_enter_no_ring;
                Box::new(Rings::new(!Uring::waits_on_words(), callers_enter))
            }
            BackendChoice::Kaio => Box::new(NativeAio::default()),
            BackendChoice::Auto | BackendChoice::Threads => Box::new(ThreadsOnly),
        };
        Parts::of_backends(backends, reason)
    }

    /// Is the machine with io_uring as it is before Linux 6.7, also on a newer kernel: a ring
    /// cannot wait on a word of memory, and waits on an eventfd.
    pub fn with_event_counters(reason: String) -> Parts {
        Parts::of_backends(Box::new(Rings::new(true, true)), reason)
    }

    /// Is these backends with the machine's clock, and threads.
    pub fn of_backends(backends: Box<dyn Backends>, reason: String) -> Parts {
        Parts { backends, reason, clock: Clock::Machine, executor: Executor::Threads }
    }
}

/// An eventfd of the engine.
pub type Counter = Arc<dyn Descriptor>;

/// Makes the backends of an engine.
pub trait Backends: Send + Sync {
    /// Returns the name used in reports, that of the queues.
    fn name(&self) -> &'static str;

    /// Returns the limits of the driver's queue, which takes two bios at least; `None`: there are
    /// no queues, workers carry all bios.
    fn limits(&self) -> Option<Limits>;

    /// Returns `true` if a thread that waits in the driver's queue is roused by an eventfd,
    /// which the queue then gets.
    fn need_counters(&self) -> bool {
        false
    }

    /// Returns `true` if a thread that waits in an own queue is roused by an eventfd.
    fn own_need_counters(&self) -> bool {
        self.need_counters()
    }

    /// Makes the driver's queue; on the driver's thread, the only one that commits and reaps.
    /// `counter` is an eventfd with a descriptor in both tables, if the queue needs one.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptor, no memory.
    fn driver_queue(&self, counter: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno>;

    /// Makes a context's own queue; on a thread of the application, any of which may commit.
    /// `issuer` says how a ring is used, and is not [`Issuer::Single`].
    ///
    /// # Errors
    /// The errors of [`Backends::driver_queue`].
    fn own_queue(
        &self,
        counter: Option<Counter>,
        issuer: Issuer,
    ) -> Result<Arc<dyn BlockBackend>, Errno>;

    /// Returns the request tags that the queues share, if they do.
    fn tags(&self) -> Option<&Tags> {
        None
    }

    /// Makes the workers, which carry the bios that need a blocking call.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`: no thread.
    fn workers(&self, config: ThreadsConfig) -> Result<Box<dyn Workers>, Errno> {
        Ok(Box::new(Threads::new(config)?))
    }
}

/// Carries bios by blocking calls; their completions go where [`ThreadsConfig::deliver`] says.
pub trait Workers: BlockBackend {
    /// Delivers these completions as if they came from here: a request that has ended elsewhere
    /// must go on in the workers' descriptor table. Empties the list.
    fn deliver(&self, completions: &mut Vec<Completion>);

    /// Ends the bios that have not started, with `ECANCELED`, waits for the others, and takes no
    /// more.
    fn shutdown(&self);

    /// Delivers completions where no thread of the workers does; only for [`Executor::Owner`].
    fn turn(&self) -> Next {
        Next::End
    }
}

impl Workers for Threads {
    fn deliver(&self, completions: &mut Vec<Completion>) {
        Threads::deliver(self, completions);
    }

    fn shutdown(&self) {
        Threads::shutdown(self);
    }
}

/// The machine's io_uring; where callers must not enter rings, own queues are the kernel's AIO.
struct Rings {
    /// The kernel's rings cannot wait on a word of memory.
    by_counter: bool,
    callers_enter: bool,
    aio: NativeAio,
}

impl Rings {
    fn new(by_counter: bool, callers_enter: bool) -> Rings {
        Rings { by_counter, callers_enter, aio: NativeAio::default() }
    }
}

impl Backends for Rings {
    fn name(&self) -> &'static str {
        Uring::NAME
    }

    fn limits(&self) -> Option<Limits> {
        Some(Uring::limits_of(DEPTH as usize))
    }

    fn need_counters(&self) -> bool {
        self.by_counter
    }

    fn own_need_counters(&self) -> bool {
        self.by_counter && self.callers_enter
    }

    fn driver_queue(&self, counter: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno> {
        let share = self.aio.tags.share(Submitter::Driver);
        Ok(Arc::new(Uring::new(DEPTH, Issuer::Single, counter)?.sharing(share)))
    }

    fn own_queue(
        &self,
        counter: Option<Counter>,
        issuer: Issuer,
    ) -> Result<Arc<dyn BlockBackend>, Errno> {
        match self.callers_enter {
            true => {
                let share = self.aio.tags.share(Submitter::Callers);
                Ok(Arc::new(Uring::new(DEPTH, issuer, counter)?.sharing(share)))
            }
            false => self.aio.own_queue(None, issuer),
        }
    }

    fn tags(&self) -> Option<&Tags> {
        self.aio.tags()
    }
}

/// The kernel's AIO.
#[derive(Default)]
struct NativeAio {
    tags: Arc<Tags>,
}

impl Backends for NativeAio {
    fn name(&self) -> &'static str {
        Kaio::NAME
    }

    fn limits(&self) -> Option<Limits> {
        Some(Kaio::limits_of(DEPTH as usize))
    }

    fn driver_queue(&self, _: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno> {
        Ok(Arc::new(Kaio::new(DEPTH)?.sharing(self.tags.share(Submitter::Driver))))
    }

    fn own_queue(&self, _: Option<Counter>, _: Issuer) -> Result<Arc<dyn BlockBackend>, Errno> {
        let share = self.tags.share(Submitter::Callers);
        Ok(Arc::new(Kaio::new(DEPTH)?.without_waiting().sharing(share)))
    }

    fn tags(&self) -> Option<&Tags> {
        Some(&self.tags)
    }
}

/// Blocking calls.
struct ThreadsOnly;

impl Backends for ThreadsOnly {
    fn name(&self) -> &'static str {
        Threads::NAME
    }

    fn limits(&self) -> Option<Limits> {
        None
    }

    fn driver_queue(&self, _: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }

    fn own_queue(&self, _: Option<Counter>, _: Issuer) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config_of(backend: BackendChoice) -> Config {
        Config { backend, ..Config::default() }
    }

    #[test]
    fn queues_of_the_machine_are_what_was_said_of_them() {
        for choice in [BackendChoice::Uring, BackendChoice::Kaio] {
            let Parts { backends, .. } = Parts::of_machine(&config_of(choice), String::new());
            for queue in [backends.driver_queue(None), backends.own_queue(None, Issuer::Any)] {
                let Ok(queue) = queue else {
                    println!("skipped: {choice:?} is not usable here");
                    continue;
                };
                assert_eq!(
                    (backends.name(), backends.limits()),
                    (queue.name(), Some(queue.limits()))
                );
            }
        }
        let Parts { backends, .. } =
            Parts::of_machine(&config_of(BackendChoice::Threads), String::new());
        assert_eq!((backends.name(), backends.limits()), ("threads", None));
    }

    #[test]
    fn callers_that_enter_no_ring_have_queues_of_the_kernels_aio() {
        let config = Config { callers_enter_no_ring: true, ..config_of(BackendChoice::Uring) };
        let Parts { backends, .. } = Parts::of_machine(&config, String::new());
        let Ok(queue) = backends.own_queue(None, Issuer::Any) else {
            return println!("skipped: no native AIO here");
        };
        assert_eq!((backends.name(), queue.name()), (Uring::NAME, Kaio::NAME));
    }
}
