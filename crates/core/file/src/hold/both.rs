//! A descriptor of the engine that is in both descriptor tables.

use super::{Counted, Deferred, HeldFd, in_engine_table};
use nowait_block::bio::Descriptor;
use nowait_sys::{Errno, Fd};
use std::sync::Arc;

#[derive(Debug)]
pub(crate) struct BothTables {
    /// The application-side descriptor, and its count, which is dropped after it.
    here: Option<(Fd, Option<Counted>)>,
    pub(crate) there: Arc<HeldFd>,
    deferred: Arc<Deferred<Box<dyn Send>>>,
}

impl Descriptor for BothTables {
    fn number(&self) -> Result<i32, Errno> {
        match (&self.here, in_engine_table()) {
            (Some((here, _)), false) => Ok(here.raw()),
            _ => self.there.number(),
        }
    }
}

impl Drop for BothTables {
    fn drop(&mut self) {
        if let Some((here, count)) = self.here.take().filter(|_| in_engine_table()) {
            let all = count.as_ref().map(Counted::all);
            self.deferred.put(Box::new((here, count)));
            all.inspect(|all| all.tell());
        }
    }
}

impl BothTables {
    pub(crate) fn new(
        here: Fd,
        count: Option<Counted>,
        there: Arc<HeldFd>,
        deferred: Arc<Deferred<Box<dyn Send>>>,
    ) -> BothTables {
        BothTables { here: Some((here, count)), there, deferred }
    }

    pub(crate) fn here(&self) -> Option<i32> {
        self.here.as_ref().map(|(here, _)| here.raw())
    }
}
