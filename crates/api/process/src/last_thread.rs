//! Ends the process when the program's last thread has ended.
//!
//! The C library ends a process when its last thread ends (pthread_exit(3)), but also counts the
//! engine's threads, so the process would never end. Therefore, if an engine exists, a thread of
//! the library watches the process after the main thread has ended. When only the library's threads
//! are left, and no request that the program expects, a thread with the program's descriptor table
//! calls exit(3).

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

static MAIN: AtomicU32 = AtomicU32::new(LIVES);
const LIVES: u32 = 0;
/// The main thread has ended, and no thread watches the process.
const ENDED: u32 = 1;
const WATCHED: u32 = 2;

/// Pauses between two looks, each of which reads a few small files of /proc.
const PAUSE_NS: u64 = 1_000_000;
const PAUSE_MAX_NS: u64 = 100_000_000;

/// If the calling thread is the main thread, arranges that `main_thread_ends` runs at its end.
#[unsafe(link_section = ".text.startup")]
pub fn watch_main_thread() {
    if thread::thread_id() == thread::process_id() {
        // If the registration fails, the library's threads keep the process alive.
        static END: AtThreadEnd = AtThreadEnd::new(main_thread_ends);
        let _ = END.of_this_thread();
    }
}

/// The thread that has forked is the child's main thread, and its only thread.
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

pub(crate) fn engine_is_there(process: &'static Process) {
    watch_main_thread();
    fence(SeqCst);
    if MAIN.load(SeqCst) == ENDED {
        watch_the_rest(process);
    }
}

/// Starts the thread that ends the process, if none was started. The new thread shares the calling
/// thread's descriptor table, and calls the exit handlers with the calling thread's signal mask, as
/// if the calling thread ended the process.
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
    /// Returns `true` if the process must stay for a request although the program has no thread.
    /// The end of a request of POSIX AIO may call a function of the program, so all requests of
    /// POSIX AIO count. Requests of libaio count if they end by themselves. Also returns `true` if
    /// another thread has locked the contexts.
    fn has_more_to_tell(&self) -> bool {
        let Some(contexts) = self.contexts().try_read() else { return true };
        let more = |context: &nowait_engine::Context| match context.io().face() {
            Some(_) => context.io().outstanding(),
            None => context.io().owed(),
        };
        contexts.values().any(|context| more(context) > 0)
    }
}
