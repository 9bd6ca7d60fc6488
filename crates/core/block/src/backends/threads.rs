//! A pool of worker threads that make blocking calls.
//!
//! ```text
//! queue ─▶ pending ─── commit: a batch, at most one futex wake ─▶ ready ─▶ worker ─▶ deliver
//!                                      lane: its bios in their order    ─┘   │
//!                                      poll: one thread watches all polls  ◀─┘
//! ```
//! The first worker may give itself a private descriptor table, and all workers started after it
//! share this table. So workers start workers: if no other worker is idle, woken or starting, a
//! worker that begins work starts a new worker (up to `max_workers`).

mod pool;
mod ready;
mod run;
mod watch;

pub use run::system_calls;

use crate::{BlockBackend, Completion, Limits, bio::Bio};
use nowait_sys::{Errno, time::Deadline};
use pool::Pool;
use std::{any::Any, sync::Arc};

/// A function that receives completions on a thread of the pool, and empties the list. If the
/// function takes only some completions, for example because it panics, the pool calls it again
/// with the rest. If the function takes none, the pool drops them.
pub type Receiver = Arc<dyn Fn(&mut Vec<Completion>) + Send + Sync>;

/// A function that gets the payload of a panic on a thread of the pool. If the panic happened while
/// a worker ran a bio, the bio ends with `EIO`.
pub type OnPanic = Arc<dyn Fn(&(dyn Any + Send)) + Send + Sync>;

/// The destination of completions.
#[derive(Clone)]
pub enum Deliver {
    /// To `reap`.
    Queue,
    /// To this function. A worker calls the function after each bio or joined write. For a poll,
    /// the thread that watches polls may call the function. `reap` finds nothing for this
    /// destination, and `wake` makes a worker call the function without completions. In the
    /// function the worker has its own credentials and priority.
    Call(Receiver),
}

/// The function by which a worker runs a bio. The function returns the number of bytes transferred,
/// and may block.
pub type Carry = Arc<dyn Fn(&Bio) -> Result<usize, Errno> + Send + Sync>;

/// The configuration of a pool of workers.
pub struct ThreadsConfig {
    /// The most workers at a time, not counting the thread that watches polls; 0 means 1.
    pub max_workers: usize,
    /// The destination of completions.
    pub deliver: Deliver,
    /// A function that the first worker runs before all else, for example to give all workers a
    /// private descriptor table.
    pub first: Option<Box<dyn FnOnce() + Send>>,
    /// A function that each thread of the pool runs at its start (the first worker after `first`),
    /// also the thread that watches polls.
    pub each: fn(),
    /// The function by which workers run bios other than polls: [`system_calls`], or a simulated
    /// device.
    pub carry: Carry,
    /// The function that a thread of the pool calls after a panic. A panic of `carry`, of a
    /// [`crate::bio::Descriptor`] or of the receiver ends no worker.
    pub failed: OnPanic,
    /// The prefix of the workers' names, for example `nowait-w`; the pool adds a number.
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
/// The kernel looks a descriptor up in the workers' table when a worker makes the call: `commit`
/// takes no reference to the files. After a short transfer of a regular file or block device the
/// worker transfers the rest, unless the bio has RWF_NOWAIT, RWF_ATOMIC or RWF_APPEND or is too
/// long for one call. For a stream the worker makes one call. A write beyond RLIMIT_FSIZE fails
/// with `EFBIG`: workers block signals, and the `SIGXFSZ` that stays pending on the worker is
/// harmless.
///
/// `cancel` can end polls, and bios that have not started. Dropping the pool calls
/// [`Threads::shutdown`].
pub struct Threads {
    pool: Arc<Pool>,
}

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

    /// Ends the pool. The pool accepts no more bios (`queue` returns them as `Err`). All polls, and
    /// the bios that no worker has started, complete with `ECANCELED`. Waits for the running bios
    /// (a read of a silent pipe may run for ever), and joins the threads. A worker that calls
    /// `shutdown`, inside [`Deliver::Call`], does not wait for itself. In a forked child, where the
    /// workers do not exist, `shutdown` does nothing.
    pub fn shutdown(&self) {
        self.pool.shutdown();
    }

    /// Makes workers deliver these completions before all bios that wait. The requests have ended
    /// elsewhere and must continue in the workers' descriptor table.
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
