//! The one engine of the process, its contexts, fork and exit.

use crate::{
    environment, last_thread,
    leaving::{self, ProcessEnd},
    memory,
    named_counters::{NAMED, Namer},
    stats,
};
use core::{
    cell::RefCell,
    ffi::c_void,
    mem::ManuallyDrop,
    sync::atomic::{
        AtomicBool, AtomicPtr, AtomicU64, Ordering::AcqRel, Ordering::Acquire, Ordering::Relaxed,
        Ordering::Release,
    },
};
use nowait_engine::{
    Context, Engine, Options, Sink,
    options::LogLevel,
    report::{self, Summary},
    start_engine,
};
use nowait_sys::mutex::{Mutex, RwLock};
use nowait_sys::{
    Errno,
    aio::{RING_MAGIC, RingHeader},
    allocator::reserve,
    fd,
    fork::{self, ForkMark},
    lazy::{Lazy, Raced},
    memory::{PAGE_SIZE, holds},
    own_thread::AtThreadEnd,
    stderr,
};
use std::{
    any::Any,
    collections::HashMap,
    sync::{Arc, Weak},
};

/// The state of one process; a forked child starts with none.
pub struct Process {
    options: Options,
    engine: Lazy<Arc<Engine>>,
    /// Contexts by the address that the application knows.
    contexts: RwLock<HashMap<usize, Arc<Context>>>,
    /// Contexts being destroyed: the end of the process waits for their requests, too.
    going: RwLock<Vec<Arc<Context>>>,
    ids: Mutex<Ids>,
    ended: Mutex<Vec<Summary>>,
    face: Lazy<Face>,
    pub(crate) leaving: ProcessEnd,
    pub(crate) mark: ForkMark,
}

/// The state of POSIX AIO in one process; a forked child starts without it.
pub type Face = Box<dyn Any + Send + Sync>;

#[derive(Default)]
struct Ids {
    next: u32,
    free: Vec<u32>,
}

const CACHE_WAS_REMOVED: &str = "NOWAIT_CACHE=user: the page cache behind libaio and POSIX AIO was \
     removed; the kernel's page cache is used (for a cache in user space, use nowait's Rust, C or \
     Python API, or nowait serve)";

static CLOSES_ARE_WATCHED: AtomicBool = AtomicBool::new(false);
/// Null until the process first uses libaio or POSIX AIO: until then, the C files pass calls such
/// as close(2) and execve(2) on unchanged.
#[unsafe(export_name = "nowait_current")]
static CURRENT: AtomicPtr<Process> = AtomicPtr::new(core::ptr::null_mut());
/// Changes when a context is destroyed or moved, and in a forked child. A thread then forgets the
/// context that it remembers.
static GENERATION: AtomicU64 = AtomicU64::new(1);
/// A forked child inherits the registered handlers.
static FORKS_ARE_WATCHED: AtomicBool = AtomicBool::new(false);

thread_local! {
    /// The context that this thread used last, by a weak reference, and the generation in which it
    /// was looked up.
    static LAST: ManuallyDrop<RefCell<LastContext>> =
        const { ManuallyDrop::new(RefCell::new(NO_CONTEXT)) };
}

type LastContext = (usize, u64, Weak<Context>);

const NO_CONTEXT: LastContext = (0, 0, Weak::new());

/// Clears [`LAST`] when the thread ends, in place of a destructor.
static END: AtThreadEnd = AtThreadEnd::new(thread_ends);

extern "C" fn thread_ends(_: *mut c_void) {
    remember(NO_CONTEXT);
}

/// Does nothing in a signal handler that has interrupted a reader or writer of [`LAST`].
fn remember(context: LastContext) {
    let before = LAST
        .with(|last| last.try_borrow_mut().map(|mut last| core::mem::replace(&mut *last, context)));
    drop(before);
}

