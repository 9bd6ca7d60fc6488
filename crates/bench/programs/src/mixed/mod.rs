//! `bench mixed`: one thread that serves a thousand sockets, a file and a timer from one context,
//! against epoll with a pool of threads.
//!
//! A request is the number of a block, sixteen bytes; the answer is the block. The client is a
//! thread of this process, the same in all cases; what it uses is not counted.

mod client;
mod epoll;
mod nowait;

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use clap::Args;
use nowait_sys::file::{Advice, advise};
use serde_json::json;

use self::client::Client;
use nowait_harness::args::{Defaults, Extent, FOLDER, MeasureArgs};
use nowait_harness::case::{Case, Subject};
use nowait_harness::error::{BenchError, Context as _, Result, failed};
use nowait_harness::layout::TestFile;
use nowait_harness::measurement::{CaseResults, Measurement};
use nowait_harness::memory;
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::suite::{Description, Run, Session, Suite};
use nowait_harness::usage::Used;

const EXAMPLES: &str = "\
Five runs of 2 s on a file of 2G, of which nothing is cached at first; with --quick 500 ms.

Examples:
  nowait bench mixed                           1,000 sockets, about a minute
  nowait bench mixed --sockets 100 --runtime 500ms";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [2000, 500],
    size_bytes: [2 << 30; 2],
    least_bytes: 16 << 20,
};

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

    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Folder of the test file
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,
}

const BLOCK: usize = 4096;
const ASK: usize = 16;
const TICK_NS: u64 = 10_000_000;

/// `true` if nowait serves; else epoll with threads.
type Job = bool;

/// Servers.
const SERVERS: [(&str, Job); 2] = [("epoll + threads", false), ("nowait, one thread", true)];

fn case(sockets: u16) -> Case<Job> {
    let subject = |(name, job)| Subject { name, engine: (name, ""), job };
    Case {
        name: "mixed",
        title: format!("{sockets} sockets, a file and a timer"),
        about: "A request is the number of a block, the answer is the block. Client and server are \
                in one process, whose memory is both's; what the client uses of the processor is \
                not counted.",
        source: String::new(),
        columns: &[Metric::Iops, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo],
        subjects: SERVERS.into_iter().map(subject).collect(),
        targets: Vec::new(),
    }
}

/// Runs the servers by turns and prints a table.
///
/// # Errors
/// A run failed.
pub fn run_mixed(args: &MixedArgs) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects(vec![case(args.sockets)])?;
    args.measure.measure(&DEFAULTS, cases, |_, _| {
        let file = TestFile::with_pattern(args.dir.join("nowait-bench.mixed"), args.measure.keep);
        Ok(Mixed { args, file, ticks: BTreeMap::new() })
    })
}

struct Mixed<'a> {
    args: &'a MixedArgs,
    file: TestFile,
    /// How often each server saw the timer.
    ticks: BTreeMap<&'static str, u64>,
}

impl Suite for Mixed<'_> {
    type Job = Job;

    fn prepare(&mut self, _cases: &mut Vec<Case<Job>>, session: &mut Session) -> Result<()> {
        session.lay_out(&self.file)
    }

    fn run(&mut self, it: Run<'_, Job>, session: &mut Session) -> Result<Sample> {
        let file = OpenOptions::new().read(true).open(self.file.path());
        let file = file.context(|| format!("open {}", self.file.path().display()))?;
        let dropped = advise(file.as_raw_fd(), 0, 0, Advice::DontNeed);
        dropped.map_err(failed("drop the page cache"))?;
        let (by_nowait, seed) = (it.subject.job, it.round as u64);
        let (sample, ticks) = one_run(self.args, &session.extent, &file, by_nowait, seed)?;
        *self.ticks.entry(it.subject.name).or_default() += ticks;
        Ok(sample)
    }

    fn describe(&mut self, _results: &[CaseResults], session: &mut Session) -> Description {
        let ticks = self.ticks.iter();
        session
            .notes
            .extend(ticks.map(|(name, ticks)| format!("{name}: {ticks} ticks of the timer")));
        let params = json!({
            "sockets": self.args.sockets,
            "threads": self.args.threads,
            "page_cache": "pages of the file dropped before each run",
        });
        Description::new("mixed", &self.args.dir, params)
    }
}

/// Serves a client for the run's time; returns the figures and how often the timer was seen.
fn one_run(
    args: &MixedArgs,
    extent: &Extent,
    file: &File,
    by_nowait: Job,
    seed: u64,
) -> Result<(Sample, u64)> {
    memory::forget_peak();
    let pairs: std::io::Result<Vec<_>> = (0..args.sockets).map(|_| UnixStream::pair()).collect();
    let pairs = pairs.context(|| format!("{} socket pairs", args.sockets))?;
    let (servers, clients): (Vec<_>, Vec<_>) = pairs.into_iter().unzip();
    let (before, start) = (Used::now()?, Instant::now());
    let (until, blocks) = (start + extent.runtime, extent.size_bytes / BLOCK as u64);
    let client = Client { answered: AtomicU64::new(0), seed, blocks, until };
    let (ticks, used) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| client.run(&clients));
        let ticks = match by_nowait {
            true => nowait::serve(&servers, file),
            false => epoll::serve(&servers, file, usize::from(args.threads)),
        };
        // A server that failed has clients that wait.
        hang_up(&servers);
        let used = asking.join().map_err(|_| BenchError::failed("the client panicked"))?;
        match (ticks, used) {
            (Ok(ticks), Ok(used)) => Ok((ticks, used)),
            (Err(error), Ok(_)) | (Ok(_), Err(error)) => Err(error),
            // Either ends when the other does.
            (Err(server), Err(client)) => {
                Err(BenchError::failed(format!("the server: {server}; the client: {client}")))
            }
        }
    })?;
    let answered = client.answered.load(Relaxed) as f64;
    let mut sample = Used::now()?.less(used).less(before).for_each_of(answered);
    sample.insert(Metric::RssBytesMax, memory::peak_bytes());
    sample.insert(Metric::Iops, answered / start.elapsed().as_secs_f64());
    Ok((sample, ticks))
}

