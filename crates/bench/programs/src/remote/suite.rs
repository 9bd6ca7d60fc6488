//! Runs the cases: every server on the same store, interleaved.

use std::collections::BTreeSet;
use std::fs::File;
use std::process::Command;
use std::time::Duration;

use serde_json::json;

use super::args::RemoteArgs;
use super::cases::{Before, Job, Server, Work};
use super::client::{self, Span};
use super::killed::Blocks;
use super::peer::Peer;
use super::relay::{Passed, Relay};
use super::store::Store;
use super::subject::{Place, Programs, lacks};
use super::zerofs;
use nowait_harness::args::Extent;
use nowait_harness::case::{Case, Subject};
use nowait_harness::error::{BenchError, Context, Result};
use nowait_harness::host::Host;
use nowait_harness::measurement::{CaseResults, Measurement, Pairs};
use nowait_harness::metric::{Metric, Sample};
use nowait_harness::progress::Progress;
use nowait_harness::runner;
use nowait_harness::server;
use nowait_harness::verdict;

/// What figures that are published are of, at least.
const PUBLISHED_S: f64 = 5.0;

/// Measures.
///
/// # Errors
/// A program is missing, or a run failed.
pub(crate) fn measure(
    mut cases: Vec<Case<Job>>,
    extent: &Extent,
    args: &RemoteArgs,
) -> Result<Measurement> {
    let fio = Command::new("fio").arg("--version").output();
    let fio = fio.context(|| "cannot start fio; install it".to_owned())?;
    let version = String::from_utf8_lossy(&fio.stdout).trim().to_owned();
    let nowait = server::nowait_serve();
    std::fs::create_dir_all(&args.dir).context(|| args.dir.display().to_string())?;
    let scratch = tempfile::tempdir_in(&args.dir).context(|| "temporary folder".to_owned())?;
    let store = Store::start(&args.store, &scratch.path().join("store"))?;
    let relay = Relay::start(store.address())?;
    let programs = Programs::from(args);
    let mut notes = leave_possible(&mut cases, &programs);
    let (endpoint, folder) = (relay.address(), scratch.path().to_owned());
    let place = Place { nowait, endpoint, folder, programs };
    let peer = Peer { program: args.peers.clone(), endpoint: relay.address() };
    let progress = Progress::new();
    runner::expect(&progress, &cases, extent.rounds, |_| extent.runtime.as_secs_f64());
    progress.start_runs();
    let mut runs = Runs {
        place,
        peer,
        relay,
        delay: Duration::from_millis(args.delay),
        extent: *extent,
        filled: BTreeSet::new(),
    };
    let run = |case: &Case<Job>, subject: &Subject<Job>, round| {
        let sample = runs.one(subject.job, subject.name, round).map_err(|error| {
            BenchError::failed(format!("{}, {}: {error}", subject.name, case.name))
        });
        sample.map(Some)
    };
    let measured = runner::measure(&progress, &cases, extent.rounds, run)?;
    let quick = extent.runtime.as_secs_f64() < PUBLISHED_S || extent.rounds < verdict::ROUNDS_MIN;
    if quick {
        notes.push("quick, not to be published".to_owned());
    }
    let params = json!({
        "rounds": extent.rounds,
        "runtime_s": extent.runtime.as_secs_f64(),
        "quick": quick,
        "size_bytes": extent.size_bytes,
        "delay_ms": args.delay,
        "store": "versitygw",
    });
    let results = cases.iter().zip(measured).filter(|(_, runs)| !runs.is_empty());
    let results = results.map(|(case, runs)| CaseResults::new(case, runs, json!({})));
    let words = format!("{} ms are added to each request to the store. ", args.delay);
    Ok(Measurement {
        pairs: Pairs::FirstWith,
        notes,
        words: (words, "CPU is that of the server, from its start to its end. "),
        ..Measurement::new("remote", Host::describe(&args.dir, &version), params, results.collect())
    })
}

/// Leaves the servers that can be had; returns why others cannot.
fn leave_possible(cases: &mut Vec<Case<Job>>, programs: &Programs) -> Vec<String> {
    let mut notes = BTreeSet::new();
    for case in cases.iter_mut() {
        case.subjects.retain(|subject| match lacks(subject.job, programs) {
            Some(why) => {
                notes.insert(format!("{} was not measured: {why}", subject.name));
                false
            }
            None => true,
        });
    }
    cases.retain(|case| !case.subjects.is_empty());
    *cases = cases.drain(..).map(Case::with_possible_targets).collect();
    notes.into_iter().collect()
}

/// What the runs have in common.
struct Runs {
    place: Place,
    peer: Peer,
    relay: Relay,
    delay: Duration,
    extent: Extent,
    /// Images that have content.
    filled: BTreeSet<String>,
}

impl Runs {
    fn one(&mut self, job: Job, subject: &str, round: usize) -> Result<Sample> {
        let Extent { runtime, size_bytes, .. } = self.extent;
        let span = Span { size_bytes, runtime, seed: round as u64 + 1 };
        let reads = !matches!(job.work, Work::Write { .. } | Work::Killed);
        // What is read only is filled once; what is written is new each time.
        let image = match (reads, job.server) {
            // Both have the same objects.
            (true, Server::S3backer | Server::S3backerNbd) => "filled-s3backer".to_owned(),
            (true, Server::ZeroFs(_)) => "filled-zerofs".to_owned(),
            (true, Server::Local(_)) => "filled-local".to_owned(),
            (true, Server::Crate(which)) => format!("filled-{}", which.word()),
            (true, Server::Nowait(_)) => "filled".to_owned(),
            (false, _) => format!("written-{subject}-{job:?}-{round}"),
        };
        // As names of objects are.
        let image: String =
            image.chars().filter(|it| it.is_ascii_alphanumeric() || *it == '-').collect();
        if self.filled.insert(image.clone()) {
            self.relay.delay(Duration::ZERO);
            self.make(job.server, &image, reads, span)?;
        }
        self.relay.delay(self.delay);
        match job.work {
            Work::Snapshot => {
                let name = format!("{image}@s{round}");
                let us = self.place.image("snapshot", &[&name], &[])?;
                return Ok(Sample::from([(Metric::LatencyUsP50, us)]));
            }
            Work::Clone => {
                let name = format!("{image}@c{round}");
                self.place.image("snapshot", &[&name], &[])?;
                let us = self.place.image("clone", &[&name, &format!("clone-{round}")], &[])?;
                return Ok(Sample::from([(Metric::LatencyUsP50, us)]));
            }
            Work::Killed => return self.killed(job.server, &image, span),
            Work::Write { .. } | Work::Read { .. } | Work::Sequential { .. } => {}
        }
        if let Server::Crate(which) = job.server {
            let before = self.relay.passed();
            let report = self.peer.run(which, job.work, &image, span)?;
            let passed = self.relay.passed().since(before);
            let mut sample = report.sample();
            count(&mut sample, (passed, passed), (report.ios, report.bytes), reads);
            return Ok(sample);
        }
        let served = self.place.serve(job.server, &image, size_bytes)?;
        client::touch(served.target(), span)?;
        // A cache gets all of it.
        if matches!(job.server, Server::Nowait(Before::Memory | Before::Folder) | Server::Local(_))
        {
            client::warm(served.target(), span)?;
        }
        let before = self.relay.passed();
        let parsed = client::run(served.target(), job.work, span)?;
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
            Server::S3backer | Server::S3backerNbd | Server::Crate(_) => {}
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

/// Adds what the store was asked for: until the client ended, and until all had ended.
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