impl Process {
    /// Returns the process's state, which the first call makes.
    pub fn current() -> &'static Process {
        if let Some(process) = Process::existing() {
            return process;
        }
        forget_parent();
        watch_forks();
        let new = Box::into_raw(Box::new(Process::new()));
        match CURRENT.compare_exchange(core::ptr::null_mut(), new, AcqRel, Acquire) {
            Ok(_) => {
                // SAFETY: just made and never freed: threads may use it to the end.
                let process = unsafe { &*new };
                process.complain();
                process
            }
            Err(other) => {
                // SAFETY: this one lost the race, and no thread has seen it.
                drop(unsafe { Box::from_raw(new) });
                // SAFETY: never freed once published.
                unsafe { &*other }
            }
        }
    }

    /// Returns the process's state if it has one. A child of `_Fork` or clone(2) finds its parent's
    /// state in its memory; this function does not return the parent's state.
    #[inline]
    pub fn existing() -> Option<&'static Process> {
        // SAFETY: never freed once published.
        unsafe { CURRENT.load(Acquire).as_ref() }.filter(|it| it.mark.is_here())
    }

    fn new() -> Process {
        let mut options = options_at_load().clone();
        options.config.answers_as_aio = true;
        options.config.sees_closes = CLOSES_ARE_WATCHED.load(Relaxed);
        options.config.callers_enter_no_ring = true;
        if options.user_cache {
            options.complaints.push(CACHE_WAS_REMOVED.to_owned());
        }
        Process {
            options,
            engine: Lazy::default(),
            contexts: RwLock::default(),
            going: RwLock::default(),
            ids: Mutex::default(),
            ended: Mutex::default(),
            face: Lazy::default(),
            leaving: ProcessEnd::default(),
            mark: ForkMark::new(),
        }
    }

    fn complain(&self) {
        for complaint in &self.options.complaints {
            self.say(LogLevel::Warn, complaint);
        }
    }

    /// Reports that a thread of the engine has panicked, unless this was already reported.
    pub fn tell_failure(&self) {
        if let Some(line) = self.engine.get().and_then(|engine| engine.untold_failure()) {
            self.say(LogLevel::Warn, &line);
        }
    }

    pub(crate) fn say(&self, level: LogLevel, line: &str) {
        if self.options.log >= level {
            stderr::say(&format!("nowait: {line}\n"));
        }
    }

    /// Returns the state of the calling process if it has one. In a child of vfork, which shares
    /// its parent's memory, returns `None`.
    pub fn of_caller() -> Option<&'static Process> {
        Process::existing().filter(|_| fork::is_owner())
    }

    /// Returns the engine, which the first call starts.
    ///
    /// # Errors
    /// `EMFILE`, `EAGAIN`, `ENOMEM`: no descriptors, threads or memory left. `EAGAIN`: in a child
    /// of vfork.
    pub fn engine(&'static self) -> Result<Arc<Engine>, Errno> {
        let start = || {
            // The engine's threads would end with a child of vfork, and the memory belongs to the
            // child's parent.
            if !fork::is_owner() {
                return Err(Errno::AGAIN);
            }
            // Make room before the probes make rings, because the kernel's threads for the rings
            // share the descriptor table.
            fd::make_room();
            let (engine, complaint) = start_engine(&self.options.config)?;
            if let Some(complaint) = complaint {
                self.say(LogLevel::Warn, &complaint);
            }
            let (name, reason) = (engine.backend(), engine.reason());
            self.say(LogLevel::Info, &format!("backend {name}: {reason}"));
            if let Some(complaint) = stats::begin(self) {
                self.say(LogLevel::Warn, &complaint);
            }
            Ok(engine)
        };
        let engine = self.engine.get_or_make(start).cloned();
        if engine.is_ok() {
            last_thread::engine_is_there(self);
        }
        engine
    }

    /// Makes a context for `nr` requests and returns its address.
    ///
    /// # Errors
    /// `ENOMEM`, and the errors of [`Process::engine`].
    pub fn new_context(&'static self, nr: u32) -> Result<usize, Errno> {
        self.enter_context(|engine, id| Context::new(engine, id, nr)).map(|it| it.address())
    }

    /// Makes a context whose completions go to `sink`. The context lives as long as the process.
    ///
    /// # Errors
    /// The errors of [`Process::new_context`].
    pub fn new_sink_context(&'static self, sink: Sink) -> Result<Arc<Context>, Errno> {
        self.enter_context(|engine, id| Context::with_sink(engine, id, sink))
    }

    fn enter_context(
        &'static self,
        make: impl FnOnce(&Arc<Engine>, u32) -> Result<Arc<Context>, Errno>,
    ) -> Result<Arc<Context>, Errno> {
        let engine = self.engine()?;
        let id = self.ids.lock().take();
        let context = make(&engine, id).inspect_err(|_| self.ids.lock().give(id))?;
        self.contexts.write().insert(context.address(), context.clone());
        Ok(context)
    }

    /// Returns the state of POSIX AIO, which the first call makes by `begin`.
    ///
    /// # Errors
    /// The errors of `begin`, which the next call runs again.
    pub fn face(
        &'static self,
        begin: impl FnOnce(&'static Process) -> Result<Face, Errno>,
    ) -> Result<&'static Face, Errno> {
        self.face.get_or_make(|| begin(self))
    }

    /// Returns the state of POSIX AIO if it was made.
    pub fn existing_face(&self) -> Option<&Face> {
        self.face.get()
    }

    /// Returns the context at `address`, also if the application has moved the context's ring to
    /// this address.
    pub fn context(&self, address: usize) -> Option<Arc<Context>> {
        if let Some(context) = self.contexts.read().get(&address) {
            return Some(context.clone());
        }
        self.moved_context(address)
    }

    /// Removes the context at `address`, if there is one. The caller destroys this context, and
    /// then calls [`Process::context_ended`].
    pub fn take_context(&self, address: usize) -> Option<Arc<Context>> {
        self.context(address)?;
        let mut contexts = self.contexts.write();
        let context = contexts.remove(&address);
        self.going.write().extend(context.clone());
        context.iter().for_each(|context| NAMED.forget(Arc::as_ptr(context)));
        drop(contexts);
        GENERATION.fetch_add(1, AcqRel);
        context
    }

    /// Called after `context` was destroyed: keeps its counters for the report, frees its number,
    /// and unmaps its ring, which the application knows at `address`.
    pub fn context_ended(&self, context: &Context, address: usize) {
        if let Some(summary) = Summary::of(context) {
            self.ended.lock().push(summary);
        }
        self.going.write().retain(|it| !core::ptr::eq(Arc::as_ptr(it), context));
        let memory = context.io().ring().memory();
        let id = memory.id();
        memory.unmap_theirs(address);
        self.ids.lock().give(id);
    }

    /// Finds the context whose ring the application has moved to `address`, as libaio's own tests
    /// do: the header of the ring there names the context, and the context's old address has no
    /// such ring.
    fn moved_context(&self, address: usize) -> Option<Arc<Context>> {
        if !is_ring(address) {
            return None;
        }
        let mut contexts = self.contexts.write();
        let (&before, _) = contexts.iter().find(|(before, context)| {
            is_ring_of(context, address) && !(is_ring(**before) && is_ring_of(context, **before))
        })?;
        let context = contexts.remove(&before)?;
        contexts.insert(address, context.clone());
        GENERATION.fetch_add(1, AcqRel);
        Some(context)
    }

    /// Called when the application closes or replaces `fd`.
    pub fn forget_descriptor(&self, fd: i32) {
        self.existing_engine().into_iter().for_each(|engine| engine.closing(Some(fd)));
    }

    /// Called when the calling thread has read a count from `fd`. If no context names the eventfd,
    /// or only the context that the thread used last, mostly does not lock the table of contexts.
    pub fn counter_was_read(&self, fd: i32) {
        let only = match NAMED.namer(fd) {
            Namer::Nobody => return,
            Namer::One(it) => remembered_context(|_, context| it == context.as_ptr()),
            Namer::Several => None,
        };
        if let Some(context) = only {
            return context.counter_was_read(fd);
        }
        // Release the lock first, because the end of a request may run other requests.
        let contexts = self.contexts.read();
        let named: Vec<_> = contexts.values().filter(|it| it.names_counter(fd)).cloned().collect();
        drop(contexts);
        named.iter().for_each(|context| context.counter_was_read(fd));
    }

    /// Called when the application closes a range of descriptors.
    pub fn forget_all_descriptors(&self) {
        self.existing_engine().into_iter().for_each(|engine| engine.closing(None));
    }

    /// Returns the library's descriptors in the application's table, in ascending order.
    pub fn descriptors(&self) -> Vec<i32> {
        let of_engine = |engine: &Arc<Engine>| {
            engine.drop_deferred(); // such descriptors belong to no context any more
            engine.descriptors()
        };
        let mut ours = self.existing_engine().map(of_engine).unwrap_or_default();
        // A context that is being destroyed needs its descriptors until its requests have ended.
        let (contexts, going) = (self.contexts.read(), self.going.read());
        for context in contexts.values().chain(&*going) {
            ours.extend(context.descriptors());
        }
        ours.sort_unstable();
        ours
    }

    pub(crate) fn existing_engine(&self) -> Option<&Arc<Engine>> {
        self.engine.get()
    }

    pub(crate) fn contexts(&self) -> &RwLock<HashMap<usize, Arc<Context>>> {
        &self.contexts
    }

    pub(crate) fn going(&self) -> &RwLock<Vec<Arc<Context>>> {
        &self.going
    }

    pub(crate) fn report(&self) {
        self.tell_failure();
        stats::end(self);
        let Some(to) = &self.options.report else { return };
        if !self.has_memory_for_report() {
            return self.say(LogLevel::Warn, "no report: not enough memory for all contexts");
        }
        report::write(to, self.existing_engine().map(Arc::as_ref), &self.summaries());
    }

    /// Callers ask because a failed allocation would end the process.
    pub(crate) fn has_memory_for_report(&self) -> bool {
        const CONTEXT_BYTES: usize = 16 << 10;
        let contexts = self.contexts.read().len() + self.ended.lock().len();
        reserve::holds((contexts + 1) * CONTEXT_BYTES)
    }

    pub(crate) fn summaries(&self) -> Vec<Summary> {
        let mut summaries = self.ended.lock().clone();
        summaries.extend(self.contexts.read().values().filter_map(|it| Summary::of(it)));
        summaries
    }

    pub(crate) fn options(&self) -> &Options {
        &self.options
    }
}

