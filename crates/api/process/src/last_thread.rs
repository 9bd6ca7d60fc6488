//! The end of a process whose last thread ends.
//!
//! A thread that ends as the last one of its process ends it as exit(3) does (pthread_exit(3)). The
//! C library counts threads for that, and the engine's are among them: the process would go on for
//! ever. So when the main thread has ended, which without the process it does only this way, and
//! there is an engine, the process is watched until none but the library's threads is left and
//! nothing is to be told to the program any more. Then it ends, on a thread with the descriptor
//! table of the program, whose exit handlers run.

use crate::process::Process;
use core::{
    ffi::c_void,
    sync::atomic::{AtomicU32, Ordering::SeqCst, fence},
};
use nowait_engine::options::LogLevel;
use nowait_sys::{
    Errno, fd, fdtable, futex,
    inside::Inside,
    own_thread::{self, AtThreadEnd, OwnThread, STACK_BYTES},
    thread,
    time::Deadline,
};

/// How far the main thread is.
static MAIN: AtomicU32 = AtomicU32::new(LIVES);
const LIVES: u32 = 0;
/// It has ended; there was no engine.
const ENDED: u32 = 1;
/// Since then the process is watched.
const WATCHED: u32 = 2;

/// Between two looks, at first and in the end: a few small files of /proc are read for each.
const PAUSE_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 100_000_000;

/// Has it noted when the main thread ends, if that is the calling one: when the library is loaded,
/// and when it is used.
#[unsafe(link_section = ".text.startup")]
pub fn watch_main_thread() {
    if thread::thread_id() == thread::process_id() {
        // Without that the process is one that goes on for the library's threads.
        static END: AtThreadEnd = AtThreadEnd::new(main_thread_ends);
        let _ = END.of_this_thread();
    }
}

/// In a forked child: the thread that has forked is its main thread, and the only one.
pub(crate) fn forget_parent() {
    own_thread::forget_own_threads();
    MAIN.store(LIVES, SeqCst);
    watch_main_thread();
}

/// Runs when the main thread ends, and the process does not.
extern "C" fn main_thread_ends(_: *mut c_void) {
    let _inside = Inside::enter();
    MAIN.store(ENDED, SeqCst);
    // Either the engine is seen here, or its maker sees that the main thread has ended.
    fence(SeqCst);
    if let Some(process) = Process::of_caller().filter(|it| it.existing_engine().is_some()) {
        watch_the_rest(process);
    }
}

/// Says that there is an engine, on the thread of the program that has made or wants it.
pub(crate) fn engine_is_there(process: &'static Process) {
    watch_main_thread();
    fence(SeqCst);
    if MAIN.load(SeqCst) == ENDED {
        watch_the_rest(process);
    }
}

/// Starts the thread that ends the process when none of the program is left: it has the descriptor
/// table and the signal mask of the calling one, as the last thread would have.
fn watch_the_rest(process: &'static Process) {
    if MAIN.compare_exchange(ENDED, WATCHED, SeqCst, SeqCst).is_err() {
        return;
    }
    let mask = thread::swap_signal_mask(thread::ALL_SIGNALS);
    let started =
        own_thread::start("nowait-end", STACK_BYTES, move || end_as_the_last(process, mask));
    thread::swap_signal_mask(mask);
    if let Err(error) = started {
        MAIN.store(ENDED, SeqCst); // the next use of the engine may do it
        let line = format!("no thread to end the process when its last one ends: {error}");
        process.say(LogLevel::Warn, &line);
    }
}

/// Waits until the program has no thread, and ends the process as the last of them would.
fn end_as_the_last(process: &'static Process, mask: u64) {
    let own = OwnThread::standing_by();
    // On a thread with descriptors of its own: the program may close any number of its table.
    let looks = move || until_the_program_has_no_thread(process);
    if let Ok(Ok(())) = own_thread::aside("nowait-last", STACK_BYTES, looks) {
        drop(own);
        thread::swap_signal_mask(mask);
        std::process::exit(0);
    }
}

/// # Errors
/// Those of [`fdtable::make_private`].
fn until_the_program_has_no_thread(process: &'static Process) -> Result<(), Errno> {
    let _own = OwnThread::begin();
    fdtable::make_private(0)?;
    fd::close(0);
    let (never, mut pause) = (AtomicU32::new(0), PAUSE_NS);
    // Where that cannot be seen (there is no /proc, or no file can be opened just now), it goes on.
    while !own_thread::lives_for_itself().unwrap_or(false) || process.has_more_to_tell() {
        let _ = futex::wait(&never, 0, Deadline::after_ns(pause));
        pause = (pause * 3 / 2).min(PAUSE_MAX_NS);
    }
    Ok(())
}

impl Process {
    /// Tells whether there are requests that a process without threads waits for: those that end by
    /// themselves, and of POSIX AIO all, because one may call a function of the program when it
    /// ends.
    fn has_more_to_tell(&self) -> bool {
        let Some(contexts) = self.contexts().try_read() else { return true };
        let more = |context: &nowait_engine::Context| match context.io().face() {
            Some(_) => context.io().outstanding(),
            None => context.io().owed(),
        };
        contexts.values().any(|context| more(context) > 0)
    }
}
