//! `bench mixed`: one thread that serves a thousand sockets, a file and a timer from one context,
//! against epoll with a pool of threads.
//!
//! The thread submits in two modes. In `auto` its submits are short, and the engine's own thread
//! reads the file; in `inline` it begins the reads itself, as many as its own queue takes.
//!
//! A request is the number of a block, sixteen bytes; the answer is the block. The client is a
//! thread of this process, the same in all cases; what it uses is not counted.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::ops::Range;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use clap::Args;
use comfy_table::Cell;
use nowait::{Command, Kind, Reply, Segments, Submission};
use nowait_file::{BackendChoice, SubmitMode};
use nowait_sys::epoll::{Epoll, Ready};
use nowait_sys::file::{Advice, IoVec, advise};
use nowait_sys::time::Deadline;
use nowait_sys::timer::Timer;
use serde::Serialize;

use crate::args::FOLDER;
use crate::error::{BenchError, Context as _, Result};
use crate::host::Host;
use crate::interleave::interleave;
use crate::interrupt;
use crate::layout::TestFile;
use crate::memory;
use crate::metric::{Metric, Sample};
use crate::report::{self, Document, RatioRow, Row, SCHEMA};
use crate::rig::{Rig, Usage, engine_with, failed};
use crate::stats::{self, SplitMix};
use crate::table::{change_text, new_table, right, with_spread};
use crate::units::{parse_duration, parse_size};
use crate::verdict;

const EXAMPLES: &str = "\
Examples:
  nowait bench mixed                           1,000 sockets, about a minute
  nowait bench mixed --sockets 100 --runtime 500ms";

/// Serves sockets, a file and a timer from one context and one thread, against epoll with threads.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct MixedArgs {
    /// Connections, each with one request at a time
    #[arg(long, value_name = "N", default_value = "1000")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=8000))]
    pub sockets: u16,

    /// Threads of the pool beside epoll
    #[arg(long, value_name = "N", default_value = "16")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=256))]
    pub threads: u16,

    /// Runs of each server
    #[arg(long, value_name = "N", default_value = "5")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: u16,

    /// Time of one run
    #[arg(long, value_name = "TIME", default_value = "2s", value_parser = parse_duration)]
    pub runtime: Duration,

    /// Size of the file, of which nothing is cached at first
    #[arg(long, value_name = "SIZE", default_value = "2G", value_parser = parse_size)]
    pub size: u64,

    /// Folder of the test file
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,

    /// Keep the laid-out file for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Write the figures as JSON to a file, or instead of the tables to standard output
    #[arg(long, value_name = "FILE", num_args = 0..=1, default_missing_value = "-")]
    pub json: Option<PathBuf>,

    /// Write a report to an HTML file
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
}

const BLOCK: usize = 4096;
const ASK: usize = 16;
const TICK_NS: u64 = 10_000_000;
const POLLIN: u16 = 1;
const O_RDWR: i32 = 2;
/// Servers; how those of nowait submit.
const SERVERS: [(&str, Option<SubmitMode>); 3] = [
    ("epoll + threads", None),
    ("nowait, one thread", Some(SubmitMode::Auto)),
    ("nowait, inline", Some(SubmitMode::Inline)),
];
const COLUMNS: [Metric; 3] = [Metric::Iops, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo];

