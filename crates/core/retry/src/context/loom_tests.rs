//! Models of events, waiting threads, pollers, synchronous requests and destruction. If a thread is
//! not woken, loom reports a deadlock. Most canaries forget one wake-up.

mod deferred;

use super::*;
use crate::primitives::{AtomicBool, AtomicU32, Mutex, forgetting_wakes, futex_wait, futex_wake};
use loom::thread;
use std::sync::Weak;

fn event(data: u64) -> IoEvent {
    IoEvent { data, ..IoEvent::default() }
}

fn context() -> Arc<IoContext> {
    Arc::new(IoContext::new(0, 4, Stats::new(false)).unwrap())
}

fn take(context: &IoContext, min: usize, max: usize) -> Result<usize, Errno> {
    context.wait_events(&WaitOptions::new(min, max, Deadline::NEVER), |_, _| Ok(()))
}

/// A context's own queue, and the device that ends its requests.
#[derive(Default)]
struct Own {
    state: Mutex<State>,
    word: AtomicU32,
    at_wait: Mutex<Option<Box<dyn FnOnce() + Send>>>,
}

#[derive(Default)]
struct State {
    in_flight: usize,
    ended: usize,
    /// Completions that belong to no request.
    pages: usize,
    is_interrupted: bool,
}

impl Own {
    fn of(context: &Arc<IoContext>, in_flight: usize) -> Arc<Own> {
        let own = Arc::new(Own::default());
        own.state.lock().in_flight = in_flight;
        context.set_pump(Box::new(Handle { own: own.clone(), context: Arc::downgrade(context) }));
        own
    }

    fn start(&self) {
        self.state.lock().in_flight += 1;
    }

    fn end(&self, count: usize) {
        self.state.lock().ended += count;
        self.rouse();
    }

    fn end_page(&self) {
        self.state.lock().pages += 1;
        self.rouse();
    }

    fn rouse(&self) {
        self.word.fetch_add(1, SeqCst);
        futex_wake(&self.word, 1);
    }
}

struct Handle {
    own: Arc<Own>,
    context: Weak<IoContext>,
}

impl Pump for Handle {
    fn is_busy(&self) -> bool {
        self.own.state.lock().in_flight > 0
    }

    fn wait(&self, need: usize, deadline: Deadline) -> Result<(), Errno> {
        if need > 0 {
            let happens = self.own.at_wait.lock().take();
            happens.into_iter().for_each(|it| it());
        }
        loop {
            let heard = self.own.word.load(SeqCst);
            let mut state = self.own.state.lock();
            let is_interrupted = core::mem::take(&mut state.is_interrupted);
            if is_interrupted || state.pages > 0 || state.ended >= need {
                return Ok(());
            }
            drop(state);
            let _ = futex_wait(&self.own.word, heard, deadline);
        }
    }

    fn run(&self) {
        let mut state = self.own.state.lock();
        let ended = core::mem::take(&mut state.ended);
        state.in_flight -= ended + core::mem::take(&mut state.pages);
        drop(state);
        let context = self.context.upgrade().unwrap();
        (0..ended).for_each(|_| context.complete(event(1)));
    }

    fn interrupt(&self) {
        self.own.state.lock().is_interrupted = true;
        self.own.rouse();
    }
}

fn one_waits(complete: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        context.reserve(1).unwrap();
        let producer = context.clone();
        let producer = thread::spawn(move || complete(&producer));
        let mut seen = Vec::new();
        let took = context.wait_events(&WaitOptions::new(1, 1, Deadline::NEVER), |_, event| {
            seen.push(event.data);
            Ok(())
        });
        assert_eq!((took, seen), (Ok(1), vec![7]));
        producer.join().unwrap();
    });
}

