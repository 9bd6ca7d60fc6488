//! Signal handlers that may interrupt the library at any instruction.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::ptr;
use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU32, Ordering::SeqCst};

use nowait_tests::aio;

use crate::rounds::{
    BATCH, BLOCK, BLOCKS, Dice, Kind, Requests, Target, in_child, reap, rounds_in_child, setup,
};

extern "C" fn ends_the_process(_signal: i32) {
    // SAFETY: ends the process.
    unsafe { libc::_exit(0) };
}

pub(crate) fn install(signal: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: an all-zero sigaction is valid: default action, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = flags;
    // SAFETY: a live sigaction, whose handler makes async-signal-safe calls.
    assert_eq!(unsafe { libc::sigaction(signal, &raw const action, ptr::null_mut()) }, 0);
}

fn start_timer(first_us: u64, again_us: u64) {
    let after = |us: u64| libc::timeval { tv_sec: 0, tv_usec: us as i64 };
    let timer = libc::itimerval { it_interval: after(again_us), it_value: after(first_us) };
    // SAFETY: a live itimerval.
    assert_eq!(unsafe { setitimer(0, &raw const timer, ptr::null_mut()) }, 0);
}

unsafe extern "C" {
    fn setitimer(which: i32, new: *const libc::itimerval, old: *mut libc::itimerval) -> i32;
}

pub(crate) fn a_handler_ends_the_process(folder: &Path, rounds: u32, posix: bool) {
    let target = Target::new(folder);
    for round in 0..rounds {
        let (kind, mut dice) = (Kind::of(round), Dice::new(round));
        let file = target.begin(kind);
        let what = format!("round {round}, {kind:?}");
        let status = in_child(&what, || {
            const FLAGS: [i32; 3] = [0, libc::SA_RESTART, libc::SA_NODEFER];
            install(libc::SIGALRM, ends_the_process, FLAGS[dice.roll(3) as usize]);
            let delay = 1 + dice.roll(1500);
            if posix {
                start_timer(delay + 500, 0);
                return submit_blocks_for_ever(&target, file.as_raw_fd());
            }
            // In some rounds the timer may fire while `setup` starts the engine.
            if dice.roll(8) == 0 {
                start_timer(delay, 0);
            }
            let context = setup(BLOCKS as i32);
            start_timer(delay, 0);
            submit_for_ever(&mut Requests::new(&target, &file, context, 0), context, &mut dice);
        });
        assert_eq!(status, 0, "{what}");
        target.check(&what);
    }
}

fn submit_for_ever(requests: &mut Requests<'_>, mut context: aio::ContextPointer, dice: &mut Dice) {
    let mut in_flight = 0;
    loop {
        let submitted = requests.submit(1 + dice.roll(BATCH as u64) as usize);
        in_flight += i64::from(submitted.max(0));
        let min = if in_flight > 40 { in_flight } else { dice.roll(in_flight as u64 + 1) as i64 };
        let (taken, wrong) = reap(context, min).expect("io_getevents");
        assert_eq!(wrong, 0, "writes that failed");
        in_flight -= taken as i64;
        if dice.roll(16) == 0 {
            // SAFETY: io_setup made the context, which is not used after this.
            assert_eq!(unsafe { aio::io_destroy(context) }, 0);
            (context, in_flight) = (setup(BLOCKS as i32), 0);
            requests.set_context(context);
        }
        // So the handler may also interrupt this thread while the thread has malloc's lock.
        for _ in 0..dice.roll(100) {
            drop(std::hint::black_box(Vec::<u8>::with_capacity(1 + dice.roll(9000) as usize)));
        }
    }
}

/// The control block of the last aio_write; the handler `makes_calls` uses the block, too.
static CONTROL: AtomicPtr<libc::aiocb> = AtomicPtr::new(ptr::null_mut());

fn control_blocks() -> &'static mut [libc::aiocb] {
    // SAFETY: an all-zero block is valid.
    let blocks: Vec<libc::aiocb> = (0..BLOCKS).map(|_| unsafe { std::mem::zeroed() }).collect();
    Box::leak(blocks.into_boxed_slice())
}

fn submit_blocks_for_ever(target: &Target, fd: i32) {
    let blocks = control_blocks();
    loop {
        write_all_blocks(target, fd, blocks);
    }
}

fn write_all_blocks(target: &Target, fd: i32, blocks: &mut [libc::aiocb]) {
    for (index, block) in blocks.iter_mut().enumerate() {
        // SAFETY: an all-zero block is valid.
        *block = unsafe { std::mem::zeroed() };
        block.aio_fildes = fd;
        block.aio_buf = target.address(index) as *mut _;
        block.aio_nbytes = BLOCK;
        block.aio_offset = (index * BLOCK) as i64;
        block.aio_sigevent.sigev_notify = libc::SIGEV_NONE;
        // SAFETY: block and buffer live to the end of the process.
        assert_eq!(unsafe { libc::aio_write(&raw mut *block) }, 0, "aio_write");
        target.accepted.note(index);
        CONTROL.store(&raw mut *block, SeqCst);
    }
    for block in blocks.iter_mut() {
        let list = [&raw const *block];
        // SAFETY: a list of one live block.
        unsafe {
            while libc::aio_error(list[0]) == libc::EINPROGRESS {
                libc::aio_suspend(list.as_ptr(), 1, ptr::null());
            }
            assert_eq!((libc::aio_error(list[0]), libc::aio_return(block)), (0, BLOCK as isize));
        }
    }
}

