//! The one context of POSIX AIO, and its requests in flight.

use crate::{
    aiocb::Block,
    notice::{Ending, Notice},
    notifiers::Notifiers,
    pending_notices::PendingNotices,
};
use core::{
    cmp::Reverse,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::Acquire, Ordering::Release},
};
use nowait_engine::{Context, Sink, outcome::Sleepers};
use nowait_process::{Process, process::Face};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    aio::IoEvent,
    allocator::reserve,
    futex, inside,
    mistake::{self, Mistake},
    signal,
    time::Deadline,
};
use rustc_hash::FxHashMap;
use std::sync::Arc;

/// Most requests in flight, and most requests of one lio_listio: AIO_MAX and AIO_LISTIO_MAX of
/// sysconf(3).
pub const REQUESTS_MAX: usize = 65_536;
/// Most by which a priority can be lowered: AIO_PRIO_DELTA_MAX, as in glibc.
pub const PRIO_DELTA_MAX: i32 = 20;

/// The threads that wait in aio_suspend and lio_listio. A static, because a signal handler may
/// wait.
pub static SLEEPERS: Sleepers = Sleepers::new();

/// Stores `errno` as the outcome of a request that has not begun, as glibc does if the call itself
/// fails, and returns `errno`.
pub(crate) fn begins_not(block: Block, errno: Errno) -> Errno {
    SLEEPERS.wake(block.finish(Err(errno)));
    errno
}

/// `true`: aio_error, aio_return or aio_suspend has looked at a request since the last submission.
/// A static, because signal handlers may call these functions.
#[unsafe(export_name = "nowait_asked")]
pub static ASKED: AtomicBool = AtomicBool::new(false);

/// POSIX AIO in one process. A forked child starts with none.
pub struct Posix {
    pub(crate) context: Arc<Context>,
    pub(crate) shared: Arc<Shared>,
}

/// The state by which any thread can end a request.
pub struct Shared {
    process: &'static Process,
    in_flight: Mutex<Table>,
    notifiers: Notifiers,
    pending_notices: PendingNotices,
    /// Notices held back while the process may be about to end or to become another program.
    kept: Mutex<Vec<Notice>>,
}

#[derive(Default)]
struct Table {
    requests: FxHashMap<usize, InFlight>,
    begun: u64,
}

struct InFlight {
    fd: i32,
    /// Number of requests that have begun before this one.
    number: u64,
    /// Set by a caller of aio_cancel that waits for the result of the request.
    watch: Option<Arc<Watch>>,
}

/// The result of a request, for the callers of aio_cancel that wait for it.
#[derive(Debug, Default)]
pub(crate) struct Watch(AtomicU32);

const ENDED: u32 = 1;
const CANCELLED: u32 = 2;

impl Watch {
    fn ended(&self, result: Result<u32, Errno>) {
        let how = if result == Err(Errno::CANCELED) { CANCELLED } else { ENDED };
        self.0.store(how, Release);
        futex::wake(&self.0, u32::MAX);
    }

    /// `None`: the request has not ended by `deadline`.
    pub(crate) fn was_cancelled(&self, deadline: Deadline) -> Option<bool> {
        loop {
            let how = self.0.load(Acquire);
            if how != 0 {
                return Some(how == CANCELLED);
            }
            if deadline.has_passed() {
                return None;
            }
            let _ = futex::wait(&self.0, 0, deadline);
        }
    }
}

impl Posix {
    /// Returns the process's POSIX AIO, which the first call starts.
    ///
    /// # Errors
    /// `EAGAIN`: no descriptors, threads or memory left for the engine.
    pub fn current() -> Result<&'static Posix, Errno> {
        if let Some(posix) = Posix::existing() {
            return Ok(posix);
        }
        if !reserve::is_whole() {
            return Err(Errno::AGAIN);
        }
        let begin = |process| Ok(Box::new(Posix::begin(process)?) as Face);
        let face = Process::current().face(begin).map_err(|_| Errno::AGAIN)?;
        face.downcast_ref::<Posix>().ok_or(Errno::AGAIN)
    }

    /// Returns the process's POSIX AIO if it was started.
    pub fn existing() -> Option<&'static Posix> {
        let face = Process::existing()?.existing_face()?;
        face.downcast_ref::<Posix>()
    }

    fn begin(process: &'static Process) -> Result<Posix, Errno> {
        let shared = Arc::new(Shared {
            process,
            in_flight: Mutex::default(),
            notifiers: Notifiers::default(),
            pending_notices: PendingNotices::default(),
            kept: Mutex::default(),
        });
        let ends = shared.clone();
        let sink = Sink {
            face: "POSIX AIO",
            limit: REQUESTS_MAX,
            deliver: Box::new(move |event| ends.ended(event)),
        };
        let context = process.new_sink_context(sink)?;
        Ok(Posix { context, shared })
    }

    /// Returns the threads that call the application's functions.
    pub fn notifiers(&self) -> &Notifiers {
        &self.shared.notifiers
    }

    /// Waits until the notice of the block at `address`, whose outcome the caller has seen, was
    /// sent. Does not wait in a handler that has interrupted a call of the library, or where no
    /// sender exists. Takes no lock and allocates no memory, because signal handlers call this
    /// function.
    pub fn await_notice(&self, address: usize) {
        let pending_notices = &self.shared.pending_notices;
        // A handler that has interrupted the sender would wait for its own thread. In a child of
        // vfork or clone(2), the sender does not exist.
        let may_wait = || !inside::is_interrupted() && Process::of_caller().is_some();
        if pending_notices.is_pending(address) && may_wait() {
            pending_notices.wait(address);
        }
    }

    /// Called when the process goes on: sends the notices that were held back.
    pub fn stays(&self) {
        let kept = core::mem::take(&mut *self.shared.kept.lock());
        kept.into_iter().for_each(|notice| self.shared.announce(notice));
    }
}