#[test]
fn loom_a_waiter_does_not_miss_the_event() {
    one_waits(|context| context.complete(event(7)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_an_event_that_wakes_no_thread() {
    one_waits(|context| forgetting_wakes(|| context.complete(event(7))));
}

/// Nothing ends in the poller's queue before the poller has taken the event from elsewhere.
fn an_event_from_elsewhere(complete: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        context.reserve(2).unwrap();
        let own = Own::of(&context, 1);
        let worker = context.clone();
        let worker = thread::spawn(move || complete(&worker));
        assert_eq!(take(&context, 1, 1), Ok(1));
        own.end(1);
        assert_eq!(take(&context, 1, 1), Ok(1));
        worker.join().unwrap();
    });
}

#[test]
fn loom_the_leader_hears_of_an_event_from_elsewhere() {
    an_event_from_elsewhere(|context| context.complete(event(2)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_leader_that_is_not_interrupted() {
    an_event_from_elsewhere(|context| forgetting_wakes(|| context.complete(event(2))));
}

#[test]
fn loom_a_poller_waits_in_its_queue_only_for_what_has_not_come_from_elsewhere() {
    loom::model(|| {
        let context = context();
        context.reserve(2).unwrap();
        let own = Own::of(&context, 1);
        let device = context.clone();
        let device = thread::spawn(move || {
            device.complete(event(2));
            own.end(1);
        });
        assert_eq!(take(&context, 2, 2), Ok(2));
        device.join().unwrap();
    });
}

/// The poller waits for two events. When one has come, a second thread begins to wait for one
/// event. The device ends the other requests only after the second thread has taken its event.
#[test]
fn loom_a_thread_that_waits_for_fewer_than_the_poller_gets_them() {
    loom::model(|| {
        let context = context();
        context.reserve(3).unwrap();
        let own = Own::of(&context, 3);
        let (device, io) = (own.clone(), context.clone());
        *own.at_wait.lock() = Some(Box::new(move || {
            device.end(1);
            thread::spawn(move || {
                assert_eq!(take(&io, 1, 1), Ok(1));
                device.end(2);
            });
        }));
        assert_eq!(take(&context, 2, 2), Ok(2));
    });
}

#[test]
fn loom_an_event_from_elsewhere_goes_to_the_thread_for_which_it_is_enough() {
    loom::model(|| {
        let context = context();
        context.reserve(3).unwrap();
        let own = Own::of(&context, 2);
        let (device, io, worker) = (own.clone(), context.clone(), context.clone());
        *own.at_wait.lock() = Some(Box::new(move || {
            thread::spawn(move || {
                assert_eq!(take(&io, 1, 1), Ok(1));
                device.end(2);
            });
            thread::spawn(move || worker.complete(event(2)));
        }));
        assert_eq!(take(&context, 2, 2), Ok(2));
    });
}

/// One thread polls, takes an event from elsewhere and leaves. Another thread waits for the
/// requests in the own queue.
fn a_leader_leaves(take_one: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        context.reserve(3).unwrap();
        let own = Own::of(&context, 2);
        let (other, device) = (context.clone(), context.clone());
        let other = thread::spawn(move || assert_eq!(take(&other, 2, 2), Ok(2)));
        let device = thread::spawn(move || {
            device.complete(event(2));
            own.end(2);
        });
        take_one(&context);
        other.join().unwrap();
        device.join().unwrap();
    });
}

#[test]
fn loom_a_leader_that_leaves_calls_for_another() {
    a_leader_leaves(|context| assert_eq!(take(context, 1, 1), Ok(1)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_leader_that_leaves_without_a_word() {
    a_leader_leaves(|context| forgetting_wakes(|| assert_eq!(take(context, 1, 1), Ok(1))));
}

fn a_start_in_the_own_queue(say_so: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        context.reserve(1).unwrap();
        let own = Own::of(&context, 0);
        let waiter = context.clone();
        let waiter = thread::spawn(move || assert_eq!(take(&waiter, 1, 1), Ok(1)));
        own.start();
        say_so(&context);
        own.end(1);
        waiter.join().unwrap();
    });
}

#[test]
fn loom_what_starts_in_the_own_queue_finds_a_leader() {
    a_start_in_the_own_queue(IoContext::pump_started);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_start_that_wakes_no_thread() {
    a_start_in_the_own_queue(|context| forgetting_wakes(|| context.pump_started()));
}

/// The thread that is called to poll may find the event from elsewhere, and leave. Only the
/// engine's thread needs to be preempted, once; more preemptions would take hours.
#[test]
fn loom_a_thread_that_was_called_to_poll_and_leaves_calls_another() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(1);
    model.check(|| {
        let context = context();
        context.reserve(3).unwrap();
        let own = Own::of(&context, 0);
        let (other, engine) = (context.clone(), context.clone());
        let other = thread::spawn(move || assert_eq!(take(&other, 2, 2), Ok(2)));
        let engine = thread::spawn(move || {
            engine.complete_quietly(event(2), || {});
            own.start();
            own.start();
            engine.pump_started();
            engine.notify();
            own.end(2);
        });
        assert_eq!(take(&context, 1, 1), Ok(1));
        other.join().unwrap();
        engine.join().unwrap();
    });
}

/// A thread waits in the own queue, in which nothing is in flight. One event is of a request that
/// starts there later, the other comes from elsewhere.
fn one_that_lingers(complete: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        context.reserve(2).unwrap();
        let own = Own::of(&context, 0);
        context.lingers.set(true);
        let waiter = context.clone();
        let waiter = thread::spawn(move || {
            assert_eq!(take(&waiter, 1, 1), Ok(1));
            assert_eq!(take(&waiter, 1, 1), Ok(1));
        });
        own.start();
        context.pump_started();
        own.end(1);
        complete(&context);
        waiter.join().unwrap();
    });
}

#[test]
fn loom_a_poller_that_lingers_misses_neither_a_start_nor_an_event_from_elsewhere() {
    one_that_lingers(|context| context.complete(event(2)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_poller_that_lingers_and_is_not_called() {
    one_that_lingers(|context| forgetting_wakes(|| context.complete(event(2))));
}

/// Two threads wait for one promised event. The thread that does not get it must return, too.
fn a_promise_for_two(keep: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        context.reserve(1).unwrap();
        context.synchronous_begins();
        let patient = || WaitOptions { patient: true, ..WaitOptions::new(0, 1, Deadline::NEVER) };
        let (other, keeper) = (context.clone(), context.clone());
        let other = thread::spawn(move || other.wait_events(&patient(), |_, _| Ok(())).unwrap());
        let keeper = thread::spawn(move || {
            keeper.complete(event(1));
            keep(&keeper);
        });
        let here = context.wait_events(&patient(), |_, _| Ok(())).unwrap();
        assert_eq!(here + other.join().unwrap(), 1);
        keeper.join().unwrap();
    });
}

#[test]
fn loom_a_kept_promise_ends_the_patience_of_all() {
    a_promise_for_two(IoContext::synchronous_ends);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_promise_kept_in_silence() {
    a_promise_for_two(|context| forgetting_wakes(|| context.synchronous_ends()));
}

fn a_waiter_in_a_dying_context(destroy: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        let waiter = context.clone();
        let waiter = thread::spawn(move || assert_eq!(take(&waiter, 1, 1), Err(Errno::INVAL)));
        destroy(&context);
        waiter.join().unwrap();
    });
}

#[test]
fn loom_destroy_wakes_who_waits() {
    a_waiter_in_a_dying_context(|context| context.destroy(|| {}).unwrap());
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_destroyer_that_wakes_no_thread() {
    a_waiter_in_a_dying_context(|context| {
        forgetting_wakes(|| context.destroy(|| {}).unwrap());
    });
}

fn destruction(reserve: fn(&IoContext) -> Result<usize, Errno>, complete: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        let submitter = context.clone();
        let submitter = thread::spawn(move || {
            if reserve(&submitter).is_ok() {
                assert!(!gone(&submitter), "accepted by a context that is gone");
                complete(&submitter);
            }
        });
        context.destroy(|| {}).unwrap();
        context.waiters.try_become_poller(); // marks "destroy has returned" for the check above
        submitter.join().unwrap();
        assert_eq!(context.outstanding(), 0);
    });
}

