//! A request as a future.
//!
//! ```text
//!  made ──first poll──▶ over at once (a read of what is cached)   no event, no allocation
//!             │
//!             ├──no place──▶ waits for its turn
//!             └──▶ in flight ──event──▶ reactor: result, wake ──▶ over: buffers given back
//!                      └──dropped──▶ cancelled; at its end a helper thread drops the buffers
//! ```
//!
//! A request that does not end at once moves into an [`InFlightRequest`] on the heap, which the
//! reactor's table keeps as long as the engine may access its buffers: a program can drop or forget
//! the future at any time.

use crate::{
    Buffers, Error, File, Nowait,
    calls::Calls,
    reactor::{CompletionTarget, Reactor},
    request::Request,
    timer::{Action, DeadlineId},
};
use core::{
    fmt,
    future::Future,
    mem::take,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use nowait_block::Segments;
use nowait_file::submit::{EventTarget, Started, Submission};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, time::Deadline};
use std::sync::Arc;

/// A request on a file or another source, as a future of `O`: the result, and the buffers of the
/// request even if the request failed.
///
/// The first poll starts the request. Dropping the future while the request is in flight cancels
/// the request, as far as possible. nowait keeps the buffers until the request has ended, and then
/// drops them. To get the buffers back, [`cancel`](Operation::cancel) the request and continue to
/// poll.
#[must_use = "futures do nothing unless polled"]
pub struct Operation<B: Send + 'static, O> {
    stage: Stage<B>,
    segments: fn(&mut Buffers<B>) -> Segments,
    finish: fn(Result<usize, Error>, Buffers<B>) -> O,
    timeout: Option<DeadlineId>,
    /// Declared after `stage`, which holds a file of the engine: fields are dropped in the order of
    /// their declaration.
    nowait: Nowait,
}

/// A read or write of one buffer: returns the number of bytes, and the buffer.
pub type Transfer<B> = Operation<B, (Result<usize, Error>, B)>;

/// A read or write of several buffers: returns the number of bytes, and the buffers.
pub type VectoredTransfer<B> = Operation<B, (Result<usize, Error>, Vec<B>)>;

/// A sync.
pub type FileSync = Operation<(), Result<(), Error>>;

/// A wait for readiness, which returns the events of poll(2) that have occurred.
pub type Readiness = Operation<(), Result<u16, Error>>;

#[derive(Default)]
enum Stage<B> {
    /// A request that no poll has started. The `Mutex` is never locked: it makes the type `Sync`
    /// for buffers that are not `Sync`.
    Made(Mutex<Request<(), B>>),
    Waiting(u64, Arc<InFlightRequest<B>>),
    InFlight(u64, Arc<InFlightRequest<B>>),
    #[default]
    Over,
}

struct InFlightRequest<B>(Mutex<State<B>>);

struct State<B> {
    /// `None` once the request is given back. While the request is in flight, no code of nowait
    /// accesses its buffers, except to carry out the request.
    request: Option<Request<(), B>>,
    outcome: Option<Result<u32, Errno>>,
    waker: Option<Waker>,
    abandoned: bool,
}

