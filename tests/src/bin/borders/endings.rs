//! The end of the process, of a thread, or of a context while threads submit.

use std::fs::File;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};

use nowait_tests::aio::{self, ContextPointer};
use nowait_tests::thread_state::wait_until;

use crate::handlers::install;
use crate::rounds::{
    BATCH, BLOCKS, Dice, Kind, Requests, Target, in_child, reap, rounds_in_child, setup,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Exit,
    AtOnce,
    Quick,
    Return,
    Exec,
    /// The exec fails; the process ends later.
    ExecFails,
    Abort,
    /// abort(3) after the program has set the default action of SIGABRT by signal(3).
    AbortByDefault,
    /// abort(3) after a handler with `SA_RESETHAND` has run.
    AbortAfterOne,
}

#[derive(Clone, Copy)]
struct Shared(ContextPointer);
// SAFETY: any thread may use a context.
unsafe impl Send for Shared {}
// SAFETY: as above.
unsafe impl Sync for Shared {}

pub(crate) fn the_process_ends(folder: &Path, rounds: u32, way: Way) {
    let target = Target::new(folder);
    for round in 0..rounds {
        let (kind, mut dice) = (Kind::of(round), Dice::new(round));
        let file = target.begin(kind);
        let what = format!("round {round}, {kind:?}, {way:?}");
        let status = in_child(&what, || {
            let shared = Shared(setup(BLOCKS as i32));
            let threads = dice.roll(4) as u32;
            std::thread::scope(|scope| {
                for thread in 0..threads {
                    let (target, file) = (&target, &file);
                    scope.spawn(move || submit_for_ever(target, file, shared, round + thread));
                }
                let mut requests = Requests::new(&target, &file, shared.0, 0);
                for _ in 0..=dice.roll(6) {
                    requests.submit(1 + dice.roll(BATCH as u64) as usize);
                }
                end_by(way, dice.roll(3), &mut requests);
            });
        });
        let ended_well = match way {
            Way::Abort | Way::AbortByDefault | Way::AbortAfterOne => {
                libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGABRT
            }
            _ => status == 0,
        };
        assert!(ended_well, "{what}: status {status:#x}");
        target.check(&what);
    }
}

fn submit_for_ever(target: &Target, file: &File, shared: Shared, seed: u32) {
    let mut dice = Dice::new(seed.wrapping_mul(77));
    let own = if dice.roll(2) == 0 { setup(BLOCKS as i32) } else { shared.0 };
    let mut requests = Requests::new(target, file, own, dice.roll(BLOCKS as u64) as usize);
    loop {
        let done = requests.submit(1 + dice.roll(BATCH as u64) as usize);
        // While the process ends, its contexts no longer work.
        assert!(done >= 0 || [-libc::EAGAIN, -libc::EINVAL].contains(&done), "io_submit: {done}");
        let _ = reap(own, i64::from(done == -libc::EAGAIN));
    }
}

/// `call` chooses a system or library call of `way`.
fn end_by(way: Way, call: u64, requests: &mut Requests<'_>) {
    // SAFETY: paths and arguments are terminated; the process ends, or becomes another program.
    unsafe {
        let (program, none) = (c"/bin/true".as_ptr(), std::ptr::null::<*const libc::c_char>());
        let arguments = [program, std::ptr::null()];
        let argv = arguments.as_ptr();
        match (way, call) {
            (Way::Exit, _) => libc::exit(0),
            (Way::Return, _) => returns_from_main(),
            (Way::AtOnce, 0) => _ = libc::syscall(libc::SYS_exit_group, 0),
            (Way::AtOnce, _) => libc::_exit(0),
            (Way::Quick, _) => quick_exit(0),
            (Way::Exec, 0) => _ = libc::execv(program, argv),
            (Way::Exec, 1) => _ = execveat(libc::AT_FDCWD, program, argv, none, 0),
            (Way::Exec, _) => _ = libc::syscall(libc::SYS_execve, program, argv, none),
            (Way::ExecFails, _) => {
                assert_eq!(libc::execv(c"/nonexistent".as_ptr(), argv), -1);
                let done = requests.submit(1);
                assert!(done == 1 || done == -libc::EAGAIN, "io_submit after exec: {done}");
                libc::_exit(0);
            }
            (Way::Abort, _) => aborts_beside(requests),
            (Way::AbortByDefault, _) => {
                assert_eq!(libc::signal(libc::SIGABRT, libc::SIG_DFL), libc::SIG_DFL);
                aborts_beside(requests);
            }
            (Way::AbortAfterOne, _) => {
                install(libc::SIGABRT, returns, libc::SA_RESETHAND | libc::SA_NODEFER);
                assert_eq!(libc::raise(libc::SIGABRT), 0);
                let mut now: libc::sigaction = std::mem::zeroed();
                assert_eq!(libc::sigaction(libc::SIGABRT, std::ptr::null(), &raw mut now), 0);
                assert_eq!(now.sa_sigaction, libc::SIG_DFL, "the handler runs once");
                aborts_beside(requests);
            }
        }
    }
}

