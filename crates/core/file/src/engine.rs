//! The engine: backends, threads, held files and the order of requests, once a process.

pub(crate) mod cleaner;
mod counters;
mod descriptors;
mod devices;
mod helper;
pub mod owner;
pub(crate) mod parker;
mod populator;
pub(crate) mod section;
pub(crate) mod starter;

use crate::{
    Command, Config, Context, Kind, Parts, UserFile,
    cached::CachedFiles,
    failure::Failures,
    hints::{Calm, Closes, StreamHints, filesystem::FileSystems},
    hold::{self, BothTables, Deferred, Holds},
    limits::Throttle,
    order::{Orders, StreamQueues},
    parts::{Backends, Clock, Counter, Executor, Workers},
    request::{FileOperation, unordered::Unordered},
    route::{
        Place, Plug, Route,
        driver::{self, Driver},
    },
};
use cleaner::Cleaner;
use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use nowait_block::{
    Bio, BlockBackend, Limits,
    backends::threads::{Deliver, OnPanic, ThreadsConfig},
};
use nowait_cache::{Cache, cache::IoCounts};
use nowait_retry::{Request, RunList};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    cred::Credentials,
    fdtable,
    file::{self, rwf},
    lazy::Lazy,
    mistake::{self, Mistake},
    own_thread,
    uring::Issuer,
};
use owner::Owned;
use populator::Populator;
use section::Section;
use starter::{Starter, starting};
use std::sync::{Arc, OnceLock, Weak};

/// Contexts that get a queue of their own; more share the driver's.
const OWN_QUEUES_MAX: usize = 64;

/// What no queue can take.
pub(crate) const NO_QUEUES: Limits =
    Limits { depth: 0, buffered_reads: false, writes: false, readiness: false };

/// The engine of a process. Threads are started with it and end with the process, or with
/// [`Engine::shutdown`].
pub struct Engine {
    config: Config,
    backends: Box<dyn Backends>,
    reason: String,
    /// What each of its queues can take.
    limits: Limits,
    clock: Clock,
    executor: Executor,
    workers: OnceLock<Box<dyn Workers>>,
    driver: Option<Driver>,
    /// Where there is no driver.
    cleaner: Option<Arc<Cleaner>>,
    populator: Arc<Populator>,
    /// Where there are no threads.
    pub(crate) owned: Owned,
    /// Requests that were kicked, see `section.rs`.
    kicked: Arc<RunList<FileOperation>>,
    holds: Holds,
    orders: Orders,
    pub(crate) unordered: Arc<Unordered>,
    stream_queues: StreamQueues,
    stream_hints: StreamHints,
    closes: Arc<Closes>,
    pub(crate) calm: Calm,
    filesystems: FileSystems,
    pub(crate) throttle: Throttle,
    pub(crate) failures: Failures,
    /// Threads may ask what rights they have.
    knows_rights: AtomicBool,
    /// Whether writes can say that they append, or do not.
    chooses_append: OnceLock<bool>,
    own_queues: AtomicUsize,
    /// Contexts whose callers sleep in event loops of their own.
    loops: Mutex<Vec<Weak<Context>>>,
    /// The page cache, made at first use.
    cache: Lazy<Arc<Cache>>,
    cached_files: CachedFiles,
    /// Own queues and counters of contexts that ended on a thread of the engine, to be dropped on
    /// another.
    deferred: Arc<Deferred<Box<dyn Send>>>,
    cpus: u32,
}

impl Engine {
    /// Starts an engine on the machine, with the backend of `config`, which must be usable;
    /// `reason` says in reports why it was chosen.
    ///
    /// # Errors
    /// Those of [`Engine::start`].
    pub fn on_machine(config: Config, reason: String) -> Result<Arc<Engine>, Errno> {
        let parts = Parts::of_machine(&config, reason);
        Engine::start(config, parts)
    }

