//! A request as a future.
//!
//! ```text
//!  made ──first poll──▶ over at once (cached)                     no event, no allocation but one
//!             │
//!             ├──no place──▶ waits for its turn
//!             └──▶ in flight ──event──▶ reactor: result, wake ──▶ over: buffers given back
//!                      └──dropped──▶ cancelled; at its end the reactor drops the buffers
//! ```
//!
//! The request is in an [`InFlightRequest`] on the heap, which the reactor's table keeps as long as
//! the engine may touch its buffers: a future can be dropped or forgotten at any time.

use crate::{
    Buffers, Error, File, Nowait,
    calls::Calls,
    reactor::{CompletionTarget, Reactor},
    request::Request,
    timer::DeadlineId,
};
use core::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll, Waker},
    time::Duration,
};
use nowait_block::Segments;
use nowait_file::submit::{EventTarget, Started, Submission};
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, time::Deadline};
use std::sync::Arc;

/// A request to a file or another source, as a future of `O`: the result, and the buffers that
/// were given with it, whatever became of it.
///
/// Nothing is done before it is polled. Dropping it while it is in flight cancels it, as far as
/// that is possible; its buffers stay with the engine until it has ended, and are dropped then. To
/// get them back, [`cancel`](Operation::cancel) it and go on polling. Polling never blocks.
#[must_use = "futures do nothing unless polled"]
pub struct Operation<B: Send + 'static, O> {
    shared: Arc<InFlightRequest<B>>,
    stage: Stage,
    segments: fn(&mut Buffers<B>) -> Segments,
    finish: fn(Result<usize, Error>, Buffers<B>) -> O,
    timeout: Option<DeadlineId>,
    /// After `shared`: that holds a file of the engine.
    nowait: Nowait,
}

/// A read or write of one buffer: how many bytes, and the buffer.
pub type Transfer<B> = Operation<B, (Result<usize, Error>, B)>;

/// A read or write of several buffers: how many bytes, and the buffers.
pub type VectoredTransfer<B> = Operation<B, (Result<usize, Error>, Vec<B>)>;

/// A sync.
pub type FileSync = Operation<(), Result<(), Error>>;

/// A wait for readiness: the events of poll(2) that are there.
pub type Readiness = Operation<(), Result<u16, Error>>;

#[derive(Clone, Copy, Debug)]
enum Stage {
    Made,
    /// There was no place: when its turn comes.
    Waiting(u64),
    /// Under its key.
    InFlight(u64),
    Over,
}

/// What the future shares with the reactor.
struct InFlightRequest<B>(Mutex<State<B>>);

struct State<B> {
    /// Until it is given back. While it is in flight, it is not touched.
    request: Option<Request<(), B>>,
    outcome: Option<Result<u32, Errno>>,
    waker: Option<Waker>,
    /// The future is gone.
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
            // It may hold the last handle of a file, whose close writes back.
            calls.bury(request);
        }
        if let Some(waker) = waker {
            waker.wake();
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
        let state = State { request: Some(request), outcome: None, waker: None, abandoned: false };
        Operation {
            shared: Arc::new(InFlightRequest(Mutex::new(state))),
            stage: Stage::Made,
            segments,
            finish,
            timeout: None,
            nowait: nowait.clone(),
        }
    }

    /// Has the request cancelled if it is not over `after` this call: it then ends with
    /// `ETIMEDOUT`. What the device is working on ends later, and as it would have ended.
    ///
    /// For a request that has not been polled yet; later calls change nothing.
    pub fn timeout(self, after: Duration) -> Operation<B, O> {
        if let Stage::Made = self.stage
            && let Some(request) = &mut self.shared.0.lock().request
        {
            let ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
            request.deadline = Deadline::after_ns(ns);
        }
        self
    }

    /// Asks for an early end: if the request can still be stopped it ends with `ECANCELED`, else as
    /// it would have. Poll it for the end, and for the buffers.
    pub fn cancel(&mut self) {
        if let Some(request) = &mut self.shared.0.lock().request {
            request.is_cancelled = true;
        }
        if let Stage::InFlight(key) = self.stage {
            self.cancel_request(key);
        }
    }

    /// Lets the request go on without a future; its buffers are dropped at its end.
    #[cfg(any(feature = "futures-io", feature = "tokio"))]
    pub(crate) fn detach(mut self) {
        let mut state = self.shared.0.lock();
        // Not over: then the drop finds what is to be dropped.
        if state.outcome.is_none() && matches!(self.stage, Stage::InFlight(_)) {
            state.abandoned = true;
            drop(state);
            self.forget_timer();
            self.stage = Stage::Over;
        }
    }

    fn cancel_request(&self, key: u64) {
        if let Ok(reactor) = self.nowait.reactor() {
            // Its error is that the request is over already.
            let _ = reactor.context().cancel(key);
        }
    }

    /// Starts the request, unless there is no place for it.
    fn start(&mut self, turn: Option<u64>, waker: &Waker) -> Poll<O> {
        if self.nowait.is_the_parents() {
            return self.end(Err(Errno::INVAL));
        }
        if let Some(errno) = self.early_end() {
            self.give_up_turn();
            return self.end(Err(errno));
        }
        let nowait = self.nowait.clone();
        let reactor = match nowait.reactor() {
            Ok(reactor) => reactor,
            Err(errno) => return self.end(Err(errno)),
        };
        let key = match reactor.in_flight().enter(self.shared.clone(), turn, waker) {
            Ok(key) => key,
            Err(turn) => {
                self.stage = Stage::Waiting(turn);
                return Poll::Pending;
            }
        };
        match self.submit(reactor, key) {
            Ok(None) => {
                self.stage = Stage::InFlight(key);
                self.set_timer(reactor, key);
                self.look(waker)
            }
            Ok(Some(outcome)) => {
                reactor.in_flight().remove(key);
                self.end(outcome)
            }
            Err(error) => {
                reactor.in_flight().remove(key);
                self.give_back(Err(error))
            }
        }
    }

    /// Returns why the request ends before it begins.
    fn early_end(&self) -> Option<Errno> {
        let state = self.shared.0.lock();
        let request = state.request.as_ref()?;
        let late = request.deadline.has_passed();
        (request.is_cancelled || late).then_some(Errno::CANCELED)
    }

    /// Hands the request over. `Some`: it was over at once.
    fn submit(&self, reactor: &Reactor, key: u64) -> Result<Option<Result<u32, Errno>>, Error> {
        let mut state = self.shared.0.lock();
        let Some(request) = &mut state.request else { return Ok(Some(Err(Errno::INVAL))) };
        // SAFETY: the state is on the heap and in the reactor's table until the event has been
        // taken; the request leaves it only then, or when the engine has not taken it (below).
        let command = unsafe { request.command(self.segments) }?;
        let file = request.file().cloned();
        // The event may come before the submission returns.
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

    fn set_timer(&mut self, reactor: &Reactor, key: u64) {
        let state = self.shared.0.lock();
        let deadline = state.request.as_ref().and_then(|request| request.deadline.ns());
        drop(state);
        if let Some(at_ns) = deadline {
            // Without a thread for it there is no time-out.
            self.timeout = self.nowait.timer().add(at_ns, reactor.context(), key).ok();
        }
    }

    /// Takes the result if it is there; else the waker is called when it is.
    fn look(&mut self, waker: &Waker) -> Poll<O> {
        let mut state = self.shared.0.lock();
        let Some(outcome) = state.outcome.take() else {
            match &mut state.waker {
                Some(known) if known.will_wake(waker) => {}
                known => *known = Some(waker.clone()),
            }
            return Poll::Pending;
        };
        drop(state);
        self.end(outcome)
    }

    fn end(&mut self, outcome: Result<u32, Errno>) -> Poll<O> {
        let state = self.shared.0.lock();
        let result = state.request.as_ref().map(|request| request.result(outcome));
        drop(state);
        match result {
            Some(result) => self.give_back(result),
            None => panic!("a request was polled after its end"),
        }
    }

    fn give_back(&mut self, result: Result<usize, Error>) -> Poll<O> {
        self.stage = Stage::Over;
        self.forget_timer();
        let request = self.shared.0.lock().request.take();
        let Some(request) = request else { panic!("a request was polled after its end") };
        Poll::Ready((self.finish)(result, request.into_buffers()))
    }

    fn give_up_turn(&mut self) {
        if let Stage::Waiting(turn) = self.stage
            && let Ok(reactor) = self.nowait.reactor()
        {
            reactor.in_flight().give_up(turn);
        }
    }

    fn forget_timer(&mut self) {
        if let Some(id) = self.timeout.take() {
            self.nowait.timer().remove(id);
        }
    }
}

