//! Many requests at a time: prepared, submitted together, reaped as they end.
//!
//! ```text
//!  read, write, sync, poll          submit                 wait              pop, reap
//!        │ takes the buffer           │ never waits          │ waits           ▲ gives it back
//!        ▼                            ▼                      ▼                 │
//!    prepared ───────────────────▶ under way ───────────▶ over ────────────────┘
//!    └──────────────── the queue owns buffer, tag and file: `depth` in all ───┘
//! ```
//!
//! **Nothing is lost.** A request that was taken comes back as one [`Completion`], with its buffer
//! and tag, whatever became of it. One that is not taken comes back at once, in a [`Refused`].
//!
//! **Memory in use is never freed.** Buffers are in a table of the queue from the moment they are
//! taken, and leave it when the request's event has been taken from the ring: the engine puts it
//! there after its last access. Dropping the queue, also by a panic, waits for what is under way
//! (polls are cancelled) before the table goes. A queue that is forgotten
//! ([`core::mem::forget`]) leaks the table and everything in it, and the engine goes on with it.
//! Moving the queue moves no buffer: the table is on the heap, and an
//! [`IoBuffer`] keeps its address even if it is moved.

use crate::{Error, File, IoBuffer, IoBufferMut, Nowait};
use core::{fmt, mem, time::Duration};
use nowait_block::{Segments, Slab};

use nowait_file::{
    Ahead, Command, Context, Kind, Lookahead, Opened,
    command::{LEN_MAX, open_for},
    submit::{Reply, Submission},
};
use nowait_sys::{Errno, aio::IoEvent, file::IoVec, time::Deadline};
use std::{
    collections::VecDeque,
    os::fd::{AsFd, AsRawFd},
    sync::Arc,
};

/// Readiness to be read, for [`Queue::poll`] (`POLLIN`).
pub const POLL_IN: u16 = 1;
/// Readiness to be written, for [`Queue::poll`] (`POLLOUT`).
pub const POLL_OUT: u16 = 4;

/// Most requests of one queue.
const DEPTH_MAX: usize = 65_536;

/// A queue for up to `depth` requests, made by [`Nowait::queue`].
///
/// `T` is what the program knows a request by, `B` the type of its buffers. A queue belongs to
/// one thread at a time; several queues of one engine work in parallel.
///
/// Requests may end in any order. Those that overlap on one buffered file, at least one of them a
/// write, take effect in the order in which they were submitted, and a sync covers the writes
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
    /// Taken, not submitted.
    prepared: Vec<(u64, Command)>,
    /// Kept for its memory: a submission of cached requests allocates nothing.
    lookahead: Lookahead,
    /// Submitted, and their event not yet taken.
    under_way: usize,
    /// Ended, not yet given back.
    over: VecDeque<(u64, Result<u32, Errno>)>,
    depth: usize,
    /// After the context: that needs the engine to the end.
    nowait: Nowait,
}

/// What the queue keeps of a request.
struct Request<T, B> {
    tag: T,
    buffers: Buffers<B>,
    file: Held,
    kind: Kind,
    offset: u64,
    /// Bytes asked for.
    len: u64,
}

/// What keeps the descriptor of a request open.
enum Held {
    File(File),
    Other(Box<dyn AsFd + Send>),
}

/// The memory of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Buffers<B> {
    /// The request transfers nothing.
    None,
    /// One buffer.
    One(B),
    /// Several, filled or written in order.
    Many(Vec<B>),
}

impl<B> Buffers<B> {
    /// Returns the buffer of a request that had one.
    pub fn one(self) -> Option<B> {
        match self {
            Buffers::One(buffer) => Some(buffer),
            _ => None,
        }
    }

    /// Returns the buffers of a vectored request.
    pub fn many(self) -> Option<Vec<B>> {
        match self {
            Buffers::Many(buffers) => Some(buffers),
            _ => None,
        }
    }
}

/// The end of a request.
#[derive(Debug)]
pub struct Completion<T, B = Vec<u8>> {
    /// As it was given with the request.
    pub tag: T,
    /// The memory given with the request, always.
    pub buffers: Buffers<B>,
    /// Bytes transferred, fewer than asked for at the end of the file only; ready events of a
    /// poll, 0 if it was cancelled; 0 for a sync.
    pub result: Result<usize, Error>,
}

