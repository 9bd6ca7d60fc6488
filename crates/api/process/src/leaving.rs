//! The end of the process, or its becoming another program: what was accepted is done first, as if
//! the kernel had it in hand.
//!
//! - *What waits:* the thread that calls `_exit`, exec or exit(3), perhaps in a signal handler
//!   that has interrupted malloc. It takes no lock and no memory, and runs no request; the engine's
//!   memory has nothing to do with malloc (`nowait_sys::allocator`).
//! - *For what:* for all that is accepted and ends by itself (`IoContext::owed`), reads too; not
//!   for polls and streams.
//! - **What brings it:* the engine's threads, and callers in io_getevents.
//! - *Others that submit* wait when they have reserved their slots: they see that the process is
//!   leaving, or they are seen.
//! - *Handlers on the waiting thread* may run when it has waited, before exec. One that submits
//!   would wait for its own thread: so that thread stays for now, and waits anew before the handler
//!   returns ([`settlements`]), or after it where handlers are not watched ([`is_settled`]). In
//!   `_exit` none runs any more.
//! - *How long:* as long as anything ends; then for a time that is bounded.

use crate::{
    environment,
    process::{Process, options_at_load},
};
use core::{
    cell::Cell,
    sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
};
use nowait_engine::Context;
use nowait_sys::{
    Errno,
    fork::{self, ForkMark},
    futex, inside,
    mistake::{self, Mistake},
    time::Deadline,
};

/// How long nothing may end before the process goes all the same.
const PATIENCE_NS: u64 = 60_000_000_000;
/// The same where what is missing may never come: a thread is inside io_submit, perhaps for ever,
/// or the calling thread itself was interrupted in a call of ours.
const LITTLE_PATIENCE_NS: u64 = 1_000_000_000;
/// Between two looks, at first and in the end.
const PAUSE_NS: u64 = 10_000;
const PAUSE_MAX_NS: u64 = 500_000;

/// Whether the process is about to end, or to become another program.
#[derive(Debug, Default)]
pub(crate) struct ProcessEnd {
    /// Threads that are about to do that; what submitters sleep on.
    threads: AtomicU32,
    /// By exit(3): its main function may have returned.
    is_ending: AtomicBool,
    /// How far its report is.
    report: AtomicU32,
}

/// A thread writes the report.
const WRITING: u32 = 1;
/// It is written, and says what was done until then: nothing is reported twice.
const WRITTEN: u32 = 2;

/// The number ([`ForkMark`]) of the process that has ended by exit(3), perhaps before its first
/// request: it accepts nothing any more. A child has another.
static ENDED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Calls of this thread that are about to end the process: a handler may interrupt one by
    /// another. Without a destructor, as it is looked at to the very end.
    static LEAVES: Cell<u32> = const { Cell::new(0) };
}

/// In a forked child: the calls of its parent's thread are not about this process.
pub(crate) fn forget_parent() {
    LEAVES.set(0);
}

/// Tells whether what the calling thread has settled is settled still: no handler that ran
/// afterwards has submitted anything.
pub fn is_settled() -> bool {
    LEAVES.get() > 0 || Process::of_caller().is_none()
}

/// Returns how many calls of the calling thread are about to end the process, or to make it another
/// program: none any more when a handler on top of them has submitted.
pub fn settlements() -> u32 {
    LEAVES.get()
}

impl Process {
    /// Tells whether the process ends or becomes another program: what completes now is not
    /// announced.
    pub fn is_leaving(&self) -> bool {
        self.leaving.threads.load(SeqCst) > 0
    }

    /// Tells whether the process ends by exit(3): its main function may have returned, so blocks
    /// and buffers on its stack are not there any more.
    pub fn is_ending(&self) -> bool {
        self.leaving.is_ending.load(SeqCst)
    }

    fn leaves(&self) {
        LEAVES.set(LEAVES.get() + 1);
        self.leaving.threads.fetch_add(1, SeqCst);
    }

    /// Says that the process goes on after all: it did not become another program. Nothing, if a
    /// handler has made it so.
    pub fn stays(&self) {
        let leaves = LEAVES.get();
        if leaves == 0 {
            return;
        }
        LEAVES.set(leaves - 1);
        if self.leaving.threads.fetch_sub(1, SeqCst) == 1 {
            self.hurry(false);
        }
        futex::wake(&self.leaving.threads, u32::MAX);
    }

    /// Sleeps while the process is leaving; where the calling thread is about to end it, and a
    /// handler submits in between, it stays.
    ///
    /// # Errors
    /// `EINVAL`: it has ended, apart from what the program does after us.
    fn wait_until_it_stays(&self) -> Result<(), Errno> {
        loop {
            let leaving = self.leaving.threads.load(SeqCst);
            if self.has_ended() {
                return Err(Errno::INVAL);
            }
            if leaving == 0 {
                return Ok(());
            }
            if LEAVES.get() > 0 {
                self.stays();
                continue;
            }
            let _ = futex::wait(&self.leaving.threads, leaving, Deadline::NEVER);
        }
    }

    fn hurry(&self, hurries: bool) {
        if let Some(engine) = self.existing_engine() {
            engine.hurry(hurries);
        }
    }

