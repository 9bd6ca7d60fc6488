//! Programs about signals that interrupt a waiter, and about masks that block them.
//!
//! `signals CASE [FILE]` exits 0 if the case succeeds, else panics with the reason.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use nowait_tests::request::{Context, Request};
use nowait_tests::thread_state::{spawn_until_asleep, wait_until};

const EINTR: i32 = -libc::EINTR;
const SYS_IO_PGETEVENTS: libc::c_long = if cfg!(target_arch = "x86_64") { 333 } else { 292 };

static HANDLED: AtomicU32 = AtomicU32::new(0);

extern "C" fn count(_signal: i32) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["eintr", ..] => a_signal_interrupts_a_waiter(0),
        ["eintr-restart", ..] => a_signal_interrupts_a_waiter(libc::SA_RESTART),
        ["partial", file] => a_signal_ends_a_wait_with_what_there_is(Path::new(file)),
        ["mask-lets-in", ..] => the_mask_lets_a_pending_signal_in(),
        ["mask-without-wait", ..] => the_mask_lets_signals_in_without_a_wait(),
        ["mask-at-once", ..] => a_look_at_nothing_lets_nothing_in(),
        ["mask-at-once-raw", ..] => the_system_call_lets_in_what_the_mask_says(),
        ["mask-one-each", ..] => the_mask_lets_in_one_of_a_number(),
        ["mask-keeps-out", ..] => the_mask_keeps_a_signal_out(),
        ["threads-block", file] => helpers_do_not_take_signals(Path::new(file)),
        _ => panic!("unknown case {args:?}"),
    }
}

fn install(flags: i32) {
    install_for(libc::SIGUSR1, flags);
}

fn install_for(signal: i32, flags: i32) {
    // SAFETY: an all-zero sigaction is valid: default action, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = count as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: a live sigaction whose handler only touches an atomic.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) }, 0);
}

fn signal_thread(thread: i32) {
    // SAFETY: plain numbers: a thread of this process.
    let rc = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGUSR1) };
    assert_eq!(rc, 0);
}

fn only(signal: i32) -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: a live, initialised set.
    unsafe { libc::sigaddset(&raw mut set, signal) };
    set
}

fn only_usr1() -> libc::sigset_t {
    only(libc::SIGUSR1)
}

fn empty_set() -> libc::sigset_t {
    // SAFETY: an all-zero set is valid; sigemptyset makes it the empty one.
    unsafe {
        let mut set = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        set
    }
}

fn mask(how: i32, set: Option<&libc::sigset_t>) -> libc::sigset_t {
    let mut old = empty_set();
    let set = set.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: the new set is null or live, the old one live.
    assert_eq!(unsafe { libc::pthread_sigmask(how, set, &raw mut old) }, 0);
    old
}

fn contains_usr1(set: &libc::sigset_t) -> bool {
    // SAFETY: a live set.
    unsafe { libc::sigismember(ptr::from_ref(set), libc::SIGUSR1) == 1 }
}

/// If no event is there, a signal makes io_getevents fail with `EINTR`, even if the signal's
/// handler has `SA_RESTART`: signal(7) lists io_getevents among the calls that are never restarted.
fn a_signal_interrupts_a_waiter(flags: i32) {
    install(flags);
    for round in 1..=20 {
        let context = Arc::new(Context::new(8).expect("io_setup"));
        let shared = context.clone();
        let (waiter, thread) =
            spawn_until_asleep(move || shared.reap(1, 1, None).map(|done| done.len()));
        signal_thread(thread);
        assert_eq!(waiter.join().unwrap(), Err(EINTR), "round {round}");
        assert_eq!(HANDLED.load(Ordering::SeqCst), round, "the handler ran once a round");
    }
}

/// If the caller waits for two events, one event is there and a signal arrives, io_getevents
/// returns this event and no error.
fn a_signal_ends_a_wait_with_what_there_is(path: &Path) {
    install(0);
    let file = File::create(path).unwrap();
    let context = Arc::new(Context::new(8).expect("io_setup"));
    assert_eq!(context.submit(vec![Request::write(file.as_fd(), b"one", 0)]), 1);
    // The event may arrive after io_submit has returned.
    wait_until(|| context.unread() == 1);
    let shared = context.clone();
    let (waiter, thread) =
        spawn_until_asleep(move || shared.reap(2, 2, None).map(|done| done.len()));
    signal_thread(thread);
    assert_eq!(waiter.join().unwrap(), Ok(1));
}

