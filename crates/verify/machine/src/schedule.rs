//! Decides which thread runs, and keeps the time.

mod baton;
mod clocks;

use crate::{
    cores::{self, Cores},
    interpose,
    kernel::Kernel,
    signals::{self, SigInfo},
    steps::Steps,
};
pub(crate) use baton::Baton;
use nowait_sim::{Failure, Faults, Prng};
use nowait_sys::raw;
use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    thread::JoinHandle,
};

/// Frequencies of a run, in parts per million, and the longest time of a transfer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rates {
    /// A system call chooses the running thread anew.
    pub(crate) switch: u32,
    /// A thread yields or sleeps before it takes a lock.
    pub(crate) lock: u32,
    /// A page that no transfer has read yet counts as cached.
    pub(crate) cached: u32,
    pub(crate) short: u32,
    pub(crate) transfer_ns: u64,
}

impl Rates {
    fn draw(prng: &mut Prng) -> Rates {
        let transfers = [1_000, 100_000, 10_000_000];
        Rates {
            switch: [20_000, 200_000, 700_000][prng.index(3)],
            lock: [0, 5_000, 100_000][prng.index(3)],
            cached: [0, 500_000, 1_000_000][prng.index(3)],
            short: prng.swarm_ppm(100_000),
            transfer_ns: transfers[prng.index(transfers.len())],
        }
    }
}

