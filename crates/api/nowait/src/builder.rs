//! The handle of an engine, and its builder.

use crate::{
    BackendChoice, Error, Limits, Queue, SubmitMode, calls::Calls, reactor::Reactor, timer::Timer,
};
use core::{fmt, mem::take};
use nowait_engine::{CacheCounts, Config, Engine, Options, choice, report};
use nowait_file::Parts;
use nowait_sys::{Errno, fork::ForkMark, lazy::Lazy};
use std::sync::Arc;

/// An engine: backend, threads, file references. Cheap to clone.
///
/// Each file and queue holds a clone of this handle. The drop of the last clone ends the engine's
/// threads and waits for them, but not for the helper threads of opens and closes.
#[derive(Clone)]
pub struct Nowait(Arc<EngineShared>);

struct EngineShared {
    engine: Arc<Engine>,
    reactor: Lazy<Reactor>,
    calls: Arc<Calls>,
    timer: Timer,
    /// In a forked child, the engine's threads do not exist.
    process: ForkMark,
}

const WORKERS_MAX: usize = 1024;

impl Nowait {
    /// Returns a builder with the defaults.
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Starts an engine with the defaults, which need neither io_uring nor native AIO.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptors, threads or memory left.
    pub fn new() -> Result<Nowait, Error> {
        Nowait::builder().build()
    }

    /// Makes a queue for up to `depth` requests at a time.
    ///
    /// # Errors
    /// `EINVAL`: `depth` is 0 or above 65,536, or this is a forked child. `ENOMEM`: no memory.
    pub fn queue<T, B>(&self, depth: usize) -> Result<Queue<T, B>, Error> {
        Queue::new(self, depth)
    }

    /// Returns the backend in use, never `Auto`.
    pub fn backend(&self) -> BackendChoice {
        choice::parse(self.0.engine.backend()).unwrap_or_default()
    }

    /// Returns the reason for this backend, in one line.
    pub fn backend_reason(&self) -> &str {
        self.0.engine.reason()
    }

    /// Returns the counters of nowait's own page cache. `None`: the engine has not made this cache,
    /// because no file was opened with it.
    #[doc(hidden)]
    pub fn cache_counts(&self) -> Option<CacheCounts> {
        self.0.engine.cache_counts()
    }

    /// Returns how many panics the engine has caught, also in [`Nowait::caught`].
    #[doc(hidden)]
    pub fn failed_threads(&self) -> u64 {
        self.0.engine.failures()
    }

    /// Runs `work`. If `work` panics, counts the panic and returns `None`. If this is the engine's
    /// first panic, its report names `doing`.
    #[doc(hidden)]
    pub fn caught<T>(&self, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
        self.0.engine.caught(doing, work)
    }

    /// Returns the report of the first panic, unless an earlier call has returned or printed it.
    #[doc(hidden)]
    pub fn untold_failure(&self) -> Option<String> {
        self.0.engine.untold_failure()
    }

    pub(crate) fn reactor(&self) -> Result<&Reactor, Errno> {
        let make = || Reactor::start(&self.0.engine, &self.0.calls);
        self.0.reactor.get_or_make(make)
    }

    pub(crate) fn calls(&self) -> &Calls {
        &self.0.calls
    }

    /// Runs `work`, a blocking call, on one of the helper threads that also make opens and closes.
    /// Dropping the engine does not wait for `work`.
    #[doc(hidden)]
    pub fn run_aside(&self, work: impl FnOnce() + Send + 'static) {
        self.0.calls.run(work);
    }

    pub(crate) fn timer(&self) -> &Timer {
        &self.0.timer
    }

    /// Returns a report in one line of JSON, as NOWAIT_REPORT writes it to a file `*.json`: the
    /// backend and the page cache. [`Queue::report`] adds the counters of a queue.
    pub fn report(&self) -> String {
        report::as_json(Some(self.engine()), &[])
    }

    pub(crate) fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// Returns `true` in a forked child of the process that started the engine: the engine's
    /// threads do not exist here, and its requests never end here.
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
            // The engine's threads and rings belong to the parent: do not end them. A thread of the
            // child may have the stack, and so the name (pthread_t), of one of these threads: do
            // not detach it.
            let threads = (take(&mut self.reactor), take(&mut self.timer));
            core::mem::forget((self.engine.clone(), self.calls.clone(), threads));
        }
    }
}

/// The settings of an engine to be started; [`Nowait::builder`] makes them.
#[derive(Clone, Debug, Default)]
pub struct Builder(Config);

impl Builder {
    /// Returns a builder with the values of the environment variables `NOWAIT_*`. A variable with
    /// an invalid value has no effect.
    pub fn from_env() -> Builder {
        Builder(Options::from_env().config)
    }

    /// Returns a builder with the values of `config`.
    #[doc(hidden)]
    pub fn from_config(config: Config) -> Builder {
        Builder(config)
    }

    /// Chooses the backend. `Auto`, the default, takes the best backend that works here. If any
    /// other choice does not work, [`Builder::build`] fails with the reason.
    #[must_use]
    pub fn backend(mut self, backend: BackendChoice) -> Builder {
        self.0.backend = backend;
        self
    }

    /// Chooses which thread makes the first attempt at a request.
    #[must_use]
    pub fn submit(mut self, mode: SubmitMode) -> Builder {
        self.0.submit = mode;
        self
    }

    /// Limits the workers, threads that run requests by blocking calls, to `count`, 1 to 1024; 32
    /// by default.
    #[must_use]
    pub fn workers(mut self, count: usize) -> Builder {
        self.0.workers_max = count;
        self
    }

    /// Sets the size of the page cache for files in the mode [`CacheMode::User`], in bytes; 256 MiB
    /// by default. The size is rounded up to a multiple of 2 MiB. The system provides the memory
    /// when the cache first uses it.
    ///
    /// [`CacheMode::User`]: crate::CacheMode::User
    #[must_use]
    pub fn cache_bytes(mut self, bytes: u64) -> Builder {
        self.0.cache_bytes = bytes;
        self
    }

    /// Limits the requests in flight in the whole engine; 524,288 by default.
    ///
    /// A request that ends inside submit does not count. A request beyond the limit ends with
    /// `EAGAIN`, without effect. A limit on bytes counts the program's buffers in use; a request
    /// larger than the limit starts only when no other buffer is in use.
    #[must_use]
    pub fn limits(mut self, limits: Limits) -> Builder {
        self.0.limits = limits;
        self
    }

    /// Limits the requests in flight of each queue, besides its depth, and those of all futures of
    /// the engine together; no limit by default.
    #[must_use]
    pub fn queue_limits(mut self, limits: Limits) -> Builder {
        self.0.context_limits = limits;
        self
    }

    /// Counts the requests of queues, for [`Queue::report`]; off by default.
    #[must_use]
    pub fn stats(mut self, yes: bool) -> Builder {
        self.0.stats = yes;
        self
    }

    /// Starts the engine.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptors, threads or memory left. `EINVAL`: a number of
    /// workers out of range, or a limit of 0. The error of the backend that was chosen by name.
    pub fn build(self) -> Result<Nowait, Error> {
        self.build_by(choice::start_exactly)
    }

    /// Starts the engine with the given parts in place of the machine's: for simulations.
    ///
    /// # Errors
    /// The errors of [`Builder::build`].
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
                let reason = "a limit of 0 allows no request in flight";
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
        // The variable is set in a child process, whose standard error the test reads.
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