/// Runs the servers by turns and prints a table.
///
/// # Errors
/// A run failed.
pub fn run_mixed(args: &MixedArgs) -> Result<()> {
    interrupt::install();
    report::prepare([&args.json, &args.html].into_iter().flatten().map(PathBuf::as_path))?;
    let layout = TestFile::new(args.dir.join("nowait-bench.mixed"), args.keep);
    let size = layout.lay_out(args.size.max(16 << 20), 0, &|_| true, &|_| {})?;
    let file = OpenOptions::new().read(true).open(layout.path());
    let file = file.context(|| format!("open {}", layout.path().display()))?;
    let runs = interleave(&SERVERS, usize::from(args.rounds), |round, server| {
        advise(file.as_raw_fd(), 0, 0, Advice::DontNeed).map_err(failed("drop the page cache"))?;
        one_run(args, &file, size / BLOCK as u64, server.1, round as u64)
    })?;
    let ticks = runs.iter().map(|runs| runs.iter().map(|(_, ticks)| ticks).sum()).collect();
    let samples = |runs: Vec<(Sample, u64)>| runs.into_iter().map(|(sample, _)| sample).collect();
    let results = Results { samples: runs.into_iter().map(samples).collect(), ticks };
    report::say(args.json.as_deref(), &text(&results));
    write(args, &results)?;
    interrupt::check()
}

/// What came out, by server.
struct Results {
    /// One a round.
    samples: Vec<Vec<Sample>>,
    /// How often the timer was seen.
    ticks: Vec<u64>,
}

impl Results {
    fn of(&self, server: usize, metric: Metric) -> Vec<f64> {
        self.samples[server].iter().filter_map(|sample| sample.get(&metric).copied()).collect()
    }
}

/// Prints a table, and how the servers compare with the first.
fn text(results: &Results) -> String {
    let mut table = new_table(&["server", "requests/s", "CPU each", "switches each", "ticks"]);
    for (index, (name, _)) in SERVERS.iter().enumerate() {
        let mut row = vec![Cell::new(name)];
        row.extend(COLUMNS.map(|metric| {
            let summary = stats::summarize(&results.of(index, metric));
            right(summary.map_or("–".to_owned(), |it| with_spread(metric, &it)))
        }));
        row.push(right(results.ticks[index]));
        table.add_row(row);
    }
    let mut text = table.to_string();
    for (index, (name, _)) in SERVERS.iter().enumerate().skip(1) {
        for metric in COLUMNS {
            let ratio = stats::ratio(&results.of(0, metric), &results.of(index, metric));
            if let Some(ratio) = ratio {
                let (label, change) = (metric.label(), change_text(&ratio));
                let ratio = verdict::ratio_text(&ratio);
                // Writing to a string cannot fail.
                let _ = write!(text, "\n{label} of {name}: {ratio} epoll's: {change}");
            }
        }
    }
    text
}

#[derive(Serialize)]
struct Params {
    rounds: u16,
    runtime_s: f64,
    size_bytes: u64,
    sockets: u16,
    threads: u16,
    /// State of the page cache before each run.
    page_cache: &'static str,
    cases: [CaseParams; 1],
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: String,
    about: &'static str,
}

fn write(args: &MixedArgs, results: &Results) -> Result<()> {
    const CASE: &str = "mixed";
    let metrics = [&COLUMNS[..], &[Metric::RssBytesMax]].concat();
    let row = |server: usize, metric| {
        Row::of(CASE, SERVERS[server].0, metric, results.of(server, metric))
    };
    let ratio = |(server, metric): (usize, Metric)| {
        let (epoll, nowait) = (results.of(0, metric), results.of(server, metric));
        RatioRow::of(CASE, metric, (SERVERS[0].0, &epoll), (SERVERS[server].0, &nowait))
    };
    let rows = |servers: Range<usize>| {
        servers.flat_map(|server| metrics.iter().map(move |metric| (server, *metric)))
    };
    let title = format!("{} sockets, a file and a timer", args.sockets);
    let about = "A request is the number of a block, the answer is the block. Client and server \
                 are in one process, whose memory is both's; what the client uses of the processor \
                 is not counted.";
    let document = Document {
        schema: SCHEMA,
        host: &Host::describe(&args.dir, "none"),
        workload: "mixed",
        params: Params {
            rounds: args.rounds,
            runtime_s: args.runtime.as_secs_f64(),
            size_bytes: args.size,
            sockets: args.sockets,
            threads: args.threads,
            page_cache: "pages of the file dropped before each run",
            cases: [CaseParams { case: CASE, title, about }],
        },
        rows: rows(0..SERVERS.len()).filter_map(|(server, metric)| row(server, metric)).collect(),
        ratios: rows(1..SERVERS.len()).filter_map(ratio).collect(),
        verdicts: Vec::new(),
        notes: &[],
    };
    report::write(&document, args.json.as_deref(), args.html.as_deref())
}

