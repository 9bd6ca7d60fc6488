//! The end of the process, or an exec: the library first waits until accepted requests complete, as
//! they would if the kernel carried them out.
//!
//! - *Who waits:* the thread that calls exit(3), or under the preload library also `_exit`, exec,
//!   daemon(3) or abort(3). A signal handler that has interrupted malloc may call `_exit`.
//!   Therefore the thread waits for no lock, allocates no memory and runs no request meanwhile.
//! - *For what:* for all accepted requests that end by themselves (`IoContext::owed`), also reads;
//!   not for polls and streams.
//! - *Who completes them:* the engine's threads, and callers in io_getevents.
//! - *Other submitting threads* look at the state of the process after they have reserved their
//!   slots. Either such a thread sees that the process is leaving, gives the slots back and waits,
//!   or the waiting thread sees the slots.
//! - *Signal handlers on the waiting thread* may run after it has waited, before exec. A handler
//!   that submits would wait for its own thread; one that leaves by longjmp(3) never comes back.
//!   So the thread stops leaving before a handler, or when an unwatched handler submits. The thread
//!   waits for requests again before the handler returns ([`settlements`]), or after the handler if
//!   the library does not watch handlers ([`is_settled`]).
//! - *How long:* until no request has ended for a minute, or for a second if some may never end.

use crate::{
    environment,
    process::{Process, options_at_load},
};
use core::{
    cell::Cell,
    ops::Range,
    sync::atomic::{AtomicU32, Ordering::SeqCst},
};
use nowait_engine::Context;
use nowait_sys::{
    Errno, fd,
    fork::{self, ForkMark},
    futex, inside,
    mistake::{self, Mistake},
    time::Deadline,
};
use std::sync::OnceLock;

const PATIENCE_NS: u64 = 60_000_000_000;
/// Replaces [`PATIENCE_NS`] if requests may never end: only threads inside io_submit have slots,
/// perhaps for ever, or the calling thread itself was interrupted in a call of the library.
const LITTLE_PATIENCE_NS: u64 = 1_000_000_000;
const PAUSE_NS: u64 = 10_000;
const PAUSE_MAX_NS: u64 = 500_000;

#[derive(Debug, Default)]
pub(crate) struct ProcessEnd {
    /// Number of calls, on all threads, that are about to end or replace the process. Submitters
    /// sleep on this word.
    threads: AtomicU32,
    /// Addresses that are perhaps on the stack of the thread that called exit(3): its main function
    /// may have returned. Empty until exit(3).
    stack: OnceLock<Range<usize>>,
    /// State of the process's report: 0, `WRITING` or `WRITTEN`.
    report: AtomicU32,
}

const WRITING: u32 = 1;
const WRITTEN: u32 = 2;

/// The number ([`ForkMark`]) of the process that has ended by exit(3), perhaps before its first
/// request: this process accepts no more requests. A forked child has another number.
static ENDED: AtomicU32 = AtomicU32::new(0);

thread_local! {
    /// Number of calls of this thread that are about to end or replace the process: a signal
    /// handler may interrupt one such call and make another. The variable has no destructor, so
    /// that the thread can read it until the very end.
    static LEAVES: Cell<u32> = const { Cell::new(0) };
}

/// Resets the thread's count in a forked child: the calls that it counts are about to end the
/// parent, not the child.
pub(crate) fn forget_parent() {
    LEAVES.set(0);
}

/// Returns `false` if a signal handler has submitted a request since the calling thread has
/// settled (waited for accepted requests). A process without state, or a child of vfork, gets
/// `true`.
pub fn is_settled() -> bool {
    LEAVES.get() > 0 || Process::of_caller().is_none()
}

/// Returns how many calls of the calling thread are about to end the process, or to replace it by
/// another program: 0 once a handler on top of them has submitted a request.
pub fn settlements() -> u32 {
    LEAVES.get()
}

impl Process {
    /// Returns `true` if a thread may be about to end the process, or to replace it by exec.
    pub fn is_leaving(&self) -> bool {
        self.leaving.threads.load(SeqCst) > 0
    }

    /// Returns `true` if the process ends by exit(3).
    pub fn is_ending(&self) -> bool {
        self.leaving.stack.get().is_some()
    }

    /// Returns `true` if `address` may be in the frame of a main function that has returned: exit
    /// handlers now use this memory.
    pub fn may_be_gone(&self, address: usize) -> bool {
        self.leaving.stack.get().is_some_and(|stack| stack.contains(&address))
    }

    fn leaves(&self) {
        LEAVES.set(LEAVES.get() + 1);
        self.leaving.threads.fetch_add(1, SeqCst);
    }

    /// Called when the process continues after it has settled, for example because exec has failed.
    /// Does nothing if a submission by a signal handler has already called this function.
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

    /// Sleeps while the process is leaving. If the calling thread itself is ending the process, the
    /// caller is a signal handler that submits: this function then calls [`Process::stays`]
    /// instead.
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