    /// Waits until everything is done that was accepted.
    fn settle(&self, is_interrupted: bool) {
        let (mut least, mut until, mut pause) = (usize::MAX, Deadline::NEVER, PAUSE_NS);
        let nobody = AtomicU32::new(0);
        loop {
            let owed = self.owed();
            if owed == Some(0) || mistake::makes(Mistake::LeaveAtOnce) {
                return;
            }
            // Each time: a thread that has stayed meanwhile may say a moment later that there is no
            // hurry any more.
            self.hurry(true);
            let owed = owed.unwrap_or(usize::MAX - 1);
            if owed < least {
                let little = is_interrupted || !self.has_any_in_hand();
                let patience = if little { LITTLE_PATIENCE_NS } else { PATIENCE_NS };
                (least, until) = (owed, Deadline::after_ns(patience));
            }
            if until.has_passed() {
                return;
            }
            let _ = futex::wait(&nobody, 0, Deadline::after_ns(pause));
            pause = (pause * 3 / 2).min(PAUSE_MAX_NS);
        }
    }

    /// Returns how much is missing; `None`: the contexts cannot be looked at just now.
    pub(crate) fn owed(&self) -> Option<usize> {
        // In this order, in which they go from one to the other.
        let (contexts, going) = (self.contexts().try_read()?, self.going().try_read()?);
        Some(contexts.values().chain(&*going).map(|context| context.io().owed()).sum())
    }

    /// Tells whether the engine has requests that end by themselves: else what is missing are slots
    /// that a thread inside io_submit has reserved.
    fn has_any_in_hand(&self) -> bool {
        let (Some(contexts), Some(going)) = (self.contexts().try_read(), self.going().try_read())
        else {
            return true;
        };
        let mut all = contexts.values().chain(&*going);
        all.any(|context| context.requests() > context.io().endless())
    }
}

/// Reserves slots as `IoContext::reserve` does, unless the process is leaving: then it does not
/// return before it is known that the process stays.
///
/// # Errors
/// Those of `IoContext::reserve`.
#[inline]
pub fn reserve(context: &Context, count: usize) -> Result<usize, Errno> {
    loop {
        let granted = context.io().reserve(count)?;
        // After the slots are taken: a thread that waits for what is accepted sees them, or is seen
        // here.
        let process = Process::existing().filter(|it| it.is_leaving() || it.has_ended());
        let Some(process) = process.filter(|_| !mistake::makes(Mistake::SubmitToTheEnd)) else {
            return Ok(granted);
        };
        context.io().release(granted);
        process.wait_until_it_stays()?;
    }
}

impl Process {
    fn has_ended(&self) -> bool {
        ENDED.load(SeqCst) == self.mark.number()
    }

    /// Reports on what the process did, unless that was done. Where another thread is about it,
    /// waits until it is: the end of the process would cut it off.
    fn report_once(&self) {
        let report = &self.leaving.report;
        if report.compare_exchange(0, WRITING, SeqCst, SeqCst).is_err() {
            return self.await_report(PATIENCE_NS);
        }
        self.report();
        report.store(WRITTEN, SeqCst);
        futex::wake(report, u32::MAX);
    }

    /// Waits for another thread's report, but not for ever; takes no lock and no memory.
    fn await_report(&self, patience_ns: u64) {
        let until = Deadline::after_ns(patience_ns);
        while self.leaving.report.load(SeqCst) == WRITING && !until.has_passed() {
            let _ = futex::wait(&self.leaving.report, WRITING, until);
        }
    }
}

/// Waits until what was submitted is done: before exec, which may fail ([`Process::stays`]).
/// `is_interrupted`: on top of a call of ours, whose locks are not released meanwhile.
pub fn settle(is_interrupted: bool) {
    if let Some(process) = Process::of_caller() {
        process.leaves();
        process.settle(is_interrupted);
    }
}

/// Settles, and reports on what the process did if a report was asked for, and none was written:
/// before `_exit`, which the children of many programs end by. A handler does not report, because
/// it may have interrupted the holder of the memory or the lock for that; it only lets another
/// thread finish its report.
pub fn leave(is_interrupted: bool) {
    settle(is_interrupted);
    let silent = is_interrupted || inside::is_in_handler();
    let Some(process) = Process::of_caller() else { return };
    match silent {
        true => process.await_report(LITTLE_PATIENCE_NS),
        false if process.existing_engine().is_some() => process.report_once(),
        false => {}
    }
}

/// Runs when the process ends by exit(3), or by the return of its main function.
pub fn at_exit() {
    if !fork::is_owner() {
        return; // a child of vfork, and the memory is its parent's
    }
    let number = ForkMark::new().number();
    if Process::existing().is_none() {
        // What another thread submits first from here on would not be waited for.
        ENDED.store(number, SeqCst);
    }
    if let Some(process) = Process::existing() {
        process.leaving.is_ending.store(true, SeqCst);
        process.leaves();
        process.settle(false);
        process.report_once();
        ENDED.store(number, SeqCst);
        process.stays();
    } else if environment::may_have("NOWAIT_REPORT") && options_at_load().report.is_some() {
        Process::current().report_once();
    }
}
