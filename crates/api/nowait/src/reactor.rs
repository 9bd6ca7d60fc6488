//! Completes futures when their requests end.
//!
//! The reactor is a context of the engine, and one thread that waits for the context's events and
//! wakes the tasks. The engine's own threads cannot wake tasks: an executor's waker may write to a
//! descriptor of the application, and these threads have another descriptor table. The first future
//! that needs the reactor starts it.

use crate::{calls::Calls, request::outcome};
use core::task::Waker;
use nowait_block::Slab;
use nowait_engine::report;
use nowait_file::{
    Context,
    turn::{Loop, Next},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    aio::IoEvent,
    own_thread::{OwnHandle, OwnThread},
    time::Deadline,
};
use std::{collections::BTreeMap, sync::Arc};

/// Most requests of an engine's futures that are in flight. Further futures wait for a place.
const DEPTH: usize = 16_384;

/// Stack of a thread that runs the wakers of executors.
pub(crate) const WAKER_STACK_BYTES: usize = 2 << 20;

pub(crate) trait CompletionTarget: Send + Sync {
    /// Stores the result, and wakes the task that waits for it. If the future was dropped, a thread
    /// of `calls` drops the buffers.
    fn complete(&self, outcome: Result<u32, Errno>, calls: &Calls);
}

pub(crate) struct Reactor {
    context: Arc<Context>,
    in_flight: Arc<InFlightRequests>,
    thread: Mutex<Option<OwnHandle>>,
}

pub(crate) struct InFlightRequests(Mutex<Table>);

struct Table {
    in_flight: Slab<Arc<dyn CompletionTarget>>,
    /// Tasks that wait for a place, by turn. A task that was woken is not in this map; it enters
    /// again with the same number, or gives the turn up.
    waiting: BTreeMap<u64, Waker>,
    next_turn: u64,
}

impl InFlightRequests {
    fn new(depth: usize) -> InFlightRequests {
        let (in_flight, waiting) = (Slab::new(depth), BTreeMap::new());
        InFlightRequests(Mutex::new(Table { in_flight, waiting, next_turn: 0 }))
    }

    /// Gives `request` a place and returns its key. If there is no place, returns a turn in `Err`:
    /// the waker is called when a second attempt, which must pass this turn, may succeed.
    pub(crate) fn enter(
        &self,
        request: Arc<dyn CompletionTarget>,
        turn: Option<u64>,
        waker: &Waker,
    ) -> Result<u64, u64> {
        let mut table = self.0.lock();
        let table = &mut *table;
        // A task that comes later does not overtake the tasks that wait.
        let first = table.waiting.keys().next().is_none_or(|next| turn.is_some_and(|t| t < *next));
        if first && let Ok(key) = table.in_flight.insert(request) {
            return Ok(key);
        }
        let turn = turn.unwrap_or_else(|| {
            table.next_turn += 1;
            table.next_turn
        });
        table.waiting.insert(turn, waker.clone());
        Err(turn)
    }

    pub(crate) fn remove(&self, key: u64) -> Option<Arc<dyn CompletionTarget>> {
        let (request, next) = self.take(key);
        next.into_iter().for_each(Waker::wake);
        request
    }

    /// Also returns the waker of the next task that waits for a place; the caller wakes this task.
    fn take(&self, key: u64) -> (Option<Arc<dyn CompletionTarget>>, Option<Waker>) {
        let mut table = self.0.lock();
        let request = table.in_flight.remove(key);
        let next = request.is_some().then(|| table.waiting.pop_first()).flatten();
        (request, next.map(|(_, waker)| waker))
    }

    /// Gives up a turn. If its task had been woken already, wakes the next task instead.
    pub(crate) fn give_up(&self, turn: u64) {
        let mut table = self.0.lock();
        let called = table.waiting.remove(&turn).is_none();
        let next = called.then(|| table.waiting.pop_first()).flatten();
        drop(table);
        if let Some((_, waker)) = next {
            waker.wake();
        }
    }
}

impl Reactor {
    pub(crate) fn start(
        engine: &Arc<nowait_file::Engine>,
        calls: &Arc<Calls>,
    ) -> Result<Reactor, Errno> {
        let context = Context::over_open_files(engine, 0, DEPTH as u32)?;
        let (in_flight, calls) = (Arc::new(InFlightRequests::new(DEPTH)), calls.clone());
        let (events, next) = (Vec::new(), Next::Sleep(Deadline::NEVER));
        let (of, on) = (context.clone(), in_flight.clone());
        let mut serving = ReactorLoop { context: of, in_flight: on, calls, events, next };
        let spawned = OwnThread::spawn("nowait-reactor", WAKER_STACK_BYTES, move || {
            serving.run();
        });
        let reactor = Reactor { context, in_flight, thread: Mutex::default() };
        *reactor.thread.lock() = Some(spawned.inspect_err(|_| reactor.stop())?);
        Ok(reactor)
    }

    pub(crate) fn context(&self) -> &Arc<Context> {
        &self.context
    }

    pub(crate) fn in_flight(&self) -> &InFlightRequests {
        &self.in_flight
    }

