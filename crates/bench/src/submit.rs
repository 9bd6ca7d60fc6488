//! `bench submit`: the time inside `io_submit`, case by case, against the targets; and
//! `bench posix`, the same for POSIX AIO.

use std::time::Duration;

use crate::args::{SubmitArgs, at_least};
use crate::error::Result;
use crate::fio::Fio;
use crate::interrupt;
use crate::job::{CASES, Case, POSIX_CASES};
use crate::report;
use crate::results::Results;
use crate::subject::Subject;
use crate::suite::{self, Plan};
use crate::table;

/// The smallest file that says anything.
pub(crate) const SIZE_BYTES_MIN: u64 = 4 << 20;

/// Runs the cases, prints a table for each and the targets, and writes the reports asked for.
///
/// Returns `None` when it was only asked for a list.
///
/// # Errors
/// Something is missing, a run failed, a report cannot be written, or `--check` was given and
/// a target is not met.
pub fn run_submit(args: &SubmitArgs) -> Result<Option<Results>> {
    run(args, "submit", &CASES)
}

/// The same with fio's `posixaio` engine, on the C library's POSIX AIO and on nowait's.
///
/// # Errors
/// Those of [`run_submit`].
pub fn run_posix(args: &SubmitArgs) -> Result<Option<Results>> {
    run(args, "posix", &POSIX_CASES)
}

fn run(
    args: &SubmitArgs,
    workload: &'static str,
    cases: &'static [Case],
) -> Result<Option<Results>> {
    let measure = &args.measure;
    if measure.list {
        report::print(&table::cases(&args.selection(cases)?))?;
        return Ok(None);
    }
    let plan = plan(args, workload, cases)?;
    measure.reports.prepare()?;
    let results = suite::measure(&plan)?;
    measure.reports.say(&table::results(&results));
    report::write_results(&results, &measure.reports)?;
    interrupt::check()?;
    measure.require(results.met())?;
    Ok(Some(results))
}

fn plan(args: &SubmitArgs, workload: &'static str, cases: &'static [Case]) -> Result<Plan> {
    let cases = args.selection(cases)?;
    let preloads = cases.iter().any(|(_, subjects)| subjects.iter().any(|s| s.preloads()));
    let preload = if preloads { Some(args.places.preload()?) } else { None };
    let measure = &args.measure;
    let (runtime_s, size_gib) = if measure.quick { (1, 2) } else { (3, 8) };
    let cold_bytes = at_least(measure.size.unwrap_or(size_gib << 30), SIZE_BYTES_MIN)?;
    Ok(Plan {
        workload,
        cases,
        rounds: usize::from(measure.rounds),
        runtime: measure.runtime.unwrap_or(Duration::from_secs(runtime_s)),
        cold_bytes,
        cached_bytes: cold_bytes.min(256 << 20),
        fresh_bytes: (cold_bytes / 2).min(4 << 30),
        folder: measure.disk.dir.clone(),
        memory_folder: args.places.tmpfs.clone(),
        drop_caches: measure.disk.drops_caches(),
        keep: measure.keep,
        budget: None,
        fio: Fio::find(&args.places.fio, preload)?,
    })
}

/// Subjects whose results are compared with those of the second.
pub(crate) const REFERENCES: [Subject; 3] = [Subject::System, Subject::IoUring, Subject::PosixAio];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::{DiskArgs, MeasureArgs, Places};
    use crate::report::json_text;
    use nowait_block::conformance::note_skip_here;

    #[test]
    fn the_posix_cases_run_small() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
        if let Err(error) = Fio::find("fio".as_ref(), None) {
            return note_skip_here(&error.to_string());
        }
        let mut args = tiny(folder.path());
        args.measure.engines = vec!["posixaio".to_owned()];
        match run_posix(&args) {
            Ok(results) => {
                assert_eq!(results.expect("not a list").cases.len(), POSIX_CASES.len());
            }
            Err(error) if error.to_string().contains("O_DIRECT") => {
                note_skip_here(&error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn tiny(folder: &std::path::Path) -> SubmitArgs {
        SubmitArgs {
            measure: MeasureArgs {
                cases: Vec::new(),
                engines: vec!["system".to_owned()],
                rounds: 1,
                runtime: Some(Duration::from_millis(60)),
                size: Some(16 << 20),
                quick: true,
                keep: false,
                check: false,
                list: false,
                reports: report::ReportArgs {
                    json: Some(folder.join("report.json")),
                    html: Some(folder.join("report.html")),
                },
                disk: DiskArgs { dir: folder.to_owned(), keep_caches: true },
            },
            places: Places { tmpfs: "/dev/shm".into(), dist: None, fio: "fio".into() },
        }
    }

    #[test]
    fn every_case_runs_small() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
        if let Err(error) = Fio::find("fio".as_ref(), None) {
            return note_skip_here(&error.to_string());
        }
        let args = tiny(folder.path());
        let results = match run_submit(&args) {
            Ok(results) => results.expect("not a list"),
            Err(error) if error.to_string().contains("O_DIRECT") => {
                return note_skip_here(&error.to_string());
            }
            Err(error) => panic!("{error}"),
        };
        let left_out = results.notes.iter().filter(|note| note.contains("was left out")).count();
        assert_eq!(results.cases.len() + left_out, CASES.len());
        assert!(json_text(&results).expect("serializable").contains("\"submit_us_p999\""));
        let names = std::fs::read_dir(folder.path()).expect("readable");
        let mut names: Vec<_> = names.flatten().map(|entry| entry.file_name()).collect();
        names.sort_unstable();
        assert_eq!(names, ["report.html", "report.json"], "test files are removed");
    }
}