/// Serves a client for the run's time; returns the figures and how often the timer was seen.
fn one_run(
    args: &MixedArgs,
    file: &File,
    blocks: u64,
    by_nowait: Option<SubmitMode>,
    seed: u64,
) -> Result<(Sample, u64)> {
    memory::forget_peak();
    let pairs: std::io::Result<Vec<_>> = (0..args.sockets).map(|_| UnixStream::pair()).collect();
    let pairs = pairs.context(|| format!("{} socket pairs", args.sockets))?;
    let (servers, clients): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (before, start) = (Usage::now(), Instant::now());
    let client = Client { answered: AtomicU64::new(0), seed, blocks, until: start + args.runtime };
    let (ticks, used) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.ask(&clients));
        let ticks = match by_nowait {
            Some(submit) => serve_by_nowait(&servers, file, submit),
            None => serve_by_epoll(&servers, file, usize::from(args.threads)),
        };
        let used = asking.join().map_err(|_| BenchError::failed("the client panicked"))?;
        Ok::<_, BenchError>((ticks?, used?))
    })?;
    let answered = client.answered.load(Relaxed) as f64;
    let mut sample = Sample::new();
    Usage::now().without(used).since(before, answered, &mut sample);
    sample.insert(Metric::RssBytesMax, memory::peak_bytes());
    sample.insert(Metric::Iops, answered / start.elapsed().as_secs_f64());
    Ok((sample, ticks))
}

struct Client {
    answered: AtomicU64,
    seed: u64,
    blocks: u64,
    until: Instant,
}

impl Client {
    /// Asks on all connections, one request at a time on each, until the time is over; then hangs
    /// up each when it has its answer. Returns what the thread has used.
    fn ask(&self, clients: &[UnixStream]) -> Result<Usage> {
        let epoll = Epoll::new().map_err(failed("epoll"))?;
        let mut random = SplitMix(self.seed);
        let mut missing = vec![BLOCK; clients.len()];
        let ask = |mut client: &UnixStream, block: u64| {
            let mut request = [0; ASK];
            request[..8].copy_from_slice(&block.to_le_bytes());
            client.write_all(&request).context(|| "ask".to_owned())
        };
        for (index, client) in clients.iter().enumerate() {
            client.set_nonblocking(true).context(|| "a socket".to_owned())?;
            epoll.add(client.as_raw_fd(), POLLIN, index as u64).map_err(failed("epoll"))?;
            ask(client, random.next() % self.blocks)?;
        }
        let (mut open, mut ready, mut room) =
            (clients.len(), [Ready::default(); 256], vec![0; BLOCK]);
        while open > 0 {
            for event in epoll.wait(&mut ready, Deadline::NEVER).map_err(failed("epoll"))? {
                let index = event.data as usize;
                let mut client = &clients[index];
                let Ok(bytes) = client.read(&mut room[..missing[index]]) else { continue };
                missing[index] -= bytes;
                if missing[index] > 0 {
                    continue;
                }
                self.answered.fetch_add(1, Relaxed);
                missing[index] = BLOCK;
                if Instant::now() < self.until && !interrupt::happened() {
                    ask(client, random.next() % self.blocks)?;
                } else {
                    epoll.remove(client.as_raw_fd());
                    client.shutdown(std::net::Shutdown::Both).context(|| "hang up".to_owned())?;
                    open -= 1;
                }
            }
        }
        Ok(Usage::of_thread())
    }
}

fn block_of(request: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&request[..8]);
    u64::from_le_bytes(number) * BLOCK as u64
}