impl Ids {
    fn take(&mut self) -> u32 {
        self.free.pop().unwrap_or_else(|| {
            self.next += 1;
            self.next - 1
        })
    }

    fn give(&mut self, id: u32) {
        self.free.push(id);
    }
}

/// Returns `true` if an empty completion ring, the library's or the kernel's, is at `address`.
pub fn is_empty_ring(address: usize) -> bool {
    let ends = address.wrapping_add(core::mem::offset_of!(RingHeader, head));
    // SAFETY: head and tail are plain data, one behind the other.
    let ends = || unsafe { memory::read::<[u32; 2]>(ends) };
    is_ring(address) && ends().is_ok_and(|[head, tail]| head == tail)
}

fn is_ring(address: usize) -> bool {
    let magic = address.wrapping_add(core::mem::offset_of!(RingHeader, magic));
    address != 0 && address.is_multiple_of(PAGE_SIZE) && holds(magic, RING_MAGIC)
}

fn is_ring_of(context: &Context, address: usize) -> bool {
    let memory = context.io().ring().memory();
    let holds = |offset, value| holds(address + offset, value);
    holds(core::mem::offset_of!(RingHeader, id), memory.id())
        && holds(core::mem::offset_of!(RingHeader, nr), memory.nr())
}

/// Runs `f` on the context at `address`; `None`: no context of this process is there. Each thread
/// remembers the context that it used last, so a repeated call mostly takes no lock.
pub fn with_context<T>(address: usize, f: impl FnOnce(&Arc<Context>) -> T) -> Option<T> {
    let process = Process::existing()?;
    let context = if let Some(context) = remembered_context(|known, _| known == address) {
        context
    } else {
        let generation = GENERATION.load(Acquire);
        let context = process.context(address)?;
        if END.of_this_thread().is_ok() {
            remember((address, generation, Arc::downgrade(&context)));
        }
        context
    };
    let result = f(&context);
    if let Some(line) = context.engine().untold_failure() {
        process.say(LogLevel::Warn, &line);
    }
    Some(result)
}