extern "C" fn returns(_signal: i32) {}

/// Another thread calls abort(3), while this one submits.
fn aborts_beside(requests: &mut Requests<'_>) -> ! {
    // SAFETY: ends the process.
    std::thread::spawn(|| unsafe { libc::abort() });
    loop {
        requests.submit(BATCH);
    }
}

unsafe extern "C" {
    fn quick_exit(status: i32) -> !;
    fn execveat(
        folder: i32,
        path: *const libc::c_char,
        arguments: *const *const libc::c_char,
        environment: *const *const libc::c_char,
        flags: i32,
    ) -> i32;
}

/// Calls exit(3), as the C library does when `main` returns. exit(3) does not wait for threads.
fn returns_from_main() -> ! {
    std::process::exit(0)
}

/// A thread submits and ends. Then all its requests complete, and none is short.
pub(crate) fn the_thread_ends(folder: &Path, rounds: u32) {
    let target = Target::new(folder);
    let context = Shared(setup(2 * BLOCKS as i32));
    for round in 0..rounds {
        let kind = Kind::of(round);
        let file = target.begin(kind);
        let submitted = std::thread::scope(|scope| {
            let (target, file) = (&target, &file);
            let thread = scope.spawn(move || {
                let context = context;
                let mut requests = Requests::new(target, file, context.0, 0);
                (0..BLOCKS / BATCH).map(|_| requests.submit(BATCH)).sum::<i32>()
            });
            thread.join().unwrap()
        });
        let mut left = submitted as usize;
        assert!(left >= BLOCKS, "round {round}: {left} accepted");
        while left > 0 {
            let (taken, wrong) = reap(context.0, 1).expect("io_getevents");
            assert_eq!(
                wrong, 0,
                "round {round}, {kind:?}: writes of a thread that has ended failed"
            );
            left -= taken;
        }
        target.check(&format!("round {round}, {kind:?}"));
    }
}

pub(crate) fn the_context_ends(folder: &Path, rounds: u32) {
    let target = Target::new(folder);
    let what = "threads beside io_destroy";
    let status = rounds_in_child(what, rounds, || {
        for round in 0..rounds {
            destroy_beside_threads(&target, round);
        }
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    });
    assert_eq!(status, 0, "{what}");
}

fn destroy_beside_threads(target: &Target, round: u32) {
    let (kind, mut dice) = (Kind::of(round), Dice::new(round));
    let (reader, writer) = std::io::pipe().unwrap();
    let (file, context) = (target.begin(kind), Shared(setup(BLOCKS as i32)));
    let (submitted, is_over) = (AtomicU32::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (target, file, reader, submitted) = (target, &file, &reader, &submitted);
            let is_over = &is_over;
            scope.spawn(move || {
                let context = context;
                let mut requests = Requests::new(target, file, context.0, thread * 32);
                while !is_over.load(SeqCst) {
                    let done = match thread {
                        0 => requests.submit(BATCH),
                        _ => poll(context.0, reader),
                    };
                    submitted.fetch_add(1, SeqCst);
                    let ended = done == -libc::EINVAL;
                    assert!(done >= 0 || ended || done == -libc::EAGAIN, "io_submit: {done}");
                    if ended {
                        break;
                    }
                }
            });
        }
        let enough = dice.roll(6) as u32;
        while submitted.load(SeqCst) < enough {
            std::thread::yield_now();
        }
        // SAFETY: io_setup made the context; the threads get errors from then on.
        assert_eq!(unsafe { aio::io_destroy(context.0) }, 0);
        is_over.store(true, SeqCst);
    });
    drop(writer);
    target.check(&format!("round {round}, {kind:?}"));
}

