//! Other crates on the store, in a program of their own (`stores/`, outside of the workspace).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::client::Span;
use super::killed::{self, Blocks};
use super::store::{self, BUCKET};
use super::{Kind, Work};
use nowait_harness::error::{BenchError, Result};
use nowait_harness::launch;
use nowait_harness::metric::Sample;
use nowait_harness::server::Server;

/// Where the program is after `cargo build` in its folder.
pub(crate) const PROGRAM: &str = "crates/bench/programs/stores/target/release/nowait-bench-stores";

/// Time beyond that of a run after which the program counts as hung.
const GRACE: Duration = Duration::from_mins(2);

/// The program, and where the store is reached.
#[derive(Debug, Clone)]
pub(crate) struct Peer {
    pub(crate) program: PathBuf,
    pub(crate) endpoint: SocketAddr,
}

/// The output of the program when it has looked for blocks.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Lost {
    lost: u64,
}

/// The output of the program: the figures have the names of metrics.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(crate) struct Report {
    pub(crate) ios: f64,
    pub(crate) bytes: f64,
    #[serde(flatten)]
    pub(crate) sample: Sample,
}

impl Peer {
    /// Says why there is none, if there is none.
    pub(crate) fn lacks(program: &Path) -> Option<String> {
        let built = "cargo build --release --manifest-path crates/bench/programs/stores/Cargo.toml";
        (!program.is_file()).then(|| format!("{} is not there: {built}", program.display()))
    }

    /// Writes all of an image once.
    pub(crate) fn fill(&self, which: Kind, image: &str, size_bytes: u64) -> Result<()> {
        launch::succeed(self.command(which, image, size_bytes).arg("fill"), GRACE).map(drop)
    }

    /// Does the work of a client.
    pub(crate) fn run(&self, which: Kind, work: Work, image: &str, span: Span) -> Result<Report> {
        let (word, clients) = match work {
            Work::Write { clients, .. } => ("write", clients),
            Work::Read { depth } => ("read", depth),
            Work::Sequential { depth } => ("sequential", depth),
            Work::Killed | Work::Snapshot | Work::Clone => {
                return Err(failed(which, "it has no such thing"));
            }
        };
        let mut words = vec![word.to_owned()];
        if let Work::Write { flush, .. } = work {
            words.extend(["--flush".to_owned(), flush.to_string()]);
        }
        words.extend(["--clients".to_owned(), clients.to_string()]);
        words.extend(["--runtime-ms".to_owned(), span.runtime.as_millis().to_string()]);
        words.extend(["--seed".to_owned(), span.seed.to_string()]);
        self.ask(which, image, span.size_bytes, &words, span.runtime)
    }

    /// Has a program write blocks and flush each; returns the idle program, which makes the file
    /// `written` when it is done.
    pub(crate) fn write_flushed(
        &self,
        which: Kind,
        image: &str,
        blocks: Blocks,
        written: &Path,
    ) -> Result<Server> {
        let mut command = self.command(which, image, blocks.size_bytes);
        command.arg("write-flushed").args(Peer::words_of(blocks)).arg("--written").arg(written);
        Server::start(&mut command, blocks.patience(), || written.exists())
    }

    /// Returns how many of the blocks do not have what was written.
    pub(crate) fn count_lost(&self, which: Kind, image: &str, blocks: Blocks) -> Result<u64> {
        let words = [vec!["count-lost".to_owned()], Peer::words_of(blocks)].concat();
        let patience = blocks.patience();
        Ok(self.ask::<Lost>(which, image, blocks.size_bytes, &words, patience)?.lost)
    }

    fn words_of(blocks: Blocks) -> Vec<String> {
        let count = killed::BLOCKS.to_string();
        ["--blocks".to_owned(), count, "--seed".to_owned(), blocks.seed.to_string()].to_vec()
    }

    fn ask<T: DeserializeOwned>(
        &self,
        which: Kind,
        image: &str,
        size_bytes: u64,
        words: &[String],
        runtime: Duration,
    ) -> Result<T> {
        let mut command = self.command(which, image, size_bytes);
        let answer = launch::answer(command.args(words), runtime + GRACE);
        answer.map_err(|error| failed(which, &error.to_string()))
    }

    fn command(&self, which: Kind, image: &str, size_bytes: u64) -> Command {
        let mut command = Command::new(&self.program);
        launch::inherit_nothing_of_ours(&mut command);
        store::introduce(&mut command).arg(which.word());
        command.args(["--endpoint", &format!("http://{}", self.endpoint), "--bucket", BUCKET]);
        command.args(["--image", image, "--size", &size_bytes.to_string()]);
        command
    }
}

fn failed(which: Kind, why: &str) -> BenchError {
    BenchError::failed(format!("{}: {why}", which.word()))
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