fn gone(context: &IoContext) -> bool {
    context.has_poller()
}

/// `register` returns `true` if the submitter must cancel the request itself.
fn endless(register: fn(&IoContext, &dyn Fn()) -> bool) {
    loom::model(move || {
        let context = context();
        let requests = Arc::new(Mutex::new(Vec::new()));
        context.reserve(1).unwrap();
        let (io, table) = (context.clone(), requests.clone());
        let submitter = thread::spawn(move || {
            let cancelled = Arc::new(AtomicBool::new(false));
            let add = || table.lock().push(cancelled.clone());
            if register(&io, &add) {
                cancelled.store(true, SeqCst);
            }
            cancelled
        });
        // Only the first part of `destroy`: the rest would wait for ever.
        context.outstanding.fetch_or(DEAD, SeqCst);
        let found: Vec<Arc<AtomicBool>> = requests.lock().clone();
        found.iter().for_each(|request| request.store(true, SeqCst));
        let cancelled = submitter.join().unwrap().load(SeqCst);
        assert!(cancelled, "no thread cancels it");
    });
}

#[test]
fn loom_an_endless_request_that_meets_destroy_is_cancelled() {
    endless(|context, add| {
        add();
        context.is_dead()
    });
}

#[test]
#[should_panic(expected = "no thread cancels it")]
fn loom_canary_looking_before_registering_is_caught() {
    endless(|context, add| {
        let dead = context.is_dead();
        add();
        dead
    });
}

