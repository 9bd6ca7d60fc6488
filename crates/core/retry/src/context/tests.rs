//! Tests of slots, events and waiting threads, without an engine.

use super::*;
use std::sync::{Condvar, Mutex, Weak, mpsc};

fn context() -> Arc<IoContext> {
    Arc::new(IoContext::new(0, 8, Stats::new(true)).unwrap())
}

fn event(data: u64) -> IoEvent {
    IoEvent { data, ..IoEvent::default() }
}

fn take(context: &IoContext, min: usize, deadline: Deadline) -> Result<Vec<u64>, Errno> {
    let mut seen = Vec::new();
    context.wait_events(&WaitOptions::new(min, 100, deadline), |_, event| {
        seen.push(event.data);
        Ok(())
    })?;
    Ok(seen)
}

#[test]
fn a_full_context_gives_a_part_then_eagain() {
    let context = context();
    let capacity = context.ring().capacity();
    assert_eq!(context.reserve(capacity + 5), Ok(capacity));
    assert_eq!(context.reserve(1), Err(Errno::AGAIN));
    context.complete(event(1));
    assert_eq!(context.reserve(1), Err(Errno::AGAIN), "an unread event keeps its slot");
    assert_eq!(take(&context, 0, Deadline::NOW), Ok(vec![1]));
    assert_eq!(context.reserve(2), Ok(1));
}

#[derive(Default)]
struct Broken(nowait_sys::primitives::AtomicBool);

impl Pump for Broken {
    fn is_busy(&self) -> bool {
        !self.0.load(SeqCst)
    }

    fn wait(&self, _: usize, _: Deadline) -> Result<(), Errno> {
        Ok(())
    }

    fn run(&self) {
        assert!(self.0.swap(true, SeqCst), "broken");
    }

    fn interrupt(&self) {}
}

#[test]
fn a_leader_that_panics_leads_no_more() {
    for sleeps in [false, true] {
        let context = context();
        context.set_pump(Box::new(Broken::default()));
        context.reserve(1).unwrap();
        let poll = || match sleeps {
            true => {
                let leaving = Leaving { context: &context, is_called_to_poll: Cell::new(false) };
                context.sleep(1, &WaitOptions::new(1, 1, Deadline::NEVER), &leaving)
            }
            false => take(&context, 0, Deadline::NOW).map(drop),
        };
        let polled = std::panic::catch_unwind(std::panic::AssertUnwindSafe(poll));
        assert!(polled.is_err() && !context.has_poller());
        context.complete(event(1));
        assert_eq!(take(&context, 1, Deadline::NEVER), Ok(vec![1]));
    }
}

