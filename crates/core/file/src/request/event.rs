//! The target of a request's event.

use crate::Context;
use nowait_block::bio::Descriptor;
use nowait_sys::{Errno, aio::IoEvent, eventfd};
use std::sync::Arc;

/// Where the event goes, before it is known that there will be one.
#[derive(Clone, Copy, Debug)]
pub struct EventTarget {
    /// `data` of the iocb.
    pub data: u64,
    /// Address of the iocb; what [`Context::cancel`] finds the request by.
    pub obj: u64,
    /// The application's event counter to signal.
    pub eventfd: Option<i32>,
}

/// The context that waits for a request, what its event will say, and the event counter to
/// signal. Holds the request's slot: exactly one [`Target::deliver`] for each.
#[derive(Debug)]
pub struct Target {
    /// The context.
    pub context: Arc<Context>,
    /// `data` of the iocb.
    pub data: u64,
    /// Address of the iocb; it is never read again.
    pub obj: u64,
    /// The event counter as it was at submission, for the threads on which the request may end.
    pub eventfd: Option<Arc<dyn Descriptor>>,
}

impl Target {
    /// Delivers the result and wakes the threads that wait for it.
    pub fn deliver(&self, result: Result<u32, Errno>) {
        self.context.io().complete_quietly(self.event(result));
        // After the event is visible: a thread that is woken by the counter finds it.
        if let Some(Ok(number)) = self.eventfd.as_ref().map(|held| held.number()) {
            eventfd::signal(number);
        }
        self.context.io().notify();
    }

    /// Makes the event that says this result.
    pub(crate) fn event(&self, result: Result<u32, Errno>) -> IoEvent {
        event(self.data, self.obj, result)
    }

    /// Delivers a result found inside submit, which wakes waiters once at its end.
    pub(crate) fn deliver_inline(
        context: &Context,
        target: &EventTarget,
        result: Result<u32, Errno>,
    ) {
        context.io().complete_quietly(event(target.data, target.obj, result));
        if let Some(number) = target.eventfd {
            eventfd::signal(number);
        }
    }
}

fn event(data: u64, obj: u64, result: Result<u32, Errno>) -> IoEvent {
    let res = match result {
        Ok(value) => i64::from(value),
        Err(errno) => -i64::from(errno.raw()),
    };
    IoEvent { data, obj, res, res2: 0 }
}