// --- one thread, one context ------------------------------------------------------------------

/// What a connection waits for.
#[derive(Clone, Copy)]
enum Wants {
    Request,
    Block,
    Room,
}

struct Server<'a> {
    rig: &'a Rig,
    sockets: &'a [UnixStream],
    file: &'a File,
    timer: &'a Timer,
}

impl Server<'_> {
    /// The memory of connection `index`; that of the timer is behind all.
    fn memory(&self, index: usize, len: usize) -> IoVec {
        self.rig.segment(index * BLOCK, len)
    }

    fn start(
        &self,
        submission: &mut Submission<'_>,
        index: usize,
        wants: Wants,
        at: u64,
    ) -> Result<()> {
        let (kind, fd, len) = match wants {
            Wants::Request => (Kind::Read, self.sockets[index].as_fd(), ASK),
            Wants::Block => (Kind::Read, self.file.as_fd(), BLOCK),
            Wants::Room => (Kind::Write, self.sockets[index].as_fd(), BLOCK),
        };
        self.begin(submission, kind, fd, index, len, at)
    }

    fn wait_for_tick(&self, submission: &mut Submission<'_>) -> Result<()> {
        let index = self.sockets.len();
        // SAFETY: the timer lives as long as the server.
        let fd = unsafe { BorrowedFd::borrow_raw(self.timer.raw()) };
        self.begin(submission, Kind::Read, fd, index, 8, 0)
    }

    fn begin(
        &self,
        submission: &mut Submission<'_>,
        kind: Kind,
        fd: BorrowedFd<'_>,
        index: usize,
        len: usize,
        at: u64,
    ) -> Result<()> {
        let segments = Segments::One(self.memory(index, len));
        // SAFETY: the memory is the rig's, which outlives its requests.
        let command = unsafe { Command::new(kind, (fd.as_raw_fd(), O_RDWR), segments, at as i64) };
        let reply = Reply { data: index as u64, obj: index as u64, eventfd: None };
        self.rig.context.io().reserve(1).map_err(failed("submit"))?;
        submission.start(command, reply).map_err(failed("submit"))
    }

    /// Serves until all have hung up; returns how often the timer was seen.
    fn run(&self) -> Result<u64> {
        let (count, mut ticks) = (self.sockets.len(), 0);
        let mut wants = vec![Wants::Request; count];
        let mut open = count;
        let mut submission = Submission::new(&self.rig.context);
        for index in 0..count {
            self.start(&mut submission, index, Wants::Request, 0)?;
        }
        self.wait_for_tick(&mut submission)?;
        submission.finish();
        let mut ended = Vec::new();
        while open > 0 {
            self.rig.reap_results(256, &mut ended)?;
            let mut submission = Submission::new(&self.rig.context);
            for (name, res) in ended.drain(..) {
                let index = name as usize;
                if index == count {
                    ticks += 1;
                    self.wait_for_tick(&mut submission)?;
                    continue;
                }
                let (next, at) = match wants[index] {
                    Wants::Request if res < ASK as i64 => {
                        open -= 1; // hung up
                        continue;
                    }
                    Wants::Request => {
                        // SAFETY: the read has ended: nobody writes there.
                        let request = unsafe {
                            core::slice::from_raw_parts(self.memory(index, ASK).base, ASK)
                        };
                        (Wants::Block, block_of(request))
                    }
                    Wants::Block => (Wants::Room, 0),
                    Wants::Room => (Wants::Request, 0),
                };
                wants[index] = next;
                self.start(&mut submission, index, next, at)?;
            }
            submission.finish();
        }
        Ok(ticks)
    }
}