impl<B: Send + 'static, O> Future for Operation<B, O> {
    type Output = O;

    /// # Panics
    /// It was polled after its end.
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let this = self.get_mut();
        match this.stage {
            Stage::Made => this.start(None, cx.waker()),
            Stage::Waiting(turn) => this.start(Some(turn), cx.waker()),
            Stage::InFlight(_) => this.look(cx.waker()),
            Stage::Over => panic!("a request was polled after its end"),
        }
    }
}

// The buffers are never pinned: their memory has its address by the promise of `IoBuffer`.
impl<B: Send + 'static, O> Unpin for Operation<B, O> {}

impl<B: Send + 'static, O> Drop for Operation<B, O> {
    fn drop(&mut self) {
        if matches!(self.stage, Stage::Over) || self.nowait.is_the_parents() {
            return;
        }
        self.forget_timer();
        self.give_up_turn();
        let mut state = self.shared.0.lock();
        match self.stage {
            Stage::InFlight(key) if state.outcome.is_none() => {
                state.abandoned = true;
                drop(state);
                self.cancel_request(key);
            }
            _ => {
                let request = state.request.take();
                drop(state);
                drop(request.map(Request::into_buffers));
            }
        }
    }
}

impl<B: Send + 'static, O> fmt::Debug for Operation<B, O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Operation {:?}", self.stage)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::request::{OpenHandle, writable};
    use nowait_file::Kind;
    use std::sync::mpsc;

    /// A source that tells when it is dropped.
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

    /// A request in flight, and the memory that an engine would write to.
    fn in_flight() -> (Arc<InFlightRequest<Vec<u8>>>, usize, mpsc::Receiver<()>) {
        let (sender, receiver) = mpsc::channel();
        let held = OpenHandle::Other(Box::new(Source(std::io::stdin(), sender)));
        let request = Request::on_other(held, Kind::Read, Buffers::One(vec![0; 8]), ());
        let state = State { request: Some(request), outcome: None, waker: None, abandoned: false };
        let shared = Arc::new(InFlightRequest(Mutex::new(state)));
        let mut locked = shared.0.lock();
        let buffers = &mut locked.request.as_mut().unwrap().buffers;
        let address = writable(buffers).as_slice()[0].base.expose_provenance();
        drop(locked);
        (shared, address, receiver)
    }

    /// Writes as the kernel would, and completes the request.
    fn complete(shared: &Arc<InFlightRequest<Vec<u8>>>, address: usize, calls: &Calls) {
        let memory = core::ptr::with_exposed_provenance_mut::<u8>(address);
        // SAFETY: the request has not completed: it keeps its 8 bytes, and no other code looks at
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
