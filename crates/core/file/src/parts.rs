//! The parts in which an engine on a real machine differs from one in a simulation.

use crate::{BackendChoice, Config, turn::Next};
use nowait_block::{
    BlockBackend, Completion, Limits, Submitter, Tags, VirtualClock,
    backends::{
        aio::Kaio,
        null::Null,
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

/// The depth of each queue: below 256, a usual number of a disk's request tags. Without a free tag
/// the kernel makes the submitter sleep.
const DEPTH: u32 = 192;

/// The parts of an engine.
pub struct Parts {
    /// The maker of the queues and workers that carry the engine's bios.
    pub backends: Box<dyn Backends>,
    /// The reason for the choice of the backends, for reports.
    pub reason: String,
    /// The clock from which the engine reads the time.
    pub clock: Clock,
    /// The executor of the engine's loops.
    pub executor: Executor,
}

/// The clock of an engine.
#[derive(Clone, Debug)]
pub enum Clock {
    /// The machine's CLOCK_MONOTONIC.
    Machine,
    /// A clock that advances when a test, or an idle engine without threads, says so.
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

    /// Returns `true` if the deadline has passed; reads the clock only if the answer depends on it.
    pub fn has_passed(&self, deadline: Deadline) -> bool {
        deadline.ns().is_some_and(|ns| ns == 0 || self.now_ns() >= ns)
    }
}

/// The executor of an engine's loops: its own threads, or a caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Executor {
    /// Threads of the engine, which have a descriptor table of their own if that is possible.
    Threads,
    /// The owner of the engine, by [`Engine::turn`]. The engine has no driver thread. Unless its
    /// [`Workers`] have threads, the engine works only inside calls, and one thread makes all
    /// calls.
    ///
    /// A call that sleeps until another request has ended makes the turns itself. A call of
    /// [`Context::wait_events`] that may wait makes none, and may never return.
    ///
    /// [`Engine::turn`]: crate::Engine::turn
    /// [`Context::wait_events`]: crate::Context::wait_events
    Owner,
}

impl Parts {
    /// Makes the parts of the real machine with the backend of `config`, which must be usable;
    /// `Auto` means threads only.
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

    /// Makes the parts of the real machine with rings that wait on eventfds, as before Linux 6.7.
    pub fn with_event_counters(reason: String) -> Parts {
        Parts::of_backends(Box::new(Rings::new(true, true)), reason)
    }

    /// Makes parts of these backends, the machine's clock, and threads.
    pub fn of_backends(backends: Box<dyn Backends>, reason: String) -> Parts {
        Parts { backends, reason, clock: Clock::Machine, executor: Executor::Threads }
    }
}

/// An eventfd of the engine, whose number is valid in the calling thread's descriptor table.
pub type Counter = Arc<dyn Descriptor>;

/// Makes the backends of an engine.
pub trait Backends: Send + Sync {
    /// Returns the name of the queues for reports.
    fn name(&self) -> &'static str;

    /// Returns the limits of the driver's queue, whose depth is at least two; `None`: there are no
    /// queues, and the workers carry all bios.
    fn limits(&self) -> Option<Limits> {
        None
    }

    /// Returns `true` if an eventfd wakes the thread that waits in the driver's queue; then
    /// [`Backends::driver_queue`] gets that eventfd.
    fn need_counters(&self) -> bool {
        false
    }

    /// Returns `true` if an eventfd wakes a thread that waits in an own queue.
    fn own_need_counters(&self) -> bool {
        self.need_counters()
    }

    /// Makes the driver's queue, on the driver's thread. Only that thread commits and reaps; other
    /// threads may call `submit_now`, `cancel` and `wake`. `counter` is an eventfd with a
    /// descriptor in both tables, if the queue needs one. If [`Backends::limits`] returns `None`,
    /// the driver only sleeps in this queue.
    ///
    /// # Errors
    /// `EMFILE`: no descriptor is left. `EAGAIN`, `ENOMEM`: there is no memory.
    fn driver_queue(&self, _counter: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno> {
        Ok(Arc::new(Null::new(0)))
    }

    /// Makes a context's own queue, on a thread of the application. Any thread of the application
    /// may commit. `issuer` describes the use of a ring, and is not [`Issuer::Single`].
    ///
    /// # Errors
    /// The errors of [`Backends::driver_queue`]. `ENOSYS`: there are no queues.
    fn own_queue(
        &self,
        _counter: Option<Counter>,
        _issuer: Issuer,
    ) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }

    /// Returns the request tags that the queues share, if they share some.
    fn tags(&self) -> Option<&Tags> {
        None
    }

    /// Makes the workers, which carry the bios that need a blocking call.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`: no thread can be started.
    fn workers(&self, config: ThreadsConfig) -> Result<Box<dyn Workers>, Errno> {
        Ok(Box::new(Threads::new(config)?))
    }
}

/// Carries bios by blocking calls; [`ThreadsConfig::deliver`] gets their completions.
pub trait Workers: BlockBackend {
    /// Delivers completions on a worker, as if the workers had carried their bios: a request that
    /// has ended on another thread must go on in the workers' descriptor table. Empties
    /// `completions`.
    fn deliver(&self, completions: &mut Vec<Completion>);

    /// Ends the bios that have not started, with `ECANCELED`; waits for the others, and takes no
    /// more bios.
    fn shutdown(&self);

    /// Delivers completions if no thread of the workers does; only for [`Executor::Owner`].
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

/// If callers must not enter rings, own queues are native AIO instead.
struct Rings {
    /// `true`: a ring cannot wait on a word of memory, and needs an eventfd.
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

struct ThreadsOnly;

impl Backends for ThreadsOnly {
    fn name(&self) -> &'static str {
        Threads::NAME
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