impl<B: Send + 'static> CompletionTarget for InFlightRequest<B> {
    fn complete(&self, outcome: Result<u32, Errno>, calls: &Calls) {
        let mut state = self.0.lock();
        state.outcome = Some(outcome);
        let waker = state.waker.take();
        let remains = if state.abandoned { state.request.take() } else { None };
        drop(state);
        if let Some(request) = remains {
            // The drop may close the file, whose write-back may block.
            calls.bury(request);
        }
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl<B> InFlightRequest<B> {
    fn new(request: Request<(), B>) -> InFlightRequest<B> {
        let state = State { request: Some(request), outcome: None, waker: None, abandoned: false };
        InFlightRequest(Mutex::new(state))
    }

    fn take(&self) -> Request<(), B> {
        // Only the reactor takes an abandoned request, whose future is never polled again.
        self.0.lock().request.take().expect("a request that has not been given back")
    }

    fn cancel(&self) {
        if let Some(request) = &mut self.0.lock().request {
            request.is_cancelled = true;
        }
    }
}

impl<B: Send + 'static, O> Operation<B, O> {
    pub(crate) fn new(
        nowait: &Nowait,
        request: Request<(), B>,
        segments: fn(&mut Buffers<B>) -> Segments,
        finish: fn(Result<usize, Error>, Buffers<B>) -> O,
    ) -> Operation<B, O> {
        let (stage, nowait) = (Stage::Made(Mutex::new(request)), nowait.clone());
        Operation { stage, segments, finish, timeout: None, nowait }
    }

    /// Cancels the request if the request is not over when the time `after` has passed since this
    /// call: the request then ends with `ETIMEDOUT`. A request that the device is working on ends
    /// later, with its own result.
    ///
    /// Call this method before the first poll; after it a call changes nothing. If no thread can be
    /// started to keep the time, the request has no time limit.
    pub fn timeout(mut self, after: Duration) -> Operation<B, O> {
        if let Stage::Made(request) = &mut self.stage {
            let ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            request.get_mut().deadline = Deadline::after_ns(ns);
        }
        self
    }

    /// Asks for an early end. If the engine can still stop the request, the request ends with
    /// `ECANCELED`, otherwise with its own result. Poll the future for the end, and for the
    /// buffers.
    pub fn cancel(&mut self) {
        match &mut self.stage {
            Stage::Made(request) => request.get_mut().is_cancelled = true,
            Stage::Waiting(_, shared) => shared.cancel(),
            Stage::InFlight(key, shared) => {
                shared.cancel();
                cancel_request(&self.nowait, *key);
            }
            Stage::Over => {}
        }
    }

    /// Returns the buffers of a request that waits for a place, and gives up its turn; `None` if
    /// the request is in flight.
    #[cfg(any(feature = "futures-io", feature = "tokio"))]
    pub(crate) fn withdraw(&mut self) -> Option<Buffers<B>> {
        let Stage::Waiting(turn, shared) = &self.stage else { return None };
        if self.nowait.is_the_parents() {
            return None;
        }
        let (turn, shared) = (*turn, shared.clone());
        self.stage = Stage::Over;
        self.forget_timer();
        if let Ok(reactor) = self.nowait.reactor() {
            reactor.in_flight().give_up(turn);
        }
        Some(shared.take().into_buffers())
    }

    /// Lets a request in flight continue without a future.
    #[cfg(any(feature = "futures-io", feature = "tokio"))]
    pub(crate) fn detach(mut self) {
        let Stage::InFlight(_, shared) = &self.stage else { return };
        let mut state = shared.0.lock();
        // The request is in flight: its end drops the buffers.
        if state.outcome.is_none() {
            state.abandoned = true;
            drop(state);
            self.forget_timer();
            self.stage = Stage::Over;
        }
    }

    fn begin(&mut self, mut request: Request<(), B>, waker: &Waker) -> Poll<O> {
        if self.nowait.is_the_parents() {
            return self.end(request, Err(Errno::INVAL));
        }
        if let Some(errno) = early_end(&request) {
            return self.end(request, Err(errno));
        }
        let nowait = self.nowait.clone();
        let reactor = match nowait.reactor() {
            Ok(reactor) => reactor,
            Err(errno) => return self.end(request, Err(errno)),
        };
        if let Some(outcome) = request.read_at_once(reactor.context(), self.segments) {
            return self.end(request, outcome);
        }
        self.enter(reactor, Arc::new(InFlightRequest::new(request)), None, waker)
    }

    fn go_on(&mut self, turn: u64, shared: Arc<InFlightRequest<B>>, waker: &Waker) -> Poll<O> {
        if self.nowait.is_the_parents() {
            return self.end(shared.take(), Err(Errno::INVAL));
        }
        let nowait = self.nowait.clone();
        let reactor = match nowait.reactor() {
            Ok(reactor) => reactor,
            Err(errno) => return self.end(shared.take(), Err(errno)),
        };
        let late = shared.0.lock().request.as_ref().and_then(early_end);
        if let Some(errno) = late {
            reactor.in_flight().give_up(turn);
            return self.end(shared.take(), Err(errno));
        }
        self.enter(reactor, shared, Some(turn), waker)
    }

    fn enter(
        &mut self,
        reactor: &Reactor,
        shared: Arc<InFlightRequest<B>>,
        turn: Option<u64>,
        waker: &Waker,
    ) -> Poll<O> {
        let key = match reactor.in_flight().enter(shared.clone(), turn, waker) {
            Ok(key) => key,
            Err(turn) => {
                self.set_timer(reactor, &shared, Action::Wake(waker.clone()));
                self.stage = Stage::Waiting(turn, shared);
                return Poll::Pending;
            }
        };
        match self.submit(reactor, &shared, key) {
            Ok(None) => {
                self.set_timer(reactor, &shared, Action::Cancel(key));
                self.look(key, shared, waker)
            }
            Ok(Some(outcome)) => {
                reactor.in_flight().remove(key);
                self.end(shared.take(), outcome)
            }
            Err(error) => {
                reactor.in_flight().remove(key);
                self.give_back(shared.take(), Err(error))
            }
        }
    }

    /// `Some`: the request was over at once, or the engine refused it.
    fn submit(
        &self,
        reactor: &Reactor,
        shared: &InFlightRequest<B>,
        key: u64,
    ) -> Result<Option<Result<u32, Errno>>, Error> {
        let mut state = shared.0.lock();
        let Some(request) = &mut state.request else { return Ok(Some(Err(Errno::INVAL))) };
        // SAFETY: the state is on the heap, and in the reactor's table until the reactor has taken
        // the event; the request leaves it only then, or when the engine has refused it.
        let command = unsafe { request.command(self.segments) }?;
        let file = request.file().cloned();
        // The event may come before the submission returns, and its handler locks the state.
        drop(state);
        let context = reactor.context();
        if let Err(errno) = context.io().reserve(1) {
            return Ok(Some(Err(errno)));
        }
        let target = EventTarget { data: key, obj: key, eventfd: None };
        let mut submission = Submission::new(context);
        let started = match file.as_ref().and_then(File::opened_cached) {
            Some(opened) => submission.start_on(opened, &command, &target),
            None => submission.start(command, target),
        };
        let result = Started::result(started);
        if result.is_some() {
            context.io().release(1);
        }
        submission.finish();
        Ok(result)
    }

    /// Replaces the timer that was set before, for another waker or stage.
    fn set_timer(&mut self, reactor: &Reactor, shared: &InFlightRequest<B>, action: Action) {
        self.forget_timer();
        let state = shared.0.lock();
        let deadline = state.request.as_ref().and_then(|request| request.deadline.ns());
        drop(state);
        if let Some(at_ns) = deadline {
            // If the timer's thread cannot be started, the request has no time limit.
            self.timeout = self.nowait.timer().add(at_ns, reactor.context(), action).ok();
        }
    }

    fn look(&mut self, key: u64, shared: Arc<InFlightRequest<B>>, waker: &Waker) -> Poll<O> {
        let mut state = shared.0.lock();
        let never_ends = self.nowait.is_the_parents().then_some(Err(Errno::INVAL));
        if let Some(outcome) = state.outcome.take().or(never_ends) {
            drop(state);
            return self.end(shared.take(), outcome);
        }
        match &mut state.waker {
            Some(known) if known.will_wake(waker) => {}
            known => *known = Some(waker.clone()),
        }
        drop(state);
        self.stage = Stage::InFlight(key, shared);
        Poll::Pending
    }

    fn end(&mut self, request: Request<(), B>, outcome: Result<u32, Errno>) -> Poll<O> {
        let result = request.result(outcome);
        self.give_back(request, result)
    }

    fn give_back(&mut self, request: Request<(), B>, result: Result<usize, Error>) -> Poll<O> {
        self.forget_timer();
        Poll::Ready((self.finish)(result, request.into_buffers()))
    }

    fn forget_timer(&mut self) {
        // The timer's thread may have held its lock at a fork, so a child does not take it.
        if let Some(id) = self.timeout.take()
            && !self.nowait.is_the_parents()
        {
            self.nowait.timer().remove(id);
        }
    }
}

