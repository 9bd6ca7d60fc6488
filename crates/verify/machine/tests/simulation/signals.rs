//! Signal handlers at any switch point of the interrupted thread. A handler may call the library,
//! as a call of the library behaves like a system call. A handler may also end the process.

use crate::{
    accepted::Known,
    faces::{OWN_PAGES, Opened, Setup, waits},
    model::PAGE,
    posix, spawn,
};
use core::{
    cell::{Cell, RefCell},
    ffi::{c_int, c_void},
};
use libc::{siginfo_t, timespec};
use nowait_libaio::exports as libaio;
use nowait_machine::{note, step, take_signals};
use nowait_sim::Prng;
use nowait_sys::{
    Errno,
    aio::{IoEvent, Iocb, cmd},
    signal,
};
use std::{sync::Arc, thread::JoinHandle, time::Duration};

pub(crate) fn of_notices() -> c_int {
    libc::SIGRTMIN() + 1
}

struct Handling {
    setup: Arc<Setup>,
    prng: RefCell<Prng>,
    file: Opened,
    context: usize,
    page: u64,
    blocks: RefCell<Vec<usize>>,
}

thread_local! {
    /// Never freed: a handler may run as long as the thread does.
    static HANDLING: Cell<Option<&'static Handling>> = const { Cell::new(None) };
}

pub(crate) fn install() {
    for number in [libc::SIGUSR1, of_notices()] {
        // SAFETY: an all-zero action is valid.
        let mut action: libc::sigaction = unsafe { core::mem::zeroed() };
        action.sa_sigaction = arrives as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        // SAFETY: a live action, with an async-signal-safe handler.
        let failed = unsafe { libc::sigaction(number, &raw const action, core::ptr::null_mut()) };
        assert_eq!(failed, 0);
    }
}

pub(crate) fn take(setup: &Arc<Setup>, mut prng: Prng, number: u64) {
    let mut context = 0usize;
    let address = (&raw mut context) as usize;
    let failed = waits("io_setup", || libaio::nowait_io_setup(2, address));
    assert!(failed == 0 || setup.exits(), "io_setup: {failed}");
    let file = setup.open(&mut prng);
    let page = setup.actors * OWN_PAGES + number;
    let (setup, prng, blocks) = (setup.clone(), RefCell::new(prng), RefCell::default());
    let handling = Box::new(Handling { setup, prng, file, context, page, blocks });
    HANDLING.set(Some(Box::leak(handling)));
    take_signals();
}

pub(crate) fn spawn_sender(mut prng: Prng) -> JoinHandle<()> {
    spawn("signals", move || {
        for _ in 0..12 {
            let after = Duration::from_nanos(prng.below(5_000_000));
            if step(|| format!("send a signal after {after:?}")) {
                std::thread::park_timeout(after);
                signal::tell_completion(libc::SIGUSR1, 0).unwrap();
            }
        }
    })
}

/// Records the calling thread's blocks in flight; no handler runs meanwhile.
pub(crate) fn in_flight(blocks: impl Iterator<Item = usize>) {
    if let Some(handling) = HANDLING.get() {
        let mut all = handling.blocks.borrow_mut();
        all.clear();
        all.extend(blocks);
    }
}

/// Handles a signal as the preload library's handler does.
extern "C-unwind" fn arrives(number: c_int, info: *mut siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a context, which is on this stack.
    let mask = unsafe { &raw mut (*context.cast::<libc::ucontext_t>()).uc_sigmask }.cast();
    // SAFETY: the kernel passes both.
    let depth = unsafe { libaio::nowait_signal_arrives(number, info.cast(), mask) };
    if depth < 0 {
        return;
    }
    // SAFETY: a queued signal has a value.
    let value = unsafe { (*info).si_value() };
    nowait_sys::errno::preserved(|| {
        if number == of_notices() {
            posix::comes(value);
        } else if let Some(handling) = HANDLING.get() {
            handling.act();
        }
    });
    libaio::nowait_signal_handled(depth, mask);
}

impl Handling {
    fn act(&self) {
        let (what, fork) = {
            let mut prng = self.prng.borrow_mut();
            (prng.index(8), prng.fork())
        };
        match what {
            0..=2 => self.write(),
            3 | 4 => self.suspend(fork),
            5 | 6 => self.look(),
            _ if self.setup.ends => self.setup.end_in_handler(),
            _ => {}
        }
    }

    fn write(&self) {
        let (mut memory, version) = self.setup.model.begin_write(self.page);
        let iocb = Iocb {
            data: 1,
            key: 0,
            rw_flags: 0,
            opcode: cmd::PWRITE,
            reqprio: 0,
            fildes: self.file.fd.raw() as u32,
            buf: memory.as_mut_ptr() as u64,
            nbytes: PAGE,
            offset: (self.page * PAGE) as i64,
            reserved2: 0,
            flags: 0,
            resfd: 0,
        };
        let list = [&raw const iocb];
        note(|| "a handler writes".to_owned());
        let accepted = libaio::nowait_io_submit(self.context, 1, list.as_ptr() as usize);
        if accepted != 1 {
            let refused = self.setup.may_refuse() && accepted == -Errno::AGAIN.raw();
            return assert!(refused || self.setup.exits(), "io_submit in a handler: {accepted}");
        }
        self.setup.model.learn(version, Known::Accepted);
        let mut event = IoEvent::default();
        let room = (&raw mut event) as usize;
        // Other signals may interrupt this call.
        let take = || libaio::nowait_io_getevents(self.context, 1, 1, room, 0);
        while waits("io_getevents in a handler", take) != 1 {}
        assert_eq!(event.res, PAGE as i64, "a write of a handler");
        self.setup.model.learn(version, Known::Ended);
        if self.file.durable {
            self.setup.model.is_durable(version);
            self.setup.judge_cut();
        }
    }

    fn suspend(&self, mut prng: Prng) {
        let blocks = self.blocks.borrow().clone();
        let ns = [0, 1, 1_000_000, 20_000_000][prng.index(4)];
        let timeout = timespec { tv_sec: 0, tv_nsec: ns };
        let (list, count) = (blocks.as_ptr().cast(), blocks.len() as c_int);
        note(|| format!("a handler waits for {count} requests, {ns} ns"));
        // SAFETY: the thread keeps the blocks as long as they are recorded as in flight.
        let suspend = || unsafe { posix::aio_suspend(list, count, &raw const timeout) };
        if waits("aio_suspend in a handler", suspend) == 0 {
            let is_over = |block: &usize| posix::error_of(*block) != libc::EINPROGRESS;
            assert!(blocks.is_empty() || blocks.iter().any(is_over), "none is over");
            return;
        }
        let errno = std::io::Error::last_os_error().raw_os_error();
        assert!([Some(libc::EAGAIN), Some(libc::EINTR)].contains(&errno), "aio_suspend: {errno:?}");
    }

    fn look(&self) {
        for block in &*self.blocks.borrow() {
            let error = posix::error_of(*block);
            // SAFETY: the block is there.
            let value = unsafe { posix::aio_return(*block as *mut libc::aiocb) };
            let is_sane = error != 0 || value >= 0;
            assert!(is_sane, "a request is over with {value}");
        }
    }
}