/// A request that was not taken: nothing was started.
pub struct Refused<T, B = Vec<u8>> {
    /// Why. `EAGAIN`: the queue is full, reap first.
    pub error: Error,
    /// As it was given.
    pub tag: T,
    /// As they were given.
    pub buffers: Buffers<B>,
}

impl<T, B> fmt::Debug for Refused<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "refused: {}", self.error)
    }
}

impl<T, B> From<Refused<T, B>> for Error {
    /// Drops tag and buffers.
    fn from(refused: Refused<T, B>) -> Error {
        refused.error
    }
}

type Taken<T, B> = Result<(), Refused<T, B>>;

impl<T, B> Queue<T, B> {
    pub(crate) fn new(nowait: &Nowait, depth: usize) -> Result<Queue<T, B>, Error> {
        let failed = |errno| Error::new(errno, format!("queue for {depth} requests"));
        if !(1..=DEPTH_MAX).contains(&depth) {
            return Err(failed(Errno::INVAL).because(format!("it takes 1 to {DEPTH_MAX}")));
        }
        if nowait.is_the_parents() {
            return Err(failed(Errno::INVAL).because("a forked child needs an engine of its own"));
        }
        Ok(Queue {
            context: Context::new(nowait.engine(), 0, depth as u32).map_err(failed)?,
            requests: Slab::new(depth),
            prepared: Vec::new(),
            lookahead: Lookahead::of(Ahead::Copy),
            under_way: 0,
            over: VecDeque::new(),
            depth,
            nowait: nowait.clone(),
        })
    }

    /// Returns how many requests the queue takes.
    pub fn depth(&self) -> usize {
        self.depth
    }

    /// Returns how many requests the queue has: prepared, under way, and over but not popped.
    pub fn len(&self) -> usize {
        self.requests.len()
    }

    /// Tells whether the queue has no request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Tells whether the next request finds the queue full.
    pub fn is_full(&self) -> bool {
        self.len() == self.depth
    }

    /// Prepares [`File::sync_all`]; it covers the writes submitted before it.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full.
    pub fn sync_all(&mut self, file: &File, tag: T) -> Taken<T, B> {
        self.prepare(Request::on(file, Kind::Fsync, Buffers::None, 0, tag), |_| Segments::NONE)
    }

    /// Prepares [`File::sync_data`]; it covers the writes submitted before it.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full.
    pub fn sync_data(&mut self, file: &File, tag: T) -> Taken<T, B> {
        self.prepare(Request::on(file, Kind::Fdatasync, Buffers::None, 0, tag), |_| Segments::NONE)
    }

    /// Prepares a wait until `source` is ready for one of the events of poll(2), once: [`POLL_IN`],
    /// [`POLL_OUT`] and their like.
    ///
    /// `source` is kept open meanwhile; give an `Arc` to go on using it.
    /// # Errors
    /// `EAGAIN`: the queue is full. `EBADF`: opened by O_PATH.
    pub fn poll(&mut self, source: impl AsFd + Send + 'static, events: u16, tag: T) -> Taken<T, B> {
        let file = Held::Other(Box::new(source));
        let kind = Kind::Poll(events);
        let request = Request { tag, buffers: Buffers::None, file, kind, offset: 0, len: 0 };
        self.prepare(request, |_| Segments::NONE)
    }

    /// Takes a request in and makes its command. `segments` is called when the buffers are at
    /// their place: they are not touched again until the end.
    fn prepare(
        &mut self,
        request: Request<T, B>,
        segments: impl FnOnce(&mut Buffers<B>) -> Segments,
    ) -> Taken<T, B> {
        if self.is_full() {
            let error = request.failed(Errno::AGAIN);
            return Err(request.refused(error.because("the queue is full: reap first")));
        }
        let Ok(key) = self.requests.insert(request) else { unreachable!("there was room") };
        let Some(request) = self.requests.get_mut(key) else { unreachable!("just put in") };
        let segments = bounded(segments(&mut request.buffers));
        request.len = segments.len() as u64;
        match request.check(&segments) {
            Ok((file, offset)) => {
                // SAFETY: the segments are memory of the buffers, which stay in the table and
                // untouched until the event has been taken: `pop` is the only way out, and
                // `drop` waits. They were made for this kind, exclusively if it is a read.
                let command = unsafe { Command::new(request.kind, file, segments, offset) };
                self.prepared.push((key, command));
                Ok(())
            }
            Err(error) => match self.requests.remove(key) {
                Some(request) => Err(request.refused(error)),
                None => Ok(()),
            },
        }
    }

