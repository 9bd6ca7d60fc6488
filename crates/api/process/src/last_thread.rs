//! The end of a process when its last thread ends.
//!
//! When the last thread of a process ends, the C library ends the process as exit(3) does
//! (pthread_exit(3)). The C library counts the engine's threads, so the process would never end.
//! Therefore, if the main thread has ended and the process has not, and an engine exists, a thread
//! of the library watches the process. When only the library's threads are left, and no request
//! that the program expects, a thread with the program's descriptor table calls exit(3), which runs
//! the exit handlers.

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

/// State of the main thread.
static MAIN: AtomicU32 = AtomicU32::new(LIVES);
const LIVES: u32 = 0;
/// The main thread has ended, and there was no engine.
const ENDED: u32 = 1;
/// The main thread has ended, and a thread watches the process.
const WATCHED: u32 = 2;

/// First and longest pause between two looks, each of which reads a few small files of /proc.
const PAUSE_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 100_000_000;

/// If the calling thread is the main thread, arranges for `main_thread_ends` to run at the end of
/// this thread. Called when the library is loaded, whenever a thread asks for the engine, and in a
/// forked child.
#[unsafe(link_section = ".text.startup")]
pub fn watch_main_thread() {
    if thread::thread_id() == thread::process_id() {
        // If this fails, the library's threads keep the process alive.
        static END: AtThreadEnd = AtThreadEnd::new(main_thread_ends);
        let _ = END.of_this_thread();
    }
}

/// Runs in a forked child: the thread that has forked is the child's main thread, and its only
/// thread.
pub(crate) fn forget_parent() {
    own_thread::forget_own_threads();
    MAIN.store(LIVES, SeqCst);
    watch_main_thread();
}

/// Runs when the main thread ends and the process does not.
extern "C" fn main_thread_ends(_: *mut c_void) {
    let _inside = Inside::enter();
    MAIN.store(ENDED, SeqCst);
    // Either this thread sees the engine, or the engine's maker sees that the main thread has
    // ended.
    fence(SeqCst);
    if let Some(process) = Process::of_caller().filter(|it| it.existing_engine().is_some()) {
        watch_the_rest(process);
    }
}

/// Called by [`Process::engine`] when the engine exists, on a thread of the program.
pub(crate) fn engine_is_there(process: &'static Process) {
    watch_main_thread();
    fence(SeqCst);
    if MAIN.load(SeqCst) == ENDED {
        watch_the_rest(process);
    }
}

/// If no thread watches the process yet, starts the thread that ends the process when no thread of
/// the program is left. The new thread shares the calling thread's descriptor table. For the exit
/// handlers it takes over the calling thread's signal mask, as if the calling thread ended the
/// process.
fn watch_the_rest(process: &'static Process) {
    if MAIN.compare_exchange(ENDED, WATCHED, SeqCst, SeqCst).is_err() {
        return;
    }
    let mask = thread::swap_signal_mask(thread::ALL_SIGNALS);
    let started =
        own_thread::start("nowait-end", STACK_BYTES, move || end_as_the_last(process, mask));
    thread::swap_signal_mask(mask);
    if let Err(error) = started {
        MAIN.store(ENDED, SeqCst); // the next use of the engine may try again
        let line = format!(
            "cannot start the thread that ends the process with its last thread: \
                            {error}"
        );
        process.say(LogLevel::Warn, &line);
    }
}

/// Waits until the program has no thread and expects no request any more. Then ends the process as
/// the program's last thread would.
fn end_as_the_last(process: &'static Process, mask: u64) {
    let own = OwnThread::standing_by();
    // A second thread, with its own descriptor table, reads /proc, because the program may close
    // any number in the program's table.
    let looks = move || until_the_program_has_no_thread(process);
    if let Ok(Ok(())) = own_thread::aside("nowait-last", STACK_BYTES, looks) {
        drop(own);
        thread::swap_signal_mask(mask);
        std::process::exit(0);
    }
}

/// # Errors
/// The errors of [`fdtable::make_private`].
fn until_the_program_has_no_thread(process: &'static Process) -> Result<(), Errno> {
    let _own = OwnThread::begin();
    fdtable::make_private(0)?;
    fd::close(0);
    let (never, mut pause) = (AtomicU32::new(0), PAUSE_NS);
    // Continue if the threads cannot be counted: no /proc, or no file can be opened just now.
    while !own_thread::lives_for_itself().unwrap_or(false) || process.has_more_to_tell() {
        let _ = futex::wait(&never, 0, Deadline::after_ns(pause));
        pause = (pause * 3 / 2).min(PAUSE_MAX_NS);
    }
    Ok(())
}

impl Process {
    /// Returns `true` if there are requests for which a process without threads of the program must
    /// stay: all requests of POSIX AIO, because the end of such a request may call a function of
    /// the program, and requests of libaio that end by themselves. Also returns `true` if this is
    /// unknown because another thread has locked the contexts.
    fn has_more_to_tell(&self) -> bool {
        let Some(contexts) = self.contexts().try_read() else { return true };
        let more = |context: &nowait_engine::Context| match context.io().face() {
            Some(_) => context.io().outstanding(),
            None => context.io().owed(),
        };
        contexts.values().any(|context| more(context) > 0)
    }
}