/// `is_it` gets the address of the context that this thread used last, and the context.
fn remembered_context(is_it: impl FnOnce(usize, &Weak<Context>) -> bool) -> Option<Arc<Context>> {
    let generation = GENERATION.load(Acquire);
    LAST.with(|last| {
        // The borrow fails in a signal handler that has interrupted a change of the last context.
        let last = last.try_borrow().ok()?;
        if last.1 == generation && is_it(last.0, &last.2) { last.2.upgrade() } else { None }
    })
}

/// Returns `true` if requests may name the eventfd `fd`. Takes no lock.
pub fn names_counter(fd: i32) -> bool {
    NAMED.namer(fd) != Namer::Nobody
}

/// Options from the environment at load: a program may clear its environment afterwards, as nginx's
/// workers do before their first request.
static OPTIONS: Raced<Options> = Raced::new();

/// Returns the options from the environment as it was when the library was loaded.
pub fn options_at_load() -> &'static Options {
    OPTIONS.get_or_make(environment::options)
}

/// Keeps the library's variables of the environment, or if that fails, the options parsed from
/// them.
pub fn note_at_load() {
    if !nowait_sys::environment::keep() {
        options_at_load();
    }
}

/// Records that the preload library watches the application's close calls in this process.
#[unsafe(link_section = ".text.startup")]
pub fn watches_closes() {
    CLOSES_ARE_WATCHED.store(true, Relaxed);
}

