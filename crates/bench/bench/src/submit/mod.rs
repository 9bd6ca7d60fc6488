//! `bench submit`: an unmodified fio with and without nowait: the time inside `io_submit`, case by
//! case, against the targets; `bench posix`, the same for POSIX AIO; and `bench demo`.
//!
//! ```text
//!  SubmitArgs, DemoArgs ─► suite ─┬─ cases      what fio does
//!                                 ├─ prepare    folders, ways that work, cases that can run
//!                                 └─ fio        one run: JSON, rusage, seccomp
//! ```

mod args;
mod cases;
mod demo;
mod prepare;
mod suite;

pub(crate) use args::{DemoArgs, POSIX_EXAMPLES, Places, SubmitArgs};
#[cfg(test)]
pub(crate) use cases::cases;
pub(crate) use cases::{BUFFERED, COLUMNS, Job, Place, Start, Way, subject};
pub(crate) use demo::run_demo;
pub(crate) use suite::{Extra, Plan, measure};

use crate::args::{Defaults, MeasureArgs};
use crate::case::Case;
use crate::error::Result;
use crate::fio::{Fio, Launch};
use crate::measurement::Measurement;

const DEFAULTS: Defaults = Defaults {
    rounds: 5,
    runtime_ms: [3000, 1000],
    size_bytes: [8 << 30, 2 << 30],
    least_bytes: SIZE_BYTES_MIN,
};

/// The smallest file that says anything.
const SIZE_BYTES_MIN: u64 = 4 << 20;

/// Runs the cases, prints a table for each and the targets, and writes the reports asked for.
///
/// Returns `None` when it was only asked for a list.
///
/// # Errors
/// Something is missing, a run failed, a report cannot be written, or `--check` was given and
/// a target is not met.
pub(crate) fn run_submit(args: &SubmitArgs) -> Result<Option<Measurement>> {
    run(args, "submit")
}

/// The same with fio's `posixaio` engine, on the C library's POSIX AIO and on nowait's.
///
/// # Errors
/// Those of [`run_submit`].
pub(crate) fn run_posix(args: &SubmitArgs) -> Result<Option<Measurement>> {
    run(args, "posix")
}

fn run(args: &SubmitArgs, workload: &'static str) -> Result<Option<Measurement>> {
    let extent = args.measure.extent(&DEFAULTS)?;
    let cases = select(&args.measure, cases::cases(workload))?;
    args.measure.run(cases, |cases| {
        let plan = Plan {
            workload,
            extent,
            cached_bytes: extent.size_bytes.min(256 << 20),
            fresh_bytes: (extent.size_bytes / 2).min(4 << 30),
            folder: args.disk.dir.clone(),
            memory_folder: args.places.tmpfs.clone(),
            drop_caches: args.disk.drops_caches(),
            keep: args.measure.keep,
            budget: None,
            fio: find_fio(&args.places, &cases)?,
            extra: Extra::default(),
        };
        measure(&plan, cases)
    })
}

/// Finds fio, and the library to preload if a case needs it.
pub(crate) fn find_fio(places: &Places, cases: &[Case<Way>]) -> Result<Fio> {
    let mut ways = cases.iter().flat_map(|case| &case.subjects).map(|subject| subject.job.0);
    let preload = if ways.any(Launch::preloads) { Some(places.preload()?) } else { None };
    Fio::find(&places.fio, preload)
}

/// Returns the cases asked for, each with the ways asked for, if any were.
pub(crate) fn select(measure: &MeasureArgs, cases: Vec<Case<Way>>) -> Result<Vec<Case<Way>>> {
    let ways = measure.engines.iter().map(|name| Launch::parse(name));
    let ways = ways.collect::<Result<Vec<Launch>>>()?;
    let mut cases = measure.select(cases)?;
    if !ways.is_empty() {
        for case in &mut cases {
            let job = case.subjects[0].job.1;
            case.subjects = ways.iter().map(|way| subject(*way, job)).collect();
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;
    use nowait_block::conformance::note_skip_here;
    use std::path::Path;

    fn selected(arguments: &[&str]) -> Result<Vec<Case<Way>>> {
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

    /// Runs the cases small with one engine that preloads nothing, if that is possible here.
    fn small(folder: &Path, workload: &'static str, engine: &str) -> Option<Measurement> {
        if let Err(error) = Fio::find("fio".as_ref(), None) {
            note_skip_here(&error.to_string());
            return None;
        }
        let path = |name: &str| folder.join(name).display().to_string();
        let small = ["--rounds=1", "--runtime=60ms", "--size=16M", "--keep-caches", "--engine"];
        let places = [engine, "--dir", &path("."), "--json", &path("report.json"), "--html"];
        let args = parse(&[&small[..], &places, &[&path("report.html")]].concat());
        match run(&args, workload) {
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
