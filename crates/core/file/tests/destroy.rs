//! A context is destroyed while other threads submit to it: the requests that they start end.

mod common;

use common::*;
use nowait_file::{
    Context, Engine, Kind, Link, Links,
    submit::{EventTarget, Started, Submission},
};
use nowait_sys::Errno;
use std::{
    io::PipeReader,
    os::unix::net::UnixStream,
    sync::{Arc, Barrier},
};

const POLLIN: u16 = 1;

/// With `NOWAIT_FULL` set, 10,000 rounds on each backend, in both submit modes together.
fn rounds() -> usize {
    match std::env::var_os("NOWAIT_FULL") {
        Some(_) => 5_000,
        None => 100,
    }
}

struct Silent {
    pipe: PipeReader,
    socket: UnixStream,
    memory: *mut [u8],
}

impl Silent {
    const REQUESTS: usize = 6;

    /// The caller has reserved the slots of the requests.
    fn start(&self, context: &Arc<Context>) {
        let mut submission = Submission::new(context);
        let target = |name| EventTarget { data: name, obj: name, eventfd: None };
        let link = Link::new(None);
        let first = Links { after: None, end: Some(link.clone()) };
        let second = Links { after: Some(link), end: None };
        let poll_linked =
            submission.start_linked(None, poll(&self.socket, POLLIN), target(0), first);
        assert_eq!(poll_linked, Ok(Started::Queued));
        let later = submission.start_linked(None, poll(&self.pipe, POLLIN), target(1), second);
        assert_eq!(later, Ok(Started::Queued));
        for name in 2..4 {
            submission
                .submit(command(Kind::Read, &self.pipe, self.memory, 0), target(name))
                .unwrap();
        }
        submission.submit(command(Kind::Read, &self.socket, self.memory, 0), target(4)).unwrap();
        submission.submit(poll(&self.pipe, POLLIN), target(5)).unwrap();
        submission.finish();
    }
}

// SAFETY: nothing is ever read into the memory.
unsafe impl Sync for Silent {}

fn meet(engine: &Arc<Engine>, begin: impl Fn(&Context, &Barrier) + Sync) {
    let (pipe, _writer) = std::io::pipe().unwrap();
    let (socket, _peer) = UnixStream::pair().unwrap();
    let silent = Silent { pipe, socket, memory: leaked(8, 0) };
    for _ in 0..rounds() {
        let context = Context::new(engine, 0, 16).unwrap();
        let barrier = Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert_eq!(context.io().reserve(Silent::REQUESTS), Ok(Silent::REQUESTS));
                begin(&context, &barrier);
                silent.start(&context);
            });
            barrier.wait();
            context.destroy().unwrap();
        });
        assert_eq!(context.io().outstanding(), 0);
        assert_eq!(context.io().reserve(1), Err(Errno::INVAL));
    }
}

#[test]
fn what_waits_for_ever_ends_when_submission_and_destroy_meet() {
    on_every_backend(|engine| {
        does_not_hang(|| {
            meet(engine, |_, barrier| {
                barrier.wait();
            });
        });
    });
}

#[test]
fn what_begins_after_destroy_ends_too() {
    on_every_backend(|engine| {
        does_not_hang(|| {
            meet(engine, |context, barrier| {
                barrier.wait();
                while !context.io().is_dead() {
                    core::hint::spin_loop();
                }
                // Often, destroy has then already looked for the requests to be cancelled.
                std::thread::yield_now();
            });
        });
    });
}

#[test]
fn of_several_that_destroy_a_context_one_does() {
    on_every_backend(|engine| {
        does_not_hang(|| {
            let (reader, _writer) = std::io::pipe().unwrap();
            for _ in 0..rounds() / 4 {
                let context = Context::new(engine, 0, 16).unwrap();
                for name in 0..4 {
                    submit(&context, name, poll(&reader, POLLIN)).unwrap();
                }
                let ended = std::thread::scope(|scope| {
                    let one = || context.destroy().map(|()| context.io().outstanding());
                    let threads: Vec<_> = (0..3).map(|_| scope.spawn(one)).collect();
                    threads.into_iter().map(|it| it.join().unwrap()).collect::<Vec<_>>()
                });
                assert_eq!(ended.iter().filter(|end| **end == Ok(0)).count(), 1, "{ended:?}");
                assert_eq!(ended.iter().filter(|end| **end == Err(Errno::INVAL)).count(), 2);
            }
        });
    });
}
