//! `bench remote`: images on an object store, with a network of a chosen delay before it.
//!
//! ```text
//!  cases.toml ─► RemoteSuite ─┬─ place     servers of an image, by their commands of the table
//!                             │   └─ zerofs  settings of one of them, and the making of its device
//!                             ├─ killed    blocks written before a server is killed, read after it
//!                             ├─ peer      other crates on the store, in a separate program
//!                             ├─ store     the store, which the suite starts
//!                             └─ relay     between server and store: delays and counts requests
//! ```

mod client;
mod killed;
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
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::suite::{Description, Run, Session, Suite};
use nowait_harness::{fio, layout};
use serde::Deserialize;
use serde_json::json;
use tempfile::TempDir;

use self::client::Span;
use self::killed::Blocks;
use self::peer::Peer;
use self::place::{Place, Programs, lack};
use self::relay::{Passed, Relay};
use self::store::Store;

const EXAMPLES: &str = "\
Five rounds of 5 s on images of 64M, with 10 ms added to each request to the store; with --quick
1 s. The store is versitygw, started here on files. Others are left out where they are not
installed: nbdkit with the plugin of s3backer 2, from its source; ZeroFS, by `cargo install zerofs
--version 0.19.1 --locked`.
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

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Engine {
    kind: Kind,
    /// The command of the NBD server; the suite fills in `{store}`, `{image}`, `{socket}`, ….
    #[serde(default)]
    command: Vec<String>,
    /// Options of a cache as large as the image. The suite fills images without them.
    #[serde(default)]
    cache: Vec<String>,
    #[serde(default)]
    settings: String,
}

/// The program that keeps the image.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    Nowait,
    S3backer,
    Zerofs,
    /// A local file, as a comparison for caches.
    Local,
    /// A crate in the client's process: a key for each block. `Plain`: ranges of one object.
    Slatedb,
    Plain,
}

impl Kind {
    fn is_crate(self) -> bool {
        matches!(self, Kind::Slatedb | Kind::Plain)
    }