/// Ends all connections; those that have ended are as they were.
fn hang_up(sockets: &[UnixStream]) {
    for socket in sockets {
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// Returns which byte of the file a request is for.
fn block_of(request: &[u8]) -> u64 {
    let mut number = [0; 8];
    number.copy_from_slice(&request[..8]);
    u64::from_le_bytes(number) * BLOCK as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_block::conformance::note_skip_here;
    use nowait_harness::pattern;
    use nowait_harness::report::Document;
    use nowait_harness::testing::parse;
    use std::path::Path;
    use std::sync::atomic::AtomicBool;
    use std::time::Duration;

    /// Short runs with files in this folder.
    fn tiny(folder: &Path, sockets: u16, rounds: u16) -> MixedArgs {
        let path = |name: &str| folder.join(name).display().to_string();
        let (sockets, rounds) = (sockets.to_string(), rounds.to_string());
        let small = ["--threads=2", "--runtime=50ms", "--size=16M", "--sockets", &sockets];
        let places = ["--dir", &path("."), "--json", &path("mixed.json"), "--html"];
        let more = [&path("mixed.html"), "--rounds", &rounds];
        parse(&[&small[..], &places, &more].concat())
    }

    /// Runs every server on a file with these contents; what each says.
    fn run_on(contents: &[u8], blocks: u64, sockets: u16) -> Vec<Result<(Sample, u64)>> {
        let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
        let path = folder.path().join("data");
        std::fs::write(&path, contents).expect("written");
        let file = File::open(&path).expect("there");
        let args = tiny(folder.path(), sockets, 1);
        let (rounds, runtime) = (1, Duration::from_millis(30));
        let extent = Extent { rounds, runtime, size_bytes: blocks * BLOCK as u64 };
        let run = |(_, by_nowait)| match one_run(&args, &extent, &file, by_nowait, 1) {
            Err(error) if error.to_string().contains("start an engine") => {
                note_skip_here(&error.to_string());
                None
            }
            outcome => Some(outcome),
        };
        SERVERS.into_iter().filter_map(run).collect()
    }

    fn laid_out(blocks: usize) -> Vec<u8> {
        let mut contents = vec![0; blocks * BLOCK];
        pattern::fill(0, &mut contents);
        contents
    }

    /// Several rounds: the end of a ring interrupts the next wait of its thread, which is epoll's.
    #[test]
    fn all_servers_answer() {
        for sockets in [1, 20] {
            let folder = tempfile::tempdir_in(FOLDER).expect("a folder");
            if let Err(error) = run_mixed(&tiny(folder.path(), sockets, 3)) {
                return note_skip_here(&error.to_string());
            }
            let saved = Document::read(&folder.path().join("mixed.json")).expect("the figures");
            assert_eq!(saved.rows.len(), SERVERS.len() * 4);
            assert!(folder.path().join("mixed.html").exists());
        }
    }

    #[test]
    fn a_wrong_byte_and_a_short_file_are_failures_that_end() {
        for sockets in [1, 20] {
            let mut contents = laid_out(4);
            for page in contents.chunks_mut(BLOCK) {
                page[BLOCK - 1] ^= 1;
            }
            for outcome in run_on(&contents, 4, sockets) {
                let text = outcome.expect_err("wrong bytes").to_string();
                assert!(text.contains("wrong bytes"), "{text}");
            }
            for outcome in run_on(&laid_out(1)[..BLOCK / 2], 1, sockets) {
                let text = outcome.expect_err("half a block").to_string();
                let epoll = text.contains("a thread of the pool");
                assert!(epoll || text.contains("2048 instead of 4096"), "{text}");
            }
        }
    }

    extern "C" fn nothing(_signal: libc::c_int) {}

    /// Rings that end interrupt a wait of their thread in the same way.
    #[test]
    fn a_wait_that_a_signal_interrupts_goes_on() {
        let handler = nothing as extern "C" fn(libc::c_int);
        // SAFETY: the handler does nothing; no other test uses this signal.
        unsafe { libc::signal(libc::SIGUSR2, handler as libc::sighandler_t) };
        // SAFETY: takes nothing.
        let served = unsafe { libc::pthread_self() };
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !over.load(Relaxed) {
                    // SAFETY: the thread waits for this one, so it lives.
                    unsafe { libc::pthread_kill(served, libc::SIGUSR2) };
                    std::thread::yield_now();
                }
            });
            let outcomes = run_on(&laid_out(4), 4, 1);
            over.store(true, Relaxed);
            assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
        });
    }
}
