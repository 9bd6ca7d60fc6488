//! The own queue of a context, and its requests in flight.

use crate::{
    Command, Engine, Kind,
    engine::queues::NO_QUEUES,
    request::direct::{BLOCK, DirectRequest, DirectRequests},
};
use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use nowait_block::{Bio, BlockBackend, Limits, Refused};
use nowait_sys::Errno;
use std::sync::Arc;

pub(crate) struct OwnQueue {
    /// `None` for a context with a sink, or if the machine or the number of contexts does not allow
    /// a queue.
    pub(super) queue: Option<Arc<dyn BlockBackend>>,
    /// The number of completions that the pump's last run has left unhandled.
    pub(crate) unrun: Arc<AtomicUsize>,
    pub(crate) direct: DirectRequests,
}

impl OwnQueue {
    /// Returns the requests that the kernel refused, or `None` if there is no queue or no room in
    /// it.
    pub(crate) fn give(
        &self,
        engine: &Engine,
        command: &Command,
        (give, counter): (Give, Option<i32>),
        make: impl FnOnce() -> DirectRequest,
    ) -> Option<Refused> {
        let own = self.queue.as_ref()?;
        // Remembered flags may be out of date; the kernel reads the current ones.
        let is_hinted = command.is_hinted();
        let rw_flags = if is_hinted { command.rw_flags } else { engine.known.rw_flags(command) };
        let how = (command, rw_flags);
        match give {
            Give::Queue => {
                self.direct.start(how, counter, make, |bio| own.queue(bio))?;
                Some(Refused::default())
            }
            Give::Now => self.direct.start(how, counter, make, |bio| own.submit_now(bio, false)),
            Give::Waiting => self.direct.start(how, counter, make, |bio| own.submit_now(bio, true)),
        }
    }

    pub(crate) fn limits(&self) -> Limits {
        self.queue.as_ref().map_or(NO_QUEUES, |own| own.limits())
    }

    /// Returns `true` if the queue carries out a direct request before all those that are committed
    /// later. That does not hold if a kernel thread may carry the request out, or if the kernel may
    /// refuse the request after others have been committed.
    pub(crate) fn keeps_order(&self, command: &Command) -> bool {
        // The kernel may start the first part of a read and refuse the rest.
        let is_refused_late = command.kind == Kind::Read && command.len > BLOCK;
        !self.limits().writes && !is_refused_late
    }

    pub(crate) fn has_room(&self, more: usize) -> bool {
        self.queue.as_ref().is_some_and(|own| own.has_room(more))
    }

    pub(super) fn in_flight(&self) -> usize {
        self.queue.as_ref().map_or(0, |own| own.in_flight()) + self.unrun.load(Relaxed)
    }

    pub(super) fn has_unrun(&self) -> bool {
        self.unrun.load(Relaxed) > 0
    }

    pub(crate) fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let Some(own) = &self.queue else { return Err(bio) };
        own.queue(bio)
    }

    pub(crate) fn commit(&self) -> Refused {
        self.queue.as_ref().map(|own| own.commit_or_refuse()).unwrap_or_default()
    }

    pub(super) fn cancel(&self, obj: u64) -> Result<(), Errno> {
        self.cancel_bio(self.direct.cancel(obj).ok_or(Errno::INVAL)?);
        Ok(())
    }

    pub(crate) fn cancel_bio(&self, token: u64) {
        self.queue.iter().for_each(|own| own.cancel(token));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Give {
    /// The request is queued; the commit of the submission starts it.
    Queue,
    /// The kernel gets the request at once: no other request is in the submission.
    Now,
    /// The kernel gets the request at once, and may make the thread wait, as io_submit(2) does.
    Waiting,
}
