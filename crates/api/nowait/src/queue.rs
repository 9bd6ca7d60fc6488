//! Many requests at a time: the program prepares them, submits them together, and reaps them as
//! they end.
//!
//! ```text
//!  read, write, sync, poll          submit                 wait              pop, reap
//!        │ takes the buffer           │ waits for no data    │ waits           ▲ gives it back
//!        ▼                            ▼                      ▼                 │
//!    prepared ───────────────────▶ in flight ───────────▶ over ────────────────┘
//!    └──────────────── the queue owns buffer, tag and file: `depth` in all ───┘
//! ```
//!
//! **Nothing is lost.** The queue returns each request that it has accepted as one [`Completion`],
//! with buffer and tag, unless the program takes the request back ([`Queue::take_back`]) or drops
//! the queue.
//!
//! **Memory in use is never freed.** A table of the queue holds each buffer until the program pops
//! the request. The engine reports a request's end only after its last access to the buffer.
//! Dropping the queue, also by a panic, waits for the requests in flight before it frees the table.
//! A queue that is forgotten ([`core::mem::forget`]) leaks the table with its buffers. Moving the
//! queue moves no buffer: an [`IoBuffer`] keeps its address even if it is moved.

use crate::{
    Buffers, Error, File, IoBuffer, IoBufferMut, Nowait,
    request::{OpenHandle, Request, outcome, readable, writable},
};
use core::{fmt, mem, time::Duration};
use nowait_block::{Segments, Slab};
use nowait_engine::report::{self, Summary};
use nowait_file::{
    Ahead, Command, Context, Kind, Lookahead,
    submit::{EventTarget, Started, Submission},
};
use nowait_sys::{
    Errno,
    file::{IoVec, rwf},
    time::{self, Deadline},
};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, BorrowedFd},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

mod control;

use control::Control;

/// Readiness to be read, for [`Queue::poll`] (`POLLIN`).
pub const POLL_IN: u16 = 1;
/// Readiness to be written, for [`Queue::poll`] (`POLLOUT`).
pub const POLL_OUT: u16 = 4;

const DEPTH_MAX: usize = 65_536;

/// A queue for up to `depth` requests, made by [`Nowait::queue`].
///
/// `T` is the type of the tags by which the program recognizes its requests, `B` the type of its
/// buffers. A queue belongs to one thread at a time; several queues of one engine work in parallel.
/// If a thread gives the queue away while requests are in flight, io_uring may complete these only
/// when that thread makes its next system call or gets its processor's next timer tick, some
/// milliseconds later.
///
/// Requests may end in any order. Requests that overlap on one buffered file, at least one of them
/// a write, take effect in the order in which they were submitted, and a sync covers the writes
/// submitted before it.
///
/// ```
/// # fn main() -> Result<(), nowait::Error> {
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("file");
/// # std::fs::write(&path, [7; 10_000]).unwrap();
/// use nowait::{File, Nowait, Queue};
///
/// let nowait = Nowait::new()?;
/// let file = File::open(&nowait, &path)?;
/// let mut queue: Queue<&str> = nowait.queue(32)?;
/// queue.read(&file, vec![0; 4096], 0, "head")?;
/// queue.read(&file, vec![0; 4096], 8192, "tail")?;
/// queue.submit();
/// queue.reap(2, None, |completion| {
///     let bytes = completion.result.unwrap();
///     assert_eq!(bytes, if completion.tag == "head" { 4096 } else { 10_000 - 8192 });
///     assert_eq!(completion.buffers.one().unwrap()[..bytes], vec![7; bytes]);
/// })?;
/// # Ok(())
/// # }
/// ```
pub struct Queue<T, B = Vec<u8>> {
    context: Arc<Context>,
    requests: Slab<Request<T, B>>,
    prepared: Vec<(u64, Command)>,
    /// The queue keeps this value from one submission to the next, for its memory.
    lookahead: Lookahead,
    /// Number of submitted requests whose event the queue has not taken.
    in_flight: usize,
    over: VecDeque<(u64, Result<u32, Errno>)>,
    depth: usize,
    control: Control,
    /// Declared after `context`, so dropped after it: the drop of the context needs the engine.
    nowait: Nowait,
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion<T, B = Vec<u8>> {
    /// The tag that was given with the request.
    pub tag: T,
    /// The buffers that were given with the request, whatever its result.
    pub buffers: Buffers<B>,
    /// The number of bytes transferred; for a poll the events that are ready; for a sync 0. A
    /// transfer may be short: on a stream, at the end of the file, before bytes that cannot be
    /// transferred, or because it is longer than 2 GiB less 4 KiB. `ECANCELED`: the request was
    /// cancelled, or the request before it in a link did not succeed. `ETIMEDOUT`: its time limit
    /// passed.
    pub result: Result<usize, Error>,
}

/// A request that the queue did not accept; nothing was started.
pub struct Refused<T, B = Vec<u8>> {
    /// The reason. `EAGAIN`: the queue is full, reap first.
    pub error: Error,
    /// The tag that was given with the request.
    pub tag: T,
    /// The buffers that were given with the request.
    pub buffers: Buffers<B>,
}

impl<T, B> fmt::Debug for Refused<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.error)
    }
}

