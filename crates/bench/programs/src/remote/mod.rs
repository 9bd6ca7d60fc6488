//! `bench remote`: images on an object store, with a network of a chosen delay before it.
//!
//! ```text
//!  cases.toml ─► RemoteSuite ─┬─ place     servers of an image, started with the store's address
//!                             │   └─ zerofs  what one of them needs, ninep to make its device
//!                             ├─ killed    blocks written before a server is killed, read after it
//!                             ├─ peer      other crates on the store, in a program of their own
//!                             ├─ store     the store: one that is started here
//!                             └─ relay     between them: delays, and counts what is asked for
//! ```

mod client;
mod killed;
mod ninep;
mod peer;
mod place;
mod relay;
mod store;
mod zerofs;

use std::collections::BTreeSet;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use nowait_harness::args::{Defaults, FOLDER, MeasureArgs};
use nowait_harness::case::Case;
use nowait_harness::cases::{self, table};
use nowait_harness::error::{Context, Result};
use nowait_harness::fio;
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::suite::{Description, Run, Session, Suite};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use self::client::Span;
use self::killed::Blocks;
use self::peer::Peer;
use self::place::{Place, Programs, lacks};
use self::relay::{Passed, Relay};
use self::store::Store;

const EXAMPLES: &str = "\
Five rounds of 5 s on images of 64M, with 10 ms added to each request to the store; with --quick
1 s. The store is versitygw, started here on files. Others are left out where they are not
installed: s3backer; nbdkit with the plugin of s3backer 2, from its source; ZeroFS, by `cargo
install zerofs --version 0.19.1 --locked`.
SlateDB and a plain client are a program that is built by hand first, in some minutes:

  cargo build --release --manifest-path crates/bench/programs/stores/Cargo.toml

Examples:
  nowait bench remote --store ./versitygw
  nowait bench remote --delay 0 --case flush,flush-16
  nowait bench remote --list";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [5000, 1000],
    size_bytes: [64 << 20; 2],
    least_bytes: 8 << 20,
};

/// Measures images on an object store, and checks ours against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct RemoteArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The program of the store, versitygw
    #[arg(long, value_name = "FILE", default_value = "versitygw")]
    pub store: PathBuf,

    /// Programs of others
    #[command(flatten)]
    pub programs: Programs,

    /// Milliseconds that each request to the store takes more, for the way there and back
    #[arg(long, value_name = "MS", default_value = "10",
          value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub delay: u64,

    /// Folder of the store's files, and of caches
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,
}

/// A server of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Server {
    /// `nowait serve` of an image on the store.
    Nowait(Before),
    /// `s3backer`, without a cache: each write waits for the store, as one that is durable has to.
    S3backer(By),
    /// ZeroFS, one of its devices by NBD.
    ZeroFs(Level0),
    /// `nowait serve` of a file of this machine: what a cache is held against.
    Local(Local),
    /// No server: another crate on the store, in the client's process.
    Crate(Crate),
}

/// How s3backer shows an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    Fuse,
    /// The plugin of s3backer 2 in nbdkit.
    Nbd,
}

/// Another crate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Crate {
    /// SlateDB, with a key for each block.
    Slatedb,
    /// `object_store`: what the store gives a plain client.
    Plain,
}

impl Crate {
    /// Returns the word by which the program of the stores selects it.
    fn word(self) -> &'static str {
        match self {
            Crate::Slatedb => "slatedb",
            Crate::Plain => "plain",
        }
    }
}

/// How much ZeroFS flushes before it waits for a compaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Level0 {
    /// `l0_max_ssts` as it is without a setting, 16. When there are so many, a flush of the SlateDB
    /// 0.9 in it ends well and has done nothing.
    Default,
    /// `l0_max_ssts` of a million: no run reaches it.
    Unbounded,
}

/// The program that reads a file of this machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Local {
    /// `--cache user`, which has room for all.
    Memory,
    /// By direct I/O.
    Disk,
}

/// The program before the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Before {
    Nothing,
    /// `--cache user`, which has room for all.
    Memory,
    /// `--cache-dir`, by direct I/O.
    Folder,
}

/// The work on an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Work {
    /// Blocks are written at random, with a flush after so many, by clients that each wait for it.
    Write { flush: u32, clients: u32 },
    /// Blocks are read at random, so many in flight; with a cache, each was read before.
    Read { depth: u32 },
    /// All is read in order, 256 KiB a request.
    Sequential { depth: u32 },
    /// Blocks are written, each with a flush after it; then the server is killed, and started anew.
    Killed,
    /// A snapshot of an image with content is made.
    Snapshot,
    /// A clone of a snapshot is made.
    Clone,
}

