//! How an engine is set up.

use crate::limits::Limits;

/// Requests of an engine in flight at a time, by default: half of what the workers
/// take, so that submit always finds room with them.
const REQUESTS_MAX: usize = 1 << 19;

/// Which backend carries requests that need not block a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The best that works here; never fails.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// The kernel's native AIO (direct files), threads for the rest.
    Kaio,
    /// Threads only.
    Threads,
}

/// Where the first iteration of a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SubmitMode {
    /// Inline while that is short, else handed over.
    #[default]
    Auto,
    /// On the engine's threads: submit only hands the batch over.
    Offload,
}

/// The settings of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The backend for requests that need not block a thread.
    pub backend: BackendChoice,
    /// Where first iterations run.
    pub submit: SubmitMode,
    /// Most worker threads.
    pub workers_max: usize,
    /// Size of the page cache for user files, in bytes; taken from the system as it is used.
    pub cache_bytes: u64,
    /// Limits on requests in flight in the whole engine; a request above them fails with EAGAIN.
    pub limits: Limits,
    /// Limits on requests in flight in each context, besides its slots.
    pub context_limits: Limits,
    /// Contexts count their requests and completions.
    pub stats: bool,
    /// Answers as the kernel's AIO, where plain calls answer otherwise: a cancelled poll ends with
    /// 0, not with ECANCELED; and a context with an event ring refuses transfers on files whose
    /// drivers know plain calls only.
    pub answers_as_aio: bool,
    /// No ring is made or entered by a thread that submits. A completion in such a ring interrupts
    /// the thread that has entered it: epoll_wait(2), sigtimedwait(2) and others then fail with
    /// EINTR, and a program that was not written for rings does not expect it.
    pub callers_enter_no_ring: bool,
    /// The program's closes of descriptors are told to the engine ([`Closes`]).
    ///
    /// [`Closes`]: crate::hints::Closes
    pub sees_closes: bool,
}

impl Default for Config {
    fn default() -> Config {
        Config {
            backend: BackendChoice::Auto,
            submit: SubmitMode::Auto,
            workers_max: 32,
            cache_bytes: 256 << 20,
            limits: Limits { requests: REQUESTS_MAX, ..Limits::NONE },
            context_limits: Limits::NONE,
            stats: false,
            answers_as_aio: false,
            callers_enter_no_ring: false,
            sees_closes: false,
        }
    }
}