    /// Starts an engine that is made of `parts`, and returns when its threads run.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptors or threads.
    pub fn start(config: Config, parts: Parts) -> Result<Arc<Engine>, Errno> {
        let (local, remote) = fdtable::channel()?;
        let Parts { backends, reason, clock, executor } = parts;
        let limits = backends.limits();
        let cpus = match executor {
            Executor::Threads => std::thread::available_parallelism().map_or(1, |n| n.get() as u32),
            Executor::Owner => 1,
        };
        let engine = Arc::new_cyclic(|engine: &Weak<Engine>| Engine {
            backends,
            reason,
            limits: limits.unwrap_or(NO_QUEUES),
            clock,
            executor,
            owned: Owned::default(),
            workers: OnceLock::new(),
            driver: limits.map(|_| Driver::default()),
            cleaner: limits.is_none().then(Arc::default),
            populator: Arc::default(),
            kicked: Arc::new(RunList::with_wake(section::wake(engine.clone()))),
            holds: Holds::new(local.moved_high(), remote.raw()),
            orders: Orders::default(),
            unordered: Arc::default(),
            stream_queues: StreamQueues::default(),
            stream_hints: StreamHints::default(),
            closes: Arc::default(),
            calm: Calm::default(),
            filesystems: FileSystems::default(),
            throttle: Throttle::new(config.limits),
            failures: Failures::default(),
            knows_rights: AtomicBool::new(false),
            chooses_append: OnceLock::new(),
            own_queues: AtomicUsize::new(0),
            loops: Mutex::default(),
            cache: Lazy::default(),
            cached_files: CachedFiles::default(),
            deferred: Arc::default(),
            cpus,
            config,
        });
        let started = match executor {
            Executor::Threads => {
                let counter = engine.new_counter()?;
                engine.start_threads(remote.raw(), counter)?
            }
            Executor::Owner => {
                engine.start_workers(None)?;
                engine.start_owned()
            }
        };
        if let Err(errno) = started {
            // Its threads have it, and must not be the last: their descriptors are others.
            engine.shutdown();
            return Err(errno);
        }
        // It is in the engine's table, too, now; or that is the application's.
        let is_shared = engine.holds.is_table_shared();
        engine.holds.keep_remote(if is_shared { remote } else { remote.moved_high() });
        Ok(engine)
    }

    /// Starts the workers, and on the first of them the driver. The outer error: there are none.
    fn start_threads(
        self: &Arc<Self>,
        remote: i32,
        counter: Option<Arc<BothTables>>,
    ) -> Result<Result<(), Errno>, Errno> {
        if let (Some(driver), Some(counter)) = (&self.driver, &counter) {
            counter.here().into_iter().for_each(|number| driver.note_counter(number));
        }
        // For the first worker, and for the driver and another worker, which that one starts.
        own_thread::leave_stacks(if self.driver.is_some() { 3 } else { 2 });
        let (starter, started) = starting();
        let first = self.clone();
        let work = move || first.first_thread(remote, counter, starter);
        self.start_workers(Some(Box::new(work)))?;
        Ok(started.wait())
    }

    fn start_workers(
        self: &Arc<Self>,
        first: Option<Box<dyn FnOnce() + Send>>,
    ) -> Result<(), Errno> {
        let workers = self.backends.workers(ThreadsConfig {
            max_workers: self.config.workers_max,
            deliver: deliver_to(Arc::downgrade(self)),
            first,
            each: hold::enter_engine_table,
            failed: note_failures(Arc::downgrade(self)),
            ..ThreadsConfig::default()
        })?;
        let _ = self.workers.set(workers);
        Ok(())
    }

    /// Runs on the first worker: makes the engine's descriptor table and starts the driver,
    /// which shares it.
    fn first_thread(
        self: Arc<Self>,
        number: i32,
        counter: Option<Arc<BothTables>>,
        starter: Starter,
    ) {
        if fdtable::make_private(number).is_err() {
            self.holds.share_table();
        }
        hold::enter_engine_table();
        self.knows_rights.store(Credentials::current().is_ok(), Relaxed);
        match self.driver.is_some() {
            true => driver::spawn(self, counter, starter),
            false => starter.ended(Ok(())),
        }
    }

    /// Makes the driver's queue, on the driver's thread.
    pub(crate) fn new_driver_queue(
        &self,
        counter: Option<Arc<BothTables>>,
    ) -> Result<Arc<dyn BlockBackend>, Errno> {
        self.backends.driver_queue(counter.map(|it| it as Counter))
    }

    /// Makes a queue for a context, if there may be another.
    pub(crate) fn own_queue(&self, issuer: Issuer) -> Option<Arc<dyn BlockBackend>> {
        self.driver.as_ref()?;
        if self.own_queues.fetch_add(1, Relaxed) < OWN_QUEUES_MAX
            && let Ok(queue) = self.new_own_queue(issuer)
        {
            return Some(queue);
        }
        self.own_queue_dropped();
        None
    }

    pub(crate) fn own_queue_dropped(&self) {
        self.own_queues.fetch_sub(1, Relaxed);
    }

