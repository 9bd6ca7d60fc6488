//! The engine of a process, its limits of requests in flight, and its calls on helper threads.

use crate::{error::Failure, limits::Load};
use core::time::Duration;
use nowait::{BackendChoice, Builder, Limits, Nowait};
use nowait_engine::Options;
use nowait_sys::{
    fork::ForkMark,
    mutex::{Condvar, Mutex},
    stderr,
};
use pyo3::prelude::*;

/// Longest time that a blocking wait sleeps before it checks for signals.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// Lives as long as the process, because a forked child cannot end an engine of its parent.
pub(crate) struct ProcessEngine {
    pub(crate) nowait: Nowait,
    pub(crate) load: Load,
    /// `true`: files that are opened without a cache mode get the mode `user`.
    user_cache: bool,
    /// Number of calls on helper threads that the exit waits for.
    aside: Mutex<usize>,
    none_aside: Condvar,
    process: ForkMark,
}

impl ProcessEngine {
    /// In a forked child, `parent` is the engine of the parent process, whose limits the new engine
    /// takes over.
    pub(crate) fn start(parent: Option<&ProcessEngine>) -> PyResult<ProcessEngine> {
        let mut options = Options::from_env();
        options.complaints.iter().for_each(|line| say(line));
        // Requests above the limits wait in this module: the engine would refuse them.
        let limits = core::mem::replace(&mut options.config.limits, Limits::NONE);
        let each = core::mem::replace(&mut options.config.context_limits, Limits::NONE);
        let limits = parent.map_or((limits.into(), each.into()), |it| it.load.limits());
        Ok(ProcessEngine {
            nowait: start(&options).map_err(|error| Failure::from(error).exception())?,
            load: Load::new(limits),
            user_cache: options.user_cache,
            aside: Mutex::default(),
            none_aside: Condvar::default(),
            process: ForkMark::new(),
        })
    }

    /// Returns `false` if the parent of this process started the engine before fork(2).
    #[inline]
    pub(crate) fn is_here(&self) -> bool {
        self.process.is_here()
    }

    pub(crate) fn default_cache(&self) -> &'static str {
        if self.user_cache { "user" } else { "host" }
    }

    /// `work` may block; the exit of the process waits for it.
    pub(crate) fn run_aside(&'static self, work: impl FnOnce() + Send + 'static) {
        *self.aside.lock() += 1;
        let counted = Counted(self);
        self.nowait.run_aside(move || {
            let counted = counted;
            work();
            drop(counted);
        });
    }

    /// `work` may block; the exit of the process does not wait for it.
    pub(crate) fn ask_aside(&'static self, work: impl FnOnce() + Send + 'static) {
        self.nowait.run_aside(work);
    }

    /// Raises the exception that a signal handler raises meanwhile.
    pub(crate) fn wait_for_calls(&self, py: Python<'_>) -> PyResult<()> {
        let is_over = || {
            let mut aside = self.aside.lock();
            if *aside > 0 {
                self.none_aside.wait_for(&mut aside, LOOK);
            }
            *aside == 0
        };
        while !py.detach(is_over) {
            py.check_signals()?;
        }
        Ok(())
    }
}

/// Counts a call until it has returned, also by a panic.
struct Counted(&'static ProcessEngine);

impl Drop for Counted {
    fn drop(&mut self) {
        let mut aside = self.0.aside.lock();
        *aside -= 1;
        if *aside == 0 {
            self.0.none_aside.notify_all();
        }
    }
}

fn say(line: &str) {
    stderr::say(&format!("nowait: {line}\n"));
}

/// Falls back to another backend if the one that was asked for does not work.
fn start(options: &Options) -> Result<Nowait, nowait::Error> {
    let config = options.config.clone();
    let asked = config.backend;
    Builder::from_config(config.clone()).build().or_else(|error| {
        if asked == BackendChoice::Auto {
            return Err(error);
        }
        say(&format!("{error}; another backend is used"));
        Builder::from_config(config).backend(BackendChoice::Auto).build()
    })
}