/// Returns `ECANCELED` also if the time limit has passed; `Request::result` makes `ETIMEDOUT` of
/// it.
fn early_end<B>(request: &Request<(), B>) -> Option<Errno> {
    let late = request.is_cancelled || request.deadline.has_passed();
    late.then_some(Errno::CANCELED)
}

fn cancel_request(nowait: &Nowait, key: u64) {
    // A forked child shares the ring of the context with its parent.
    if nowait.is_the_parents() {
        return;
    }
    if let Ok(reactor) = nowait.reactor() {
        // The call fails only if the request is over already.
        let _ = reactor.context().cancel(key);
    }
}

impl<B: Send + 'static, O> Future for Operation<B, O> {
    type Output = O;

    /// # Panics
    /// If the future is polled after its end.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let this = self.get_mut();
        match take(&mut this.stage) {
            Stage::Made(request) => this.begin(request.into_inner(), cx.waker()),
            Stage::Waiting(turn, shared) => this.go_on(turn, shared, cx.waker()),
            Stage::InFlight(key, shared) => this.look(key, shared, cx.waker()),
            Stage::Over => panic!("a request was polled after its end"),
        }
    }
}

// The buffers are never pinned: `IoBuffer` promises that their memory keeps its address.
impl<B: Send + 'static, O> Unpin for Operation<B, O> {}