    /// Returns how often one of the engine's threads failed: a mistake of ours, which ended what
    /// the thread was about with EIO.
    pub fn failures(&self) -> u64 {
        self.failures.count()
    }

    /// Runs `work` on a thread of the engine, `doing` what a report calls it; `None`: it failed.
    pub fn caught<T>(&self, doing: &str, work: impl FnOnce() -> T) -> Option<T> {
        self.failures.caught(doing, work)
    }

    /// Returns a line about the first failure, for people, once. No system call, and no lock
    /// unless there is one.
    pub fn untold_failure(&self) -> Option<String> {
        self.failures.untold()
    }

    /// Returns what the engine was started with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Returns the name of the backend in use.
    pub fn backend(&self) -> &'static str {
        self.backends.name()
    }

    /// Returns why this backend is in use.
    pub fn reason(&self) -> &str {
        &self.reason
    }

    /// Returns the descriptors the engine has in the application's table.
    pub fn descriptors(&self) -> Vec<i32> {
        let mut ours = self.holds.descriptors().collect::<Vec<_>>();
        ours.extend(self.driver.as_ref().and_then(Driver::counter));
        self.cached_files.all().iter().for_each(|file| ours.extend(file.descriptors()));
        ours
    }

    /// Returns how many requests are in flight in all contexts, those that end inside submit not
    /// counted.
    pub fn requests(&self) -> usize {
        self.throttle.requests()
    }

    /// Returns what it reads the time from.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub(crate) fn executor(&self) -> Executor {
        self.executor
    }

    pub(crate) fn cpus(&self) -> u32 {
        self.cpus
    }

    pub(crate) fn workers(&self) -> &dyn Workers {
        // Set before `start` returns; no thread has the engine earlier.
        self.workers.get().expect("the engine has been started").as_ref()
    }

    pub(crate) fn driver(&self) -> Option<&Driver> {
        self.driver.as_ref()
    }

    pub(crate) fn driver_queue(&self) -> Option<Arc<dyn BlockBackend>> {
        self.driver.as_ref().and_then(Driver::queue)
    }

    /// Returns where a request goes that must not use its context's own queue.
    pub(crate) fn route_past_own(&self) -> Route {
        if self.driver.is_some() { Route::Driver } else { Route::Workers }
    }

    /// Returns the backend that waits for polls and streams outside of a context's own queue: a
    /// ring, or the workers' watcher. The kernel's AIO would take one of its few requests for each.
    pub(crate) fn stream_route(&self) -> Route {
        if self.limits.readiness { Route::Driver } else { Route::Workers }
    }

    /// Returns where a request goes that must leave its context's own queue.
    pub(crate) fn route_off_own_queue(&self, endless: bool) -> Route {
        if endless { self.stream_route() } else { self.route_past_own() }
    }

    /// Returns where a transfer goes for which the kernel would have waited in submit.
    pub(crate) fn route_of_refused(&self) -> Route {
        if self.limits.writes { Route::Driver } else { Route::Workers }
    }

    /// Returns where reads of the kernel's page cache go that no caller carries out.
    pub(crate) fn route_of_reads(&self) -> Route {
        if self.limits.buffered_reads { Route::Driver } else { Route::Workers }
    }

    /// Tells whether the driver's queue carries reads of the kernel's page cache.
    pub(crate) fn queues_buffered_reads(&self) -> bool {
        self.limits.buffered_reads
    }

    /// Tells whether the driver's queue carries writes and syncs of any file.
    pub(crate) fn queues_writes(&self) -> bool {
        self.limits.writes
    }

    pub(crate) fn kicked(&self) -> &Arc<RunList<FileOperation>> {
        &self.kicked
    }

    pub(crate) fn holds(&self) -> &Holds {
        &self.holds
    }

    pub(crate) fn orders(&self) -> &Orders {
        &self.orders
    }

    pub(crate) fn stream_queues(&self) -> &StreamQueues {
        &self.stream_queues
    }

    /// Returns the counts of closes of the application's descriptors.
    pub fn closes(&self) -> &Arc<Closes> {
        &self.closes
    }

    pub(crate) fn stream_hints(&self) -> &StreamHints {
        &self.stream_hints
    }

    pub(crate) fn cached_files(&self) -> &CachedFiles {
        &self.cached_files
    }

    /// Returns the flags of a transfer. A write appends, or does not, as it was to when it was
    /// submitted: the flags of the open file may have changed when it begins, on a worker or on one
    /// of io_uring. Kernels before 6.9 have no way to say so.
    pub(crate) fn rw_flags(&self, command: &Command) -> u32 {
        let append = match command.kind {
            Kind::Write if self.chooses_append() && command.is_append() => rwf::APPEND,
            Kind::Write if self.chooses_append() => rwf::NOAPPEND,
            _ => 0,
        };
        command.rw_flags | append
    }

    /// Tells whether a write can say that it does not append (RWF_NOAPPEND).
    pub fn chooses_append(&self) -> bool {
        *self.chooses_append.get_or_init(file::can_choose_append)
    }

    /// Returns the page cache, made at first use.
    ///
    /// # Errors
    /// `ENOMEM`: no memory for it now.
    pub fn cache(&self) -> Result<Arc<Cache>, Errno> {
        let make = || {
            let cache = Cache::new(self.config.cache_bytes)?;
            cache.limit_in_flight(devices::in_flight_max(self.limits, self.config.workers_max));
            Ok(cache)
        };
        self.cache.get_or_make(make).cloned()
    }

    /// Counts an open of the inode `key` in whatever mode, for [`Engine::count_close`].
    pub fn count_open(&self, key: crate::InodeKey) {
        self.cached_files.count_open(key);
    }

    /// Ends what was counted; true: it was the last one of the inode. What could not be written
    /// stays in the page cache until then, because another open may ask for a sync.
    pub fn count_close(&self, key: crate::InodeKey) -> bool {
        self.cached_files.count_close(key)
    }

    /// Returns the user file of the inode behind `fd`, in whatever mode that was opened: while it
    /// is cached here, every request of the engine on it goes through the cache (M6). Does not
    /// wait: there is none for a file that another thread just opens.
    pub fn cached(&self, fd: i32) -> Option<Arc<UserFile>> {
        self.cached_files.find(fd)
    }

    /// Runs `change`, which changes the inode `key` past the page cache and waits for nothing of
    /// the engine: until it returns, an open of the file in the page cache waits. `None`: it is
    /// there already, and must be changed through it.
    pub fn past_cache<T>(
        &self,
        key: crate::order::InodeKey,
        change: impl FnOnce() -> T,
    ) -> Option<T> {
        let _write = self.cached_files.begin_write(key).ok()?;
        Some(change())
    }

    /// Returns what the page cache was asked, and what it asked of the devices, if a user file was
    /// ever opened.
    pub fn cache_counts(&self) -> Option<IoCounts> {
        self.cache_in_use().map(|cache| cache.io_counts())
    }

    /// Returns the page cache if a user file was ever opened.
    pub(crate) fn cache_in_use(&self) -> Option<&Arc<Cache>> {
        self.cache.get()
    }

    /// Has bios of the page cache carried out; from a thread that serves no queue.
    pub(crate) fn carry(self: &Arc<Self>, bios: &mut Vec<Bio>) {
        if !bios.is_empty() {
            let _section = Section::enter(self);
            let mut plug = Plug::take(self, Place::Caller);
            plug.cache_bios().append(bios);
            plug.flush(None);
            Plug::put_back(plug);
        }
    }

    /// Returns the rights of the calling thread; `None`: a filter keeps threads from asking.
    ///
    /// # Errors
    /// `EPERM`: a filter keeps this thread from asking, by whatever errno, and not those of the
    /// engine.
    pub(crate) fn rights_of_this_thread(&self) -> Result<Option<Arc<Credentials>>, Errno> {
        #[cfg(test)]
        crate::failure::RefusedRights::look()?;
        let knows_rights = self.knows_rights.load(Relaxed);
        let rights = knows_rights.then(|| Credentials::current().map(Arc::new)).transpose();
        rights.map_err(|_| Errno::PERM)
    }

    pub(crate) fn hand_to_driver(&self, batch: &mut Vec<Arc<Request<FileOperation>>>) {
        if let Some(driver) = &self.driver {
            driver.hand_over(batch);
        }
    }

    /// Has the driver carry bios of the page cache. Gives them back where there is no driver.
    pub(crate) fn hand_bios_to_driver(&self, bios: &mut Vec<Bio>) {
        if let Some(driver) = &self.driver {
            driver.hand_over_bios(bios);
        }
    }

    pub(crate) fn add_loop(&self, context: &Arc<Context>) {
        let mut loops = self.loops.lock();
        loops.retain(|context| context.strong_count() > 0);
        loops.push(Arc::downgrade(context));
    }

    /// Before a thread of the application sleeps in a call: it may be one that serves a context in
    /// an event loop, and wait for what only comes out of that context's own queue.
    pub(crate) fn look_after_loops(&self) {
        let loops: Vec<_> = self.loops.lock().iter().filter_map(Weak::upgrade).collect();
        loops.iter().for_each(Context::look_after_loop);
    }

    pub(crate) fn watch(&self, context: &Arc<Context>) {
        if let Some(driver) = &self.driver {
            driver.watch(Arc::downgrade(context));
        }
    }

    /// Has what is in flight in own queues collected without a caller, as soon as it completes, or
    /// no longer: while the process waits for it.
    pub fn hurry(&self, hurries: bool) {
        if let Some(driver) = &self.driver {
            driver.hurry(hurries);
        }
    }

    pub(crate) fn cancel_bio(&self, own: Option<&dyn BlockBackend>, token: u64) {
        if let Some(own) = own {
            own.cancel(token);
        }
        if let Some(driver) = &self.driver {
            if let Some(queue) = driver.queue() {
                queue.cancel(token);
            }
            driver.cancelled();
        }
        self.workers().cancel(token);
    }

    /// Runs what was kicked, until nothing is left; for the end of a section.
    pub(crate) fn run_kicked(self: &Arc<Self>) {
        if !self.kicked.is_empty() {
            let mut plug = Plug::take(self, Place::Caller);
            plug.run_kicked(None);
            Plug::put_back(plug);
        }
    }

    /// Says that a request was kicked on a thread that does not run it.
    pub(crate) fn has_kicked(&self) {
        match (&self.driver, &self.cleaner) {
            _ if mistake::makes(Mistake::KickNoThread) => {}
            (Some(driver), _) => driver.has_kicked(),
            (None, Some(cleaner)) => cleaner.has_kicked(),
            (None, None) => {}
        }
    }

    /// Says that a user file has something to write, which the driver or the cleaner will do in a
    /// while.
    pub(crate) fn dirtied(&self) {
        match (&self.driver, &self.cleaner) {
            (Some(driver), _) => driver.dirtied(),
            (None, Some(cleaner)) => cleaner.dirtied(),
            (None, None) => {}
        }
    }

    /// Puts the writeback of all user files on `bios`, and releases those that have nothing to
    /// write; tells whether some are left.
    pub(crate) fn clean(&self, bios: &mut Vec<Bio>) -> bool {
        if let Some(cache) = self.cache_in_use() {
            cache.clean(u64::MAX, bios);
        }
        self.cached_files.dirty.tidy()
    }

    /// Writes what user files have to write, and waits for it; errors stay with the files.
    pub fn write_back(self: &Arc<Self>) {
        for file in self.cached_files.all() {
            let _ = file.settle(self);
        }
    }

    /// Writes what user files have to write, ends the engine's threads and waits for their end.
    /// All contexts must have been destroyed.
    ///
    /// For a thread of the application: the caller's reference is then the last to go, apart from
    /// those in the spare plugs of other threads that submitted, so the descriptors are closed in
    /// the table they are in.
    pub fn shutdown(self: &Arc<Self>) {
        self.write_back();
        if let Some(cleaner) = &self.cleaner {
            cleaner.stop();
        }
        self.populator.stop();
        self.cached_files.dirty.clear();
        if let Some(driver) = &self.driver {
            driver.stop();
        }
        self.end_owned();
        self.workers().shutdown();
        self.drop_deferred();
        Plug::drop_spare(self);
    }
}

/// Notes what fails on the workers.
fn note_failures(engine: Weak<Engine>) -> OnPanic {
    Arc::new(move |cause| {
        let engine = engine.upgrade();
        engine.iter().for_each(|engine| engine.failures.note("as a worker", cause));
    })
}

/// Continues requests on the worker that ran their bios.
fn deliver_to(engine: Weak<Engine>) -> Deliver {
    Deliver::Call(Arc::new(move |completions| {
        let Some(engine) = engine.upgrade() else { return };
        let section = Section::enter(&engine);
        let mut plug = Plug::take(&engine, Place::Worker);
        completions.reverse();
        // One by one: if the continuation of one fails, the others stay.
        while let Some(completion) = completions.pop() {
            plug.complete(completion.token, completion.result);
        }
        plug.flush(None);
        plug.run_kicked(None);
        engine.holds().tidy();
        Plug::put_back(plug);
        drop(section);
    }))
}