fn serve_by_nowait(sockets: &[UnixStream], file: &File, submit: SubmitMode) -> Result<u64> {
    let engine = engine_with(BackendChoice::Uring, submit)?;
    let rig = Rig::new(&engine, sockets.len() + 1, (sockets.len() + 1) * BLOCK)?;
    let timer = Timer::every_ns(TICK_NS).map_err(failed("a timer"))?;
    let ticks = Server { rig: &rig, sockets, file, timer: &timer }.run();
    drop(rig);
    engine.shutdown();
    ticks
}

// --- epoll and a pool -------------------------------------------------------------------------

/// Requests on their way to the threads.
#[derive(Default)]
struct Jobs {
    queue: Mutex<VecDeque<(usize, u64)>>,
    more: Condvar,
    over: AtomicBool,
}

impl Jobs {
    fn work(&self, sockets: &[UnixStream], file: &File) -> std::io::Result<()> {
        let mut block = vec![0; BLOCK];
        loop {
            let mut queue = self.queue.lock().expect("no panic");
            let (index, at) = loop {
                match queue.pop_front() {
                    Some(job) => break job,
                    None if self.over.load(Relaxed) => return Ok(()),
                    None => queue = self.more.wait(queue).expect("no panic"),
                }
            };
            drop(queue);
            file.read_exact_at(&mut block, at)?;
            (&sockets[index]).write_all(&block)?; // there is room: one answer at a time
        }
    }
}

fn serve_by_epoll(sockets: &[UnixStream], file: &File, threads: usize) -> Result<u64> {
    let jobs = Jobs::default();
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| jobs.work(sockets, file))).collect();
        let served = hand_out(sockets, &jobs);
        jobs.over.store(true, Relaxed);
        drop(jobs.queue.lock());
        jobs.more.notify_all();
        for worker in workers {
            let worked = worker.join().map_err(|_| BenchError::failed("a thread panicked"))?;
            worked.context(|| "a thread of the pool".to_owned())?;
        }
        served
    })
}

fn hand_out(sockets: &[UnixStream], jobs: &Jobs) -> Result<u64> {
    let epoll = Epoll::new().map_err(failed("epoll"))?;
    let timer = Timer::every_ns(TICK_NS).map_err(failed("a timer"))?;
    for (index, socket) in sockets.iter().enumerate() {
        epoll.add(socket.as_raw_fd(), POLLIN, index as u64).map_err(failed("epoll"))?;
    }
    epoll.add(timer.raw(), POLLIN, sockets.len() as u64).map_err(failed("epoll"))?;
    let (mut open, mut ticks, mut ready) = (sockets.len(), 0, [Ready::default(); 256]);
    while open > 0 {
        let mut found = Vec::new();
        for event in epoll.wait(&mut ready, Deadline::NEVER).map_err(failed("epoll"))? {
            let index = event.data as usize;
            if index == sockets.len() {
                ticks += 1;
                timer.reset();
                continue;
            }
            let mut request = [0; ASK];
            let bytes = (&sockets[index]).read(&mut request).context(|| "a request".to_owned())?;
            if bytes < ASK {
                epoll.remove(sockets[index].as_raw_fd());
                open -= 1;
            } else {
                found.push((index, block_of(&request)));
            }
        }
        let count = found.len();
        jobs.queue.lock().expect("no panic").extend(found);
        (0..count).for_each(|_| jobs.more.notify_one());
    }
    Ok(ticks)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_servers_answer() {
        let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
        let args = MixedArgs {
            sockets: 20,
            threads: 2,
            rounds: 1,
            runtime: Duration::from_millis(30),
            size: 16 << 20,
            dir: folder.path().to_owned(),
            keep: false,
            json: Some(folder.path().join("mixed.json")),
            html: Some(folder.path().join("mixed.html")),
        };
        if let Err(error) = run_mixed(&args) {
            return nowait_block::conformance::note_skip_here(&error.to_string());
        }
        let saved = report::Saved::read(&folder.path().join("mixed.json")).expect("the figures");
        assert_eq!(saved.rows.len(), SERVERS.len() * 4);
        assert!(folder.path().join("mixed.html").exists());
    }
}