static TICKS: AtomicU32 = AtomicU32::new(0);
static SINK: AtomicI32 = AtomicI32::new(-1);
static WRONG: AtomicU32 = AtomicU32::new(0);

extern "C" fn makes_calls(_signal: i32) {
    let tick = TICKS.fetch_add(1, SeqCst);
    let (sink, block) = (SINK.load(SeqCst), CONTROL.load(SeqCst));
    // SAFETY: an open descriptor, a block that lives to the end of the process.
    let right = unsafe {
        match tick % 6 {
            0 => {
                let copy = libc::dup(sink);
                libc::close(copy) == 0
            }
            1 => {
                let copy = libc::dup(sink);
                libc::dup2(sink, copy) == copy && libc::close(copy) == 0
            }
            2 => libc::write(sink, [0u8; 16].as_ptr().cast(), 16) == 16,
            3 if !block.is_null() => {
                // The request must complete although this handler may have interrupted a call of
                // the library, and waits.
                let list = [block.cast_const()];
                while libc::aio_error(block) == libc::EINPROGRESS {
                    libc::aio_suspend(list.as_ptr(), 1, ptr::null());
                }
                libc::aio_error(block) == 0
            }
            4 if !block.is_null() => {
                libc::aio_error(block) != 0 || libc::aio_return(block) == BLOCK as isize
            }
            _ => true,
        }
    };
    if !right {
        WRONG.fetch_add(1, SeqCst);
    }
}

pub(crate) fn a_handler_makes_calls(folder: &Path, rounds: u32) {
    let target = Target::new(folder);
    let sink = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    SINK.store(sink.as_raw_fd(), SeqCst);
    let what = "a fast timer";
    let status = rounds_in_child(what, rounds, || {
        let (blocks, context) = (control_blocks(), setup(BLOCKS as i32));
        install(libc::SIGALRM, makes_calls, libc::SA_RESTART);
        start_timer(50, 50);
        for round in 0..rounds {
            let file = target.begin(Kind::of(round));
            let mut requests = Requests::new(&target, &file, context, 0);
            let mut left = 0;
            for _ in 0..BLOCKS / BATCH {
                left += requests.submit(BATCH);
            }
            while left > 0 {
                match reap(context, 1) {
                    Ok((taken, wrong)) => {
                        assert_eq!(wrong, 0, "writes that failed");
                        left -= taken as i32;
                    }
                    Err(errno) => assert_eq!(errno, -libc::EINTR),
                }
            }
            write_all_blocks(&target, file.as_raw_fd(), blocks);
            target.check(&format!("round {round}"));
        }
        start_timer(0, 0);
        assert_eq!(WRONG.load(SeqCst), 0, "calls that failed in the handler");
        assert!(TICKS.load(SeqCst) > 0, "the handler never ran");
        // SAFETY: ends the child.
        unsafe { libc::_exit(0) };
    });
    assert_eq!(status, 0, "{what}");
}

static SEEN: AtomicU32 = AtomicU32::new(0);

extern "C" fn sees_all(_signal: i32, info: *const libc::siginfo_t, _context: *const libc::c_void) {
    // SAFETY: the kernel's pointer; the signal was queued with a value.
    SEEN.store(unsafe { (*info).si_value().sival_ptr } as u32, SeqCst);
}

extern "C" fn sees_nothing(_signal: i32) {
    SEEN.fetch_add(1, SeqCst);
}

fn installed() -> libc::sigaction {
    // SAFETY: an all-zero action is valid; the call only reads the current one.
    unsafe {
        let mut action = std::mem::zeroed();
        assert_eq!(libc::sigaction(libc::SIGUSR1, ptr::null(), &raw mut action), 0);
        action
    }
}

/// sigaction(2) returns the handlers that the program has installed, although the library puts
/// handlers of its own in front of them.
pub(crate) fn handlers_are_the_programs_own() {
    const ALL: i32 = libc::SA_SIGINFO | libc::SA_RESETHAND | libc::SA_NODEFER;
    let (one, other) = (sees_all as *const () as usize, sees_nothing as *const () as usize);
    // SAFETY: handlers of the right type, live actions, plain numbers.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (action.sa_sigaction, action.sa_flags) = (one, ALL);
        assert_eq!(libc::sigaction(libc::SIGUSR1, &raw const action, ptr::null_mut()), 0);
        assert_eq!((installed().sa_sigaction, installed().sa_flags & ALL), (one, ALL));
        let value = libc::sigval { sival_ptr: 7 as *mut _ };
        assert_eq!(libc::sigqueue(libc::getpid(), libc::SIGUSR1, value), 0);
        assert_eq!(SEEN.load(SeqCst), 7, "with its value");
        assert_eq!(installed().sa_sigaction, libc::SIG_DFL, "once only");

        assert_eq!(libc::signal(libc::SIGUSR1, other), libc::SIG_DFL);
        let flags = installed().sa_flags & (ALL | libc::SA_RESTART);
        assert_eq!((installed().sa_sigaction, flags), (other, libc::SA_RESTART));
        assert_eq!(libc::raise(libc::SIGUSR1), 0);
        assert_eq!(SEEN.load(SeqCst), 8);
        assert_eq!(libc::signal(libc::SIGUSR1, libc::SIG_IGN), other);
        assert_eq!(installed().sa_sigaction, libc::SIG_IGN);
        assert_eq!(libc::signal(libc::SIGKILL, other), libc::SIG_ERR);
    }
}
