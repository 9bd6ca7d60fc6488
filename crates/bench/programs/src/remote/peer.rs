//! Other crates on the store, in a program of their own (`stores/`, outside of the workspace).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::client::Span;
use super::killed::{self, Blocks};
use super::store::{self, BUCKET};
use super::{Kind, Work};
use nowait_harness::error::{Failure, Result};
use nowait_harness::launch;
use nowait_harness::metric::Sample;
use nowait_harness::server::Server;

pub(crate) const PROGRAM: &str = "crates/bench/programs/stores/target/release/nowait-bench-stores";

/// Time beyond that of a run after which the program counts as hung.
const GRACE: Duration = Duration::from_mins(2);

#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) program: PathBuf,
    pub(crate) endpoint: SocketAddr,
}

#[derive(Debug, Clone, Copy, Deserialize)]
struct Lost {
    lost: u64,
}

/// The keys of the figures are names of metrics.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Report {
    pub(crate) ios: f64,
    pub(crate) bytes: f64,
    #[serde(flatten)]
    pub(crate) sample: Sample,
}

impl Peer {
    pub(crate) fn lacks(program: &Path) -> Option<String> {
        let built = "cargo build --release --manifest-path crates/bench/programs/stores/Cargo.toml";
        (!program.is_file()).then(|| format!("{} is not there: {built}", program.display()))
    }

    pub(crate) fn fill(&self, way: Kind, image: &str, size_bytes: u64) -> Result<()> {
        launch::succeed(&mut self.command(way, image, size_bytes, &json!("fill")), GRACE).map(drop)
    }

    pub(crate) fn run(&self, way: Kind, work: Work, image: &str, span: Span) -> Result<Report> {
        let load = |clients: u32| {
            let runtime_ms = span.runtime.as_millis() as u64;
            json!({ "clients": clients, "runtime_ms": runtime_ms, "seed": span.seed })
        };
        let work = match work {
            Work::Write { flush, clients } => {
                json!({ "write": { "flush": flush, "load": load(clients) } })
            }
            Work::Read { depth } => json!({ "read": load(depth) }),
            Work::Sequential { depth } => json!({ "sequential": load(depth) }),
            Work::Killed | Work::Snapshot | Work::Clone => unreachable!("no work of a client"),
        };
        self.ask(way, image, span.size_bytes, &work, span.runtime)
    }

    /// The program makes the file `written` after the last flush, and waits to be killed.
    pub(crate) fn write_flushed(
        &self,
        way: Kind,
        image: &str,
        blocks: Blocks,
        written: &Path,
    ) -> Result<Server> {
        let work = json!({ "blocks": killed::BLOCKS, "seed": blocks.seed, "written": written });
        let work = json!({ "write-flushed": work });
        let mut command = self.command(way, image, blocks.size_bytes, &work);
        Server::start(&mut command, blocks.patience(), || written.exists())
    }

    pub(crate) fn count_lost(&self, way: Kind, image: &str, blocks: Blocks) -> Result<u64> {
        let work = json!({ "count-lost": { "blocks": killed::BLOCKS, "seed": blocks.seed } });
        let patience = blocks.patience();
        Ok(self.ask::<Lost>(way, image, blocks.size_bytes, &work, patience)?.lost)
    }

    fn ask<T: DeserializeOwned>(
        &self,
        way: Kind,
        image: &str,
        size_bytes: u64,
        work: &Value,
        runtime: Duration,
    ) -> Result<T> {
        launch::answer(&mut self.command(way, image, size_bytes, work), runtime + GRACE)
            .map_err(|error| Failure::new(format!("{}: {error}", way.word())))
    }

    fn command(&self, way: Kind, image: &str, size_bytes: u64, work: &Value) -> Command {
        let (way, endpoint) = (way.word(), format!("http://{}", self.endpoint));
        let job = json!({
            "way": way, "endpoint": endpoint, "bucket": BUCKET,
            "image": image, "size": size_bytes, "work": work,
        });
        let mut command = Command::new(&self.program);
        launch::inherit_nothing_of_ours(&mut command);
        store::introduce(&mut command).arg(job.to_string());
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::metric::Metric;

    #[test]
    fn what_the_program_prints_is_read() {
        let printed = r#"{"ios": 200, "bytes": 819200, "iops": 100.5, "latency_us_p50": 10.5}"#;
        let report: Report = serde_json::from_str(printed).expect("a report");
        assert_eq!((report.ios, report.bytes), (200.0, 819_200.0));
        let figures = [(Metric::Iops, 100.5), (Metric::LatencyUsP50, 10.5)];
        assert_eq!(report.sample, Sample::from(figures));
    }

    #[test]
    fn a_program_that_is_not_there_is_said_with_what_builds_it() {
        let why = Peer::lacks(Path::new("/nowhere")).expect("it is not there");
        assert!(why.contains("/nowhere") && why.contains("cargo build"), "{why}");
        assert_eq!(Peer::lacks(&std::env::current_exe().expect("this program")), None);
    }
}