type Job = cases::Job<Server, Work>;

fn cases() -> Vec<Case<Job>> {
    table(include_str!("cases.toml"))
}

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed, or a report cannot be written.
pub fn run_remote(args: &RemoteArgs) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects(cases())?;
    args.measure.measure(&DEFAULTS, cases, |_, _| {
        std::fs::create_dir_all(&args.dir).context(|| args.dir.display().to_string())?;
        let scratch = tempfile::tempdir_in(&args.dir).context(|| "temporary folder".to_owned())?;
        let store = Store::start(&args.store, &scratch.path().join("store"))?;
        let relay = Relay::start(store.address())?;
        let (endpoint, folder) = (relay.address(), scratch.path().to_owned());
        Ok(RemoteSuite {
            fio: fio::version(Path::new("fio"))?,
            place: Place { endpoint, folder, programs: args.programs.clone() },
            peer: Peer { program: args.programs.peers.clone(), endpoint },
            relay,
            delay: Duration::from_millis(args.delay),
            dir: args.dir.clone(),
            filled: BTreeSet::new(),
            _store: store,
            _removed_on_drop: scratch,
        })
    })
}

struct RemoteSuite {
    fio: String,
    place: Place,
    peer: Peer,
    relay: Relay,
    delay: Duration,
    dir: PathBuf,
    /// Images that have content.
    filled: BTreeSet<String>,
    _store: Store,
    _removed_on_drop: TempDir,
}

impl Suite for RemoteSuite {
    type Job = Job;

    fn prepare(&mut self, cases: &mut Vec<Case<Job>>, session: &mut Session) -> Result<()> {
        session.leave_possible(cases, |_, subject| lacks(&subject.job, &self.place.programs));
        Ok(())
    }

    fn run(&mut self, it: Run<'_, Job>, session: &mut Session) -> Result<Sample> {
        let (runtime, size_bytes) = (session.extent.runtime, session.extent.size_bytes);
        let span = Span { size_bytes, runtime, seed: it.seed() };
        let Job { engine, work } = it.subject.job;
        let reads = !matches!(work, Work::Write { .. } | Work::Killed);
        let image = image_of(&it, reads);
        if self.filled.insert(image.clone()) {
            self.relay.delay(Duration::ZERO);
            self.make(engine, &image, reads, span)?;
        }
        self.relay.delay(self.delay);
        match work {
            Work::Snapshot => {
                let name = format!("{image}@s{}", it.round);
                let us = self.place.image("snapshot", &[&name], &[])?;
                Ok(Sample::from([(Metric::LatencyUsP50, us)]))
            }
            Work::Clone => {
                let (snapshot, clone) = (format!("{image}@c{}", it.round), it.round);
                self.place.image("snapshot", &[&snapshot], &[])?;
                let us = self.place.image("clone", &[&snapshot, &format!("clone-{clone}")], &[])?;
                Ok(Sample::from([(Metric::LatencyUsP50, us)]))
            }
            Work::Killed => self.killed(engine, &image, span),
            Work::Write { .. } | Work::Read { .. } | Work::Sequential { .. } => {
                self.asked(engine, work, &image, span, reads)
            }
        }
    }

    fn describe(&mut self, _results: &[CaseResults], session: &mut Session) -> Description {
        let delay_ms = self.delay.as_millis() as u64;
        let (quick, store) = (session.is_quick(), "versitygw");
        let params = json!({ "quick": quick, "delay_ms": delay_ms, "store": store });
        let before = format!("{delay_ms} ms are added to each request to the store. ");
        Description {
            fio: self.fio.clone(),
            pairs: Pairs::FirstWith,
            words: (before, "CPU is that of the server, from its start to its end. "),
            ..Description::new("remote", &self.dir, params)
        }
    }
}

/// Names the image of a run: what is read only is filled once; what is written is new each time.
fn image_of(it: &Run<'_, Job>, reads: bool) -> String {
    let name = match (reads, it.subject.job.engine) {
        // Both have the same objects.
        (true, Server::S3backer(_)) => "filled-s3backer".to_owned(),
        (true, Server::ZeroFs(_)) => "filled-zerofs".to_owned(),
        (true, Server::Local(_)) => "filled-local".to_owned(),
        (true, Server::Crate(which)) => format!("filled-{}", which.word()),
        (true, Server::Nowait(_)) => "filled".to_owned(),
        (false, _) => format!("written-{}-{}-{}", it.subject.name, it.case.name, it.round),
    };
    // As names of objects are.
    name.chars().filter(|it| it.is_ascii_alphanumeric() || *it == '-').collect()
}

