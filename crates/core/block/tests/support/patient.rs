//! Wraps a backend for callers that take signals.

use nowait_block::{Bio, BlockBackend, Completion, Limits};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, time::Deadline};

/// Queues a bio again if it ends with `ECANCELED` although no thread has cancelled it.
///
/// If a request of a ring cannot begin without waiting, the kernel may make a worker thread for it
/// on behalf of the thread that has entered the ring. If that thread has a pending signal then, the
/// kernel tries again. After a few attempts the kernel ends the request with `ECANCELED`, and has
/// transferred nothing (`io_queue_worker_create` in Linux's io_uring/io-wq.c). The engine submits
/// such requests again (`gave_up` in nowait-file); the threads of the engine block signals.
pub(crate) struct Patient<B> {
    inner: B,
    in_flight: Mutex<Vec<Pending>>,
}

struct Pending {
    bio: Bio,
    is_cancelled: bool,
}

impl<B: BlockBackend> Patient<B> {
    pub(crate) fn new(inner: B) -> Patient<B> {
        Patient { inner, in_flight: Mutex::default() }
    }

    /// The inner backend has room for the bios queued again, because `Patient` has counted them as
    /// in flight all the time.
    fn pass_on(&self, fresh: Vec<Completion>, done: &mut Vec<Completion>) {
        let mut in_flight = self.in_flight.lock();
        for completion in fresh {
            let at = in_flight.iter().position(|it| it.bio.token == completion.token);
            let pending = &in_flight[at.expect("it was queued")];
            if completion.result == Err(Errno::CANCELED) && !pending.is_cancelled {
                self.inner.queue(pending.bio.clone()).expect("its place is free");
            } else {
                in_flight.remove(at.expect("it was queued"));
                done.push(completion);
            }
        }
        drop(in_flight);
        self.inner.commit();
    }

    /// [Endless](Bio::is_endless) bios do not count.
    fn is_full(&self, in_flight: &[Pending]) -> bool {
        let count = in_flight.iter().filter(|it| !it.bio.is_endless()).count();
        count >= self.inner.limits().depth
    }
}

impl<B: BlockBackend> BlockBackend for Patient<B> {
    fn name(&self) -> &'static str {
        "patient"
    }

    fn limits(&self) -> Limits {
        self.inner.limits()
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        let mut in_flight = self.in_flight.lock();
        if !bio.is_endless() && self.is_full(&in_flight) {
            return Err(bio);
        }
        self.inner.queue(bio.clone())?;
        in_flight.push(Pending { bio, is_cancelled: false });
        Ok(())
    }

    fn commit(&self) {
        self.inner.commit();
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        let before = done.len();
        loop {
            let (missing, mut fresh) = ((before + min).saturating_sub(done.len()), Vec::new());
            let result = self.inner.reap(&mut fresh, missing, deadline);
            // `wake` was called, the deadline has passed, or a signal came.
            let is_early = fresh.len() < missing;
            self.pass_on(fresh, done);
            match result {
                Err(errno) if done.len() == before => return Err(errno),
                Err(_) => return Ok(()),
                Ok(()) if is_early || done.len() >= before + min => return Ok(()),
                Ok(()) => {}
            }
        }
    }

    fn wake(&self) {
        self.inner.wake();
    }

    fn cancel(&self, token: u64) {
        for pending in self.in_flight.lock().iter_mut().filter(|it| it.bio.token == token) {
            pending.is_cancelled = true;
        }
        self.inner.cancel(token);
    }

    fn descriptors(&self) -> Vec<i32> {
        self.inner.descriptors()
    }

    fn readable(&self) -> Option<i32> {
        self.inner.readable()
    }

    fn in_flight(&self) -> usize {
        self.in_flight.lock().len()
    }
}