/// The counters of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// System calls.
    pub calls: u64,
    /// Changes from one thread to another.
    pub switches: u64,
    /// Simulated nanoseconds.
    pub ns: u64,
    /// A hash of the whole trace: equal for equal runs.
    pub hash: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Key {
    Futex(usize),
    End(usize),
    Readiness,
    Inode(u64),
    Transfer(u64),
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Ready,
    Asleep { key: Key, until: Option<u64> },
    Ended,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slept {
    Woken,
    TimeIsUp,
    Interrupted,
}

struct Thread {
    name: String,
    state: State,
    baton: Arc<Baton>,
    call: &'static str,
    table: usize,
    steps: u32,
    locks: u32,
    takes_signals: bool,
    /// Signals whose handlers have not run.
    signals: VecDeque<SigInfo>,
    is_interrupted: bool,
    sleeps: i64,
    transfers: u64,
    /// The clock of the thread's processor, while the thread does not run.
    clock: u64,
}

type Event = Box<dyn FnOnce(&mut World) + Send>;

pub(crate) struct World {
    pub(crate) prng: Prng,
    pub(crate) rates: Rates,
    pub(crate) now: u64,
    pub(crate) kernel: Kernel,
    pub(crate) faults: Faults,
    pub(crate) gives_up: bool,
    pub(crate) waits_on_words: bool,
    pub(crate) marks_pages: bool,
    pub(crate) knows_no_nowait: bool,
    pub(crate) starts_no_read: bool,
    /// Throttled buffered writes in parts per million, and their longest delay in nanoseconds.
    pub(crate) throttled: (u32, u64),
    pub(crate) late_ppm: u32,
    pub(crate) zeroing_ns: u64,
    /// Number of request tags; `None`: /sys does not show it.
    pub(crate) tags: Option<u32>,
    pub(crate) steps: Steps,
    pub(crate) cores: Option<Cores>,
    threads: Vec<Thread>,
    running: usize,
    /// Events by time; equal times in the order of addition.
    events: Vec<(u64, Event)>,
    report: Report,
    trace: VecDeque<String>,
    over: Option<mpsc::Sender<Result<(), Failure>>>,
    seed: u64,
}

const TRACE_MAX: usize = 400;
/// If nothing is due within this time, the run fails because the program hangs.
const SLEEP_MAX_NS: u64 = 3_600_000_000_000;

impl World {
    pub(crate) fn after(&mut self, ns: u64, event: impl FnOnce(&mut World) + Send + 'static) {
        let at = self.now + ns;
        let index = self.events.partition_point(|(other, _)| *other <= at);
        self.events.insert(index, (at, Box::new(event)));
    }

    pub(crate) fn wake(&mut self, key: Key, count: usize) -> usize {
        let asleep =
            |thread: &Thread| matches!(thread.state, State::Asleep { key: k, .. } if k == key);
        let mut woken = 0;
        while woken < count {
            let all: Vec<usize> =
                (0..self.threads.len()).filter(|id| asleep(&self.threads[*id])).collect();
            if all.is_empty() {
                break;
            }
            let drawn = all[self.prng.index(all.len())];
            self.threads[drawn].state = State::Ready;
            if self.cores.is_some() {
                let clock = self.now + cores::wake_ns(key);
                self.threads[drawn].clock = clock.max(self.threads[drawn].clock);
            }
            woken += 1;
        }
        woken
    }

    pub(crate) fn table(&self) -> usize {
        self.threads[self.running].table
    }

    pub(crate) fn set_table(&mut self, table: usize) {
        let running = self.running;
        self.threads[running].table = table;
    }

    pub(crate) fn running(&self) -> usize {
        self.running
    }

    pub(crate) fn name_thread(&mut self, name: String) {
        let running = self.running;
        self.threads[running].name = name;
    }

    pub(crate) fn next_step(&mut self) -> (String, u32) {
        let running = &mut self.threads[self.running];
        running.steps += 1;
        (running.name.clone(), running.steps - 1)
    }

    pub(crate) fn takes_signals(&mut self) {
        let running = self.running;
        self.threads[running].takes_signals = true;
    }

    pub(crate) fn transfers_awaited(&self) -> u64 {
        self.threads[self.running].transfers
    }

    /// Gives a signal to a drawn thread that takes signals, and interrupts the thread's sleep if
    /// possible. If no thread takes signals, the signal is lost.
    pub(crate) fn send_signal(&mut self, signal: SigInfo) {
        let takes = |it: &Thread| it.takes_signals && it.state != State::Ended;
        let takers: Vec<usize> =
            (0..self.threads.len()).filter(|id| takes(&self.threads[*id])).collect();
        if takers.is_empty() {
            return;
        }
        let drawn = takers[self.prng.index(takers.len())];
        let thread = &mut self.threads[drawn];
        thread.signals.push_back(signal);
        if let State::Asleep { key: Key::Futex(_) | Key::End(_) | Key::Readiness, .. } =
            thread.state
        {
            (thread.state, thread.is_interrupted) = (State::Ready, true);
        }
    }

    pub(crate) fn has_ended(&self, id: usize) -> bool {
        self.threads[id].state == State::Ended
    }

    pub(crate) fn note(&mut self, text: impl FnOnce() -> String) {
        if self.trace.len() == TRACE_MAX {
            self.trace.pop_front();
        }
        let line = format!("{:>12} {:<16} {}", self.now, self.threads[self.running].name, text());
        let hash = line.bytes().fold(self.report.hash, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        self.report.hash = hash;
        self.trace.push_back(line);
    }

    fn catch_up(&mut self) {
        while self.events.first().is_some_and(|(at, _)| *at <= self.now) {
            let (_, event) = self.events.remove(0);
            event(self);
        }
        let now = self.now;
        for thread in &mut self.threads {
            if matches!(thread.state, State::Asleep { until: Some(until), .. } if until <= now) {
                thread.state = State::Ready;
            }
        }
    }

    /// Returns `None` if no thread is ready, and nothing will wake one within an hour.
    fn choose(&mut self) -> Option<usize> {
        if self.cores.is_some() {
            return self.choose_earliest();
        }
        loop {
            self.catch_up();
            let ready = |id: &usize| self.threads[*id].state == State::Ready;
            let ready: Vec<usize> = (0..self.threads.len()).filter(ready).collect();
            if !ready.is_empty() {
                return Some(ready[self.prng.index(ready.len())]);
            }
            let until = |thread: &Thread| match thread.state {
                State::Asleep { until, .. } => until,
                _ => None,
            };
            let sleepers = self.threads.iter().filter_map(until).min();
            let next = [sleepers, self.events.first().map(|(at, _)| *at)].into_iter().flatten();
            self.now = next.min().filter(|next| *next - self.now < SLEEP_MAX_NS)?;
        }
    }

    fn fail(&mut self, message: String) {
        let trace = Vec::from(core::mem::take(&mut self.trace)).join("\n");
        self.ends(Err(Failure { seed: self.seed, message, trace }));
    }

    fn is_over(&self) -> bool {
        self.over.is_none()
    }

    pub(crate) fn ends(&mut self, end: Result<(), Failure>) {
        let _outside = interpose::Outside::enter();
        if let Some(over) = self.over.take() {
            let _ = over.send(end);
        }
    }

    fn sleepers(&self) -> String {
        let asleep = |thread: &Thread| match thread.state {
            State::Asleep { key, .. } => {
                Some(format!("  {} in {} for {key:?}", thread.name, thread.call))
            }
            _ => None,
        };
        let threads: Vec<String> = self.threads.iter().filter_map(asleep).collect();
        threads.join("\n")
    }

    fn hang(&mut self) {
        self.fail(format!("hangs: nothing will happen, and these sleep\n{}", self.sleepers()));
    }
}

/// A simulated machine.
pub struct Machine {
    world: Mutex<World>,
}

pub(crate) struct Cpu<'m> {
    machine: &'m Machine,
    world: Option<MutexGuard<'m, World>>,
    me: usize,
}

impl core::ops::Deref for Cpu<'_> {
    type Target = World;

    fn deref(&self) -> &World {
        self.world.as_ref().expect("only let go of to sleep")
    }
}