fn poll(context: ContextPointer, reader: &std::io::PipeReader) -> i32 {
    use std::os::fd::AsRawFd;
    static mut BYTE: u8 = 0;
    let poll = aio::Iocb {
        opcode: aio::POLL,
        fd: reader.as_raw_fd(),
        buffer: libc::POLLIN as u64,
        ..aio::Iocb::default()
    };
    let (buffer, bytes) = (&raw mut BYTE as u64, 1);
    let mut read = aio::Iocb { opcode: aio::PREAD, buffer, bytes, ..poll };
    let mut poll = poll;
    let iocbs = [&raw mut poll, &raw mut read];
    // SAFETY: the call reads the iocbs; the byte is a static that nothing else uses.
    unsafe { aio::io_submit(context, 2, iocbs.as_ptr()) }
}

extern "C" fn ends_at_a_fault(_signal: i32) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(3) };
}

static IS_STUCK: AtomicBool = AtomicBool::new(false);

extern "C" fn stays_at_a_fault(_signal: i32) {
    IS_STUCK.store(true, SeqCst);
    loop {
        // SAFETY: pause takes no arguments.
        unsafe { libc::pause() };
    }
}

/// Submits writes, and then calls io_submit with a list that is no longer mapped, which causes a
/// fault inside the call.
fn submit_and_fault(target: &Target, file: &File, handler: extern "C" fn(i32)) {
    // SAFETY: a handler of the right type; fresh memory; the fault is intended.
    unsafe {
        libc::signal(libc::SIGSEGV, handler as *const () as usize);
        let map = libc::PROT_READ | libc::PROT_WRITE;
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let list = libc::mmap(std::ptr::null_mut(), 4096, map, flags, -1, 0);
        let context = setup(BLOCKS as i32);
        let mut requests = Requests::new(target, file, context, 0);
        assert_eq!(requests.submit(BATCH), BATCH as i32);
        // The first iocb of the list is null. The library checks the list, and remembers that its
        // page is mapped.
        assert_eq!(aio::io_submit(context, 1, list.cast()), -libc::EFAULT);
        libc::munmap(list, 4096);
        aio::io_submit(context, 1, list.cast());
    }
}

pub(crate) fn a_fault_ends_the_process(folder: &Path, rounds: u32) {
    let target = Target::new(folder);
    for round in 0..rounds {
        let kind = Kind::of(round);
        let file = target.begin(kind);
        let what = format!("round {round}, {kind:?}");
        let status = in_child(&what, || submit_and_fault(&target, &file, ends_at_a_fault));
        assert_eq!(libc::WEXITSTATUS(status), 3, "{what}: status {status:#x}");
        target.check(&what);
    }
}

pub(crate) fn a_thread_stays_inside(folder: &Path, rounds: u32) {
    let target = Target::new(folder);
    for round in 0..rounds {
        let kind = Kind::of(round);
        let file = target.begin(kind);
        let what = format!("round {round}, {kind:?}");
        let status = in_child(&what, || {
            let (target, file) = (&target, &file);
            std::thread::scope(|scope| {
                scope.spawn(|| submit_and_fault(target, file, stays_at_a_fault));
                wait_until(|| IS_STUCK.load(SeqCst));
                // SAFETY: ends the process.
                unsafe { libc::exit(0) }
            });
        });
        assert_eq!(status, 0, "{what}");
        target.check(&what);
    }
}
