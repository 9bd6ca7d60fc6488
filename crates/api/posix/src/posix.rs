//! The one context of the process, and its requests in flight.

use crate::{
    aiocb::Block,
    notice::{Ending, Notice},
    notifiers::Notifiers,
    tellings::Tellings,
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

/// Most requests in flight, and most of one lio_listio: AIO_MAX and AIO_LISTIO_MAX of sysconf(3).
pub const REQUESTS_MAX: usize = 65_536;
/// Most by which a priority can be lowered: AIO_PRIO_DELTA_MAX, glibc's.
pub const PRIO_DELTA_MAX: i32 = 20;

/// The threads that wait in aio_suspend and lio_listio; one static, because a signal handler may be
/// one of them.
pub static SLEEPERS: Sleepers = Sleepers::new();

/// The program has looked how its requests are since the last one: a static, because aio_error(3)
/// is for signal handlers, too.
#[unsafe(export_name = "nowait_asked")]
pub static ASKED: AtomicBool = AtomicBool::new(false);

/// POSIX AIO in one process. A forked child starts with none.
pub struct Posix {
    pub(crate) context: Arc<Context>,
    pub(crate) shared: Arc<Shared>,
}

/// What the ends of requests need, on whatever thread.
pub struct Shared {
    process: &'static Process,
    in_flight: Mutex<Table>,
    notifiers: Notifiers,
    tellings: Tellings,
    /// Kept while the process may be about to become another program.
    kept: Mutex<Vec<Notice>>,
}

/// The requests that have not ended, by the addresses of their blocks.
#[derive(Default)]
struct Table {
    requests: FxHashMap<usize, InFlight>,
    /// How many have begun.
    begun: u64,
}

/// A request that has not ended.
struct InFlight {
    fd: i32,
    /// So many have begun before it.
    number: u64,
    /// A caller of aio_cancel waits to know how it ended.
    watch: Option<Arc<Watch>>,
}

/// How a request ended, for the caller that cancels it.
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

    /// Waits for the end until `deadline`; tells whether the request was cancelled, `None` when it
    /// has not ended.
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
    /// Returns the process's POSIX AIO, begun at first use.
    ///
    /// # Errors
    /// `EAGAIN`: no descriptors, threads or memory for the engine now.
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

    /// Returns the same if it was ever used in this process.
    pub fn existing() -> Option<&'static Posix> {
        let face = Process::existing()?.existing_face()?;
        face.downcast_ref::<Posix>()
    }

    fn begin(process: &'static Process) -> Result<Posix, Errno> {
        let shared = Arc::new(Shared {
            process,
            in_flight: Mutex::default(),
            notifiers: Notifiers::default(),
            tellings: Tellings::default(),
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
    /// sent. Takes no lock and no memory: signal handlers call it.
    pub fn await_notice(&self, address: usize) {
        let tellings = &self.shared.tellings;
        // A handler that interrupts the sender would wait for itself. A child that no handler of
        // fork(2) saw has no sender.
        let may_wait = || !inside::is_interrupted() && Process::of_caller().is_some();
        if tellings.is_telling(address) && may_wait() {
            tellings.wait(address);
        }
    }

    /// Tells what was kept back: the process did not become another program.
    pub fn stays(&self) {
        let kept = core::mem::take(&mut *self.shared.kept.lock());
        kept.into_iter().for_each(|notice| self.shared.announce(notice));
    }
}

impl Shared {
    /// Says that a thread of the engine has failed, if one has and it was not said yet; not for
    /// signal handlers.
    pub(crate) fn tell_failure(&self) {
        self.process.tell_failure();
    }

    /// Notes that a request begins: from here on its end will come to [`Shared::end`].
    pub(crate) fn begins(&self, block: Block) {
        block.begin();
        let mut in_flight = self.in_flight.lock();
        let request = InFlight { fd: block.fd(), number: in_flight.begun, watch: None };
        in_flight.begun += 1;
        in_flight.requests.insert(block.address(), request);
    }

    /// Forgets a request that was not queued after all.
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
        // SAFETY: the context was given the address with a request that began and ends just now.
        let block = unsafe { Block::in_flight(event.obj as usize) };
        // SAFETY: as above, the word comes from `Ending::word`; a request ends once.
        let ending = unsafe { Ending::from_word(event.data) };
        self.end(block, ending, result);
    }

    /// Ends a request: the outcome first, then the notice, then the waiting threads, as in glibc.
    pub(crate) fn end(
        &self,
        block: Block,
        mut ending: Option<Box<Ending>>,
        result: Result<u32, Errno>,
    ) {
        if let Err(errno) = result {
            // Raised here if the write was tried here, with signals blocked.
            signal::take_back(errno);
        }
        let telling = ending.is_some().then(|| self.tellings.begin(block.address()));
        // Both under the lock: aio_cancel sees a request either in flight or with its outcome.
        let mut in_flight = self.in_flight.lock();
        let request = in_flight.requests.remove(&block.address());
        if self.process.is_ending() {
            return; // no thread asks any more, and the block may be gone
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
        drop(telling);
        SLEEPERS.wake(slots);
        if let Some(watch) = request.and_then(|request| request.watch) {
            watch.ended(result);
        }
    }

    /// Gives a notice to the application, unless the process is about to end.
    pub(crate) fn announce(&self, notice: Notice) {
        if notice.is_none() {
            return;
        }
        if self.process.is_leaving() {
            let mut kept = self.kept.lock();
            // Again: what is told at the end of that may just have been taken out.
            if self.process.is_leaving() {
                return kept.push(notice);
            }
        }
        notice.tell(&self.notifiers);
    }

    /// Returns the requests in flight on `fd`, or only that of `block`, each with the watch for its
    /// end. The newest come first: to cancel one starts none that waits for it and is to be
    /// cancelled, too.
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