    /// Ends the context and the thread. No request on a file is in flight, because such a request
    /// holds a handle of the engine.
    pub(crate) fn stop(&self) {
        // The call fails only if the context is destroyed already, and nothing else destroys it.
        let _ = self.context.destroy();
        let handle = self.thread.lock().take();
        // The calling thread may be the reactor's thread: a waker that this thread calls may drop
        // the last handle of the engine.
        if let Some(handle) = handle.filter(|it| !it.is_this()) {
            handle.join();
        }
        self.context.io().ring().memory().unmap_theirs(self.context.address());
    }
}

struct ReactorLoop {
    context: Arc<Context>,
    in_flight: Arc<InFlightRequests>,
    calls: Arc<Calls>,
    events: Vec<IoEvent>,
    next: Next,
}

impl Loop for ReactorLoop {
    fn turn(&mut self) -> Next {
        const ASLEEP: Next = Next::Sleep(Deadline::NEVER);
        if self.events.is_empty() && self.next == ASLEEP {
            self.take(Deadline::NOW);
        }
        let engine = self.context.engine();
        for event in self.events.drain(..) {
            // A waker belongs to the executor and may panic; the other events must still reach
            // their futures.
            let (request, next) = self.in_flight.take(event.data);
            let complete =
                || request.iter().for_each(|request| request.complete(outcome(event), &self.calls));
            engine.caught("as it woke a task", complete);
            engine.caught("as it woke a task", || next.into_iter().for_each(Waker::wake));
        }
        report::tell_failure(engine);
        core::mem::replace(&mut self.next, ASLEEP)
    }

    fn sleep(&mut self, deadline: Deadline) {
        self.take(deadline);
    }
}

impl ReactorLoop {
    /// Takes events from the ring into `events`. Does not complete them yet, because the ring is
    /// locked meanwhile, and a waker may call any function of nowait.
    fn take(&mut self, deadline: Deadline) {
        let (context, events) = (&self.context, &mut self.events);
        let take = || {
            context.serve(deadline, |_, event| {
                events.push(event);
                Ok(())
            })
        };
        self.next = match context.engine().caught("as the reactor", take) {
            Some(Ok(_) | Err(Errno::INTR)) => Next::Sleep(Deadline::NEVER),
            Some(Err(_)) => Next::End,
            None => Next::Rest,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::{AtomicUsize, Ordering::SeqCst};
    use std::task::Wake;

    struct Nothing;

    impl CompletionTarget for Nothing {
        fn complete(&self, _: Result<u32, Errno>, _: &Calls) {}
    }

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, SeqCst);
        }
    }

    fn task() -> (Arc<Counts>, Waker) {
        let counts = Arc::new(Counts::default());
        (counts.clone(), Waker::from(counts))
    }

    fn woken(counts: &Counts) -> usize {
        counts.0.load(SeqCst)
    }

    #[test]
    fn tasks_get_a_place_in_their_turn() {
        let in_flight = InFlightRequests::new(1);
        let ((_, first), (second, b), (third, c)) = (task(), task(), task());
        let key = in_flight.enter(Arc::new(Nothing), None, &first).unwrap();
        let turn = in_flight.enter(Arc::new(Nothing), None, &b).unwrap_err();
        let later = in_flight.enter(Arc::new(Nothing), None, &c).unwrap_err();
        assert!(in_flight.remove(key).is_some());
        assert_eq!((woken(&second), woken(&third)), (1, 0));
        // A task that was not woken does not overtake the waiting tasks, even if there is a place.
        assert_eq!(in_flight.enter(Arc::new(Nothing), None, &first), Err(later + 1));
        let key = in_flight.enter(Arc::new(Nothing), Some(turn), &b).unwrap();
        assert!(in_flight.remove(key).is_some());
        assert_eq!(woken(&third), 1);
        assert!(in_flight.enter(Arc::new(Nothing), Some(later), &c).is_ok());
    }

    #[test]
    fn a_turn_that_is_given_up_is_passed_on() {
        let in_flight = InFlightRequests::new(1);
        let ((_, first), (_, b), (third, c)) = (task(), task(), task());
        let key = in_flight.enter(Arc::new(Nothing), None, &first).unwrap();
        let turn = in_flight.enter(Arc::new(Nothing), None, &b).unwrap_err();
        let last = in_flight.enter(Arc::new(Nothing), None, &c).unwrap_err();
        in_flight.remove(key);
        in_flight.give_up(turn);
        assert_eq!(woken(&third), 1, "it had been called");
        assert!(in_flight.enter(Arc::new(Nothing), Some(last), &c).is_ok());
        assert!(in_flight.remove(key).is_none(), "an old key finds nothing");
    }

    #[test]
    fn a_turn_that_was_not_called_is_just_gone() {
        let in_flight = InFlightRequests::new(1);
        let ((_, first), (_, b), (third, c)) = (task(), task(), task());
        let key = in_flight.enter(Arc::new(Nothing), None, &first).unwrap();
        let turn = in_flight.enter(Arc::new(Nothing), None, &b).unwrap_err();
        let _ = in_flight.enter(Arc::new(Nothing), None, &c).unwrap_err();
        in_flight.give_up(turn);
        assert_eq!(woken(&third), 0);
        in_flight.remove(key);
        assert_eq!(woken(&third), 1);
    }
}
