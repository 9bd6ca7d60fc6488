//! What an engine is made of: what differs between an engine on a machine and one in a simulation.

use crate::BackendChoice;
use nowait_block::{
    BlockBackend, Completion, Limits,
    backends::{
        aio::Kaio,
        threads::{Threads, ThreadsConfig},
        uring::Uring,
    },
};
use nowait_sys::{Errno, uring::Issuer};
use std::sync::Arc;

/// Requests a queue of the machine may have under way: well below the 256 request tags of the
/// devices that make the kernel sleep when they run out.
const DEPTH: u32 = 192;

/// What an engine is made of.
pub struct Parts {
    /// Carry its bios.
    pub backends: Box<dyn Backends>,
    /// Why these backends, for reports.
    pub reason: String,
}

impl Parts {
    /// Is the machine with this backend, which must be usable; `Auto` is threads only.
    pub fn of_machine(choice: BackendChoice, reason: String) -> Parts {
        let backends: Box<dyn Backends> = match choice {
            BackendChoice::Uring => Box::new(Rings),
            BackendChoice::Kaio => Box::new(NativeAio),
            BackendChoice::Auto | BackendChoice::Threads => Box::new(ThreadsOnly),
        };
        Parts { backends, reason }
    }
}

/// Makes the backends of an engine.
pub trait Backends: Send + Sync {
    /// Returns the name used in reports, that of the queues.
    fn name(&self) -> &'static str;

    /// Returns what each queue can take; `None`: there are none, workers carry all bios.
    fn limits(&self) -> Option<Limits>;

    /// Makes the driver's queue; on the driver's thread, the only one that commits and reaps.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptor, no memory.
    fn driver_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno>;

    /// Makes a context's own queue; on a thread of the application, any of which may commit.
    ///
    /// # Errors
    /// Those of [`Backends::driver_queue`].
    fn own_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno>;

    /// Makes what carries bios that can only be carried by a blocking call.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`: no thread.
    fn workers(&self, config: ThreadsConfig) -> Result<Box<dyn Workers>, Errno> {
        Ok(Box::new(Threads::new(config)?))
    }
}

/// Carries bios by blocking calls; their completions go where [`ThreadsConfig::deliver`] says.
pub trait Workers: BlockBackend {
    /// Has these completions delivered as if they came from here: what has ended elsewhere must be
    /// continued in the workers' descriptor table. Empties the list.
    fn deliver(&self, completions: &mut Vec<Completion>);

    /// Ends what has not started with `ECANCELED`, waits for the rest, and takes no more.
    fn shutdown(&self);
}

impl Workers for Threads {
    fn deliver(&self, completions: &mut Vec<Completion>) {
        Threads::deliver(self, completions);
    }

    fn shutdown(&self) {
        Threads::shutdown(self);
    }
}

/// The machine's io_uring.
struct Rings;

impl Backends for Rings {
    fn name(&self) -> &'static str {
        Uring::NAME
    }

    fn limits(&self) -> Option<Limits> {
        Some(Uring::limits_of(DEPTH as usize))
    }

    fn driver_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno> {
        Ok(Arc::new(Uring::new(DEPTH, Issuer::Single)?))
    }

    fn own_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno> {
        Ok(Arc::new(Uring::new(DEPTH, Issuer::Any)?))
    }
}

/// The kernel's AIO.
struct NativeAio;

impl Backends for NativeAio {
    fn name(&self) -> &'static str {
        Kaio::NAME
    }

    fn limits(&self) -> Option<Limits> {
        Some(Kaio::limits_of(DEPTH as usize))
    }

    fn driver_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno> {
        self.own_queue()
    }

    fn own_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno> {
        Ok(Arc::new(Kaio::new(DEPTH)?))
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

    fn driver_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }

    fn own_queue(&self) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_the_machine_are_what_was_said_of_them() {
        for choice in [BackendChoice::Uring, BackendChoice::Kaio] {
            let Parts { backends, .. } = Parts::of_machine(choice, String::new());
            for queue in [backends.driver_queue(), backends.own_queue()] {
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
        let Parts { backends, .. } = Parts::of_machine(BackendChoice::Threads, String::new());
        assert_eq!((backends.name(), backends.limits()), ("threads", None));
    }
}
