//! Panics, which the engine catches: they end neither the program nor the thread. A panic in an
//! iteration ends its request with EIO.

use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use nowait_retry::Step;
use nowait_sys::Errno;
use nowait_sys::mutex::Mutex;
use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
};

/// A thread that panics may have another descriptor table, without standard error, so a thread of
/// the application prints the message of the first panic.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    pub(crate) count: AtomicU64,
    line: Mutex<Option<String>>,
    is_untold: AtomicBool,
}

impl Failures {
    pub(crate) fn untold(&self) -> Option<String> {
        if !self.is_untold.load(Relaxed) {
            return None;
        }
        self.is_untold.store(false, Relaxed);
        self.line.lock().take()
    }

    pub(crate) fn note(&self, doing: &str, cause: &(dyn Any + Send)) {
        if self.count.fetch_add(1, Relaxed) > 0 {
            return;
        }
        let text = cause.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| cause.downcast_ref::<&str>().copied());
        let text = text.unwrap_or("no message");
        let line = format!("a thread failed {doing}: {text}");
        *self.line.lock() = Some(line);
        self.is_untold.store(true, Relaxed);
    }

    pub(crate) fn caught<T>(&self, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(value) => Some(value),
            Err(cause) => {
                self.note(doing, cause.as_ref());
                None
            }
        }
    }

    pub(crate) fn iteration(&self, iteration: impl FnOnce() -> Step) -> Step {
        let step = self.caught("in an iteration, whose request ended with EIO", iteration);
        step.unwrap_or(Step::Done(Err(Errno::IO)))
    }
}

/// Panics if a test has asked for it: at the step `at` of a request on this descriptor.
#[cfg(test)]
pub(crate) fn inject(fd: i32, at: At) {
    let wanted = tests::WANTED.load(core::sync::atomic::Ordering::SeqCst);
    assert!(wanted != (at as i64) << 32 | i64::from(fd), "injected");
}

#[cfg(test)]
thread_local! {
    static REFUSES_CREDENTIALS: core::cell::Cell<bool> = const { core::cell::Cell::new(false) };
}

/// While this value lives, the calling thread cannot read its credentials, as if a seccomp filter
/// forbade it.
#[cfg(test)]
pub(crate) struct RefusedCredentials(());

#[cfg(test)]
impl RefusedCredentials {
    pub(crate) fn begin() -> RefusedCredentials {
        REFUSES_CREDENTIALS.set(true);
        RefusedCredentials(())
    }

    pub(crate) fn look() -> Result<(), Errno> {
        if REFUSES_CREDENTIALS.get() { Err(Errno::PERM) } else { Ok(()) }
    }
}

#[cfg(test)]
impl Drop for RefusedCredentials {
    fn drop(&mut self) {
        REFUSES_CREDENTIALS.set(false);
    }
}

#[cfg(test)]
#[derive(Clone, Copy, Debug)]
pub(crate) enum At {
    Iterate = 1,
    Complete,
    Finish,
    Deliver,
    /// In a round of the driver; there is no descriptor.
    Round,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BackendChoice, Command, Config, Context, Engine, Kind, SubmitMode,
        command::open_for,
        submit::{EventTarget, Submission},
    };
    use core::sync::atomic::{AtomicI64, Ordering::SeqCst};
    use nowait_block::Segments;
    use nowait_sys::{
        file::{IoVec, rwf},
        time::Deadline,
    };
    use std::{fs::File, os::fd::AsRawFd, sync::Arc};

    pub(super) static WANTED: AtomicI64 = AtomicI64::new(0);

    fn reap(context: &Arc<Context>, count: usize) -> Vec<(u64, i64)> {
        let mut events = Vec::new();
        while events.len() < count {
            let left = count - events.len();
            let taken = context.wait_events(left, left, Deadline::NEVER, None, |_, event| {
                events.push((event.data, event.res));
                Ok(())
            });
            assert!(matches!(taken, Ok(_) | Err(Errno::INTR)), "{taken:?}");
        }
        events.sort_unstable();
        events
    }

    /// Submits durable writes of the same bytes: each waits for the one before.
    fn write(context: &Arc<Context>, file: &File, memory: &mut [u8], names: core::ops::Range<u64>) {
        let fd = file.as_raw_fd();
        context.io().reserve(names.clone().count()).unwrap();
        let mut submission = Submission::new(context);
        for name in names {
            let segment = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
            let segments = Segments::One(segment);
            // SAFETY: the test takes the event before the memory is freed.
            let mut write =
                unsafe { Command::new(Kind::Write, (fd, open_for(fd).unwrap()), segments, 0) };
            write.rw_flags = rwf::DSYNC;
            submission.submit(write, EventTarget { data: name, obj: name, eventfd: None }).unwrap();
        }
    }

    #[test]
    fn a_panic_ends_its_request_and_the_next_ones_work() {
        let io = -i64::from(Errno::IO.raw());
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let file = File::create(folder.path().join("file")).unwrap();
        let other = File::create(folder.path().join("other")).unwrap();
        let mut memory = vec![7; 4096];
        for backend in [BackendChoice::Uring, BackendChoice::Kaio, BackendChoice::Threads] {
            for submit in [SubmitMode::Auto, SubmitMode::Offload] {
                let config = Config { backend, submit, ..Config::default() };
                let engine = Engine::on_machine(config, "test".to_owned()).unwrap();
                assert_eq!(engine.untold_failure(), None);
                let context = Context::new(&engine, 0, 16).unwrap();
                let places = [At::Iterate, At::Complete, At::Finish, At::Deliver];
                for (count, at) in (1..).zip(places) {
                    WANTED.store((at as i64) << 32 | i64::from(file.as_raw_fd()), SeqCst);
                    write(&context, &file, &mut memory, 0..3);
                    write(&context, &other, &mut memory, 3..4);
                    let events = reap(&context, 4);
                    // The panic in the release comes after the write, whose result is good.
                    let over = matches!(at, At::Finish | At::Deliver);
                    let result = if over { 4096 } else { io };
                    assert_eq!(events, [(0, result), (1, result), (2, result), (3, 4096)]);
                    // The event may be visible before the panic that comes after it.
                    while engine.failures() < 3 * count {
                        std::thread::yield_now();
                    }
                    WANTED.store(0, SeqCst);
                    write(&context, &file, &mut memory, 0..3);
                    assert_eq!(reap(&context, 3), [(0, 4096), (1, 4096), (2, 4096)]);
                    // A caller without a minimum waits for no further event.
                    let limit = Deadline::after_ns(60_000_000_000);
                    let none = context.wait_events(0, 9, limit, None, |_, _| Ok(()));
                    assert!(none == Ok(0) && !limit.has_passed(), "{at:?}: {none:?}");
                }
                assert_eq!(engine.failures(), 12, "{backend:?}");
                if backend != BackendChoice::Threads {
                    WANTED.store((At::Round as i64) << 32, SeqCst);
                    engine.threads.driver.wake();
                    write(&context, &file, &mut memory, 0..3);
                    while engine.failures() == 12 {
                        std::thread::yield_now();
                    }
                    WANTED.store(0, SeqCst);
                    assert_eq!(reap(&context, 3), [(0, 4096), (1, 4096), (2, 4096)]);
                }
                let line = engine.untold_failure();
                assert!(line.is_some_and(|line| line.contains("injected")));
                assert_eq!(engine.untold_failure(), None, "said once");
                context.destroy().unwrap();
                engine.shutdown();
            }
        }
    }
}