    /// Hands all prepared requests over, together; returns how many. Never waits.
    ///
    /// What the engine refuses ends at once, and is over with its error like any other.
    pub fn submit(&mut self) -> usize {
        let count = self.prepared.len();
        if count == 0 {
            return 0;
        }
        let granted = if self.nowait.is_the_parents() {
            Err(Errno::INVAL)
        } else {
            self.context.io().reserve(count)
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
            let reply = Reply { data: key, obj: key, eventfd: None };
            let outcome = if index >= slots {
                Err(granted.err().unwrap_or(Errno::AGAIN))
            } else if let Some(opened) = requests.get(key).and_then(Request::cached) {
                submission.start_on(opened, command, &reply)
            } else {
                submission.start(command.clone(), reply).map(|()| None)
            };
            match outcome {
                Ok(None) => started += 1,
                // Cached: no event will come.
                Ok(Some(bytes)) => self.over.push_back((key, Ok(bytes))),
                Err(errno) => self.over.push_back((key, Err(errno))),
            }
        }
        self.prepared.clear();
        if slots > started {
            self.context.io().release(slots - started);
        }
        self.under_way += started;
        submission.finish();
        count
    }

    /// Waits until `min` requests are over and not popped, or for `timeout`; returns how many are.
    ///
    /// Never waits for more than are under way; `None` waits for ever. Goes on after a signal.
    /// # Errors
    /// `EINVAL`: this is a forked child, and the requests are the parent's.
    pub fn wait(&mut self, min: usize, timeout: Option<Duration>) -> Result<usize, Error> {
        if self.nowait.is_the_parents() {
            return Err(Error::new(Errno::INVAL, "wait for requests of the parent process"));
        }
        let deadline = match timeout {
            None => Deadline::NEVER,
            Some(Duration::ZERO) => Deadline::NOW,
            Some(t) => Deadline::after_ns(u64::try_from(t.as_nanos()).unwrap_or(u64::MAX)),
        };
        while self.under_way > 0 {
            let need = min.saturating_sub(self.over.len()).min(self.under_way);
            let until = if need == 0 { Deadline::NOW } else { deadline };
            let over = &mut self.over;
            // Only collected here: the ring is locked.
            let taken = self.context.wait_events(need, self.under_way, until, None, |_, event| {
                over.push_back((event.data, outcome(event)));
                Ok(())
            });
            match taken {
                Ok(count) => {
                    self.under_way -= count;
                    if count >= need || deadline.has_passed() {
                        break;
                    }
                }
                Err(Errno::INTR) => {}
                Err(errno) => return Err(Error::new(errno, "wait for requests")),
            }
        }
        Ok(self.over.len())
    }

    /// Gives back a request that is over; `None`: there is none, so [`Queue::wait`].
    pub fn pop(&mut self) -> Option<Completion<T, B>> {
        let (key, outcome) = self.over.pop_front()?;
        let request = self.requests.remove(key)?;
        let result = outcome.map(|value| value as usize);
        let result = result.map_err(|errno| request.failed(errno));
        Some(Completion { tag: request.tag, buffers: request.buffers, result })
    }

    /// Waits as [`Queue::wait`] does, and gives back all that are over, each to `each`; returns how
    /// many. If `each` panics, those after it stay in the queue.
    ///
    /// # Errors
    /// Those of [`Queue::wait`].
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
    pub fn read(&mut self, file: &File, buffer: B, offset: u64, tag: T) -> Taken<T, B> {
        let buffers = Buffers::One(buffer);
        self.prepare(Request::on(file, Kind::Read, buffers, offset, tag), writable)
    }

