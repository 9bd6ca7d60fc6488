//! An engine of threads whose calls go to a model instead of the kernel.

use nowait::Errno;
use nowait_block::backends::threads::{Carry, Threads, ThreadsConfig};
use nowait_file::parts::{Backends, Workers};

pub(crate) struct Carried(pub(crate) Carry);

impl Backends for Carried {
    fn name(&self) -> &'static str {
        Threads::NAME
    }

    fn workers(&self, config: ThreadsConfig) -> Result<Box<dyn Workers>, Errno> {
        Ok(Box::new(Threads::new(ThreadsConfig { carry: self.0.clone(), ..config })?))
    }
}