impl<T, B> Refused<T, B> {
    fn of(request: Request<T, B>, error: Error) -> Refused<T, B> {
        Refused { error, tag: request.tag, buffers: request.buffers }
    }
}

impl<T, B> From<Refused<T, B>> for Error {
    fn from(refused: Refused<T, B>) -> Error {
        refused.error
    }
}

type PrepareResult<T, B> = Result<RequestId, Refused<T, B>>;

/// The name of a request of a queue, from its preparation to its end. A queue does not use a name
/// twice, so a late [`Queue::cancel`] finds nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RequestId(u64);

impl<T, B> Queue<T, B> {
    pub(crate) fn new(nowait: &Nowait, depth: usize) -> Result<Queue<T, B>, Error> {
        let failed = |errno| Error::new(errno, format!("queue for {depth} requests"));
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(failed(Errno::INVAL).because(format!("the depth must be 1 to {DEPTH_MAX}")));
        }
        if nowait.is_the_parents() {
            return Err(failed(Errno::INVAL).because("a forked child needs an engine of its own"));
        }
        Ok(Queue {
            context: Context::in_turn(nowait.engine(), 0, depth as u32).map_err(failed)?,
            requests: Slab::new(depth),
            prepared: Vec::new(),
            lookahead: Lookahead::of(Ahead::Copy),
            in_flight: 0,
            over: VecDeque::new(),
            depth,
            control: Control::default(),
            nowait: nowait.clone(),
        })
    }

    /// Returns the number of requests that the queue can hold.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns the number of requests in the queue: prepared, in flight, or over and not popped.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Returns `true` if the queue holds no request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns `true` if the queue would refuse the next request.
    pub fn is_full(&self) -> bool {
        self.len() == self.depth
    }

    /// Returns the number of requests that [`Queue::pop`] can return now. A request in flight that
    /// has ended counts only after the next [`Queue::wait`].
    pub fn ready(&self) -> usize {
        self.over.len()
    }

    /// Returns the report of [`Nowait::report`], with the counters of this queue if the engine
    /// counts: see [`Builder::stats`](crate::Builder::stats).
    pub fn report(&self) -> String {
        let summary = Summary::of(&self.context);
        report::as_json(Some(self.nowait.engine()), summary.as_slice())
    }

    /// Prepares [`File::sync_all`].
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full.
    pub fn sync_all(&mut self, file: &File, tag: T) -> PrepareResult<T, B> {
        self.prepare(Request::on(file, Kind::Fsync, Buffers::None, 0, tag), |_| Segments::NONE)
    }

    /// Prepares [`File::sync_data`].
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full.
    pub fn sync_data(&mut self, file: &File, tag: T) -> PrepareResult<T, B> {
        self.prepare(Request::on(file, Kind::Fdatasync, Buffers::None, 0, tag), |_| Segments::NONE)
    }

    /// Prepares [`File::sync_range`].
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full. `EINVAL`: `offset` is one that no file can have.
    pub fn sync_range(
        &mut self,
        file: &File,
        offset: u64,
        len: u64,
        tag: T,
    ) -> PrepareResult<T, B> {
        self.prepare(Request::sync_of_range(file, offset, len, tag), |_| Segments::NONE)
    }

    /// Prepares a wait until `source` is ready for one of `events`, a mask as in poll(2):
    /// [`POLL_IN`], [`POLL_OUT`] and their like.
    ///
    /// The queue keeps `source` open until the request is popped; pass an `Arc` to continue to use
    /// it.
    /// # Errors
    /// `EAGAIN`: the queue is full. `EBADF`: opened by O_PATH.
    pub fn poll(
        &mut self,
        source: impl AsFd + Send + 'static,
        events: u16,
        tag: T,
    ) -> PrepareResult<T, B> {
        let file = OpenHandle::Other(Box::new(source));
        let kind = Kind::Poll(events);
        self.prepare(Request::on_other(file, kind, Buffers::None, tag), |_| Segments::NONE)
    }

    /// Calls `segments` when the buffers are in the table, where nothing touches them until the
    /// request has ended.
    fn prepare(
        &mut self,
        request: Request<T, B>,
        segments: impl FnOnce(&mut Buffers<B>) -> Segments,
    ) -> PrepareResult<T, B> {
        if self.is_full() {
            let error = request.failed(Errno::AGAIN);
            return Err(Refused::of(request, error.because("the queue is full: reap first")));
        }
        let Ok(key) = self.requests.insert(request) else { unreachable!("there was room") };
        let Some(request) = self.requests.get_mut(key) else { unreachable!("just put in") };
        // SAFETY: the request stays in the table, untouched, until its event has been taken: only
        // `pop`, or `take_back` before the submission, takes it out, and `drop` waits. The segments
        // fit the kind, exclusively borrowed for a read.
        let make = || unsafe { request.command(segments) };
        // `command` calls the caller's code (its buffer and source), which may panic.
        let made = catch_unwind(AssertUnwindSafe(make));
        if let Ok(Ok(command)) = made {
            self.prepared.push((key, command));
            return Ok(RequestId(key));
        }
        let Some(request) = self.requests.remove(key) else { unreachable!("just put in") };
        match made {
            Ok(Err(error)) => Err(Refused::of(request, error)),
            Err(panic) => resume_unwind(panic),
            Ok(Ok(_)) => unreachable!("returned above"),
        }
    }

    /// Submits all prepared requests together, without waiting for data; returns their number. A
    /// request that the engine refuses comes back as a [`Completion`] with the error.
    pub fn submit(&mut self) -> usize {
        let count = self.submit_prepared();
        self.ring_if_over();
        count
    }

    /// Submits as [`Queue::submit`] does, then pops all requests that are over, and calls `each`
    /// with each completion. Returns the number of requests submitted.
    ///
    /// Unlike [`Queue::submit`], this call does not make the descriptor of [`Queue::event_fd`]
    /// readable for requests that the engine ends inside the submission.
    pub fn submit_and_pop(&mut self, mut each: impl FnMut(Completion<T, B>)) -> usize {
        let count = self.submit_prepared();
        while let Some(completion) = self.pop() {
            each(completion);
        }
        count
    }

    fn submit_prepared(&mut self) -> usize {
        if !self.context.io().stats().enabled() {
            return self.start_prepared();
        }
        let before = time::now_ns();
        let count = self.start_prepared();
        let stats = self.context.io().stats();
        stats.submit_took(time::now_ns() - before);
        stats.add(|c| &c.submits, 1);
        stats.add(|c| &c.requests, count as u64);
        count
    }

    fn start_prepared(&mut self) -> usize {
        let count = self.prepared.len();
        if count == 0 {
            return 0;
        }
        self.before_submit();
        let granted = if self.nowait.is_the_parents() {
            Err(Errno::INVAL)
        } else {
            self.context.io().reserve(self.prepared.len())
        };
        let slots = *granted.as_ref().unwrap_or(&0);
        let mut submission = Submission::new(&self.context);
        let mut started = 0;
        let requests = &self.requests;
        let cached = |prepared: &(u64, Command)| {
            let (key, command) = prepared;
            let opened = requests.get(*key)?.cached()?;
            let moves = matches!(command.kind, Kind::Read | Kind::Write);
            moves.then_some((opened.file.as_ref(), command.offset as u64, command.len as usize))
        };
        self.lookahead.look(self.prepared.iter().map(cached));
        for (index, (key, command)) in self.prepared.iter().enumerate() {
            self.lookahead.step(index, |index| self.prepared.get(index).and_then(cached));
            let key = *key;
            let target = EventTarget { data: key, obj: key, eventfd: None };
            let outcome = if index >= slots {
                Err(granted.err().unwrap_or(Errno::AGAIN))
            } else if self.control.is_special(key) {
                let opened = requests.get(key).and_then(Request::cached);
                submission.start_linked(opened, command.clone(), target, self.control.links(key))
            } else if let Some(opened) = requests.get(key).and_then(Request::cached) {
                submission.start_on(opened, command, &target)
            } else {
                submission.start(command.clone(), target)
            };
            match Started::result(outcome) {
                None => started += 1,
                // The request is already over: no event will come.
                Some(result) => self.over.push_back((key, result)),
            }
        }
        self.prepared.clear();
        if slots > started {
            self.context.io().release(slots - started);
        }
        self.in_flight += started;
        submission.finish();
        self.after_submit();
        count
    }

    /// Waits until `min` requests are over and not popped, or until `timeout` has passed. Returns
    /// the number of requests that are over and not popped.
    ///
    /// Never waits for more requests than are in flight; `None` waits without a time limit. A
    /// signal does not end the wait.
    /// # Errors
    /// `EINVAL`: this is a forked child, and the requests are its parent's.
    pub fn wait(&mut self, min: usize, timeout: Option<Duration>) -> Result<usize, Error> {
        if self.nowait.is_the_parents() {
            return Err(Error::new(
                Errno::INVAL,
                "cannot wait in a forked child for requests of its parent",
            ));
        }
        let deadline = match timeout {
            None => Deadline::NEVER,
            Some(Duration::ZERO) => Deadline::NOW,
            Some(t) => Deadline::after_ns(u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)),
        };
        self.context.reset_event_counter();
        while self.in_flight > 0 {
            let need = min.saturating_sub(self.over.len()).min(self.in_flight);
            let until = if need == 0 { Deadline::NOW } else { deadline };
            let over = &mut self.over;
            // The closure only collects the results, because the ring is locked while it runs.
            let taken = self.context.wait_events(need, self.in_flight, until, None, |_, event| {
                over.push_back((event.data, outcome(event)));
                Ok(())
            });
            match taken {
                Ok(count) => {
                    self.in_flight -= count;
                    if count >= need || deadline.has_passed() {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new(errno, "wait for requests")),
            }
        }
        report::tell_failure(self.nowait.engine());
        Ok(self.over.len())
    }

    /// Returns descriptors for the caller's own event loop: inside [`Queue::sleep`], one of them
    /// becomes readable when a request of this queue is over. Wait for the descriptors only inside
    /// [`Queue::sleep`].
    ///
    /// Unlike with [`Queue::event_fd`], the waiting thread itself reaps the requests of the context
    /// queue, without a thread switch.
    /// # Errors
    /// `EMFILE`, `ENFILE`: no descriptors left.
    pub fn descriptors(&self) -> Result<Vec<BorrowedFd<'_>>, Error> {
        let numbers = self.context.loop_descriptors();
        let numbers = numbers.map_err(|errno| Error::new(errno, "event loop on a queue"))?;
        // SAFETY: the queue's context keeps them open as long as it lives, and `self` is borrowed.
        Ok(numbers.into_iter().map(|fd| unsafe { BorrowedFd::borrow_raw(fd) }).collect())
    }

    /// Calls `sleep`, unless a request is over or its completion has left the context queue.
    /// Returns the number of requests that are over and not popped.
    ///
    /// `sleep` may wait for anything, but must return when one of [`Queue::descriptors`] is
    /// readable.
    /// # Errors
    /// The errors of [`Queue::wait`].
    pub fn sleep(&mut self, sleep: impl FnOnce()) -> Result<usize, Error> {
        if self.over.is_empty() && !self.nowait.is_the_parents() {
            self.context.sleep_outside(sleep);
        }
        if self.in_flight == 0 && !self.nowait.is_the_parents() {
            self.context.serve_others();
        }
        self.wait(0, Some(Duration::ZERO))
    }

    /// Takes a request that is over out of the queue. `None`: the queue knows no such request;
    /// [`Queue::wait`] looks for more.
    pub fn pop(&mut self) -> Option<Completion<T, B>> {
        let (key, outcome) = self.over.pop_front()?;
        let request = self.requests.remove(key)?;
        self.control.forget(key, &self.nowait);
        let result = request.result(outcome);
        Some(Completion { tag: request.tag, buffers: request.buffers, result })
    }

    /// Waits as [`Queue::wait`] does. Then pops all requests that are over, calls `each` with each
    /// completion, and returns their number. If `each` panics, the requests that were not popped
    /// stay in the queue.
    ///
    /// # Errors
    /// The errors of [`Queue::wait`].
    pub fn reap(
        &mut self,
        min: usize,
        timeout: Option<Duration>,
        mut each: impl FnMut(Completion<T, B>),
    ) -> Result<usize, Error> {
        self.wait(min, timeout)?;
        let mut count = 0;
        while let Some(completion) = self.pop() {
            each(completion);
            count += 1;
        }
        Ok(count)
    }
}

