//! A pool of workers that make blocking calls.
//!
//! ```text
//! queue ─▶ pending ── commit: one lock, at most one futex wake ─▶ ready ─▶ worker ─▶ deliver
//!                                      lane: its bios in their order    ─┘   │
//!                                      poll: watched by one thread for all ◀─┘
//! ```
//! Workers start workers: the first one may give itself a private descriptor table, which all
//! workers started after it share. A worker that begins work leaves another one idle, or wakes or
//! starts one (up to `max_workers`), so that a thread that commits never has to start one.

mod pool;
mod ready;
mod run;
mod watch;

pub use run::system_calls;

use crate::{BlockBackend, Completion, Limits, bio::Bio};
use nowait_sys::{Errno, time::Deadline};
use pool::Pool;
use std::{any::Any, sync::Arc};

/// A function that receives completions on the worker that produced them, and empties the list. If
/// it panics and has taken some of them, it is called again with the rest.
pub type Receiver = Arc<dyn Fn(&mut Vec<Completion>) + Send + Sync>;

/// A function that gets the payload of a panic on a thread of the pool. A bio that panicked then
/// ends with `EIO`.
pub type OnPanic = Arc<dyn Fn(&(dyn Any + Send)) + Send + Sync>;

/// The destination of completions.
#[derive(Clone)]
pub enum Deliver {
    /// To `reap`.
    Queue,
    /// To this function, on the worker that ran the bio, right after it, or on the thread that
    /// watches polls. `reap` then finds nothing, and `wake` makes a worker call the function
    /// without completions. In the function the worker has its own credentials and priority.
    Call(Receiver),
}

/// The function by which a worker runs a bio. It returns the bytes transferred, or an error. The
/// function may block.
pub type Carry = Arc<dyn Fn(&Bio) -> Result<usize, Errno> + Send + Sync>;

/// The configuration of a pool of workers.
pub struct ThreadsConfig {
    /// The most workers at a time, at least 1, without the thread that watches polls.
    pub max_workers: usize,
    /// The destination of completions.
    pub deliver: Deliver,
    /// The function that runs first on the first worker, to give all workers a private descriptor
    /// table.
    pub first: Option<Box<dyn FnOnce() + Send>>,
    /// The function that runs first on each thread of the pool, the watcher of polls included. The
    /// pool's maker marks its threads by this function.
    pub each: fn(),
    /// The function by which workers run bios other than polls: [`system_calls`], or a simulated
    /// device.
    pub carry: Carry,
    /// The function called after a panic. A panic ends no thread of the pool.
    pub failed: OnPanic,
    /// The prefix of the workers' names, to which a number is added: `nowait-w`.
    pub name: String,
}

impl Default for ThreadsConfig {
    fn default() -> ThreadsConfig {
        ThreadsConfig {
            max_workers: 64,
            deliver: Deliver::Queue,
            first: None,
            each: || {},
            carry: Arc::new(system_calls),
            failed: Arc::new(|_| {}),
            name: "nowait-w".to_owned(),
        }
    }
}

/// A backend that runs bios by blocking calls on a pool of threads.
///
/// Descriptors are looked up when a worker makes the call, in the workers' table: `commit` takes no
/// reference to the files. Reads and writes of regular files and block devices continue after a
/// short transfer, unless they have RWF_NOWAIT, RWF_ATOMIC or RWF_APPEND; a stream gets one call. A
/// write beyond RLIMIT_FSIZE fails with `EFBIG`: signals are blocked, and the `SIGXFSZ` that stays
/// pending on the worker is harmless.
///
/// `cancel` reaches polls and bios that have not started. Dropping the pool is
/// [`Threads::shutdown`].
pub struct Threads {
    pool: Arc<Pool>,
}

/// Most bios between `queue` and `reap`.
const DEPTH: usize = 1 << 20;

impl Threads {
    /// The name in reports.
    pub const NAME: &str = "threads";

    /// Starts the first worker.
    ///
    /// # Errors
    /// `EAGAIN`, `ENOMEM`: no thread can be started.
    pub fn new(config: ThreadsConfig) -> Result<Threads, Errno> {
        Ok(Threads { pool: Pool::start(config, DEPTH)? })
    }

    /// Ends the pool: takes no more bios (`queue` gives them back), completes all polls and the
    /// bios that have not started with `ECANCELED`, waits for the running bios (a read of a silent
    /// pipe waits for ever), and joins the threads. From a worker, inside [`Deliver::Call`], it
    /// does not wait. In a forked child, where the workers do not exist, it does nothing.
    pub fn shutdown(&self) {
        self.pool.shutdown();
    }

    /// Makes a worker deliver these completions before all waiting work. Their requests have ended
    /// elsewhere and must continue in the workers' descriptor table. Empties the list.
    pub fn deliver(&self, completions: &mut Vec<Completion>) {
        self.pool.deliver_on_worker(completions);
    }

    /// Returns how many workers exist, idle ones included.
    pub fn workers(&self) -> usize {
        self.pool.workers()
    }
}

impl BlockBackend for Threads {
    fn name(&self) -> &'static str {
        Threads::NAME
    }

    fn limits(&self) -> Limits {
        Limits { depth: DEPTH, buffered_reads: false, writes: false, readiness: false }
    }

    fn queue(&self, bio: Bio) -> Result<(), Bio> {
        self.pool.queue(bio)
    }

    fn commit(&self) {
        self.pool.commit();
    }

    fn reap(
        &self,
        done: &mut Vec<Completion>,
        min: usize,
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.pool.reap(done, min, deadline)
    }

    fn wake(&self) {
        self.pool.wake();
    }

    fn cancel(&self, token: u64) {
        self.pool.cancel(token);
    }

    fn in_flight(&self) -> usize {
        self.pool.in_flight()
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        self.shutdown();
    }
}
