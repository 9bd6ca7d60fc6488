//! An operation under way (the kernel's kiocb).

use crate::{
    Operation, RunList, Step,
    kick::Kick,
    sync::Arc,
    wait::{Kickable, Wait},
};
use core::cell::UnsafeCell;
use nowait_sys::Errno;

/// An operation, the right to run it, and the run list on which a kick puts it.
pub struct Request<O: Operation> {
    kick: Kick,
    operation: UnsafeCell<O>,
    home: Arc<RunList<O>>,
}

// SAFETY: the operation is only touched by the holder of the kick's ACTIVE right, one thread at
// a time, handed on with acquire/release ordering; it is Send.
unsafe impl<O: Operation> Sync for Request<O> {}
// SAFETY: as above.
unsafe impl<O: Operation> Send for Request<O> {}

impl<O: Operation> Request<O> {
    /// Makes a request; the caller holds the right to run it. Kicks put it on `home`.
    pub fn new(operation: O, home: Arc<RunList<O>>) -> Arc<Request<O>> {
        Arc::new(Request { kick: Kick::new_active(), operation: UnsafeCell::new(operation), home })
    }

    /// Takes back the reference of a token made by [`Wait::token`].
    ///
    /// # Safety
    /// `token` comes from `Wait::token` of the same operation type and is taken back once.
    pub unsafe fn from_token(token: u64) -> Arc<Request<O>> {
        // SAFETY: promised above.
        unsafe { Arc::from_raw(token as *const Request<O>) }
    }

    /// Changes the operation before its first run, with what it can leave in wait queues. The
    /// caller has just made the request: a kick that comes early is remembered.
    pub fn prepare<T>(self: &Arc<Self>, change: impl FnOnce(&mut O, &Wait<'_, O>) -> T) -> T {
        // SAFETY: the right to run is the maker's, who has not run or handed on the request.
        change(unsafe { &mut *self.operation.get() }, &Wait(self))
    }

    /// Runs iterations until the operation is done, queued or waits.
    ///
    /// The caller holds the right: it made the request, took it from a run list, or was given
    /// its token with `result`, the end of the bio it had queued.
    pub fn run(self: &Arc<Self>, plug: &mut O::Plug, mut result: Option<Result<u32, Errno>>) {
        let wait = Wait(self);
        loop {
            let cancelled = self.kick.begin();
            // SAFETY: the right to run is ours, so nobody else has a reference. It is not used
            // after Queued or a final `end_retry`, when others may.
            let operation = unsafe { &mut *self.operation.get() };
            let step = match result.take() {
                Some(result) => operation.complete(plug, &wait, result),
                None if cancelled => Step::Done(Err(Errno::CANCELED)),
                None => operation.iterate(plug, &wait),
            };
            match step {
                // The right is never given back: a later kick finds ACTIVE and does nothing.
                Step::Done(result) => return operation.finish(plug, result),
                Step::Retry if self.kick.end_retry() => {}
                Step::Queued | Step::Retry => return,
            }
        }
    }

    /// Tells whether the operation was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.kick.is_cancelled()
    }

    /// Asks for the end of the operation: a waiting one ends with ECANCELED before its next
    /// iteration, one that a backend owns when the backend gives it back to wait again.
    pub fn cancel(self: &Arc<Self>) {
        if self.kick.cancel() {
            self.home.push(self.clone());
        }
    }
}

impl<O: Operation> Kickable for Request<O> {
    fn kick(self: Arc<Self>) {
        if self.kick.kick() {
            let home = self.home.clone();
            home.push(self);
        }
    }
}