impl core::ops::DerefMut for Cpu<'_> {
    fn deref_mut(&mut self) -> &mut World {
        self.world.as_mut().expect("only let go of to sleep")
    }
}

impl Cpu<'_> {
    pub(crate) fn sleep(&mut self, key: Key, until: Option<u64>) -> Slept {
        let me = self.me;
        self.threads[me].state = State::Asleep { key, until };
        self.threads[me].sleeps += 1;
        self.threads[me].transfers += u64::from(matches!(key, Key::Transfer(_)));
        self.hand_over();
        if core::mem::take(&mut self.threads[me].is_interrupted) {
            return Slept::Interrupted;
        }
        match until.is_none_or(|until| self.now < until) {
            true => Slept::Woken,
            false => Slept::TimeIsUp,
        }
    }

    pub(crate) fn sleeps(&self) -> i64 {
        self.threads[self.me].sleeps
    }

    fn has_signal(&self) -> bool {
        !self.threads[self.me].signals.is_empty()
    }

    pub(crate) fn sleep_until(&mut self, ns: u64) {
        while self.now < ns {
            self.sleep(Key::Time, Some(ns));
        }
    }

    pub(crate) fn yield_now(&mut self) {
        self.hand_over();
    }

    fn hand_over(&mut self) {
        let (me, now) = (self.me, self.now);
        self.threads[me].clock = now;
        let Some(next) = self.choose() else {
            self.hang();
            return self.stop();
        };
        if next != self.me {
            self.report.switches += 1;
            self.running = next;
            let baton = self.threads[next].baton.clone();
            let mine = self.threads[self.me].baton.clone();
            self.world = None;
            baton.give();
            mine.take();
            self.world = Some(self.machine.lock());
        }
    }

    fn stop(&mut self) {
        self.world = None;
        stop()
    }

    fn pause(&mut self) {
        const LOCKS_MAX: u32 = 100_000;
        let id = self.me;
        self.threads[id].locks += 1;
        if self.threads[id].locks > LOCKS_MAX {
            self.fail("runs in circles: too many locks without a system call".to_owned());
            self.stop();
        }
        let rate = self.rates.lock;
        if rate > 0 && self.prng.chance(rate) {
            self.threads[id].call = "a lock";
            if self.prng.chance(500_000) {
                self.yield_now();
            } else {
                // The sleep may be long enough for other threads to do much meanwhile.
                let until = self.now + self.drawn_time();
                self.sleep(Key::Time, Some(until));
            }
            self.threads[id].call = "user code";
        }
    }

    fn begin_call(&mut self, name: &'static str) {
        const CALLS_MAX: u64 = 200_000;
        let id = self.me;
        if self.is_over() {
            self.stop();
        }
        self.report.calls += 1;
        let cost = match self.cores {
            Some(_) => cores::call_ns(name),
            None => self.prng.range(50..=1_000),
        };
        self.now += cost;
        // Events that are due happen before this call.
        match self.cores {
            Some(_) => self.keep_order(),
            None => self.catch_up(),
        }
        (self.threads[id].call, self.threads[id].locks) = (name, 0);
        if self.report.calls > CALLS_MAX {
            let sleepers = self.sleepers();
            self.fail(format!("runs in circles: too many system calls; these sleep\n{sleepers}"));
            self.stop();
        }
        let switch = self.rates.switch;
        if self.prng.chance(switch) {
            self.yield_now();
        }
    }
}