    fn word(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Work {
    /// Each of `clients` clients writes random blocks, and flushes after each `flush` writes. With
    /// SlateDB, one client flushes after each `flush` writes of all clients.
    Write { flush: u32, clients: u32 },
    /// A client reads random blocks. With a cache, a client has read the whole image before.
    Read { depth: u32 },
    /// A client reads the image in order, 256 KiB a request.
    Sequential { depth: u32 },
    /// A client writes and flushes blocks. The suite kills the server, and reads from a new one.
    Killed,
    /// Makes a snapshot of an image with content.
    Snapshot,
    /// Makes a clone of a snapshot.
    Clone,
}

type Job = cases::Job<Engine, Work>;

fn cases() -> Vec<Case<Job>> {
    table(include_str!("cases.toml"))
}

pub fn run_remote(args: &RemoteArgs) -> Result<Option<Measurement>> {
    let cases = args.measure.select_subjects(cases())?;
    args.measure.measure(&DEFAULTS, cases, |_, _| {
        let scratch = layout::scratch_in(&args.dir)?;
        let store = Store::start(&args.store, &scratch.path().join("store"))?;
        let relay = Relay::start(store.address())?;
        let cache = scratch.path().join("cache");
        std::fs::create_dir(&cache).context(|| cache.display().to_string())?;
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
    filled: BTreeSet<String>,
    _store: Store,
    _removed_on_drop: TempDir,
}

impl Suite for RemoteSuite {
    type Job = Job;

    fn prepare(&mut self, cases: &mut Vec<Case<Job>>, session: &mut Session) -> Result<()> {
        session.leave_possible(cases, |_, subject| lack(&subject.job, &self.place.programs));
        Ok(())
    }

    fn run(&mut self, it: Run<'_, Job>, session: &mut Session) -> Result<Sample> {
        let (runtime, size_bytes) = (session.extent.runtime, session.extent.size_bytes);
        let span = Span { size_bytes, runtime, seed: it.seed() };
        let Job { engine, work } = &it.subject.job;
        let reads = !matches!(work, Work::Write { .. } | Work::Killed);
        let image = image_of(&it, reads);
        if self.filled.insert(image.clone()) {
            self.relay.delay(Duration::ZERO);
            self.make(engine, &image, reads, span)?;
        }
        self.relay.delay(self.delay);
        match *work {
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
                self.asked(engine, *work, &image, span, reads)
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

/// Returns the name of the image of a run. A run that writes blocks has a new image. The other runs
/// share one image for each [`Kind`] of engine. The suite fills that image once.
fn image_of(it: &Run<'_, Job>, reads: bool) -> String {
    let name = match reads {
        true => format!("filled-{}", it.subject.job.engine.kind.word()),
        false => format!("written-{}-{}-{}", it.subject.name, it.case.name, it.round),
    };
    // Keeps only characters that names of objects may have.
    name.chars().filter(|it| it.is_ascii_alphanumeric() || *it == '-').collect()
}

impl RemoteSuite {
    fn asked(
        &self,
        engine: &Engine,
        work: Work,
        image: &str,
        span: Span,
        reads: bool,
    ) -> Result<Sample> {
        if engine.kind.is_crate() {
            let before = self.relay.passed();
            let report = self.peer.run(engine.kind, work, image, span)?;
            let passed = self.relay.passed().since(before);
            let mut sample = report.sample;
            count(&mut sample, (passed, passed), (report.ios, report.bytes), reads);
            return Ok(sample);
        }
        let served = self.place.serve(engine, &engine.cache, image, span.size_bytes)?;
        client::touch(&served.uri, span)?;
        if !engine.cache.is_empty() {
            client::warm(&served.uri, span)?;
        }
        let before = self.relay.passed();
        let parsed = client::run(&served.uri, work, span)?;
        let read = self.relay.passed().since(before);
        let used = served.stop()?;
        let written = self.relay.passed().since(before);
        let mut sample = parsed.sample;
        sample.insert(Metric::CpuUsPerIo, used.cpu_us / parsed.ios);
        // The server stores the waiting writes at its end.
        count(&mut sample, (read, written), (parsed.ios, parsed.bytes), reads);
        Ok(sample)
    }

    fn killed(&self, engine: &Engine, image: &str, span: Span) -> Result<Sample> {
        let Span { size_bytes, seed, .. } = span;
        let blocks = Blocks { size_bytes, seed, delay: self.delay };
        let written = self.place.file("written");
        let _ = std::fs::remove_file(&written);
        let lost = if engine.kind.is_crate() {
            self.peer.write_flushed(engine.kind, image, blocks, &written)?.kill()?;
            self.relay.delay(Duration::ZERO);
            self.peer.count_lost(engine.kind, image, blocks)?
        } else {
            let serve = || {
                let served = self.place.serve(engine, &[], image, size_bytes)?;
                client::touch(&served.uri, span).map(|()| served)
            };
            let served = serve()?;
            let client = blocks.write(&served.uri, &written)?;
            served.server.kill()?;
            drop(client);
            self.relay.delay(Duration::ZERO);
            let served = serve()?;
            let lost = blocks.count_lost(&served.uri)?;
            served.stop()?;
            lost
        };
        Ok(Sample::from([(Metric::BlocksLost, lost as f64)]))
    }

    fn make(&self, engine: &Engine, image: &str, fills: bool, span: Span) -> Result<()> {
        match engine.kind {
            Kind::Nowait => {
                let size = span.size_bytes.to_string();
                self.place.image("create", &[image], &["--size", &size])?;
            }
            Kind::Local => {
                let path = self.place.file(image);
                let file = File::create(&path).and_then(|file| file.set_len(span.size_bytes));
                file.context(|| path.display().to_string())?;
            }
            Kind::Zerofs => {
                let served = self.place.serve(engine, &[], image, span.size_bytes)?;
                zerofs::make_device(&self.place, span.size_bytes)?;
                served.stop()?;
            }
            Kind::Slatedb | Kind::Plain if fills => {
                return self.peer.fill(engine.kind, image, span.size_bytes);
            }
            Kind::S3backer | Kind::Slatedb | Kind::Plain => {}
        }
        if fills {
            let served = self.place.serve(engine, &[], image, span.size_bytes)?;
            client::fill(&served.uri, span)?;
            served.stop()?;
        }
        Ok(())
    }
}

/// `read` counts up to the end of the client, `written` up to the end of the server.
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
