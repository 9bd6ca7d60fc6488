//! The settings of an engine.

use crate::limits::Limits;

/// The default limit on requests in flight: half of what the workers' queue takes, so that submit
/// finds room there.
const REQUESTS_MAX: usize = 1 << 19;

/// The backend that carries requests that need not block a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum BackendChoice {
    /// The best that works on this machine. The caller chooses it:
    /// [`Parts::of_machine`](crate::Parts::of_machine) takes threads.
    #[default]
    Auto,
    /// io_uring.
    Uring,
    /// The kernel's native AIO (direct files), threads for the rest.
    Kaio,
    /// Threads only.
    Threads,
}

/// The place where the first iteration of a request runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum SubmitMode {
    /// In the submitting thread while that is short, otherwise in the engine's threads.
    #[default]
    Auto,
    /// In the engine's threads, if the iteration may wait for a device: submit hands the request
    /// over.
    Offload,
}

/// The settings of an engine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// The backend for requests that need not block a thread.
    pub backend: BackendChoice,
    /// The place where first iterations run.
    pub submit: SubmitMode,
    /// Most worker threads.
    pub workers_max: usize,
    /// Size of the page cache for user files, in bytes; the memory is allocated as it is used.
    pub cache_bytes: u64,
    /// Limits on requests in flight in the whole engine; a request above them fails with EAGAIN.
    pub limits: Limits,
    /// Limits on requests in flight in each context, in addition to its number of slots.
    pub context_limits: Limits,
    /// `true`: contexts count their requests and completions.
    pub stats: bool,
    /// `true`: requests behave as in the kernel's AIO where plain system calls behave otherwise.
    /// For example, a cancelled poll ends with 0 instead of ECANCELED.
    pub answers_as_aio: bool,
    /// `true`: no thread that submits makes or enters an io_uring. A completion in such a ring
    /// interrupts the thread that has entered it: its epoll_wait(2), sigtimedwait(2) and similar
    /// calls then fail with EINTR, which a program that was not written for io_uring does not
    /// expect.
    pub callers_enter_no_ring: bool,
    /// `true`: the program's closes of descriptors are reported to the engine ([`Closes`]).
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