    fn settle(&self, is_interrupted: bool) {
        let (mut least, mut until, mut pause) = (usize::MAX, Deadline::NEVER, PAUSE_NS);
        let nobody = AtomicU32::new(0);
        loop {
            let owed = self.owed();
            if owed == Some(0) || mistake::makes(Mistake::LeaveAtOnce) {
                return;
            }
            // Hurry the engine in each round, because a thread whose exec has failed may stop the
            // hurry.
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

    /// `None`: another thread has locked the contexts.
    pub(crate) fn owed(&self) -> Option<usize> {
        // Contexts move from `contexts` to `going`: lock in this order.
        let (contexts, going) = (self.contexts().try_read()?, self.going().try_read()?);
        Some(contexts.values().chain(&*going).map(|context| context.io().owed()).sum())
    }

    /// Returns `false` if only slots are left that threads inside io_submit have reserved. Returns
    /// `true` if another thread has locked the contexts.
    fn has_any_in_hand(&self) -> bool {
        let (Some(contexts), Some(going)) = (self.contexts().try_read(), self.going().try_read())
        else {
            return true;
        };
        let mut all = contexts.values().chain(&*going);
        all.any(|context| context.requests() > context.io().endless())
    }
}

/// Reserves slots as `IoContext::reserve` does. If the process is leaving, first waits until the
/// process stays.
///
/// # Errors
/// The errors of `IoContext::reserve`. `EINVAL`: the process has ended by exit(3).
#[inline]
pub fn reserve(context: &Context, count: usize) -> Result<usize, Errno> {
    loop {
        let granted = context.io().reserve(count)?;
        // Check after reserving the slots: either a thread that waits for accepted requests sees
        // the slots, or this thread sees that the process is leaving.
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

    /// Does nothing if the report was written. If another thread is writing it, waits for that
    /// thread, at most a minute: the end of the process would cut the report off.
    fn report_once(&self) {
        let report = &self.leaving.report;
        if report.compare_exchange(0, WRITING, SeqCst, SeqCst).is_err() {
            return self.await_report(PATIENCE_NS);
        }
        self.report();
        report.store(WRITTEN, SeqCst);
        futex::wake(report, u32::MAX);
    }

    /// Takes no lock and allocates no memory, because the caller may be a signal handler.
    fn await_report(&self, patience_ns: u64) {
        let until = Deadline::after_ns(patience_ns);
        while self.leaving.report.load(SeqCst) == WRITING && !until.has_passed() {
            let _ = futex::wait(&self.leaving.report, WRITING, until);
        }
    }
}

/// Waits until no accepted request is left that ends by itself, or no request has ended for a
/// while. If the process continues, for example because exec has failed, the caller calls
/// [`Process::stays`]. `is_interrupted`: the calling thread was interrupted in a call of the
/// library, which may hold the library's locks.
pub fn settle(is_interrupted: bool) {
    if let Some(process) = Process::of_caller() {
        process.leaves();
        process.settle(is_interrupted);
    }
}

/// Settles before `_exit`, and writes the report if `NOWAIT_REPORT` asks for one and none was
/// written. A signal handler, which may have interrupted the holder of a lock, writes no report: it
/// waits at most a second while another thread writes the report.
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

/// Returns the addresses that may be on the same stack as `here`. The kernel maps nothing else so
/// near to the main thread's stack, whose size `limit` bounds.
fn stack_around(here: usize, limit: u64) -> Range<usize> {
    const LEAST: u64 = 8 << 20;
    const MOST: u64 = 1 << 30;
    let reach = limit.clamp(LEAST, MOST) as usize;
    here.saturating_sub(reach)..here.saturating_add(reach)
}

/// Runs when the process ends by exit(3), or by the return of its main function.
pub fn at_exit() {
    if !fork::is_owner() {
        return; // a child of vfork: the memory belongs to its parent
    }
    let number = ForkMark::new().number();
    if Process::existing().is_none() {
        // From here on, either the first request of another thread fails, or `existing` below finds
        // the state that the other thread has made.
        ENDED.store(number, SeqCst);
    }
    if let Some(process) = Process::existing() {
        let here = 0u8;
        let stack = stack_around(core::ptr::from_ref(&here).addr(), fd::stack_limit());
        let _ = process.leaving.stack.set(stack);
        process.leaves();
        process.settle(false);
        process.report_once();
        ENDED.store(number, SeqCst);
        process.stays();
    } else if environment::may_have("NOWAIT_REPORT") && options_at_load().report.is_some() {
        Process::current().report_once();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stack_reaches_as_far_as_its_limit_but_not_to_other_memory() {
        const MIB: usize = 1 << 20;
        let here = 0x7ffd_0000_0000;
        for (limit, reach) in [
            (0, 8 * MIB), // unknown, or lowered since the stack has grown
            (16 << 20, 16 * MIB),
            (u64::MAX, 1024 * MIB),
        ] {
            assert_eq!(stack_around(here, limit), here - reach..here + reach, "{limit}");
        }
        assert_eq!(stack_around(4096, 0), 0..4096 + 8 * MIB);
    }
}