/// `io_pgetevents` sets its mask and waits atomically: a signal that is pending before the call,
/// and that the mask does not block, interrupts the call.
fn the_mask_lets_a_pending_signal_in() {
    install(0);
    mask(libc::SIG_BLOCK, Some(&only_usr1()));
    let context = Context::new(8).expect("io_setup");
    // SAFETY: plain numbers.
    unsafe { libc::raise(libc::SIGUSR1) };
    assert_eq!(HANDLED.load(Ordering::SeqCst), 0, "blocked so far");
    let waited = context.reap_masked(1, 1, None, Some(&empty_set()));
    assert_eq!(waited.map(|done| done.len()), Err(EINTR));
    assert_eq!(HANDLED.load(Ordering::SeqCst), 1);
    assert!(contains_usr1(&mask(libc::SIG_BLOCK, None)), "the thread's own mask is back");
}

/// `io_pgetevents` delivers a pending signal also if the caller demands no event, and then fails
/// with EINTR. It delivers the signal also if an event is there, and then takes the event.
fn the_mask_lets_signals_in_without_a_wait() {
    install(0);
    mask(libc::SIG_BLOCK, Some(&only_usr1()));
    let context = Context::new(8).expect("io_setup");
    let short = Some(Duration::from_millis(1));
    // SAFETY: plain numbers.
    unsafe { libc::raise(libc::SIGUSR1) };
    let waited = context.reap_masked(0, 1, short, Some(&empty_set()));
    assert_eq!(waited.map(|done| done.len()), Err(EINTR));
    assert_eq!(HANDLED.load(Ordering::SeqCst), 1);

    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    assert_eq!(context.submit(vec![Request::poll(reader.as_fd(), libc::POLLIN)]), 1);
    wait_until(|| context.unread() == 1);
    // SAFETY: as above.
    unsafe { libc::raise(libc::SIGUSR1) };
    let waited = context.reap_masked(1, 1, None, Some(&empty_set()));
    assert_eq!(waited.map(|done| done.len()), Ok(1));
    assert_eq!(HANDLED.load(Ordering::SeqCst), 2);
    assert!(contains_usr1(&mask(libc::SIG_BLOCK, None)), "the thread's own mask is back");
}

/// libaio looks at the ring before it calls the kernel. If the ring is empty and the time limit is
/// zero, libaio makes no system call, and no handler runs.
fn a_look_at_nothing_lets_nothing_in() {
    install(0);
    mask(libc::SIG_BLOCK, Some(&only_usr1()));
    let context = Context::new(8).expect("io_setup");
    // SAFETY: plain numbers.
    unsafe { libc::raise(libc::SIGUSR1) };
    for (min, max) in [(0, 8), (1, 8), (0, 0)] {
        let looked = context.reap_masked(min, max, Some(Duration::ZERO), Some(&empty_set()));
        assert_eq!(looked.map(|done| done.len()), Ok(0), "{min} of {max}");
    }
    assert_eq!(HANDLED.load(Ordering::SeqCst), 0);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(writer);
    assert_eq!(context.submit(vec![Request::poll(reader.as_fd(), libc::POLLIN)]), 1);
    wait_until(|| context.unread() == 1);
    let taken = context.reap_masked(1, 1, Some(Duration::ZERO), Some(&empty_set()));
    assert_eq!(taken.map(|done| done.len()), Ok(1));
    assert_eq!(HANDLED.load(Ordering::SeqCst), 1, "the kernel was asked");
}

