//! The command line of `bench remote`.

use std::path::PathBuf;

use clap::Args;

use super::cases::cases;
use super::{peer, suite};
use nowait_harness::args::{Defaults, FOLDER, MeasureArgs};
use nowait_harness::error::Result;
use nowait_harness::measurement::Measurement;

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
    /// What to measure
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The program of the store, versitygw
    #[arg(long, value_name = "FILE", default_value = "versitygw")]
    pub store: PathBuf,

    /// The program with SlateDB and a plain client
    #[arg(long, value_name = "FILE", default_value = peer::PROGRAM)]
    pub peers: PathBuf,

    /// The plugin of s3backer 2 in nbdkit: its name, or its file
    #[arg(long, value_name = "PLUGIN", default_value = "s3backer")]
    pub s3backer_plugin: PathBuf,

    /// The program of ZeroFS
    #[arg(long, value_name = "FILE", default_value = "zerofs")]
    pub zerofs: PathBuf,

    /// Milliseconds that each request to the store takes more, for the way there and back
    #[arg(long, value_name = "MS", default_value = "10",
          value_parser = clap::value_parser!(u64).range(..=10_000))]
    pub delay: u64,

    /// Folder of the store's files, and of caches
    #[arg(long, value_name = "FOLDER", default_value = FOLDER)]
    pub dir: PathBuf,
}

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed, or a report cannot be written.
pub fn run_remote(args: &RemoteArgs) -> Result<Option<Measurement>> {
    let extent = args.measure.extent(&DEFAULTS)?;
    let cases = args.measure.select_subjects(cases())?;
    args.measure.run(cases, |cases| suite::measure(cases, &extent, args))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cases_are_well_formed() {
        nowait_harness::testing::check(&cases());
    }
}