impl<T, B: IoBufferMut> Queue<T, B> {
    /// Prepares a read at `offset` into the whole of `buffer`.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full. `EBADF`: not open for reading. `EINVAL`: not aligned as direct
    /// I/O needs it.
    pub fn read(&mut self, file: &File, buffer: B, offset: u64, tag: T) -> PrepareResult<T, B> {
        let buffers = Buffers::One(buffer);
        self.prepare(Request::on(file, Kind::Read, buffers, offset, tag), writable)
    }

    /// Reads at `offset` into `buffer` the data that is available without waiting, in the page
    /// cache or in memory. `None`: the program must submit the read, for example because a part of
    /// the data is not available without waiting. A part of `buffer` may be overwritten then.
    ///
    /// This is the first attempt that submitting the read would make, but cheaper: it takes no
    /// place in the queue. Also returns `None` for direct I/O, if requests are prepared, in a
    /// forked child, or if the engine counts ([`Builder::stats`](crate::Builder::stats)).
    pub fn read_at_once(
        &mut self,
        file: &File,
        buffer: &mut B,
        offset: u64,
    ) -> Option<Result<usize, Error>> {
        let is_counted = self.context.io().stats().enabled();
        if is_counted || !self.prepared.is_empty() || self.nowait.is_the_parents() {
            return None;
        }
        let segment = IoVec { base: buffer.as_mut_ptr(), len: buffer.len() };
        let segments = Segments::One(segment);
        let signed = match file.check(Kind::Read, segments.as_slice(), offset) {
            Ok(signed) => signed,
            Err(error) => return Some(Err(error)),
        };
        let whole = (file.fd(), file.flags());
        // SAFETY: the buffer is borrowed exclusively, and nothing accesses it after the attempt.
        let mut command = unsafe { Command::new(Kind::Read, whole, segments, signed) };
        let mut submission = Submission::new(&self.context);
        let result = submission.read_at_once(file.opened_cached(), &mut command);
        submission.finish();
        let failed = |errno| file.refused(Kind::Read, errno, buffer.len() as u64, offset);
        result.map(|result| result.map(|bytes| bytes as usize).map_err(failed))
    }