    /// Prepares a read at `offset` into several buffers, one after another.
    ///
    /// # Errors
    /// Those of [`Queue::read`]; `EINVAL`: more than 1024 buffers.
    pub fn read_vectored(
        &mut self,
        file: &File,
        buffers: Vec<B>,
        offset: u64,
        tag: T,
    ) -> Taken<T, B> {
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
    pub fn write(&mut self, file: &File, buffer: B, offset: u64, tag: T) -> Taken<T, B> {
        let buffers = Buffers::One(buffer);
        self.prepare(Request::on(file, Kind::Write, buffers, offset, tag), readable)
    }

    /// Prepares a write of several buffers, one after another, at `offset`.
    ///
    /// # Errors
    /// Those of [`Queue::write`]; `EINVAL`: more than 1024 buffers.
    pub fn write_vectored(
        &mut self,
        file: &File,
        buffers: Vec<B>,
        offset: u64,
        tag: T,
    ) -> Taken<T, B> {
        let buffers = Buffers::Many(buffers);
        self.prepare(Request::on(file, Kind::Write, buffers, offset, tag), readable)
    }
}

impl<T, B> Request<T, B> {
    fn on(file: &File, kind: Kind, buffers: Buffers<B>, offset: u64, tag: T) -> Request<T, B> {
        Request { tag, buffers, file: Held::File(file.clone()), kind, offset, len: 0 }
    }

    /// Finds out whether the request is possible; returns descriptor, status flags, and offset.
    fn check(&self, segments: &Segments) -> Result<((i32, i32), i64), Error> {
        match &self.file {
            Held::File(file) => {
                let signed = match self.kind {
                    Kind::Read | Kind::Write => {
                        file.check(self.kind, segments.as_slice(), self.offset)?
                    }
                    _ => 0,
                };
                Ok(((file.fd(), file.status_flags()), signed))
            }
            Held::Other(source) => {
                let fd = source.as_fd().as_raw_fd();
                let flags = open_for(fd).map_err(|errno| self.failed(errno))?;
                Ok(((fd, flags), 0))
            }
        }
    }

    fn cached(&self) -> Option<Opened<'_>> {
        match &self.file {
            Held::File(file) => file.opened_cached(),
            Held::Other(_) => None,
        }
    }

    fn failed(&self, errno: Errno) -> Error {
        match &self.file {
            Held::File(file) => file.refused(self.kind, errno, self.len, self.offset),
            Held::Other(_) => Error::new(errno, "poll"),
        }
    }

    fn refused(self, error: Error) -> Refused<T, B> {
        Refused { error, tag: self.tag, buffers: self.buffers }
    }
}

impl<T, B> Drop for Queue<T, B> {
    /// Waits until nothing is under way; polls are cancelled.
    fn drop(&mut self) {
        if self.nowait.is_the_parents() {
            // In a forked child nothing ends any more; what the parent's threads would have
            // written to is the parent's copy.
            mem::forget((self.context.clone(), mem::replace(&mut self.requests, Slab::new(0))));
            return;
        }
        // The only error is that somebody destroys the context, and nobody else has it.
        let _ = self.context.destroy();
        self.context.io().ring().memory().unmap_theirs(self.context.address());
    }
}

impl<T, B> fmt::Debug for Queue<T, B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (len, depth) = (self.len(), self.depth);
        write!(f, "Queue of {len}/{depth} requests, {} under way", self.under_way)
    }
}

fn outcome(event: IoEvent) -> Result<u32, Errno> {
    u32::try_from(event.res).map_err(|_| Errno::new(event.res.wrapping_neg() as i32))
}

/// Cuts off what the kernel would not transfer in one request.
#[inline]
fn bounded(segments: Segments) -> Segments {
    if segments.len() as u64 > LEN_MAX { segments.first(LEN_MAX as usize) } else { segments }
}

fn writable<B: IoBufferMut>(buffers: &mut Buffers<B>) -> Segments {
    segments(buffers, |buffer| IoVec { base: buffer.as_mut_ptr(), len: buffer.len() })
}

fn readable<B: IoBuffer>(buffers: &mut Buffers<B>) -> Segments {
    segments(buffers, |buffer| IoVec { base: buffer.as_ptr().cast_mut(), len: buffer.len() })
}

fn segments<B>(buffers: &mut Buffers<B>, one: impl Fn(&mut B) -> IoVec) -> Segments {
    match buffers {
        Buffers::None => Segments::NONE,
        Buffers::One(buffer) => Segments::One(one(buffer)),
        Buffers::Many(buffers) => Segments::Many(buffers.iter_mut().map(one).collect()),
    }
}
