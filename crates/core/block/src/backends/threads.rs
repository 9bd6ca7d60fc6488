//! Workers that make the blocking calls.
//!
//! ```text
//! queue ─▶ pending ── commit: one lock, at most one futex wake ─▶ ready ─▶ worker ─▶ deliver
//!                                      lane: its bios in their order    ─┘   │
//!                                      poll: watched by one thread for all ◀─┘
//! ```
//! Workers are started by workers: the first one may give itself a descriptor table of its own,
//! which those it starts then share, and they with theirs. A worker that goes to work leaves
//! another one idle behind, or calls or starts one, so that a thread that commits never has to.

mod pool;
mod ready;
mod run;
mod watch;

pub use run::system_calls;

use crate::{BlockBackend, Completion, Limits, bio::Bio};
use nowait_sys::{Errno, time::Deadline};
use pool::Pool;
use std::{any::Any, sync::Arc};

/// Receives completions on the worker that produced them; empties the list. If it panics it gets
/// again what it left.
pub type Receiver = Arc<dyn Fn(&mut Vec<Completion>) + Send + Sync>;

/// Called with the payload of a panic on a thread of the pool; its bio has ended with `EIO`.
pub type OnPanic = Arc<dyn Fn(&(dyn Any + Send)) + Send + Sync>;

/// Where completions go.
#[derive(Clone)]
pub enum Deliver {
    /// To `reap`.
    Queue,
    /// To this function, on the worker that ran the bio, right after it. `reap` then finds
    /// nothing, and `wake` has a worker call the function without completions. In the function the
    /// worker acts with its own rights and priority.
    Call(Receiver),
}

/// What a worker carries a bio out by, and its result: bytes transferred, or an error. May block.
pub type Carry = Arc<dyn Fn(&Bio) -> Result<usize, Errno> + Send + Sync>;

/// How a pool of workers is made.
pub struct ThreadsConfig {
    /// Most workers at a time, at least 1; the thread that watches polls is not counted.
    pub max_workers: usize,
    /// Where completions go.
    pub deliver: Deliver,
    /// Runs on the first worker before all else, to give it, and with it all others, a
    /// descriptor table of its own.
    pub first: Option<Box<dyn FnOnce() + Send>>,
    /// Runs on each thread of the pool, the watcher of polls too, before it does anything else:
    /// lets the maker know its own threads again.
    pub each: fn(),
    /// What workers carry bios out by, except polls and what they submit elsewhere:
    /// [`system_calls`], or a simulated device.
    pub carry: Carry,
    /// Called after panics, which harm no thread.
    pub failed: OnPanic,
    /// The workers' names, a number is added: `nowait-w`.
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

/// Bios carried by blocking calls on a pool of threads.
///
/// Descriptors are looked up when a worker makes the call, in the workers' table: `commit` does
/// not hold the files. Reads and writes of regular files and block devices go on after a short
/// transfer; streams are asked once. A write beyond RLIMIT_FSIZE fails with `EFBIG`: signals are
/// blocked, and the `SIGXFSZ` that stays pending on the worker is harmless.
///
/// `cancel` reaches what has not started, and polls. Dropping the pool is [`Threads::shutdown`].
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

    /// Ends the pool: takes no more bios (`queue` gives them back), completes those that have
    /// not started and all polls with `ECANCELED`, waits for those that run (a read of a silent
    /// pipe waits for ever), and joins the threads. From a worker, inside [`Deliver::Call`], it
    /// does not wait. In a forked child, where the workers do not exist, it does nothing.
    pub fn shutdown(&self) {
        self.pool.shutdown();
    }

    /// Has a worker deliver these completions, before all that waits: for what has ended elsewhere
    /// and must be continued in the workers' descriptor table. Empties the list.
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
