//! Mistakes that the engine makes on purpose, and that simulations must find.
//!
//! Only builds with `--cfg simulated` make these mistakes.

/// A mistake that an engine makes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mistake {
    /// A request that is registered while its context is destroyed is not cancelled.
    RegisterTooLate = 1,
    /// A kick on a thread that runs no requests wakes no other thread.
    KickNoThread,
    /// The last close of a cached file drops data that other threads have written meanwhile.
    AbandonAtClose,
    /// A request that makes a cached file dirty keeps no reference to the file while the file is
    /// dirty.
    KeepNothing,
    /// A thread submits requests that other threads have queued in native AIO, and the others
    /// return from their submit before these requests are submitted.
    CommitForOthers,
    /// Requests that overlap do not wait for each other.
    NoOrder,
    /// Opening a file in the page cache does not wait for writes in flight that bypass the cache.
    OpenAtOnce,
    /// POSIX AIO announces the end of a request before it stores the outcome.
    TellTooEarly,
    /// aio_suspend sleeps for a request that has ended since its check.
    SleepTooLate,
    /// aio_cancel reports that it has cancelled a request that was done.
    CancelDone,
    /// The exit of the process does not wait for accepted requests.
    LeaveAtOnce,
    /// Threads go on submitting while the process exits.
    SubmitToTheEnd,
    /// A submitting thread leaves a request that native AIO refuses, because it would wait in
    /// submit, to the thread that takes the events.
    RefuseLate,
    /// A submitting thread does not wait until another thread, which has taken the event of a
    /// refused request out of the ring, has marked the request as refused.
    MissRefusal,
    /// A request that io_uring gives up, because its submitter has ended, is not submitted again.
    LeaveGivenUp,
    /// An open with O_TRUNC truncates the file without telling the file's cache.
    TruncateBehind,
    /// An open reads a file's size before it has exclusive access to the file.
    LookTooEarly,
    /// While a change of a file bypasses the cache, pages of the file may be read into the cache.
    LeaveOpen,
    /// A truncation does not wait for earlier requests beyond the new end.
    CutOutOfOrder,
    /// A sync does not get the error of its flush.
    ForgetError,
    /// A truncation does not wait for the writeback of the pages that it removes.
    CutIntoWriteback,
    /// A sync does not wait for the writes that it or other syncs have started.
    CleanTooEarly,
    /// A server's write of whole blocks does not wait while other writes change parts of these
    /// blocks.
    ShareParts,
    /// A server answers a durable write when it is written, but not yet durable.
    AnswerEarly,
    /// A sync of a file completes as soon as it is submitted, without a sync.
    SyncAtOnce,
    /// A sync does not wait for the writes that were submitted before it.
    SyncPasses,
    /// A server that ends waits for all requests, however long they take.
    EndWithAll,
    /// A request begins although the request before it in a chain of linked requests has failed.
    RunAfterFailure,
    /// A linked request in a cached file does not wait for the request before it in the chain.
    LinkNothing,
    /// A cancelled request stays counted against a limit.
    KeepSlot,
    /// A signal handler runs in the middle of a call of the library.
    HandleAtOnce,
    /// A direct request that the kernel refuses in submit does not wait for earlier, overlapping
    /// ones.
    RefuseOutOfOrder,
    /// After a sync, the engine assumes that only this process has changed the file.
    SeenAfterSync,
    /// The last close does not wait until the engine has closed the file.
    CloseAtOnce,
    /// A request that overlaps direct requests of its submission is started before them.
    OvertakeUncommitted,
    /// A request that a thread submits to another context overtakes the thread's direct request.
    OvertakeElsewhere,
    /// A read beyond the end of the file does not wait for a write that lengthens the file.
    ForgetLength,
    /// Deferred requests that no caller comes for are not handed to the engine's threads.
    LeaveLate,
    /// A deferred request that cannot go on yet does not go back on the list.
    LoseRetry,
    /// A deferred write that was carried out goes back on the list, and runs twice.
    RunTwice,
    /// No sleeping thread is woken when a request is deferred.
    DeferInSilence,
    /// The thread that runs a deferred request uses a descriptor that was closed since.
    UseClosed,
    /// A close does not wait for a thread that is about to use the descriptor's number.
    CloseBeside,
    /// A thread that takes back a file on its way to the engine drops another thread's file
    /// instead.
    DiscardOthers,
    /// The requests of all contexts are counted in one word.
    CountTogether,
}

impl Mistake {
    /// All mistakes.
    pub const ALL: [Mistake; 45] = [
        Mistake::RegisterTooLate,
        Mistake::KickNoThread,
        Mistake::AbandonAtClose,
        Mistake::KeepNothing,
        Mistake::CommitForOthers,
        Mistake::NoOrder,
        Mistake::OpenAtOnce,
        Mistake::TellTooEarly,
        Mistake::SleepTooLate,
        Mistake::CancelDone,
        Mistake::LeaveAtOnce,
        Mistake::SubmitToTheEnd,
        Mistake::RefuseLate,
        Mistake::MissRefusal,
        Mistake::LeaveGivenUp,
        Mistake::TruncateBehind,
        Mistake::LookTooEarly,
        Mistake::LeaveOpen,
        Mistake::CutOutOfOrder,
        Mistake::ForgetError,
        Mistake::CutIntoWriteback,
        Mistake::CleanTooEarly,
        Mistake::ShareParts,
        Mistake::AnswerEarly,
        Mistake::SyncAtOnce,
        Mistake::SyncPasses,
        Mistake::EndWithAll,
        Mistake::RunAfterFailure,
        Mistake::LinkNothing,
        Mistake::KeepSlot,
        Mistake::HandleAtOnce,
        Mistake::RefuseOutOfOrder,
        Mistake::OvertakeUncommitted,
        Mistake::OvertakeElsewhere,
        Mistake::ForgetLength,
        Mistake::SeenAfterSync,
        Mistake::CloseAtOnce,
        Mistake::LeaveLate,
        Mistake::LoseRetry,
        Mistake::RunTwice,
        Mistake::DeferInSilence,
        Mistake::UseClosed,
        Mistake::CloseBeside,
        Mistake::DiscardOthers,
        Mistake::CountTogether,
    ];
}

#[cfg(simulated)]
static MADE: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Makes all engines of the process make `mistake`, or none, from now on.
#[cfg(simulated)]
pub fn make(mistake: Option<Mistake>) {
    MADE.store(mistake.map_or(0, |mistake| mistake as u8), core::sync::atomic::Ordering::SeqCst);
}

/// Returns `true` if the engine makes this mistake.
#[inline]
pub fn makes(mistake: Mistake) -> bool {
    #[cfg(simulated)]
    return MADE.load(core::sync::atomic::Ordering::SeqCst) == mistake as u8;
    #[cfg(not(simulated))]
    {
        let _ = mistake;
        false
    }
}