/// Stops the calling thread permanently, because the run is over.
pub(crate) fn stop() -> ! {
    loop {
        Baton::default().take();
    }
}

impl Machine {
    /// Runs `main` and the threads that it starts on a machine of its own, until all have ended.
    ///
    /// # Errors
    /// A thread panicked; the threads wait for an event that never happens; or there were too many
    /// system calls, or too many locks without one. Threads that have not ended then sleep
    /// permanently.
    pub fn run<T: Send + 'static>(
        seed: u64,
        main: impl FnOnce() -> T + Send + 'static,
    ) -> Result<(T, Report), Failure> {
        // Threads of all machines share some state, such as parking_lot's table of sleepers: two
        // machines at once would wake each other's threads.
        static ONE: Mutex<()> = Mutex::new(());
        let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let (machine, main, end) = Machine::start(seed, 0, Steps::default(), main);
        end.recv().expect("a run ends, or fails")?;
        let value = main.join().unwrap_or_else(|_| unreachable!("a panic has failed the run"));
        Ok((value, machine.report()))
    }

    /// Like `run`, in a process for this run alone: a thread may end the run early.
    pub(crate) fn run_to_exit(
        seed: u64,
        order: u64,
        steps: Steps,
        main: impl FnOnce() + Send + 'static,
    ) -> Result<Report, Failure> {
        let (machine, _, end) = Machine::start(seed, order, steps, main);
        end.recv().expect("a run ends, or fails")?;
        Ok(machine.report())
    }

    fn report(&self) -> Report {
        let world = self.lock();
        Report { ns: world.now, ..world.report }
    }

    fn start<T: Send + 'static>(
        seed: u64,
        order: u64,
        steps: Steps,
        main: impl FnOnce() -> T + Send + 'static,
    ) -> (Arc<Machine>, JoinHandle<T>, mpsc::Receiver<Result<(), Failure>>) {
        raw::answered_by(interpose::answer, interpose::pause);
        interpose::take_panics();
        let mut prng = Prng::new(seed);
        let rates = Rates::draw(&mut prng);
        (0..order).for_each(|_| prng = prng.fork());
        let (over, end) = mpsc::channel();
        let world = World {
            prng,
            rates,
            now: 1_000_000_000,
            kernel: Kernel::default(),
            faults: Faults::none(),
            gives_up: false,
            waits_on_words: true,
            marks_pages: false,
            knows_no_nowait: false,
            starts_no_read: false,
            throttled: (0, 0),
            late_ppm: 0,
            zeroing_ns: 0,
            tags: None,
            steps,
            cores: None,
            threads: Vec::new(),
            running: 0,
            events: Vec::new(),
            report: Report { calls: 0, switches: 0, ns: 0, hash: 0xcbf2_9ce4_8422_2325 },
            trace: VecDeque::new(),
            over: Some(over),
            seed,
        };
        let machine = Arc::new(Machine { world: Mutex::new(world) });
        let (id, turn) = machine.add_thread("main".to_owned());
        turn.give();
        let first = machine.clone();
        let main = std::thread::spawn(move || {
            interpose::enter(&first, id, &turn);
            main()
        });
        (machine, main, end)
    }

    /// Fails the run. The thread that panics stops at its next system call: here it holds the lock
    /// of the panic hook.
    pub(crate) fn fail(&self, message: String) {
        self.lock().fail(message);
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, World> {
        let _outside = interpose::Outside::enter();
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a thread, which inherits the running thread's descriptor table.
    pub(crate) fn add_thread(&self, name: String) -> (usize, Arc<Baton>) {
        let mut world = self.lock();
        let baton = Arc::<Baton>::default();
        let table = world.threads.get(world.running).map_or(0, |running| running.table);
        let (state, now) = (State::Ready, world.now);
        let (call, baton_of) = ("user code", baton.clone());
        world.threads.push(Thread {
            name,
            state,
            baton: baton_of,
            call,
            table,
            steps: 0,
            locks: 0,
            takes_signals: false,
            signals: VecDeque::new(),
            is_interrupted: false,
            sleeps: 0,
            transfers: 0,
            clock: now,
        });
        (world.threads.len() - 1, baton)
    }

    pub(crate) fn end_thread(&self, id: usize) {
        let mut world = self.lock();
        if world.is_over() {
            drop(world);
            stop()
        }
        world.note(|| "ends".to_owned());
        if world.gives_up {
            world.give_up_entries_of(id);
        }
        world.threads[id].state = State::Ended;
        let signals = core::mem::take(&mut world.threads[id].signals);
        signals.into_iter().for_each(|signal| world.send_signal(signal));
        world.wake(Key::End(id), usize::MAX);
        match world.choose() {
            Some(next) => {
                world.running = next;
                let baton = world.threads[next].baton.clone();
                drop(world);
                baton.give();
            }
            None if world.threads.iter().all(|it| it.state == State::Ended) => world.ends(Ok(())),
            None => world.hang(),
        }
    }

    pub(crate) fn at<T>(&self, id: usize, work: impl FnOnce(&mut Cpu<'_>) -> T) -> T {
        let _outside = interpose::Outside::enter();
        let mut cpu = Cpu { machine: self, world: Some(self.lock()), me: id };
        let value = work(&mut cpu);
        drop(cpu);
        value
    }

    fn run_handlers(&self, id: usize) {
        while let Some(signal) = self.at(id, |cpu| cpu.threads[id].signals.pop_front()) {
            signals::raise(&signal);
        }
    }

    pub(crate) fn pause(&self, id: usize) {
        let has_signal = self.at(id, |cpu| {
            cpu.pause();
            cpu.has_signal()
        });
        if has_signal {
            self.run_handlers(id);
        }
    }

    /// Runs `work` as a system call of the running thread. Other threads may run before the call,
    /// and signal handlers before and after it.
    pub(crate) fn call<T>(
        &self,
        id: usize,
        name: &'static str,
        work: impl FnOnce(&mut Cpu<'_>) -> T,
    ) -> T {
        let has_signal = self.at(id, |cpu| {
            cpu.begin_call(name);
            cpu.has_signal()
        });
        if has_signal {
            self.run_handlers(id);
        }
        let (value, has_signal) = self.at(id, |cpu| {
            cpu.threads[id].call = name;
            let value = work(cpu);
            cpu.threads[id].call = "user code";
            (value, cpu.has_signal())
        });
        if has_signal {
            self.run_handlers(id);
        }
        value
    }
}