impl Shared {
    /// Signal handlers must not call this function.
    pub(crate) fn tell_failure(&self) {
        self.process.tell_failure();
    }

    pub(crate) fn begins(&self, block: Block) {
        block.begin();
        let mut in_flight = self.in_flight.lock();
        let request = InFlight { fd: block.fd(), number: in_flight.begun, watch: None };
        in_flight.begun += 1;
        in_flight.requests.insert(block.address(), request);
    }

    /// Stores the error as the outcome of a request that was not accepted, and removes the request.
    pub(crate) fn begins_not(&self, block: Block, errno: Errno) {
        let mut in_flight = self.in_flight.lock();
        in_flight.requests.remove(&block.address());
        let slots = block.finish(Err(errno));
        drop(in_flight);
        SLEEPERS.wake(slots);
    }

    fn ended(&self, event: IoEvent) {
        let result =
            u32::try_from(event.res).map_err(|_| Errno::new(event.res.wrapping_neg() as i32));
        // SAFETY: the context got this address with a request that began, and ends now.
        let block = unsafe { Block::in_flight(event.obj as usize) };
        // SAFETY: [`Ending::word`] made the word, as above; a request ends once.
        let ending = unsafe { Ending::from_word(event.data) };
        self.end(block, ending, result);
    }

    /// Ends a request: stores the outcome, sends the notice, and then wakes the waiting threads, as
    /// glibc does. After the process has begun to end by exit(3), sends no notice; exit handlers
    /// may wait for the outcome.
    pub(crate) fn end(
        &self,
        block: Block,
        mut ending: Option<Box<Ending>>,
        result: Result<u32, Errno>,
    ) {
        if let Err(errno) = result {
            // A write that failed inside submit has perhaps raised SIGPIPE or SIGXFSZ on this
            // thread, which has blocked both.
            signal::take_back(errno);
        }
        let notice_guard = ending.is_some().then(|| self.pending_notices.begin(block.address()));
        // Remove the request and store its outcome under one lock, so that aio_cancel finds a
        // request either in flight or with its outcome.
        let mut in_flight = self.in_flight.lock();
        let request = in_flight.requests.remove(&block.address());
        if self.process.may_be_gone(block.address()) {
            return;
        }
        if self.process.is_ending() {
            ending = None;
        }
        if mistake::makes(Mistake::TellTooEarly)
            && let Some(ending) = ending.take()
        {
            ending.tell(self);
        }
        let slots = block.finish(result);
        drop(in_flight);
        if let Some(ending) = ending {
            ending.tell(self);
        }
        drop(notice_guard);
        SLEEPERS.wake(slots);
        if let Some(watch) = request.and_then(|request| request.watch) {
            watch.ended(result);
        }
    }

    /// Sends a notice to the application. While the process may be about to end or to become
    /// another program, keeps the notice for [`Posix::stays`].
    pub(crate) fn announce(&self, notice: Notice) {
        if notice.is_none() {
            return;
        }
        if self.process.is_leaving() {
            let mut kept = self.kept.lock();
            // Check again: `stays` may just have emptied the list.
            if self.process.is_leaving() {
                return kept.push(notice);
            }
        }
        notice.tell(&self.notifiers);
    }

    /// Returns the requests in flight on `fd`, or only the request of `block`, each with the watch
    /// for its end. The newest come first: otherwise the cancellation of a request could start a
    /// later one that waits for it and is to be cancelled too.
    pub(crate) fn watch(&self, fd: i32, block: Option<Block>) -> Vec<(u64, Arc<Watch>)> {
        let mut in_flight = self.in_flight.lock();
        let watch = |request: &mut InFlight| request.watch.get_or_insert_default().clone();
        if let Some(block) = block {
            let request = in_flight.requests.get_mut(&block.address());
            return request.map(|it| (block.address() as u64, watch(it))).into_iter().collect();
        }
        let all = in_flight.requests.iter_mut();
        let mut wanted: Vec<_> = all.filter(|(_, request)| request.fd == fd).collect();
        wanted.sort_unstable_by_key(|(_, request)| Reverse(request.number));
        let watched = wanted.into_iter();
        watched.map(|(address, request)| (*address as u64, watch(request))).collect()
    }
}
