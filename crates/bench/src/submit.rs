//! `bench submit`: the time inside `io_submit`, case by case, against the targets; and
//! `bench posix`, the same for POSIX AIO.

use std::path::PathBuf;
use std::time::Duration;

use crate::args::SubmitArgs;
use crate::cache;
use crate::error::Result;
use crate::fio::Fio;
use crate::interrupt;
use crate::job::{CASES, Case, POSIX_CASES};
use crate::report;
use crate::results::Results;
use crate::subject::Subject;
use crate::suite::{self, Plan};
use crate::table;

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
    if args.list {
        println!("{}", table::cases(&args.selection(cases)?));
        return Ok(None);
    }
    let plan = plan(args, workload, cases)?;
    report::prepare([&args.json, &args.html].into_iter().flatten().map(PathBuf::as_path))?;
    let results = suite::measure(&plan)?;
    println!("{}", table::results(&results));
    report::write_results(&results, args.json.as_deref(), args.html.as_deref())?;
    interrupt::check()?;
    if args.check {
        results.require_targets()?;
    }
    Ok(Some(results))
}

fn plan(args: &SubmitArgs, workload: &'static str, cases: &'static [Case]) -> Result<Plan> {
    let cases = args.selection(cases)?;
    let preloads = cases.iter().any(|(_, subjects)| subjects.iter().any(|s| s.preloads()));
    let preload = if preloads { Some(args.places.preload()?) } else { None };
    let (runtime_s, size_gib) = if args.quick { (1, 2) } else { (3, 8) };
    let cold_bytes = args.size.unwrap_or(size_gib << 30).max(4 << 20);
    Ok(Plan {
        workload,
        cases,
        rounds: usize::from(args.rounds),
        runtime: args.runtime.unwrap_or(Duration::from_secs(runtime_s)),
        cold_bytes,
        cached_bytes: cold_bytes.min(256 << 20),
        fresh_bytes: (cold_bytes / 2).min(4 << 30),
        folder: args.places.dir.clone(),
        memory_folder: args.places.tmpfs.clone(),
        drop_caches: !args.places.keep_caches && cache::can_drop(),
        keep: args.keep,
        budget: None,
        fio: Fio::find(&args.places.fio, preload)?,
    })
}

/// Subjects whose results are compared with those of the second.
pub(crate) const REFERENCES: [Subject; 3] = [Subject::System, Subject::IoUring, Subject::PosixAio];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::args::Places;
    use crate::report::json_text;
    use crate::skip::skip;

    #[test]
    fn the_posix_cases_run_small() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
        if let Err(error) = Fio::find("fio".as_ref(), None) {
            return skip("the_posix_cases_run_small", &error.to_string());
        }
        let args = SubmitArgs { engines: vec!["posixaio".to_owned()], ..tiny(folder.path()) };
        match run_posix(&args) {
            Ok(results) => {
                assert_eq!(results.expect("not a list").cases.len(), POSIX_CASES.len());
            }
            Err(error) if error.to_string().contains("O_DIRECT") => {
                skip("the_posix_cases_run_small", &error.to_string());
            }
            Err(error) => panic!("{error}"),
        }
    }

    fn tiny(folder: &std::path::Path) -> SubmitArgs {
        SubmitArgs {
            cases: Vec::new(),
            engines: vec!["system".to_owned()],
            rounds: 1,
            runtime: Some(Duration::from_millis(60)),
            size: Some(16 << 20),
            quick: true,
            keep: false,
            json: Some(folder.join("report.json")),
            html: Some(folder.join("report.html")),
            check: false,
            list: false,
            places: Places {
                dir: folder.to_owned(),
                tmpfs: "/dev/shm".into(),
                dist: None,
                keep_caches: true,
                fio: "fio".into(),
            },
        }
    }

    #[test]
    fn every_case_runs_small() {
        let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
        if let Err(error) = Fio::find("fio".as_ref(), None) {
            return skip("every_case_runs_small", &error.to_string());
        }
        let args = tiny(folder.path());
        let results = match run_submit(&args) {
            Ok(results) => results.expect("not a list"),
            Err(error) if error.to_string().contains("O_DIRECT") => {
                return skip("every_case_runs_small", &error.to_string());
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
