//! Models of deferred requests: no request is left while a thread that could run it sleeps. No
//! thread of an engine looks for deferred requests here.

use super::*;
use crate::deferred::{Deferred, DeferredList};

struct Callers {
    list: Arc<DeferredList<u64>>,
    context: Weak<IoContext>,
}

impl Deferred for Callers {
    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn retry(&self) {
        let _running = self.list.begin();
        let missed = self.list.pop();
        missed.into_iter().for_each(|item| self.list.put_back(item));
    }

    fn run(&self) {
        let _running = self.list.begin();
        let context = self.context.upgrade().unwrap();
        if let Some(item) = self.list.pop() {
            context.complete(event(item.value));
        }
    }

    fn hand_over(&self) {
        let _running = self.list.begin();
        let context = self.context.upgrade().unwrap();
        while let Some(item) = self.list.pop() {
            context.complete(event(item.value));
        }
    }
}

type List = Arc<DeferredList<u64>>;

fn deferring(slots: usize) -> (Arc<IoContext>, List) {
    let (context, list) = (context(), List::default());
    let callers = Callers { list: list.clone(), context: Arc::downgrade(&context) };
    context.set_deferred(Box::new(callers));
    if slots > 0 {
        context.reserve(slots).unwrap();
    }
    (context, list)
}

fn defer(context: &IoContext, list: &DeferredList<u64>) {
    if list.push_all(core::iter::once(1)) {
        context.deferred_started();
    }
}

type Defer = fn(&IoContext, &DeferredList<u64>);

fn defer_in_silence(context: &IoContext, list: &DeferredList<u64>) {
    forgetting_wakes(|| defer(context, list));
}

fn one_sleeps(defer: Defer) {
    loom::model(move || {
        let (context, list) = deferring(1);
        let io = context.clone();
        let submitter = thread::spawn(move || defer(&io, &list));
        assert_eq!(take(&context, 1, 1), Ok(1));
        submitter.join().unwrap();
    });
}

#[test]
fn loom_a_sleeper_runs_what_is_deferred() {
    one_sleeps(defer);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_request_that_is_deferred_in_silence() {
    one_sleeps(defer_in_silence);
}

/// The device ends no request before the deferred one has ended.
fn a_poller_waits(defer: Defer) {
    loom::model(move || {
        let (context, list) = deferring(2);
        let own = Own::of(&context, 1);
        let io = context.clone();
        let submitter = thread::spawn(move || defer(&io, &list));
        assert_eq!(take(&context, 1, 1), Ok(1));
        own.end(1);
        assert_eq!(take(&context, 1, 1), Ok(1));
        submitter.join().unwrap();
    });
}

#[test]
fn loom_a_poller_runs_what_is_deferred() {
    a_poller_waits(defer);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_poller_that_is_not_told_of_what_is_deferred() {
    a_poller_waits(defer_in_silence);
}

#[test]
fn loom_two_sleepers_have_what_is_deferred_done() {
    loom::model(|| {
        let (context, list) = deferring(2);
        let sleepers = [(); 2].map(|()| {
            let context = context.clone();
            thread::spawn(move || assert_eq!(take(&context, 1, 1), Ok(1)))
        });
        if list.push_all(0..2) {
            context.deferred_started();
        }
        sleepers.into_iter().for_each(|sleeper| sleeper.join().unwrap());
    });
}

/// A thread looks for events, runs the list, and leaves. A request deferred meanwhile wakes no
/// thread, because that thread runs the list. A third thread sleeps.
fn one_looks_and_leaves(look: fn(&IoContext)) {
    loom::model(move || {
        let (context, list) = deferring(1);
        let sleeper = context.clone();
        let sleeper = thread::spawn(move || assert_eq!(take(&sleeper, 1, 1), Ok(1)));
        let io = context.clone();
        let submitter = thread::spawn(move || defer(&io, &list));
        look(&context);
        sleeper.join().unwrap();
        submitter.join().unwrap();
    });
}

fn look(context: &IoContext) {
    let wanted = WaitOptions::new(0, 0, Deadline::NOW);
    assert_eq!(context.wait_events(&wanted, |_, _| Ok(())), Ok(0));
}

#[test]
fn loom_who_looks_leaves_the_rest_to_a_sleeper() {
    one_looks_and_leaves(look);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_one_that_looks_and_leaves_without_a_word() {
    one_looks_and_leaves(|context| forgetting_wakes(|| look(context)));
}

fn one_destroys(defer: Defer) {
    loom::model(move || {
        let (context, list) = deferring(1);
        let (io, rest) = (context.clone(), list.clone());
        let submitter = thread::spawn(move || defer(&io, &rest));
        context.destroy(|| {}).unwrap();
        assert_eq!((context.outstanding(), list.len()), (0, 0));
        submitter.join().unwrap();
    });
}

#[test]
fn loom_destroy_runs_what_is_deferred() {
    one_destroys(defer);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_destroyer_that_is_not_told_of_what_is_deferred() {
    one_destroys(defer_in_silence);
}

/// Another thread begins to wait while the context is destroyed. The wake-up for the deferred
/// request may go to that thread, which leaves.
#[test]
fn loom_who_finds_a_dying_context_leaves_what_is_deferred_to_the_destroyer() {
    loom::model(|| {
        let (context, list) = deferring(1);
        let io = context.clone();
        let other = thread::spawn(move || _ = take(&io, 1, 1));
        let io = context.clone();
        let submitter = thread::spawn(move || defer(&io, &list));
        context.destroy(|| {}).unwrap();
        assert_eq!(context.outstanding(), 0);
        other.join().unwrap();
        submitter.join().unwrap();
    });
}