#[test]
fn loom_destroy_waits_for_what_was_accepted() {
    destruction(|context| context.reserve(1), |context| context.complete(event(1)));
}

#[test]
#[should_panic(expected = "accepted by a context that is gone")]
fn loom_canary_looking_before_counting_is_caught() {
    let reserve = |context: &IoContext| {
        if context.is_dead() {
            return Err(Errno::INVAL);
        }
        context.outstanding.fetch_add(1, SeqCst);
        Ok(1)
    };
    destruction(reserve, |context| context.complete(event(1)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_last_completion_that_wakes_no_destroyer() {
    let complete = |context: &IoContext| forgetting_wakes(|| context.complete(event(1)));
    destruction(|context| context.reserve(1), complete);
}

/// A context is destroyed while a request starts in the own queue. Another request ends elsewhere.
fn a_request_that_moves(say_so: fn(&IoContext), complete: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        context.reserve(2).unwrap();
        let own = Own::of(&context, 0);
        let engine = context.clone();
        let engine = thread::spawn(move || {
            own.start();
            say_so(&engine);
            own.end(1);
            complete(&engine);
        });
        context.destroy(|| {}).unwrap();
        assert_eq!(context.outstanding(), 0);
        context.drain_pump();
        engine.join().unwrap();
    });
}

#[test]
fn loom_destroy_follows_a_request_from_queue_to_queue() {
    a_request_that_moves(IoContext::pump_started, |context| context.complete(event(2)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_destroyer_that_is_not_told_of_the_own_queue() {
    let silent = |context: &IoContext| forgetting_wakes(|| context.pump_started());
    a_request_that_moves(silent, |context| context.complete(event(2)));
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_destroyer_that_leads_and_is_not_told_of_the_rest() {
    let silent = |context: &IoContext| forgetting_wakes(|| context.complete(event(2)));
    a_request_that_moves(IoContext::pump_started, silent);
}

fn another_leads(poll: fn(&IoContext)) {
    loom::model(move || {
        let context = context();
        let own = Own::of(&context, 0);
        // A page that is read ahead belongs to no request.
        own.start();
        own.end_page();
        let driver = context.clone();
        let driver = thread::spawn(move || poll(&driver));
        context.destroy(|| {}).unwrap();
        context.drain_pump();
        assert!(!context.pump_is_busy());
        driver.join().unwrap();
    });
}

#[test]
fn loom_a_leader_that_empties_the_queue_tells_the_destroyer() {
    another_leads(IoContext::poll_pump);
}

#[test]
#[should_panic(expected = "deadlock")]
fn loom_canary_a_queue_emptied_in_silence() {
    another_leads(|context| forgetting_wakes(|| context.poll_pump()));
}
