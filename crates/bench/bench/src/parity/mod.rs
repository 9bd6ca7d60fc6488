//! `bench parity`: every kind of work of an unmodified libaio program by itself and under nowait.
//!
//! ```text
//!  ParityArgs ─► cells ─► submit's suite (fio by turns) ─► verdict: one table
//! ```

mod cells;
mod verdict;

use clap::Args;

use self::verdict::Limits;
use crate::args::{Defaults, DiskArgs, MeasureArgs};
use crate::case::{self, Case};
use crate::error::{BenchError, Result};
use crate::interrupt;
use crate::measurement::Measurement;
use crate::report::print;
use crate::submit::{Extra, Places, Plan, Way, find_fio, measure, select};

const SHORT: &str = "\
Examples:
  nowait bench parity --rounds 1               every cell once: about seven minutes
  nowait bench parity --case 'write-cached*'   some cells
When a cell is ok, and more examples: nowait bench parity --help";

const EXAMPLES: &str = "\
Runs of 2 s on a file of 4G that is read uncached; with --quick 500 ms on 1G.

Examples:
  nowait bench parity --rounds 1               every cell once: about seven minutes
  nowait bench parity --case 'write-cached*'   some cells
  nowait bench parity --case sync-4k-d1 --seconds 10 --rounds 9
  nowait bench parity --busy 2                 beside two busy loops
  nowait bench parity --verify                 what nowait reads and writes, not how fast
  nowait bench parity --engine system,nowait-threads --case 'read*'
  nowait bench parity --json a.json            for `nowait bench compare a.json b.json`
  nowait bench parity --list                   the cells, nothing run

A cell is ok if under nowait it has at least 0.97 times the IOPS (0.95 with --busy) and at most 1.10
times the processor time a request (not judged with --busy), by the median of the rounds. With
--check the exit code is 1 if a cell is slower or dearer; --verify fails if data are wrong.";

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [2000, 500],
    size_bytes: [4 << 30, 1 << 30],
    least_bytes: 16 << 20,
};

/// Bytes that `--verify` works on.
const VERIFY_BYTES: u64 = 16 << 20;

/// Measures every kind of work of an unmodified libaio program with and without nowait.
#[derive(Debug, Clone, Args)]
#[command(after_help = SHORT, after_long_help = EXAMPLES)]
pub struct ParityArgs {
    /// What to measure
    #[command(flatten)]
    pub measure: MeasureArgs,

    /// Busy loops beside the runs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub busy: usize,

    /// Verify the data of each cell under nowait (crc32c) instead of measuring it
    #[arg(long)]
    pub verify: bool,

    /// What the files under test lie on
    #[command(flatten)]
    pub disk: DiskArgs,

    /// Where things lie
    #[command(flatten)]
    pub places: Places,
}

/// Measures the cells, prints one table, and writes the reports asked for.
///
/// Returns `None` when it was only asked for a list.
///
/// # Errors
/// Something is missing, a run failed, a report cannot be written, or `--check` was given and a
/// cell is lost.
pub(crate) fn run_parity(args: &ParityArgs) -> Result<Option<Measurement>> {
    let limits = Limits::beside(args.busy);
    let cases = chosen(args, limits)?;
    if args.measure.list {
        print(&case::list(&cases))?;
        return Ok(None);
    }
    let plan = plan(args, &cases)?;
    args.measure.reports.prepare()?;
    interrupt::install();
    let mut measurement = measure(&plan, cases)?;
    measurement.cases.iter_mut().for_each(|case| verdict::record(case, limits));
    let table = match args.verify {
        true => verdict::verify_table(&measurement),
        false => verdict::table(&measurement, limits),
    };
    args.measure.reports.say(&table);
    measurement.write(&args.measure.reports)?;
    match verdict::lost(&measurement, limits) {
        lost if lost > 0 && args.measure.check => {
            Err(BenchError::failed(format!("{lost} cells are lost")))
        }
        _ => Ok(Some(measurement)),
    }
}

/// Returns the cells asked for, with their targets.
fn chosen(args: &ParityArgs, limits: Limits) -> Result<Vec<Case<Way>>> {
    let mut cases = select(&args.measure, cells::cells())?;
    for case in &mut cases {
        case.subjects.retain(|subject| !args.verify || subject.job.0.preloads());
        case.targets = if args.verify { Vec::new() } else { cells::targets(case, limits) };
    }
    Ok(cases)
}

fn plan(args: &ParityArgs, cases: &[Case<Way>]) -> Result<Plan> {
    let mut extent = args.measure.extent(&DEFAULTS)?;
    if args.verify {
        extent.size_bytes = VERIFY_BYTES;
        extent.rounds = usize::from(args.measure.rounds.unwrap_or(1));
    }
    let extra = Extra { busy: args.busy, verify: args.verify, counts_start: true };
    Ok(Plan {
        workload: if args.verify { "parity-verify" } else { "parity" },
        extent,
        cached_bytes: (extent.size_bytes / 4).clamp(DEFAULTS.least_bytes, 256 << 20),
        fresh_bytes: (extent.size_bytes / 2).clamp(DEFAULTS.least_bytes, 1 << 30),
        folder: args.disk.dir.clone(),
        memory_folder: args.places.tmpfs.clone(),
        drop_caches: args.disk.drops_caches(),
        keep: args.measure.keep,
        budget: None,
        fio: find_fio(&args.places, cases)?,
        extra,
    })
}