/// Two threads that begin at the same time may both register the handlers, which is harmless. No
/// thread waits for the other, because a child that is forked meanwhile would wait for ever.
fn watch_forks() {
    if !FORKS_ARE_WATCHED.load(Acquire) {
        nowait_sys::thread::at_fork(forked);
        FORKS_ARE_WATCHED.store(true, Release);
    }
}

extern "C" fn forked() {
    forget_parent();
}

/// Forgets the parent's state in a forked child: the parent's threads, rings and locks do not exist
/// here. The parent's contexts are unknown here (EINVAL); new ones get a new engine.
fn forget_parent() {
    let parents = CURRENT.load(Acquire);
    if parents.is_null() || Process::existing().is_some() {
        return;
    }
    if CURRENT.compare_exchange(parents, core::ptr::null_mut(), AcqRel, Acquire).is_ok() {
        leaving::forget_parent();
        last_thread::forget_parent();
        GENERATION.fetch_add(1, AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_handler_finds_its_context_while_the_thread_writes_what_it_remembers() {
        let process = Process::current();
        let address = process.new_context(8).unwrap();
        LAST.with(|last| {
            let _written = last.borrow_mut();
            assert_eq!(with_context(address, |_| ()), Some(()));
        });
        drop(process.take_context(address));
    }

    /// Runs the test `name` again in a child process, and returns the child's standard error. In
    /// that child, returns `None`, and the test goes on.
    fn said_in_child(name: &str) -> Option<String> {
        const CHILD: &str = "NOWAIT_TEST_CHILD";
        if std::env::var_os(CHILD).is_some() {
            return None;
        }
        let mut child = Command::new(std::env::current_exe().unwrap());
        let output = child.args(["--exact", name, "--nocapture"]).env(CHILD, "1").output().unwrap();
        assert!(output.status.success(), "{output:?}");
        Some(String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    fn a_failed_thread_is_said_once_by_the_next_call() {
        const NAME: &str = "process::tests::a_failed_thread_is_said_once_by_the_next_call";
        if let Some(said) = said_in_child(NAME) {
            let lines: Vec<_> = said.lines().filter(|it| it.starts_with("nowait:")).collect();
            assert_eq!(lines.len(), 2, "{said}");
            assert_eq!(lines[0], "nowait: a thread failed in a test: first", "{said}");
            assert_eq!(lines[1], "nowait: a thread failed 0 times since");
            return;
        }
        let process = Process::current();
        let address = process.new_context(1).unwrap();
        let engine = process.engine().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| engine.caught("in a test", || panic!("first")));
        });
        engine.caught("in a test", || panic!("second"));
        with_context(address, |_| ()).unwrap();
        process.tell_failure();
        let untold = engine.untold_failure().iter().count();
        process.say(LogLevel::Warn, &format!("a thread failed {untold} times since"));
        assert_eq!(engine.failures(), 2);
    }

    /// If a program closed a descriptor of the library and reused its number, the library would
    /// later close the program's file.
    #[test]
    fn every_descriptor_of_the_library_is_known_until_it_is_closed() {
        const NAME: &str = "process::tests::\
                            every_descriptor_of_the_library_is_known_until_it_is_closed";
        const NONE: [i32; 0] = [];
        if said_in_child(NAME).is_some() {
            return;
        }
        let process = Process::current();
        let unknown = || {
            let known = process.descriptors();
            let all = std::fs::read_dir("/proc/self/fd").unwrap();
            let all = all.map(|it| it.unwrap().file_name().to_str().unwrap().parse().unwrap());
            all.filter(|it| fd::may_be_ours(*it) && !known.contains(it)).collect::<Vec<i32>>()
        };
        let address = process.new_context(8).unwrap();
        assert_eq!(unknown(), NONE);
        let context = process.take_context(address).unwrap();
        assert_eq!(unknown(), NONE, "its requests may not have ended");
        context.destroy().unwrap();
        process.context_ended(&context, address);
        drop(context);
        assert_eq!(unknown(), NONE);
    }
}
