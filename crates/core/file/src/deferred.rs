//! The deferred requests of a context: accepted, but not in any queue. Each deferred request has
//! its place in the order of its inode.
//!
//! The thread that waits for completions runs the deferred requests itself, as the kernel would
//! have run them in io_submit(2): the oldest by a call that may block, if the thread may wait that
//! long, the others without blocking. If no caller comes, a request goes to the engine's threads at
//! the second tick of the driver that finds it.

use crate::{
    Context, SubmitMode,
    request::{FileOperation, event::EventTarget},
    route::{Place, Plug},
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use nowait_retry::{DeferredList, Request, deferred::may_block};
use nowait_sys::{
    mistake::{self, Mistake},
    time::Deadline,
};
use std::sync::{Arc, Weak};

type Requests = DeferredList<Arc<Request<FileOperation>>>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// The request moves the bytes that it can move without blocking.
    Retry,
    /// The request moves all its bytes, by calls that may block.
    Run,
    HandOver,
}

#[derive(Default)]
pub(crate) struct DeferredRequests {
    list: Arc<Requests>,
    /// Requests that callers have run by calls that may block.
    runs: AtomicU64,
    /// `true`: no caller came in time lately, so requests go to the engine's threads at once
    /// instead of being deferred.
    lacks_callers: AtomicBool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Back {
    /// Only a call that may block can transfer the request's bytes.
    Untried,
    /// A transfer without blocking found no bytes that it could transfer.
    Missed,
}

/// The most requests that a thread retries before it looks for events.
const TURNS_MAX: usize = 64;

impl DeferredRequests {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn look(&self) -> Look {
        Look { last: self.list.last(), runs: Some(self.runs.load(Relaxed)) }
    }

    /// Allows requests to be deferred again if the calling thread, which waits for events until
    /// `deadline`, may block.
    pub(crate) fn has_caller(&self, deadline: Deadline) {
        if self.lacks_callers.load(Relaxed) && may_block(deadline) {
            self.lacks_callers.store(false, Relaxed);
        }
    }

