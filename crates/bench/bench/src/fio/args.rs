//! The command lines of the suites of fio.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

use nowait_harness::args::{DiskArgs, MeasureArgs, found_in_dist};
use nowait_harness::error::Result;
use nowait_harness::units::{parse_duration, parse_size};

const SUBMIT_EXAMPLES: &str = "\
Runs of 3 s on a file of 8G that is read uncached; with --quick 1 s on 2G.

Examples:
  nowait bench submit --quick                  every case, short: about five minutes
  nowait bench submit --case a,b --rounds 9    two cases, more certain
  nowait bench submit --dir /mnt/xfs --html report.html --json report.json
  nowait bench submit --engine system,nowait-threads --case a
  nowait bench submit --list                   the cases and their targets, nothing run";

pub(crate) const POSIX_EXAMPLES: &str = "\
Runs of 3 s on a file of 8G that is read uncached; with --quick 1 s on 2G.

Examples:
  nowait bench posix --quick                   both cases, short: about two minutes
  nowait bench posix --case buffered --rounds 9
  nowait bench posix --list                    the cases and their targets, nothing run";

const DEMO_EXAMPLES: &str = "\
Examples:
  nowait bench demo                            one table, and nowait-demo.html
  nowait bench demo --dir /mnt/xfs --html /tmp/demo.html";

const PARITY_SHORT: &str = "\
Examples:
  nowait bench parity --rounds 1               every cell once: about seven minutes
  nowait bench parity --case 'write-cached*'   some cells
When a cell is ok, and more examples: nowait bench parity --help";

const PARITY_EXAMPLES: &str = "\
Runs of 2 s on a file of 4G that is read uncached; with --quick 500 ms on 1G.

Examples:
  nowait bench parity --rounds 1               every cell once: about seven minutes
  nowait bench parity --case 'write-cached*'   some cells
  nowait bench parity --case sync-4k-d1 --seconds 10 --rounds 9
  nowait bench parity --busy 2                 beside two busy loops
  nowait bench parity --threads 1,4,16 --case direct-read-4k-d16
  nowait bench parity --verify                 what nowait reads and writes, not how fast
  nowait bench parity --engine system,nowait-threads --case 'read*'
  nowait bench parity --json a.json            for `nowait bench compare a.json b.json`
  nowait bench parity --list                   the cells, nothing run

A cell is ok if under nowait it has at least 0.97 times the IOPS (0.95 with --busy) and at most 1.10
times the processor time a request (not judged with --busy), by the median of the rounds. With
--check the exit code is 1 if a cell is slower or dearer; --verify fails if data are wrong.";

/// Measures the time inside `io_submit`, case by case, and checks it against the targets.
#[derive(Debug, Clone, Args)]
#[command(after_help = SUBMIT_EXAMPLES)]
pub struct SubmitArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// The disk under test
    #[command(flatten)]
    pub disk: DiskArgs,

    /// The places of fio, of nowait's library and of a folder in memory
    #[command(flatten)]
    pub places: Places,
}

/// Shows what nowait does to an unmodified program, in under 90 seconds.
#[derive(Debug, Clone, Args)]
#[command(after_help = DEMO_EXAMPLES)]
pub struct DemoArgs {
    /// Where the HTML report goes
    #[arg(long, value_name = "FILE", default_value = "nowait-demo.html")]
    pub html: PathBuf,

    /// Write the figures to a JSON file too
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Everything, file creation included, ends about within this time
    #[arg(long, value_name = "TIME", default_value = "70s", value_parser = parse_duration)]
    pub budget: Duration,

    /// Size of the file that is read
    #[arg(long, value_name = "SIZE", default_value = "4G", value_parser = parse_size)]
    pub size: u64,

    /// The disk under test
    #[command(flatten)]
    pub disk: DiskArgs,

    /// The places of fio, of nowait's library and of a folder in memory
    #[command(flatten)]
    pub places: Places,
}

/// The places of the programs, and of a file system in memory.
#[derive(Debug, Clone, Args)]
pub struct Places {
    /// A folder in memory (tmpfs) for the case b-tmpfs
    #[arg(long, value_name = "FOLDER", default_value = "/dev/shm")]
    pub tmpfs: PathBuf,

    /// Folder with `lib/libnowait_preload.so` [default: beside this program, or dist]
    #[arg(long, value_name = "FOLDER")]
    pub dist: Option<PathBuf>,

    /// The fio to run
    #[arg(long, value_name = "PROGRAM", default_value = "fio")]
    pub fio: PathBuf,
}

impl Places {
    /// Finds the library to preload.
    ///
    /// # Errors
    /// The file is missing; the message names the folders that were searched.
    pub fn preload(&self) -> Result<PathBuf> {
        found_in_dist(self.dist.as_deref(), "lib/libnowait_preload.so")
    }
}

/// Measures every kind of work of an unmodified libaio program with and without nowait.
#[derive(Debug, Clone, Args)]
#[command(after_help = PARITY_SHORT, after_long_help = PARITY_EXAMPLES)]
pub struct ParityArgs {
    /// Cases, engines, rounds and reports
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Busy loops beside the runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub busy: usize,

    /// Run each cell with these numbers of threads instead of its own, such as 1,4,16
    #[arg(long, value_name = "N,…", value_delimiter = ',',
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub threads: Vec<u32>,

    /// Verify the data of each cell under nowait (crc32c) instead of measuring it
    #[arg(long)]
    pub verify: bool,

    /// The disk under test
    #[command(flatten)]
    pub disk: DiskArgs,

    /// The places of fio, of nowait's library and of a folder in memory
    #[command(flatten)]
    pub places: Places,
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::testing::parse;

    #[test]
    fn the_command_line_is_well_formed() {
        let _: SubmitArgs = parse(&[]);
        let demo: DemoArgs = parse(&["--size", "1G"]);
        assert_eq!(demo.size, 1 << 30);
    }
}
