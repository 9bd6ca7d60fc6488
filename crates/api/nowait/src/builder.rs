//! The handle of an engine, and how it is started.

use crate::{
    BackendChoice, Error, Limits, Queue, SubmitMode, calls::Calls, reactor::Reactor, timer::Timer,
};
use core::fmt;
use nowait_engine::{CacheCounts, Config, Engine, Options, choice, report};
use nowait_file::Parts;
use nowait_sys::{Errno, fork::ForkMark, lazy::Lazy};
use std::sync::Arc;

/// An engine: backend, threads, held files. Cheap to clone.
///
/// Files and queues have a clone each. The engine's threads end when the last one goes, which
/// waits for them; a program may have several engines.
#[derive(Clone)]
pub struct Nowait(Arc<EngineShared>);

struct EngineShared {
    engine: Arc<Engine>,
    /// For futures: made with the first.
    reactor: Lazy<Reactor>,
    calls: Arc<Calls>,
    timer: Timer,
    /// Whose threads they are: a forked child has none of them.
    process: ForkMark,
}

/// What [`Builder::workers`] takes.
const WORKERS_MAX: usize = 1024;

impl Nowait {
    /// Begins the description of an engine.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts an engine with the defaults, which works on every Linux.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptors or threads.
    pub fn new() -> Result<Nowait, Error> {
        Nowait::builder().build()
    }

    /// Makes a queue for up to `depth` requests at a time, see [`Queue`].
    ///
    /// # Errors
    /// `EINVAL`: `depth` is 0 or above 65,536. `ENOMEM`: no memory.
    pub fn queue<T, B>(&self, depth: usize) -> Result<Queue<T, B>, Error> {
        Queue::new(self, depth)
    }

    /// Returns the backend in use, never `Auto`.
    pub fn backend(&self) -> BackendChoice {
        choice::parse(self.0.engine.backend()).unwrap_or_default()
    }

    /// Returns why this backend is in use, in one line.
    pub fn backend_reason(&self) -> &str {
        self.0.engine.reason()
    }

    /// Returns what nowait's own page cache has done; `None`: no file was ever opened with it.
    #[doc(hidden)]
    pub fn cache_counts(&self) -> Option<CacheCounts> {
        self.0.engine.cache_counts()
    }

    /// Returns how often a thread of the engine, or of a program that says so here, failed by a
    /// mistake of its own: must be 0.
    #[doc(hidden)]
    pub fn failed_threads(&self) -> u64 {
        self.0.engine.failures()
    }

    /// Runs `work` on a thread that must not end, `doing` what the report says if it panics.
    /// `None`: it did; that is counted, and said once on the standard error.
    #[doc(hidden)]
    pub fn caught<T>(&self, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
        self.0.engine.caught(doing, work)
    }

    /// Returns what is to be said of the first failure, once.
    #[doc(hidden)]
    pub fn untold_failure(&self) -> Option<String> {
        self.0.engine.untold_failure()
    }

    /// Returns what serves futures, made at first use.
    ///
    /// # Errors
    /// `ENOMEM`, `EAGAIN`: it could not be made now.
    pub(crate) fn reactor(&self) -> Result<&Reactor, Errno> {
        let make = || Reactor::start(&self.0.engine, &self.0.calls);
        self.0.reactor.get_or_make(make)
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    /// Has `work`, a call that blocks, done on one of the helper threads, up to eight, that opens
    /// and closes have too; what it finds out it hands over itself. Dropping the engine does not
    /// wait for it.
    #[doc(hidden)]
    pub fn run_aside(&self, work: impl FnOnce() + Send + 'static) {
        self.0.calls.run(work);
    }

    pub(crate) fn timer(&self) -> &Timer {
        &self.0.timer
    }

    /// Returns a report in one line of JSON, as NOWAIT_REPORT makes it: the backend and the page
    /// cache. [`Queue::report`] adds what a queue did.
    pub fn report(&self) -> String {
        report::as_json(Some(self.engine()), &[])
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// Tells whether the engine is that of the process this one was forked from: its threads do
    /// not exist here, and its requests never end.
    pub(crate) fn is_the_parents(&self) -> bool {
        !self.0.process.is_here()
    }
}

impl fmt::Debug for Nowait {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nowait on {}: {}", self.0.engine.backend(), self.backend_reason())
    }
}

impl Drop for EngineShared {
    fn drop(&mut self) {
        if self.process.is_here() {
            self.timer.stop();
            if let Some(reactor) = self.reactor.get() {
                reactor.stop();
            }
            self.engine.shutdown();
            report::tell_failure(&self.engine);
        } else {
            // The parent's threads and rings are not ours to end.
            core::mem::forget((self.engine.clone(), self.calls.clone()));
        }
    }
}

/// Describes an engine to be started; made by [`Nowait::builder`].
#[derive(Clone, Debug, Default)]
pub struct Builder(Config);

impl Builder {
    /// Begins with what the environment variables `NOWAIT_*` ask for. A variable with an invalid
    /// value has no effect.
    pub fn from_env() -> Builder {
        Builder(Options::from_env().config)
    }

    /// Begins with a configuration of the engine.
    #[doc(hidden)]
    pub fn from_config(config: Config) -> Builder {
        Builder(config)
    }