#[test]
fn a_sink_gets_each_event_once_and_its_limit_holds() {
    let seen = Arc::new(std::sync::Mutex::new(Vec::new()));
    let taken = seen.clone();
    let deliver = Box::new(move |event: IoEvent| taken.lock().unwrap().push(event.data));
    let sink = Sink { face: "test", limit: 3, deliver };
    let context = IoContext::with_sink(0, Stats::new(true), sink).unwrap();
    assert_eq!(context.reserve(5), Ok(3));
    assert_eq!(context.reserve(1), Err(Errno::AGAIN));
    context.complete(event(1));
    assert_eq!(context.reserve(2), Ok(1), "the slot is free at once");
    context.complete_batch(&[event(2), event(3)]);
    context.complete(event(4));
    assert_eq!((seen.lock().unwrap().as_slice(), context.outstanding()), (&[1, 2, 3, 4][..], 0));
    context.destroy(|| {}).unwrap();
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn the_deadline_gives_what_is_there() {
    let context = context();
    context.reserve(2).unwrap();
    context.complete(event(1));
    assert_eq!(take(&context, 2, Deadline::NOW), Ok(vec![1]));
    assert_eq!(take(&context, 1, Deadline::after_ns(1000)), Ok(vec![]));
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn a_waiter_is_woken_when_it_has_enough() {
    let context = context();
    context.reserve(3).unwrap();
    let waiter = context.clone();
    let waiter = std::thread::spawn(move || take(&waiter, 3, Deadline::NEVER));
    for data in 0..3 {
        context.complete(event(data));
    }
    assert_eq!(waiter.join().unwrap(), Ok(vec![0, 1, 2]));
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn more_events_than_the_ring_holds_can_be_waited_for() {
    let context = context();
    let (waiter, capacity) = (context.clone(), context.ring().capacity());
    let waiter = std::thread::spawn(move || {
        let wanted = WaitOptions::new(capacity + 1, capacity + 1, Deadline::NEVER);
        waiter.wait_events(&wanted, |_, _| Ok(()))
    });
    for data in 0..=capacity as u64 {
        while context.reserve(1) == Err(Errno::AGAIN) {
            std::thread::yield_now();
        }
        context.complete(event(data));
    }
    assert_eq!(waiter.join().unwrap(), Ok(capacity + 1));
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn a_patient_caller_waits_for_what_is_promised_and_no_longer() {
    let context = context();
    let patient = WaitOptions { patient: true, ..WaitOptions::new(0, 9, Deadline::NEVER) };
    assert_eq!(context.wait_events(&patient, |_, _| Ok(())), Ok(0), "nothing is in flight");
    context.reserve(1).unwrap();
    context.synchronous_begins();
    let waiter = context.clone();
    let waiter = std::thread::spawn(move || {
        let patient = WaitOptions { patient: true, ..WaitOptions::new(0, 9, Deadline::NEVER) };
        waiter.wait_events(&patient, |_, _| Ok(()))
    });
    context.complete(event(1));
    context.synchronous_ends();
    assert_eq!(waiter.join().unwrap(), Ok(1));
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn destroy_waits_wakes_and_happens_once() {
    let context = context();
    context.reserve(1).unwrap();
    let waiting = context.clone();
    let waiting = std::thread::spawn(move || take(&waiting, 1, Deadline::NEVER));
    let (cancelled, was_cancelled) = mpsc::channel();
    let destroyer = context.clone();
    let destroyer = std::thread::spawn(move || destroyer.destroy(|| cancelled.send(()).unwrap()));
    was_cancelled.recv().unwrap();
    assert_eq!(context.destroy(|| {}), Err(Errno::INVAL));
    assert_eq!(waiting.join().unwrap(), Err(Errno::INVAL));
    assert_eq!(context.reserve(1), Err(Errno::INVAL));
    context.complete(event(1));
    assert_eq!(destroyer.join().unwrap(), Ok(()));
}

/// An own queue whose requests end when the test says so. It reports each thread that waits in it.
struct ScriptedQueue {
    context: Weak<IoContext>,
    entered: mpsc::Sender<()>,
    /// Requests in flight, requests that have ended, and `true` if the wait is to end.
    state: Mutex<(usize, usize, bool)>,
    changed: Condvar,
    /// Called once, when a thread checks the queue while so many threads are on the list of
    /// waiters.
    check: Mutex<Option<Check>>,
}

type Check = (usize, Box<dyn FnOnce() + Send>);

impl ScriptedQueue {
    fn of(context: &Arc<IoContext>) -> (Arc<ScriptedQueue>, mpsc::Receiver<()>) {
        let (entered, enters) = mpsc::channel();
        let own = Arc::new(ScriptedQueue {
            context: Arc::downgrade(context),
            entered,
            state: Mutex::default(),
            changed: Condvar::default(),
            check: Mutex::default(),
        });
        context.set_pump(Box::new(Handle(own.clone())));
        (own, enters)
    }

    fn at_check(&self, waiters: usize, call: impl FnOnce() + Send + 'static) {
        *self.check.lock().unwrap() = Some((waiters, Box::new(call)));
    }

    fn change(&self, change: impl FnOnce(&mut (usize, usize, bool))) {
        change(&mut self.state.lock().unwrap());
        self.changed.notify_all();
    }
}

struct Handle(Arc<ScriptedQueue>);

impl Pump for Handle {
    fn is_busy(&self) -> bool {
        let is_busy = self.0.state.lock().unwrap().0 > 0;
        let waiters = self.0.context.upgrade().unwrap().waiters.len();
        let check = self.0.check.lock().unwrap().take_if(|(count, _)| *count == waiters);
        if let Some((_, call)) = check {
            call();
        }
        is_busy
    }

    fn wait(&self, need: usize, _: Deadline) -> Result<(), Errno> {
        if need > 0 {
            self.0.entered.send(()).unwrap();
        }
        let state = self.0.state.lock().unwrap();
        let is_over = |(_, ended, called): &mut (usize, usize, bool)| *ended < need && !*called;
        self.0.changed.wait_while(state, is_over).unwrap().2 = false;
        Ok(())
    }

    fn run(&self) {
        let mut ended = 0;
        self.0.change(|state| {
            ended = core::mem::take(&mut state.1);
            state.0 -= ended;
        });
        let context = self.0.context.upgrade().unwrap();
        (0..ended).for_each(|_| context.complete(event(1)));
    }

    fn interrupt(&self) {
        self.0.change(|state| state.2 = true);
    }
}

/// A poller woken for each start and again for each end would cost the submitter two context
/// switches.
#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn a_thread_that_was_called_to_poll_polls_on_until_an_event_comes_from_elsewhere() {
    let context = context();
    let (own, enters) = ScriptedQueue::of(&context);
    context.reserve(5).unwrap();
    let (taken, takes) = mpsc::channel();
    let waiter = context.clone();
    let waiter = std::thread::spawn(move || {
        for _ in 0..5 {
            taken.send(take(&waiter, 1, Deadline::NEVER).unwrap()).unwrap();
        }
    });
    let start = || {
        own.change(|state| state.0 += 1);
        context.pump_started();
    };
    start();
    enters.recv().unwrap(); // woken, or it came by itself
    own.change(|state| state.1 += 1);
    assert_eq!(takes.recv(), Ok(vec![1]));
    // From here on the thread must be woken to become the poller.
    context.lingers.set(false);
    while context.waiters.len() == 0 {
        std::thread::yield_now();
    }
    assert!(!context.has_poller(), "it sleeps elsewhere");
    start();
    enters.recv().unwrap();
    own.change(|state| state.1 += 1);
    assert_eq!(takes.recv(), Ok(vec![1]));
    // Nothing is in flight, and the thread waits in the own queue.
    enters.recv().unwrap();
    start();
    own.change(|state| state.1 += 1);
    assert_eq!(takes.recv(), Ok(vec![1]));
    enters.recv().unwrap();
    context.complete(event(2));
    assert_eq!(takes.recv(), Ok(vec![2]));
    while context.waiters.len() == 0 {
        std::thread::yield_now();
    }
    assert!(!context.has_poller(), "what comes from elsewhere wakes it with less");
    context.complete(event(3));
    assert_eq!(takes.recv(), Ok(vec![3]));
    waiter.join().unwrap();
}

/// Two threads sleep outside the own queue. The younger one is called to poll, finds its event and
/// leaves; the event's own wake-up comes later, and finds nothing in the ring.
#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn a_thread_that_was_called_to_poll_and_leaves_calls_another() {
    let context = context();
    let (own, enters) = ScriptedQueue::of(&context);
    context.reserve(3).unwrap();
    let (sleeps, asleep) = mpsc::channel();
    own.at_check(1, move || sleeps.send(()).unwrap());
    let waiter = context.clone();
    let waiter = std::thread::spawn(move || take(&waiter, 2, Deadline::NEVER));
    asleep.recv().unwrap();
    let (io, queue) = (context.clone(), own.clone());
    own.at_check(2, move || {
        io.complete_quietly(event(7), || {});
        queue.change(|state| state.0 += 2);
        io.pump_started();
    });
    assert_eq!(take(&context, 1, Deadline::NEVER), Ok(vec![7]));
    context.notify();
    let polls = enters.recv_timeout(std::time::Duration::from_secs(10));
    assert_eq!(polls, Ok(()), "no thread polls the own queue");
    own.change(|state| state.1 += 2);
    assert_eq!(waiter.join().unwrap(), Ok(vec![1, 1]));
}

#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn what_a_thread_that_waits_for_more_has_collected_is_found_at_the_second_look() {
    let context = context();
    let (own, enters) = ScriptedQueue::of(&context);
    assert_eq!(context.reserve(7), Ok(7));
    own.change(|state| state.0 = 7);
    let waiter = context.clone();
    let waiter = std::thread::spawn(move || take(&waiter, 4, Deadline::NEVER));
    enters.recv().unwrap();
    own.change(|state| state.1 = 3);
    assert_eq!(take(&context, 1, Deadline::NOW), Ok(vec![]));
    let polls_again = enters.recv_timeout(std::time::Duration::from_secs(10));
    assert_eq!(polls_again, Ok(()), "the poller holds the events back");
    assert_eq!(take(&context, 1, Deadline::NOW), Ok(vec![1; 3]));
    own.change(|state| state.1 = 4);
    assert_eq!(waiter.join().unwrap(), Ok(vec![1; 4]));
}

struct SlowQueue {
    entered: mpsc::Sender<()>,
    goes_on: Mutex<mpsc::Receiver<()>>,
}

impl Pump for SlowQueue {
    fn is_busy(&self) -> bool {
        true
    }

    fn wait(&self, _: usize, _: Deadline) -> Result<(), Errno> {
        self.entered.send(()).unwrap();
        self.goes_on.lock().unwrap().recv().unwrap();
        Ok(())
    }

    fn run(&self) {}

    fn interrupt(&self) {}
}

/// The kernel may have announced to the second thread an event that the first thread collects.
#[test]
#[cfg_attr(miri, ignore = "sleeps in a system call")]
fn a_thread_that_passes_by_in_vain_does_not_hide_one_that_collects() {
    let context = context();
    let (entered, enters) = mpsc::channel();
    let (go, goes_on) = mpsc::channel();
    context.set_pump(Box::new(SlowQueue { entered, goes_on: Mutex::new(goes_on) }));
    let driver = context.clone();
    let driver = std::thread::spawn(move || driver.pass_by());
    enters.recv().unwrap();
    context.pass_by();
    assert!(!context.passers.is_empty(), "the driver still collects");
    go.send(()).unwrap();
    context.await_passers();
    driver.join().unwrap();
    assert!(context.passers.is_empty());
}
