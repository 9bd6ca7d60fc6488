//! Helpers for the tests of the whole engine.
#![allow(dead_code)] // each test uses a part

use nowait_block::{Segments, skip::note_skip_here};
use nowait_file::{
    BackendChoice, Command, Config, Context, Engine, Kind, SubmitMode,
    command::{Flags, open_for},
    parts::Parts,
    submit::{EventTarget, Submission},
};
use nowait_sys::{Errno, aio::IoEvent, file::IoVec, time::Deadline};
use std::{
    os::fd::{AsFd, AsRawFd},
    sync::{Arc, Mutex, mpsc},
    time::Duration,
};

/// io_uring comes last: the kernel ends a ring some time after its close, which interrupts sleeping
/// threads that have used the ring (`io_ring_exit_work`).
pub(crate) const BACKENDS: [BackendChoice; 3] =
    [BackendChoice::Kaio, BackendChoice::Threads, BackendChoice::Uring];

/// Runs `claim` in both submit modes on every backend that works on this machine.
pub(crate) fn on_every_backend(claim: impl Fn(&Arc<Engine>)) {
    for backend in BACKENDS {
        for submit in [SubmitMode::Auto, SubmitMode::Offload] {
            let config = Config { backend, submit, stats: true, ..Config::default() };
            let engine = Engine::on_machine(config, "test".to_owned());
            on_engine(engine, &format!("{backend:?}"), &claim);
        }
    }
    on_engine(with_event_counters(), "io_uring with event counters", &claim);
}

/// Starts an engine with io_uring as it is before Linux 6.7.
pub(crate) fn with_event_counters() -> Result<Arc<Engine>, Errno> {
    let config = Config { backend: BackendChoice::Uring, stats: true, ..Config::default() };
    Engine::start(config, Parts::with_event_counters("test".to_owned()))
}

fn on_engine(engine: Result<Arc<Engine>, Errno>, name: &str, claim: &impl Fn(&Arc<Engine>)) {
    match engine {
        Ok(engine) => {
            claim(&engine);
            engine.shutdown();
        }
        Err(errno) => note_skip_here(&format!("{name} cannot start: {errno}")),
    }
}

/// The memory is never freed: a request may use it whatever becomes of the test.
pub(crate) fn leaked(len: usize, byte: u8) -> *mut [u8] {
    /// Keeps the addresses, so that a leak detector finds the memory in use.
    static KEPT: Mutex<Vec<usize>> = Mutex::new(Vec::new());
    let memory: *mut [u8] = Box::leak(vec![byte; len].into_boxed_slice());
    KEPT.lock().unwrap().push(memory.cast::<u8>() as usize);
    memory
}

pub(crate) fn bytes(memory: *mut [u8]) -> &'static [u8] {
    // SAFETY: it lives for ever, and the caller has reaped the request's event.
    unsafe { &*memory }
}

pub(crate) fn command(kind: Kind, file: &impl AsFd, memory: *mut [u8], offset: u64) -> Command {
    let flags = open_for(file.as_fd().as_raw_fd()).unwrap();
    command_with(flags, kind, file, memory, offset)
}

pub(crate) fn command_with(
    flags: Flags,
    kind: Kind,
    file: &impl AsFd,
    memory: *mut [u8],
    offset: u64,
) -> Command {
    let fd = file.as_fd().as_raw_fd();
    let segment = IoVec { base: memory.cast(), len: memory.len() };
    let segments = Segments::One(segment);
    // SAFETY: the memory of these tests is leaked.
    unsafe { Command::new(kind, (fd, flags), segments, offset as i64) }
}

pub(crate) fn poll(file: &impl AsFd, events: u16) -> Command {
    command(Kind::Poll(events), file, leaked(0, 0), 0)
}

/// The request can be cancelled by `name`, which is also in its event.
pub(crate) fn submit(context: &Arc<Context>, name: u64, command: Command) -> Result<(), Errno> {
    submit_to(context, EventTarget { data: name, obj: name, eventfd: None }, command)
}

pub(crate) fn submit_to(
    context: &Arc<Context>,
    target: EventTarget,
    command: Command,
) -> Result<(), Errno> {
    context.io().reserve(1)?;
    let mut submission = Submission::new(context);
    let started = submission.submit(command, target);
    submission.finish();
    started.inspect_err(|_| context.io().release(1))
}

/// Returns the names and results of the events, sorted by name.
pub(crate) fn reap(context: &Arc<Context>, count: usize) -> Vec<(u64, i64)> {
    let mut events = Vec::new();
    wait_for(context, count, |event| events.push((event.data, event.res)));
    events.sort_unstable();
    events
}

/// Waits again after EINTR, which a debugger or a freezer causes.
pub(crate) fn wait_for(context: &Context, count: usize, mut sink: impl FnMut(IoEvent)) {
    let mut total = 0;
    while total < count {
        let left = count - total;
        let taken = context.wait_events(left, left, Deadline::NEVER, None, |_, event| {
            sink(event);
            Ok(())
        });
        match taken {
            Ok(taken) => total += taken,
            Err(errno) => assert_eq!(errno, Errno::INTR),
        }
    }
}

pub(crate) fn does_not_hang(claim: impl FnOnce() + Send) {
    const LIMIT: Duration = Duration::from_mins(1);
    std::thread::scope(|scope| {
        let (ended, is_over) = mpsc::channel();
        scope.spawn(move || {
            claim();
            ended.send(()).unwrap();
        });
        if is_over.recv_timeout(LIMIT) == Err(mpsc::RecvTimeoutError::Timeout) {
            // Aborts the process, because a panic would wait for the thread that hangs.
            eprintln!("{:?} hangs", std::thread::current().name());
            std::process::abort();
        }
    });
}

pub(crate) fn has_event(context: &Arc<Context>) -> bool {
    context.wait_events(0, 0, Deadline::NOW, None, |_, _| Ok(())).unwrap();
    context.io().ring().unread() > 0
}

pub(crate) fn failed(errno: Errno) -> i64 {
    -i64::from(errno.raw())
}

/// The splitmix64 generator.
pub(crate) struct Prng(pub(crate) u64);

impl Prng {
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ z >> 31) % limit
    }

    pub(crate) fn one_in(&mut self, limit: u64) -> bool {
        self.below(limit) == 0
    }
}
