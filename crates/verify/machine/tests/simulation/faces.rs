//! Programs in C: their calls into the engine, and the end of their process.
//!
//! Each run has options in its environment, and reaches the engine through the frontends' code. At
//! a random time, or when the other threads have ended, a thread ends the run by exit(3), `_exit`,
//! or exec. Then all accepted requests must be done. After a power failure, the data that syncs and
//! synchronous writes have promised must remain.

use crate::{accepted::Accepted, libaio, model::PAGE, posix, signals, swarm};
use nowait_libaio::exports;
use nowait_machine::{note, process, step};
use nowait_sim::{Faults, Prng};
use nowait_sys::{
    Fd,
    file::O_DSYNC,
    inspect::{self, O_CREAT, O_DIRECT, O_RDWR},
};
use std::{
    ffi::CStr,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

unsafe extern "C" {
    safe fn simulated_leave();
    safe fn simulated_settle() -> bool;
    safe fn simulated_stays(was_settled: bool);
}

pub(crate) fn leave() {
    simulated_leave();
}

pub(crate) const OWN_PAGES: u64 = 6;
const PATH: &CStr = c"/file";

pub(crate) struct Setup {
    pub(crate) model: Accepted,
    pub(crate) pages: u64,
    pub(crate) actors: u64,
    pub(crate) signals: bool,
    /// A thread ends the process, whatever the others wait for.
    pub(crate) ends: bool,
    /// The limits may not have room for all requests.
    is_limited: bool,
    /// A thread is in exit(3): the library does not access blocks any more, and at last refuses
    /// requests.
    exits: AtomicBool,
    /// Frequency of direct opens; if it is not 0, overlapping requests may end in any order.
    direct_ppm: u32,
    pub(crate) posix_weights: [u32; posix::KINDS.len()],
    pub(crate) libaio_weights: [u32; libaio::KINDS.len()],
    power: Faults,
}

pub(crate) struct Opened {
    pub(crate) fd: Fd,
    /// Writes through this open are durable when they end.
    pub(crate) durable: bool,
}

impl Setup {
    pub(crate) fn is_ordered(&self) -> bool {
        self.direct_ppm == 0
    }

    /// Returns the pages whose accepted writes a sync by a thread covers. Between direct requests
    /// of different threads there is no order; `own` are the pages for which the thread's syncs
    /// keep it.
    pub(crate) fn synced(&self, own: &Range<u64>) -> Range<u64> {
        if self.is_ordered() { 0..u64::MAX } else { own.clone() }
    }

    pub(crate) fn may_refuse(&self) -> bool {
        self.is_limited || self.exits()
    }

    pub(crate) fn exits(&self) -> bool {
        self.exits.load(SeqCst)
    }

    pub(crate) fn open(&self, prng: &mut Prng) -> Opened {
        let direct = if prng.chance(self.direct_ppm) { O_DIRECT } else { 0 };
        let durable = prng.chance(150_000);
        let flags = O_RDWR | direct | if durable { O_DSYNC } else { 0 };
        Opened { fd: inspect::open(PATH, flags, 0).unwrap(), durable }
    }

    pub(crate) fn judge_cut(&self) {
        let path = PATH.to_str().expect("plain letters");
        self.model.judge_left(nowait_machine::left_after_cut(path, &self.power));
    }

    /// Tries to become another program; the exec fails, and the process continues.
    pub(crate) fn fail_to_exec(&self) {
        let was_settled = waits("exec", || simulated_settle());
        if was_settled {
            self.judge_end();
        }
        simulated_stays(was_settled);
    }

    pub(crate) fn end_process(&self, prng: &mut Prng) -> ! {
        let way = prng.index(3);
        note(|| format!("ends the process in way {way}"));
        self.exits.fetch_or(way == 0, SeqCst);
        waits("the end of the process", || match way {
            0 => exports::nowait_at_exit(),
            1 => simulated_leave(),
            _ => drop(simulated_settle()),
        });
        if way == 0 {
            // The program's other exit handlers run for a while, and so do the other threads.
            (0..prng.index(20)).for_each(|_| std::thread::yield_now());
        }
        self.judge_end();
        process::exit()
    }

    pub(crate) fn end_in_handler(&self) -> ! {
        note(|| "ends the process in a handler".to_owned());
        waits("_exit", || simulated_leave());
        self.judge_end();
        process::exit()
    }

    /// No other thread runs meanwhile, as no call here is a system call.
    fn judge_end(&self) {
        let path = PATH.to_str().expect("plain letters");
        self.model.judge_done(&process::contents(path));
        self.judge_cut();
    }
}

pub(crate) fn waits<T>(what: &str, call: impl FnOnce() -> T) -> T {
    // Shorter than the interval of the engine's check, which finds forgotten requests.
    const CALL_MAX: Duration = Duration::from_millis(900);
    let begun = Instant::now();
    let value = call();
    assert!(begun.elapsed() < CALL_MAX, "{what} took {:?}", begun.elapsed());
    value
}

type Act = fn(Arc<Setup>, Prng, u64);

pub(crate) fn set_environment(prng: &mut Prng, requests_max: &str) {
    let drawn = [
        ("NOWAIT_BACKEND", ["uring", "kaio", "threads"][prng.index(3)]),
        ("NOWAIT_SUBMIT", ["auto", "offload"][prng.index(2)]),
        ("NOWAIT_WORKERS", ["1", "2", "16"][prng.index(3)]),
        ("NOWAIT_MAX_REQUESTS", requests_max),
    ];
    for (name, value) in drawn {
        // SAFETY: no other thread of the process reads the environment.
        unsafe { std::env::set_var(name, value) };
    }
}

pub(crate) fn program(seed: u64) {
    let mut prng = Prng::new(seed ^ 0xa10);
    let requests_max = ["", "", "", "1", "3"][prng.index(5)];
    set_environment(&mut prng, requests_max);
    let actors = prng.range(1..=3);
    // Signals have a generator of their own, so that they do not change the program's draws.
    let mut of_signals = Prng::new(seed ^ 0x519);
    let signals = of_signals.chance(300_000);
    let pages = actors * OWN_PAGES + if signals { actors + 1 } else { 0 };
    let file = inspect::open(PATH, O_RDWR | O_CREAT, 0o600).unwrap();
    nowait_sys::file::set_len(file.raw(), pages * PAGE).unwrap();
    drop(file);
    let direct_ppm = [0, 500_000, 1_000_000][prng.index(3)];
    // The process ends while threads submit, or when they wait for slow transfers.
    let after_max = [40_000_000, 1_000_000, 100_000][prng.index(3)];
    let after = Duration::from_nanos(prng.below(after_max));
    let ends = prng.chance(600_000) && step(|| format!("end the process after {after:?}"));
    let setup = Arc::new(Setup {
        ends,
        model: Accepted::new(pages),
        pages,
        actors,
        signals,
        is_limited: !requests_max.is_empty(),
        exits: AtomicBool::new(false),
        direct_ppm,
        posix_weights: swarm(&posix::KINDS, &mut prng),
        libaio_weights: swarm(&libaio::KINDS, &mut prng),
        power: Faults::swarm(&mut prng),
    });
    if signals {
        signals::install();
        signals::take(&setup, of_signals.fork(), actors);
    }
    let mut threads: Vec<_> = (0..actors)
        .map(|number| {
            let (setup, fork) = (setup.clone(), prng.fork());
            let (name, act): (_, Act) = match prng.index(3) {
                0 => ("libaio", libaio::act),
                _ => ("posix", posix::act),
            };
            let thread = std::thread::Builder::new().name(format!("{name}-{number}"));
            let of_signals = signals.then(|| of_signals.fork());
            let work = move || {
                if let Some(prng) = of_signals {
                    signals::take(&setup, prng, number);
                }
                act(setup, fork, number);
            };
            thread.spawn(work).unwrap()
        })
        .collect();
    threads.extend(signals.then(|| signals::spawn_sender(of_signals)));
    if ends {
        std::thread::park_timeout(after);
        setup.end_process(&mut prng);
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    setup.end_process(&mut prng)
}