/// The system call io_pgetevents(2) itself delivers signals and checks its arguments, even if there
/// is no event.
fn the_system_call_lets_in_what_the_mask_says() {
    install(0);
    mask(libc::SIG_BLOCK, Some(&only_usr1()));
    let context = Context::new(8).expect("io_setup");
    // SAFETY: plain numbers.
    unsafe { libc::raise(libc::SIGUSR1) };
    let (none, at_once) = (empty_set(), libc::timespec { tv_sec: 0, tv_nsec: 0 });
    let sigset = [ptr::from_ref(&none).addr(), 8];
    let call = |min: i64, max: i64| {
        let (pointer, events) = (context.pointer(), ptr::null_mut::<u8>());
        let (time, set) = (ptr::from_ref(&at_once), sigset.as_ptr());
        // SAFETY: no event will be written; time limit and mask are live.
        let called =
            unsafe { libc::syscall(SYS_IO_PGETEVENTS, pointer, min, max, events, time, set) };
        if called < 0 {
            -i64::from(std::io::Error::last_os_error().raw_os_error().unwrap())
        } else {
            called
        }
    };
    assert_eq!(call(0, 8), i64::from(EINTR));
    assert_eq!(HANDLED.load(Ordering::SeqCst), 1);
    assert_eq!(call(0, 8), 0);
    assert_eq!(call(2, 1), -i64::from(libc::EINVAL));
}

/// If several signals of one number are queued, each wait lets only one of them in. So a program
/// may store the handler's value in one place, and read it after each wait.
fn the_mask_lets_in_one_of_a_number() {
    let number = libc::SIGRTMIN();
    install_for(number, 0);
    mask(libc::SIG_BLOCK, Some(&only(number)));
    let context = Context::new(8).expect("io_setup");
    for _ in 0..3 {
        // SAFETY: plain numbers.
        assert_eq!(unsafe { libc::raise(number) }, 0);
    }
    for handled in 1..=3 {
        let waited = context.reap_masked(1, 1, None, Some(&empty_set()));
        assert_eq!(waited.map(|done| done.len()), Err(EINTR));
        assert_eq!(HANDLED.load(Ordering::SeqCst), handled);
    }
}

fn the_mask_keeps_a_signal_out() {
    install(0);
    let context = Arc::new(Context::new(8).expect("io_setup"));
    let (reader, writer) = std::io::pipe().unwrap();
    assert_eq!(context.submit(vec![Request::poll(reader.as_fd(), libc::POLLIN)]), 1);
    let shared = context.clone();
    let (waiter, thread) = spawn_until_asleep(move || {
        let done = shared.reap_masked(1, 1, None, Some(&only_usr1())).map(|done| done.len());
        (done, contains_usr1(&mask(libc::SIG_BLOCK, None)))
    });
    signal_thread(thread);
    drop(writer);
    assert_eq!(waiter.join().unwrap(), (Ok(1), false), "not interrupted, and the mask is back");
    assert_eq!(HANDLED.load(Ordering::SeqCst), 1, "handled after the call");
    let timeout = context.reap_masked(1, 1, Some(Duration::from_millis(1)), Some(&only_usr1()));
    assert_eq!(timeout.map(|done| done.len()), Ok(0));
}

/// The library's own threads block SIGUSR1, so that the kernel delivers it to a thread of the
/// program.
fn helpers_do_not_take_signals(path: &Path) {
    install(0);
    let file = File::create(path).unwrap();
    let context = Context::new(8).expect("io_setup");
    context.run((0..8).map(|at| Request::write(file.as_fd(), &[1; 512], at * 512)).collect());
    // SAFETY: takes nothing.
    let me = unsafe { libc::gettid() };
    mask(libc::SIG_BLOCK, Some(&only_usr1()));
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap();
        let thread: i32 = task.file_name().to_str().unwrap().parse().unwrap();
        if thread == me {
            continue;
        }
        // The kernel shows zeroes as the mask of a thread that has ended or is about to end.
        let Ok(status) = std::fs::read_to_string(task.path().join("status")) else { continue };
        let field = |name| status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        if field("State:\t").starts_with(['Z', 'X']) {
            continue;
        }
        let blocked = u64::from_str_radix(field("SigBlk:\t"), 16).unwrap();
        assert_ne!(blocked & 1 << (libc::SIGUSR1 - 1), 0, "thread {thread} takes SIGUSR1");
    }
}