impl RemoteSuite {
    /// Runs the client, and counts the requests to the store meanwhile.
    fn asked(
        &self,
        server: Server,
        work: Work,
        image: &str,
        span: Span,
        reads: bool,
    ) -> Result<Sample> {
        let before;
        if let Server::Crate(which) = server {
            before = self.relay.passed();
            let report = self.peer.run(which, work, image, span)?;
            let passed = self.relay.passed().since(before);
            let mut sample = report.sample();
            count(&mut sample, (passed, passed), (report.ios, report.bytes), reads);
            return Ok(sample);
        }
        let served = self.place.serve(server, image, span.size_bytes)?;
        client::touch(served.target(), span)?;
        // A cache gets all of it.
        if matches!(server, Server::Nowait(Before::Memory | Before::Folder) | Server::Local(_)) {
            client::warm(served.target(), span)?;
        }
        before = self.relay.passed();
        let parsed = client::run(served.target(), work, span)?;
        let read = self.relay.passed().since(before);
        let used = served.stop()?;
        let written = self.relay.passed().since(before);
        let mut sample = parsed.sample;
        sample.insert(Metric::CpuUsPerIo, used.cpu_us / parsed.ios);
        // The end has to put what waits.
        count(&mut sample, (read, written), (parsed.ios, parsed.bytes), reads);
        Ok(sample)
    }

    /// Writes blocks, kills the server, and counts what a new one does not have.
    fn killed(&self, server: Server, image: &str, span: Span) -> Result<Sample> {
        let Span { size_bytes, seed, .. } = span;
        let blocks = Blocks { size_bytes, seed, delay: self.delay };
        let written = self.place.file("written");
        let _ = std::fs::remove_file(&written);
        let lost = if let Server::Crate(which) = server {
            self.peer.write_flushed(which, image, blocks, &written)?.kill()?;
            self.relay.delay(Duration::ZERO);
            self.peer.count_lost(which, image, blocks)?
        } else {
            let served = self.place.serve(server, image, size_bytes)?;
            client::touch(served.target(), span)?;
            let client = blocks.write(served.target(), &written)?;
            served.kill()?;
            drop(client);
            self.relay.delay(Duration::ZERO);
            let served = self.place.serve(server, image, size_bytes)?;
            client::touch(served.target(), span)?;
            let lost = blocks.count_lost(served.target())?;
            served.stop()?;
            lost
        };
        Ok(Sample::from([(Metric::BlocksLost, lost as f64)]))
    }

    /// Makes an image, and fills it if it is to be read.
    fn make(&self, server: Server, image: &str, fills: bool, span: Span) -> Result<()> {
        let size = span.size_bytes.to_string();
        match server {
            Server::Nowait(_) => drop(self.place.image("create", &[image], &["--size", &size])?),
            Server::Local(_) => {
                let path = self.place.file(image);
                let file = File::create(&path).and_then(|file| file.set_len(span.size_bytes));
                file.context(|| path.display().to_string())?;
            }
            Server::Crate(which) if fills => {
                return self.peer.fill(which, image, span.size_bytes);
            }
            Server::ZeroFs(_) => {
                let served = self.place.serve(server, image, span.size_bytes)?;
                zerofs::make_device(&self.place, span.size_bytes)?;
                served.stop()?;
            }
            Server::S3backer(_) | Server::Crate(_) => {}
        }
        if fills {
            let plain = match server {
                Server::Nowait(_) => Server::Nowait(Before::Nothing),
                other => other,
            };
            let served = self.place.serve(plain, image, span.size_bytes)?;
            client::fill(served.target(), span)?;
            served.stop()?;
        }
        Ok(())
    }
}

/// Adds the counts of requests and bytes at the store: up to the end of the client, and up to the
/// end of all writes.
fn count(
    sample: &mut Sample,
    (read, written): (Passed, Passed),
    (ios, bytes): (f64, f64),
    reads: bool,
) {
    sample.insert(Metric::GetsPerIo, read.gets as f64 / ios);
    sample.insert(Metric::PutsPerIo, written.puts as f64 / ios);
    if !reads {
        sample.insert(Metric::BytesSentPerByte, written.sent as f64 / bytes);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_cases_are_well_formed() {
        nowait_harness::testing::check(&super::cases());
    }
}