    /// Prepares a read at `offset` into several buffers, one after another.
    ///
    /// # Errors
    /// The errors of [`Queue::read`]; `EINVAL`: more than 1024 buffers.
    pub fn read_vectored(
        &mut self,
        file: &File,
        buffers: Vec<B>,
        offset: u64,
        tag: T,
    ) -> PrepareResult<T, B> {
        let buffers = Buffers::Many(buffers);
        self.prepare(Request::on(file, Kind::Read, buffers, offset, tag), writable)
    }
}

impl<T, B: IoBuffer> Queue<T, B> {
    /// Prepares a write of the whole of `buffer` at `offset`.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full. `EBADF`: not open for writing. `EINVAL`: not aligned as direct
    /// I/O needs it.
    pub fn write(&mut self, file: &File, buffer: B, offset: u64, tag: T) -> PrepareResult<T, B> {
        let buffers = Buffers::One(buffer);
        self.prepare(Request::on(file, Kind::Write, buffers, offset, tag), readable)
    }

    /// Prepares a write of the whole of `buffer` at `offset` that is durable when it ends.
    ///
    /// # Errors
    /// The errors of [`Queue::write`].
    pub fn write_durable(
        &mut self,
        file: &File,
        buffer: B,
        offset: u64,
        tag: T,
    ) -> PrepareResult<T, B> {
        let mut request = Request::on(file, Kind::Write, Buffers::One(buffer), offset, tag);
        request.rw_flags = rwf::DSYNC;
        self.prepare(request, readable)
    }

