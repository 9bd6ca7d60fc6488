//! Signals during `reap`.

#[path = "support/signals.rs"]
mod signals;

use core::sync::atomic::{AtomicPtr, Ordering::SeqCst};
use nowait_block::{
    Bio, BioOp, BlockBackend, Segments,
    backends::{
        aio::Kaio,
        mem::Mem,
        threads::{Threads, ThreadsConfig},
        uring::Uring,
    },
    skip::note_skip,
};
use nowait_sys::{Errno, time::Deadline, uring::Issuer};
use signals::{nothing, under_signals};
use std::{
    io::{PipeReader, pipe},
    os::fd::AsRawFd,
};

fn on_each(name: &str, test: fn(&dyn BlockBackend)) {
    test(&Threads::new(ThreadsConfig::default()).unwrap());
    test(&Mem::new(0, 1, 1));
    match Kaio::new(8) {
        Ok(kaio) => (0..10).for_each(|_| test(&kaio)),
        Err(errno) => note_skip(name, &errno.to_string()),
    }
    // The rings come last, because the end of a ring interrupts threads that used it.
    for issuer in [Issuer::Any, Issuer::InTurn, Issuer::Single] {
        match Uring::new(8, issuer, None) {
            Ok(uring) => (0..10).for_each(|_| test(&uring)),
            Err(errno) => note_skip(name, &errno.to_string()),
        }
    }
}

#[test]
fn signal_ends_a_reap_that_has_nothing() {
    on_each("signal_ends_a_reap_that_has_nothing", |backend| {
        let result = under_signals(nothing, || backend.reap(&mut Vec::new(), 1, Deadline::NEVER));
        assert_eq!(result, Err(Errno::INTR), "{}", backend.name());
    });
}

/// While a bio is in flight, a backend may wait in another way than without one.
fn poll_for_nothing(pipe: &PipeReader) -> Bio {
    let op = BioOp::Poll(0);
    // SAFETY: a poll has no buffer.
    unsafe { Bio::new(op, pipe.as_raw_fd(), Segments::NONE, 0, 1) }
}

static WOKEN: AtomicPtr<&'static dyn BlockBackend> = AtomicPtr::new(core::ptr::null_mut());

/// Handles a signal by waking the backend, also when the signal has already ended the wait, but
/// `reap` has not returned yet.
extern "C" fn wake(_signal: i32) {
    // SAFETY: the pointer is null, or refers to a value that outlives the signals.
    if let Some(backend) = unsafe { WOKEN.load(SeqCst).as_ref() } {
        backend.wake();
    }
}

#[test]
fn a_wake_up_is_not_lost_to_a_signal() {
    on_each("a_wake_up_is_not_lost_to_a_signal", |backend| {
        let (pipe, _writer) = pipe().unwrap();
        let polls = backend.name() != "mem";
        if polls {
            assert!(backend.queue(poll_for_nothing(&pipe)).is_ok());
            backend.commit();
        }
        WOKEN.store((&raw const backend).cast_mut().cast(), SeqCst);
        let result = under_signals(wake, || backend.reap(&mut Vec::new(), 1, Deadline::NEVER));
        WOKEN.store(core::ptr::null_mut(), SeqCst);
        assert_eq!(result, Ok(()), "{}", backend.name());
        backend.cancel(1);
        while backend.in_flight() > 0 {
            backend.reap(&mut Vec::new(), 1, Deadline::NEVER).unwrap();
        }
    });
}