impl<B: Send + 'static, O> Drop for Operation<B, O> {
    fn drop(&mut self) {
        if self.nowait.is_the_parents() {
            return;
        }
        self.forget_timer();
        match take(&mut self.stage) {
            Stage::Made(request) => drop(request.into_inner().into_buffers()),
            Stage::Waiting(turn, shared) => {
                if let Ok(reactor) = self.nowait.reactor() {
                    reactor.in_flight().give_up(turn);
                }
                drop(shared.take().into_buffers());
            }
            Stage::InFlight(key, shared) => {
                let mut state = shared.0.lock();
                if state.outcome.is_none() {
                    state.abandoned = true;
                    drop(state);
                    cancel_request(&self.nowait, key);
                } else {
                    drop(state);
                    drop(shared.take().into_buffers());
                }
            }
            Stage::Over => {}
        }
    }
}

impl<B: Send + 'static, O> fmt::Debug for Operation<B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (stage, number) = match self.stage {
            Stage::Made(_) => ("made", None),
            Stage::Waiting(turn, _) => ("waiting", Some(turn)),
            Stage::InFlight(key, _) => ("in flight", Some(key)),
            Stage::Over => ("over", None),
        };
        write!(f, "Operation {stage} {number:?}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{OpenHandle, writable};
    use nowait_file::Kind;
    use std::sync::mpsc;

    struct Source(std::io::Stdin, mpsc::Sender<()>);

    impl std::os::fd::AsFd for Source {
        fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
            self.0.as_fd()
        }
    }

    impl Drop for Source {
        fn drop(&mut self) {
            let _ = self.1.send(());
        }
    }

    fn in_flight() -> (Arc<InFlightRequest<Vec<u8>>>, usize, mpsc::Receiver<()>) {
        let (sender, receiver) = mpsc::channel();
        let held = OpenHandle::Other(Box::new(Source(std::io::stdin(), sender)));
        let request = Request::on_other(held, Kind::Read, Buffers::One(vec![0; 8]), ());
        let shared = Arc::new(InFlightRequest::new(request));
        let mut locked = shared.0.lock();
        let buffers = &mut locked.request.as_mut().unwrap().buffers;
        let address = writable(buffers).as_slice()[0].base.expose_provenance();
        drop(locked);
        (shared, address, receiver)
    }

    fn complete(shared: &Arc<InFlightRequest<Vec<u8>>>, address: usize, calls: &Calls) {
        let memory = core::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the request has not completed: it keeps its 8 bytes, and no other code accesses
        // them.
        unsafe { memory.write_bytes(7, 8) };
        shared.complete(Ok(8), calls);
    }

    #[test]
    fn an_abandoned_buffer_is_valid_until_it_lands_and_dropped_then() {
        let calls = Calls::default();
        let (shared, address, dropped) = in_flight();
        shared.0.lock().abandoned = true;
        let table: Arc<dyn CompletionTarget> = shared.clone();
        let engine = std::thread::spawn(move || complete(&shared, address, &calls));
        dropped.recv().unwrap();
        engine.join().unwrap();
        drop(table);
    }

    #[test]
    fn a_buffer_that_is_waited_for_is_given_back_with_what_was_written() {
        let calls = Calls::default();
        let (shared, address, dropped) = in_flight();
        let table = shared.clone();
        let engine = std::thread::spawn(move || complete(&table, address, &calls));
        engine.join().unwrap();
        let mut state = shared.0.lock();
        assert_eq!(state.outcome.take(), Some(Ok(8)));
        let request = state.request.take().unwrap();
        assert_eq!(request.result(Ok(8)).unwrap(), 8);
        assert_eq!(request.into_buffers().one(), Some(vec![7; 8]));
        dropped.recv().unwrap();
    }
}