    /// Prepares a write of several buffers, one after another, at `offset`.
    ///
    /// # Errors
    /// The errors of [`Queue::write`]; `EINVAL`: more than 1024 buffers.
    pub fn write_vectored(
        &mut self,
        file: &File,
        buffers: Vec<B>,
        offset: u64,
        tag: T,
    ) -> PrepareResult<T, B> {
        let buffers = Buffers::Many(buffers);
        self.prepare(Request::on(file, Kind::Write, buffers, offset, tag), readable)
    }
}

impl<T, B> Drop for Queue<T, B> {
    /// Cancels polls and waiting streams, and waits until no request is in flight.
    fn drop(&mut self) {
        if self.nowait.is_the_parents() {
            // In a forked child no request ends any more. Leak the requests, because a buffer may
            // be in memory shared with the parent, whose threads may write to it.
            mem::forget((self.context.clone(), mem::replace(&mut self.requests, Slab::new(0))));
            return;
        }
        self.control.forget_all(&self.nowait);
        // The call fails only if the context is destroyed already, and nothing else destroys it.
        let _ = self.context.destroy();
        self.context.io().ring().memory().unmap_theirs(self.context.address());
    }
}

impl<T, B> fmt::Debug for Queue<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, depth) = (self.len(), self.depth);
        write!(f, "Queue of {len}/{depth} requests, {} in flight", self.in_flight)
    }
}