    /// Chooses the backend. `Auto`, the default, takes the best that works here and never fails
    /// for a missing one; another one must work, or [`Builder::build`] fails with the reason.
    #[must_use]
    pub fn backend(mut self, backend: BackendChoice) -> Builder {
        self.0.backend = backend;
        self
    }

    /// Chooses where the first attempt at a request is made.
    #[must_use]
    pub fn submit(mut self, mode: SubmitMode) -> Builder {
        self.0.submit = mode;
        self
    }

    /// Limits the threads that make blocking calls to `count`, 1 to 1024; 32 by default. They are
    /// started when they are needed.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Builder {
        self.0.workers_max = count;
        self
    }

    /// Sets the size of the page cache for files in the mode [`CacheMode::User`], in bytes; 256 MiB
    /// by default. Rounded up to 2 MiB, and taken from the system as it is used, or
    /// ahead of that, by some 64 MiB at most.
    ///
    /// [`CacheMode::User`]: crate::CacheMode::User
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Builder {
        self.0.cache_bytes = bytes;
        self
    }

    /// Limits what may be in flight at a time in the whole engine, 524,288 requests by default.
    ///
    /// What ends inside submit is not counted. A request beyond the limit is not started and ends
    /// with `EAGAIN`. A limit on bytes, those of the program's memory in use, lets the largest
    /// request pass alone.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.0.limits = limits;
        self
    }

    /// The same for each queue, besides its depth, and for all futures of the engine together; no
    /// limit by default.
    #[must_use]
    pub fn queue_limits(mut self, limits: Limits) -> Builder {
        self.0.context_limits = limits;
        self
    }

    /// Counts what queues do, for [`Queue::report`]; off by default.
    #[must_use]
    pub fn stats(mut self, yes: bool) -> Builder {
        self.0.stats = yes;
        self
    }

    /// Starts the engine; returns when its threads run.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptors or threads. `EINVAL`: a number of workers that
    /// is not possible, a limit of 0. Whatever refuses a backend that was asked for by name.
    pub fn build(self) -> Result<Nowait, Error> {
        self.build_by(choice::start_exactly)
    }

    /// Starts the engine of other parts than the machine's: for simulations.
    ///
    /// # Errors
    /// As for [`Builder::build`].
    #[doc(hidden)]
    pub fn build_of(self, parts: Parts) -> Result<Nowait, Error> {
        self.build_by(|config| {
            let started = Engine::start(config.clone(), parts);
            started.map_err(|errno| (errno, String::new()))
        })
    }

    fn build_by(
        self,
        start: impl FnOnce(&Config) -> Result<Arc<Engine>, (Errno, String)>,
    ) -> Result<Nowait, Error> {
        const DOING: &str = "start of the engine";
        if !(1..=WORKERS_MAX).contains(&self.0.workers_max) {
            let reason = format!("workers must be 1 to {WORKERS_MAX}, not {}", self.0.workers_max);
            return Err(Error::new(Errno::INVAL, DOING).because(reason));
        }
        for limits in [self.0.limits, self.0.context_limits] {
            if limits.requests == 0 || limits.bytes == 0 {
                let reason = "with a limit of 0 nothing could be in flight";
                return Err(Error::new(Errno::INVAL, DOING).because(reason));
            }
        }
        let engine = start(&self.0).map_err(|(errno, reason)| {
            let error = Error::new(errno, DOING);
            if reason.is_empty() { error } else { error.because(reason) }
        })?;
        Ok(Nowait(Arc::new(EngineShared {
            engine,
            reactor: Lazy::default(),
            calls: Arc::default(),
            timer: Timer::default(),
            process: ForkMark::new(),
        })))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::File;
    use std::process::Command;

    /// Makes threads of engines fail, and uses the engines.
    fn fail() {
        let path = std::env::current_exe().unwrap();
        for way in ["queue", "future", "end"] {
            let nowait = Nowait::new().unwrap();
            for cause in ["first", "second"] {
                nowait.engine().caught(way, || panic!("{cause}"));
            }
            assert!(nowait.report().contains("\"failed_threads\":2"));
            match way {
                "queue" => {
                    let file = File::open(&nowait, &path).unwrap();
                    let mut queue: Queue<()> = nowait.queue(1).unwrap();
                    queue.sync_data(&file, ()).unwrap();
                    queue.submit();
                    queue.wait(1, None).unwrap();
                    eprintln!("\nover");
                }
                "future" => {
                    let file = crate::AsyncFile::from(File::open(&nowait, &path).unwrap());
                    futures_lite::future::block_on(file.sync_data()).unwrap();
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_failed_thread_is_counted_and_said_once_however_the_engine_is_used() {
        const NAME: &str = "builder::tests::\
            a_failed_thread_is_counted_and_said_once_however_the_engine_is_used";
        // In a process of its own: its standard error tells.
        const CHILD: &str = "NOWAIT_TEST_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return fail();
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let child = child.args(["--exact", NAME, "--nocapture"]).env(CHILD, "1");
        let output = child.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{said}");
        let said = said.lines().filter(|it| it.starts_with("nowait:") || *it == "over");
        let said: Vec<_> = said.map(|line| line.split(": its request").next().unwrap()).collect();
        let failed = |way: &str| format!("nowait: a thread failed {way}: first");
        assert_eq!(said, [&failed("queue"), "over", &failed("future"), &failed("end")]);
    }
}
