//! An engine of threads whose calls go to a model instead of the kernel.

use nowait::Errno;
use nowait_block::{
    BlockBackend,
    backends::threads::{Carry, Threads, ThreadsConfig},
};
use nowait_file::parts::{Backends, Counter, Workers};
use nowait_sys::uring::Issuer;
use std::sync::Arc;

/// Threads only; the model carries their bios.
pub(crate) struct Carried(pub(crate) Carry);

impl Backends for Carried {
    fn name(&self) -> &'static str {
        Threads::NAME
    }

    fn limits(&self) -> Option<nowait_block::Limits> {
        None
    }

    fn driver_queue(&self, _: Option<Counter>) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }

    fn own_queue(&self, _: Option<Counter>, _: Issuer) -> Result<Arc<dyn BlockBackend>, Errno> {
        Err(Errno::NOSYS)
    }

    fn workers(&self, config: ThreadsConfig) -> Result<Box<dyn Workers>, Errno> {
        Ok(Box::new(Threads::new(ThreadsConfig { carry: self.0.clone(), ..config })?))
    }
}
