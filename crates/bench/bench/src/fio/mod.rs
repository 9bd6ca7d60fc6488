//! An unmodified fio with and without nowait: `bench submit` and `bench posix` against their
//! targets, `bench parity` on every kind of work, and `bench demo`.
//!
//! ```text
//!  args ─► suite ─┬─ job       the work of fio, by three tables, and the ways to run it
//!                 ├─ run       one run: its command line and environment, and its figures
//!                 └─ verdict   parity: the judgement of the figures of a cell
//! ```

mod args;
mod demo;
mod job;
mod run;
mod suite;
mod verdict;

pub(crate) use args::{DemoArgs, POSIX_EXAMPLES, ParityArgs, SubmitArgs};
pub(crate) use demo::run_demo;

use nowait_harness::args::{Defaults, MeasureArgs, unknown};
use nowait_harness::error::Result;
use nowait_harness::measurement::Measurement;

use self::job::{FioCase, cases, ways, with_threads, work};
use self::suite::{FioSuite, Parity, Plan};
use self::verdict::Limits;

const SUBMIT: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [3000, 1000],
    size_bytes: [8 << 30, 2 << 30],
    least_bytes: SIZE_BYTES_MIN,
};
const PARITY: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [2000, 500],
    size_bytes: [4 << 30, 1 << 30],
    least_bytes: CELL_BYTES_MIN,
};

const SIZE_BYTES_MIN: u64 = 4 << 20;
const CELL_BYTES_MIN: u64 = 16 << 20;

const VERIFY_BYTES: u64 = 16 << 20;

pub(crate) fn run_submit(args: &SubmitArgs, workload: &'static str) -> Result<Option<Measurement>> {
    let cases = select(&args.measure, cases(workload))?;
    args.measure.measure(&SUBMIT, cases, |cases, extent| {
        let plan = Plan {
            workload,
            cached_bytes: extent.size_bytes.min(256 << 20),
            fresh_bytes: (extent.size_bytes / 2).min(4 << 30),
            keep: args.measure.keep,
            budget: args.measure.budget,
            parity: None,
        };
        FioSuite::new(plan, cases, &args.disk, &args.places, extent)
    })
}

pub(crate) fn run_parity(args: &ParityArgs) -> Result<Option<Measurement>> {
    let (limits, verify) = (Limits::beside(args.busy), args.verify);
    let mut cases = with_threads(select(&args.measure, cases("parity"))?, &args.threads);
    for case in &mut cases {
        case.subjects.retain(|subject| !verify || subject.job.engine.preloads());
        case.targets = if verify { Vec::new() } else { limits.targets(case) };
    }
    args.measure.measure(&PARITY, cases, |cases, extent| {
        if verify {
            extent.size_bytes = VERIFY_BYTES;
            extent.rounds = usize::from(args.measure.rounds.unwrap_or(1));
        }
        let plan = Plan {
            workload: if verify { "parity-verify" } else { "parity" },
            cached_bytes: (extent.size_bytes / 4).clamp(CELL_BYTES_MIN, 256 << 20),
            fresh_bytes: (extent.size_bytes / 2).clamp(CELL_BYTES_MIN, 1 << 30),
            keep: args.measure.keep,
            budget: args.measure.budget,
            parity: Some(Parity { busy: args.busy, verify, limits }),
        };
        FioSuite::new(plan, cases, &args.disk, &args.places, extent)
    })
}

/// Without requested ways, a case keeps its own.
fn select(measure: &MeasureArgs, cases: Vec<FioCase>) -> Result<Vec<FioCase>> {
    let mut cases = measure.select(cases)?;
    let all = ways();
    let known: Vec<&str> = all.iter().map(|way| way.name).collect();
    let find = |asked: &String| {
        let name = if asked == "libaio" { "system" } else { asked };
        let found = all.iter().find(|way| way.name == name);
        found.cloned().ok_or_else(|| unknown("engine", name, &known))
    };
    let asked = measure.engines.iter().map(find).collect::<Result<Vec<_>>>()?;
    for case in cases.iter_mut().filter(|_| !asked.is_empty()) {
        let work = work(case).clone();
        case.subjects = asked.iter().map(|way| way.clone().doing(work.clone())).collect();
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_block::skip::note_skip_here;
    use nowait_harness::testing::parse;
    use std::path::Path;

    fn selected(arguments: &[&str]) -> Result<Vec<FioCase>> {
        select(&parse::<SubmitArgs>(arguments).measure, cases("submit"))
    }

    #[test]
    fn everything_is_the_default() {
        let selection = selected(&[]).expect("valid");
        assert_eq!(selection.len(), cases("submit").len());
        assert_eq!(selection[0].subjects.len(), 4);
    }

    #[test]
    fn cases_and_engines_can_be_chosen() {
        let chosen = selected(&["--case", "b,f", "--engine", "libaio,nowait-threads"]);
        let chosen = chosen.expect("valid");
        let names: Vec<&str> = chosen.iter().map(|case| case.name).collect();
        assert_eq!(names, ["b", "b-tmpfs", "f"]);
        let ways: Vec<&str> = chosen[0].subjects.iter().map(|subject| subject.name).collect();
        assert_eq!(ways, ["system", "nowait-threads"]);
        let unknown = selected(&["--case", "zz"]);
        assert_eq!(unknown.map_err(|error| error.exit_code()).err(), Some(2));
    }

    /// Returns `None` if fio or O_DIRECT is missing here.
    fn small(folder: &Path, workload: &'static str, engine: &str) -> Option<Measurement> {
        if let Err(error) = nowait_harness::fio::version("fio".as_ref()) {
            note_skip_here(&error.to_string());
            return None;
        }
        let path = |name: &str| folder.join(name).display().to_string();
        let small = ["--rounds=1", "--runtime=60ms", "--size=16M", "--keep-caches", "--engine"];
        let places = [engine, "--dir", &path("."), "--json", &path("report.json"), "--html"];
        let args = parse(&[&small[..], &places, &[&path("report.html")]].concat());
        match run_submit(&args, workload) {
            Ok(measurement) => measurement,
            Err(error) if error.to_string().contains("O_DIRECT") => {
                note_skip_here(&error.to_string());
                None
            }
            Err(error) => panic!("{error}"),
        }
    }

    #[test]
    fn the_posix_cases_run_small() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
        let Some(measurement) = small(folder.path(), "posix", "posixaio") else { return };
        assert_eq!(measurement.cases.len(), cases("posix").len());
    }

    #[test]
    fn every_case_runs_small() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
        let Some(measurement) = small(folder.path(), "submit", "system") else { return };
        let left_out = measurement.notes.iter().filter(|note| note.contains("was left out"));
        assert_eq!(measurement.cases.len() + left_out.count(), cases("submit").len());
        let json = measurement.json().expect("serializable");
        assert!(json.contains("\"submit_us_p999\""));
        let names = std::fs::read_dir(folder.path()).expect("readable");
        let mut names: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["report.html", "report.json"], "test files are removed");
    }
}
