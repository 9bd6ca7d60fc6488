//! Mistakes that the engine makes on purpose, for simulations that must find them.
//!
//! They exist in builds with `--cfg simulated` only. What is shipped makes none, and asks nothing.

/// A mistake: each was made once by accident, or is the forgotten half of a handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Mistake {
    /// A request that is registered while its context is destroyed is not cancelled.
    RegisterTooLate = 1,
    /// A kick on a thread that runs none wakes no other.
    KickNoThread,
    /// The last close of a cached file gives up what others have written meanwhile.
    AbandonAtClose,
    /// What makes a cached file dirty leaves no reference to it.
    KeepNothing,
    /// A thread submits what others have queued, and they return before it has.
    CommitForOthers,
    /// Requests that overlap do not wait for each other.
    NoOrder,
    /// An open in the page cache does not wait for the writes in flight past it.
    OpenAtOnce,
    /// POSIX AIO tells of the end of a request before its outcome is there.
    TellTooEarly,
    /// aio_suspend sleeps for a request that has ended since it looked.
    SleepTooLate,
    /// aio_cancel says that it has cancelled what was done.
    CancelDone,
    /// The end of the process does not wait for what was accepted.
    LeaveAtOnce,
    /// Threads go on submitting while the process ends.
    SubmitToTheEnd,
    /// What native AIO refuses, because it would have waited in submit, is left to the thread that
    /// takes the events.
    RefuseLate,
    /// A refusal is not waited for that another thread has taken out of the ring.
    MissRefusal,
    /// A request that its ring gives up, because the thread that entered it has ended, is not
    /// asked again.
    LeaveGivenUp,
    /// An open that truncates cuts the file behind the back of its cache.
    TruncateBehind,
    /// An open looks at a file's size before it has the file to itself.
    LookTooEarly,
    /// A change of a file past its cache does not keep pages from being brought in.
    LeaveOpen,
    /// A cut does not wait for requests beyond the new end that were submitted before.
    CutOutOfOrder,
    /// A sync does not hear that its flush has failed.
    ForgetError,
    /// A cut does not wait for writes of the pages that it takes out.
    CutIntoWriteback,
    /// A sync does not wait for the writes that it, or others, have started.
    CleanTooEarly,
    /// A server's write of whole blocks does not wait while parts of them are written.
    ShareParts,
    /// A server answers a write that is to be durable when it is written.
    AnswerEarly,
    /// A sync of a file ends as it is submitted.
    SyncAtOnce,
    /// A sync does not wait for the writes that were submitted before it.
    SyncPasses,
    /// The end of a server waits for all that was asked of it, however long it takes.
    EndWithAll,
    /// A request begins although the one that it is linked to has failed.
    RunAfterFailure,
    /// A request in a cached file does not wait for the one that it is linked to.
    LinkNothing,
    /// What was cancelled stays counted where a limit is.
    KeepSlot,
    /// A signal handler runs in the middle of a call of the library.
    HandleAtOnce,
    /// A direct request that the kernel refuses goes on without a place in the order.
    RefuseOutOfOrder,
    /// After a sync, a file is taken for what this process alone has made of it.
    SeenAfterSync,
    /// The last close does not wait until the engine has closed the file.
    CloseAtOnce,
    /// A request that overlaps direct ones of its submission is started before those.
    OvertakeUncommitted,
    /// A direct request is overtaken by one that its thread submits to another context.
    OvertakeElsewhere,
    /// A read does not wait for a write that moves the end of the file past it.
    ForgetLength,
    /// What no caller comes for is not handed to the engine's threads.
    LeaveLate,
    /// A deferred request that cannot go on yet does not go back on the list.
    LoseRetry,
    /// A deferred write that is over goes back on the list.
    RunTwice,
    /// No sleeping thread is woken when a request is deferred.
    DeferInSilence,
    /// The thread that runs a deferred request uses a number that was closed since.
    UseClosed,
    /// A close does not wait for a thread that is about to use its number.
    CloseBeside,
    /// A thread that drops its file, which is on its way to the engine, drops that of another.
    DiscardOthers,
}

impl Mistake {
    /// All of them.
    pub const ALL: [Mistake; 44] = [
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
    ];
}

#[cfg(simulated)]
static MADE: core::sync::atomic::AtomicU8 = core::sync::atomic::AtomicU8::new(0);

/// Has all engines of the process make a mistake, or none, from now on.
#[cfg(simulated)]
pub fn make(mistake: Option<Mistake>) {
    MADE.store(mistake.map_or(0, |mistake| mistake as u8), core::sync::atomic::Ordering::SeqCst);
}

/// Tells whether this mistake is to be made here.
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
