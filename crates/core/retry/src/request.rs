//! A request: an operation in flight (the kernel's kiocb).

use crate::{Operation, RunList, Step, kick::Kick, primitives::Arc, wait::Wait};
use core::{cell::UnsafeCell, mem::ManuallyDrop};
use nowait_sys::Errno;
use std::task::Wake;

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
    /// Makes a request whose right to run the caller holds. A kick puts the request on `home` if no
    /// party holds the right.
    pub fn new(operation: O, home: Arc<RunList<O>>) -> Arc<Request<O>> {
        Arc::new(Request { kick: Kick::new_active(), operation: UnsafeCell::new(operation), home })
    }

    /// Takes back the reference of a token.
    ///
    /// # Safety
    /// `token` comes from `Wait::token` of the same operation type and is taken back once.
    pub unsafe fn from_token(token: u64) -> Arc<Request<O>> {
        // SAFETY: promised above.
        unsafe { Arc::from_raw(token as *const Request<O>) }
    }

    /// Gives `change` access to the operation before its next run. The caller holds the right to
    /// run the request.
    pub fn prepare<T>(self: &Arc<Self>, change: impl FnOnce(&mut O, &Wait<'_, O>) -> T) -> T {
        // SAFETY: the caller holds the right to run, and has neither run nor handed on the request.
        change(unsafe { &mut *self.operation.get() }, &Wait(self))
    }

    /// Returns `true` if the request of this token was asked to end.
    ///
    /// # Safety
    /// `token` comes from `Wait::token` of the same operation type and was not taken back yet.
    pub unsafe fn is_token_cancelled(token: u64) -> bool {
        // SAFETY: promised above; the token keeps the reference.
        let request = ManuallyDrop::new(unsafe { Request::<O>::from_token(token) });
        request.is_cancelled()
    }

    /// Runs iterations until the operation is done, is queued or waits. The caller holds the right
    /// to run the request: the caller made it, took it from a list, or got its token with the
    /// `result` of its bio.
    pub fn run(self: &Arc<Self>, plug: &mut O::Plug, mut result: Option<Result<u32, Errno>>) {
        let wait = Wait(self);
        loop {
            let cancelled = self.kick.begin();
            // SAFETY: this thread holds the right to run, so there is no other reference. The
            // reference is not used after Queued or a final `end_retry`, when other threads may run
            // the operation.
            let operation = unsafe { &mut *self.operation.get() };
            let step = match result.take() {
                Some(result) => operation.complete(plug, &wait, result),
                None if cancelled => Step::Done(Err(Errno::CANCELED)),
                None => operation.iterate(plug, &wait),
            };
            match step {
                // ACTIVE stays set, so later kicks do nothing.
                Step::Done(result) => return operation.finish(plug, &wait, result),
                Step::Retry if self.kick.end_retry() => {}
                Step::Queued | Step::Retry => return,
            }
        }
    }

    /// Returns `true` if the operation was asked to end.
    pub fn is_cancelled(&self) -> bool {
        self.kick.is_cancelled()
    }

    /// Asks for the end of the operation: instead of its next iteration, it finishes with
    /// ECANCELED. If a backend has a bio of the operation, the operation first takes the bio's
    /// result.
    pub fn cancel(self: &Arc<Self>) {
        if self.kick.cancel() {
            self.home.push(self.clone());
        }
    }
}

impl<O: Operation> Wake for Request<O> {
    fn wake(self: Arc<Self>) {
        if self.kick.kick() {
            let home = self.home.clone();
            home.push(self);
        }
    }
}

#[cfg(all(test, loom))]
mod loom_tests {
    use super::*;
    use crate::primitives::{AtomicBool, AtomicU32, Ordering::Relaxed, Ordering::SeqCst};
    use loom::thread;

    struct Waits {
        shared: Arc<Shared>,
    }

    struct Shared {
        ready: AtomicBool,
        ended: AtomicU32,
        cancelled: AtomicU32,
    }

    impl Operation for Waits {
        type Plug = ();

        fn iterate(&mut self, (): &mut (), _wait: &Wait<'_, Self>) -> Step {
            assert_eq!(self.shared.ended.load(Relaxed), 0, "run after its end");
            if self.shared.ready.load(SeqCst) { Step::Done(Ok(1)) } else { Step::Retry }
        }

        fn complete(
            &mut self,
            (): &mut (),
            _: &Wait<'_, Self>,
            result: Result<u32, Errno>,
        ) -> Step {
            Step::Done(result)
        }

        fn finish(&mut self, (): &mut (), _: &Wait<'_, Self>, result: Result<u32, Errno>) {
            self.shared.ended.fetch_add(1, SeqCst);
            self.shared.cancelled.fetch_add(u32::from(result.is_err()), SeqCst);
        }
    }

    fn run_all(home: &RunList<Waits>) {
        let mut batch = Vec::new();
        home.take(&mut batch, usize::MAX);
        for request in batch.drain(..) {
            request.run(&mut (), None);
        }
    }

    fn storm(cancel: fn(&Arc<Request<Waits>>, &RunList<Waits>)) {
        loom::model(move || {
            let shared = Arc::new(Shared {
                ready: AtomicBool::new(false),
                ended: AtomicU32::new(0),
                cancelled: AtomicU32::new(0),
            });
            let home: Arc<RunList<Waits>> = Arc::default();
            let request = Request::new(Waits { shared: shared.clone() }, home.clone());
            let (device, list, state) = (request.clone(), home.clone(), shared.clone());
            let device = thread::spawn(move || {
                state.ready.store(true, SeqCst);
                device.wake();
                run_all(&list);
            });
            let (cancelled, list) = (request.clone(), home.clone());
            let canceller = thread::spawn(move || cancel(&cancelled, &list));
            request.run(&mut (), None);
            device.join().unwrap();
            canceller.join().unwrap();
            run_all(&home);
            assert_eq!(shared.ended.load(SeqCst), 1, "its end came neither late nor twice");
        });
    }

    #[test]
    fn loom_a_cancelled_request_ends_once() {
        storm(|request, home| {
            request.cancel();
            run_all(home);
        });
    }

    #[test]
    #[should_panic(expected = "its end")]
    fn loom_canary_running_without_the_right_is_caught() {
        storm(|request, _| request.clone().run(&mut (), None));
    }
}