    fn take(&self, request: &Arc<Request<FileOperation>>) -> bool {
        self.list.take(|other| Arc::ptr_eq(other, request)).is_some()
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Look {
    last: u64,
    /// The number of requests that callers have run; `None`: all deferred requests count as late.
    runs: Option<u64>,
}

impl Look {
    /// A state with which every deferred request counts as late.
    pub(crate) const EVERYTHING: Look = Look { last: u64::MAX, runs: None };
}

pub(crate) struct Callers {
    /// A wait for completions checks several times whether the list is empty; the direct reference
    /// avoids counting the context's references up and down.
    list: Arc<Requests>,
    context: Weak<Context>,
}

impl Callers {
    pub(crate) fn of(context: &Arc<Context>) -> Callers {
        let list = context.deferred.list.clone();
        Callers { list, context: Arc::downgrade(context) }
    }
}

impl nowait_retry::Deferred for Callers {
    fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    fn retry(&self) {
        let context = self.context.upgrade();
        context.iter().for_each(|context| context.run_deferred(Turn::Retry));
    }

    fn run(&self) {
        let context = self.context.upgrade();
        context.iter().for_each(|context| context.run_deferred(Turn::Run));
    }

    fn hand_over(&self) {
        let context = self.context.upgrade();
        context.iter().for_each(|context| {
            context.deferred.lacks_callers.store(true, Relaxed);
            context.hand_over_deferred(Place::Caller, u64::MAX);
        });
    }
}

impl Context {
    pub(crate) fn defers(&self, target: &EventTarget) -> bool {
        target.eventfd.is_none() && self.has_callers()
    }

    /// Returns `true` if this context may defer requests and its callers have not been late lately.
    pub(crate) fn has_callers(&self) -> bool {
        self.mode == SubmitMode::Auto
            && self.answers_as_aio()
            // Without reports of closes, a number that was given to another file and back would
            // look unchanged.
            && self.engine().config().sees_closes
            && !self.deferred.lacks_callers.load(Relaxed)
            && self.looks.are_by_calls()
    }

    /// Wakes a waiting thread unless another thread is running the list.
    pub(crate) fn defer(
        self: &Arc<Self>,
        requests: impl Iterator<Item = Arc<Request<FileOperation>>>,
    ) {
        let wakes = self.deferred.list.push_all(requests);
        self.look_after();
        if wakes && !mistake::makes(Mistake::DeferInSilence) {
            self.io().deferred_started();
        }
    }

    /// If `turn` is `Run`, runs the oldest request by calls that may block. Then retries at most
    /// [`TURNS_MAX`] others without blocking, the oldest first, until one of them misses.
    fn run_deferred(self: &Arc<Self>, turn: Turn) {
        let list = &self.deferred.list;
        let _running = list.begin();
        self.engine().run(Place::Caller, Some(self), |plug| {
            let mut back = Vec::new();
            if turn == Turn::Run
                && let Some(item) = list.pop()
            {
                self.deferred.runs.fetch_add(1, Relaxed);
                if give_turn(plug, &item.value, Turn::Run).is_some() {
                    back.push(item);
                }
            }
            let last = list.last();
            for _ in 0..TURNS_MAX {
                let Some(item) = list.pop_until(last) else { break };
                let Some(why) = give_turn(plug, &item.value, Turn::Retry) else { continue };
                back.push(item);
                if why == Back::Missed {
                    break;
                }
            }
            if mistake::makes(Mistake::LoseRetry) {
                back.clear();
            }
            let goes_on = !back.is_empty();
            back.into_iter().for_each(|item| list.put_back(item));
            if goes_on {
                // The driver may have found the list empty meanwhile, and watch no longer.
                self.look_after();
            }
        });
    }

    fn hand_over_deferred(self: &Arc<Self>, place: Place, last: u64) {
        let list = &self.deferred.list;
        let _running = list.begin();
        let served = (place == Place::Caller).then_some(self);
        self.engine().run(place, served, |plug| {
            while let Some(item) = list.pop_until(last) {
                let _ = give_turn(plug, &item.value, Turn::HandOver);
            }
        });
    }

    /// Ends a cancelled request if it is on the list. Returns `false` if it is not.
    pub(crate) fn end_deferred(&self, request: &Arc<Request<FileOperation>>) -> bool {
        let is_deferred = self.deferred.take(request);
        if is_deferred {
            // If only a thread of the engine can close the request's file, that thread ends the
            // request.
            self.engine().run(Place::Caller, None, |plug| request.run(plug, None));
        }
        is_deferred
    }

    /// Hands the requests that were deferred before `look` to the engine's threads, if no caller
    /// has run any since then. Called by the driver.
    pub(crate) fn hand_over_late(self: &Arc<Self>, look: Look) {
        let is_late = look.runs.is_none_or(|runs| runs == self.deferred.runs.load(Relaxed));
        let before = self.deferred.len();
        if !is_late || before == 0 || mistake::makes(Mistake::LeaveLate) {
            return;
        }
        self.hand_over_deferred(Place::Worker, look.last);
        let left = self.deferred.len();
        if left > 0 {
            // A request that was deferred during the hand-over has woken no thread.
            self.io().deferred_started();
        }
        if left < before {
            self.deferred.lacks_callers.store(true, Relaxed);
        }
    }
}

fn give_turn(plug: &mut Plug, request: &Arc<Request<FileOperation>>, turn: Turn) -> Option<Back> {
    plug.begin_turn(turn);
    request.run(plug, None);
    plug.end_turn()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        BackendChoice, Command, Config, Engine, Kind,
        command::open_for,
        submit::{EventTarget, Submission},
    };
    use nowait_block::{Segments, skip::note_skip_here};
    use nowait_sys::file::{self, Advice, IoVec};
    use std::{fs::File, io::Write, os::fd::AsRawFd};

    fn config() -> Config {
        let backend = BackendChoice::Kaio;
        let answers = Config { backend, answers_as_aio: true, stats: true, ..Config::default() };
        Config { sees_closes: true, callers_enter_no_ring: true, ..answers }
    }

    fn context(config: Config) -> Option<Arc<Context>> {
        let engine = Engine::on_machine(config, "test".to_owned()).ok()?;
        Context::new(&engine, 0, 8).ok()
    }

    fn end(context: &Arc<Context>) {
        context.destroy().unwrap();
        context.engine().shutdown();
    }

    #[test]
    fn requests_wait_for_callers_of_libaio_only_and_where_closes_are_seen() {
        let table = [
            (config(), true),
            (Config { sees_closes: false, ..config() }, false),
            (Config { answers_as_aio: false, ..config() }, false),
            (Config { submit: SubmitMode::Offload, ..config() }, false),
            (Config { backend: BackendChoice::Threads, ..config() }, true),
        ];
        for (config, expected) in table {
            let Some(context) = context(config.clone()) else {
                note_skip_here("native AIO is refused");
                continue;
            };
            assert_eq!(context.has_callers(), expected, "{config:?}");
            let signals = EventTarget { data: 0, obj: 0, eventfd: Some(1) };
            assert!(
                !context.defers(&signals),
                "a thread that waits for an eventfd comes when that is signalled"
            );
            end(&context);
        }
    }

    /// Returns how many deferred reads callers have carried out, and how many the engine's threads;
    /// `None` if this machine defers no read.
    fn carried_by(wait: impl Fn(&Arc<Context>)) -> Option<(u64, u64)> {
        let context = context(config())?;
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(&[7; 4096]).unwrap();
        let mut memory = [0u8; 4096];
        let is_deferred = (0..100).any(|_| {
            read_uncached(&context, &file, &mut memory);
            let is_deferred = context.deferred.len() == 1;
            wait(&context);
            is_deferred
        });
        assert_eq!(memory, [7; 4096]);
        let counters = context.io().stats().counters().unwrap();
        let carried = (counters.by_caller.get(), counters.taken_over.get());
        end(&context);
        is_deferred.then_some(carried)
    }

    fn read_uncached(context: &Arc<Context>, file: &File, memory: &mut [u8]) {
        file.sync_data().unwrap();
        let fd = file.as_raw_fd();
        file::advise(fd, 0, 0, Advice::DontNeed).unwrap();
        let segment = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
        // SAFETY: the caller takes the event before the memory is freed.
        let read = unsafe {
            Command::new(Kind::Read, (fd, open_for(fd).unwrap()), Segments::One(segment), 0)
        };
        context.io().reserve(1).unwrap();
        let mut submission = Submission::new(context);
        submission.submit(read, EventTarget { data: 1, obj: 1, eventfd: None }).unwrap();
        submission.finish();
    }

    fn take_one(context: &Arc<Context>, deadline: Deadline) -> usize {
        let take = |_, event: nowait_sys::aio::IoEvent| {
            assert_eq!(event.res, 4096);
            Ok(())
        };
        context.wait_events(1, 1, deadline, None, take).unwrap()
    }

    #[test]
    fn who_carries_a_deferred_read_out() {
        let waits = |context: &Arc<Context>| assert_eq!(take_one(context, Deadline::NEVER), 1);
        let is_in_a_hurry = |context: &Arc<Context>| {
            while take_one(context, Deadline::after_ns(1_000_000)) == 0 {}
        };
        let reads_the_ring = |context: &Arc<Context>| {
            while context.io().ring().unread() == 0 {
                std::thread::yield_now();
            }
            waits(context);
        };
        if carried_by(waits).is_none() {
            return note_skip_here("no read of /var/tmp has to wait");
        }
        // Repeated, because this thread may lose its processor until the driver takes the request
        // over.
        assert!((0..20).any(|_| carried_by(waits) == Some((1, 0))), "the thread that waits");
        assert_eq!(carried_by(is_in_a_hurry), Some((0, 1)), "one that must be back soon");
        assert_eq!(carried_by(reads_the_ring), Some((0, 1)), "none that makes a call");
    }
}
