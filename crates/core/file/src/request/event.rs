//! The delivery of a request's result.

use crate::Context;
use nowait_block::bio::Descriptor;
use nowait_sys::{Errno, aio::IoEvent, eventfd};
use std::sync::Arc;

/// The data for a request's event, before it is known whether the event will be delivered.
#[derive(Clone, Copy, Debug)]
pub struct EventTarget {
    /// `data` of the iocb.
    pub data: u64,
    /// Address of the iocb, by which [`Context::cancel`] finds the request.
    pub obj: u64,
    /// The eventfd to signal, by a number that means it until the submission is finished.
    pub eventfd: Option<i32>,
}

/// The context that waits for a request, the data for its event, and the eventfd to signal. The
/// target holds the request's slot, which [`Target::deliver`] releases.
#[derive(Debug)]
pub struct Target {
    /// The context.
    pub context: Arc<Context>,
    /// `data` of the iocb.
    pub data: u64,
    /// Address of the iocb, at which nothing is read again.
    pub obj: u64,
    /// The eventfd to which the number belonged at submission, valid on any thread that may end the
    /// request.
    pub eventfd: Option<Arc<dyn Descriptor>>,
}

impl Target {
    /// Delivers the result and wakes the threads that wait for it.
    pub fn deliver(&self, result: Result<u32, Errno>) {
        // The eventfd is signalled after the event is visible, so that a woken thread finds it. The
        // slot is still held then: when the context or the process ends, every eventfd has been
        // signalled.
        self.context.io().complete_quietly(event(self.data, self.obj, result), || {
            if let Some(Ok(number)) = self.eventfd.as_ref().map(|held| held.number()) {
                eventfd::count(number);
            }
        });
        self.context.io().notify();
    }

    /// Submit wakes the waiters once, at its end.
    pub(crate) fn deliver_inline(
        context: &Context,
        target: &EventTarget,
        result: Result<u32, Errno>,
    ) {
        context.io().complete_quietly(event(target.data, target.obj, result), || {
            target.eventfd.into_iter().for_each(eventfd::count);
        });
    }
}

fn event(data: u64, obj: u64, result: Result<u32, Errno>) -> IoEvent {
    let res = match result {
        Ok(value) => i64::from(value),
        Err(errno) => -i64::from(errno.raw()),
    };
    IoEvent { data, obj, res, res2: 0 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Config, Engine};
    use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};

    #[derive(Debug)]
    struct Looks {
        context: Arc<Context>,
        unread: AtomicUsize,
        outstanding: AtomicUsize,
    }

    impl Descriptor for Looks {
        fn number(&self) -> Result<i32, Errno> {
            self.unread.store(self.context.io().ring().unread(), Relaxed);
            self.outstanding.store(self.context.io().outstanding(), Relaxed);
            Err(Errno::BADF)
        }
    }

    /// io_destroy and the end of the process wait until the slot is free.
    #[test]
    fn an_event_is_there_and_its_slot_is_held_until_it_is_counted() {
        let config = Config { backend: BackendChoice::Threads, ..Config::default() };
        let engine = Engine::on_machine(config, "test".to_owned()).unwrap();
        let context = Context::new(&engine, 0, 1).unwrap();
        let (unread, outstanding) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let looks = Arc::new(Looks { context: context.clone(), unread, outstanding });
        context.io().reserve(1).unwrap();
        let eventfd = Some(looks.clone() as Arc<dyn Descriptor>);
        Target { context: context.clone(), data: 1, obj: 1, eventfd }.deliver(Ok(0));
        assert_eq!((looks.unread.load(Relaxed), looks.outstanding.load(Relaxed)), (1, 1));
        assert_eq!(context.io().outstanding(), 0);
        context.destroy().unwrap();
        engine.shutdown();
    }
}
