//! The figures as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::time::Duration;

use serde::Serialize;

use super::case::{Case, Target};
use super::job::Work;
use super::results::{CaseResults, WorkloadResults};
use crate::cache;
use crate::error::{BenchError, Result};
use crate::report::{Document, RatioRow, ReportArgs, SCHEMA, VerdictRow};
use crate::table::{self, new_table};
use crate::units;

/// Prints every case, the targets and the notes.
pub(crate) fn text(results: &WorkloadResults) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(
        text,
        "{} rounds of {} s on {} of {}.\n",
        results.rounds,
        units::digits(results.runtime_s),
        units::bytes(results.size_bytes as f64),
        results.device.display()
    );
    for case in &results.cases {
        let _ = writeln!(text, "{} · {}", case.case.name, case.case.title);
        if !case.case.source.is_empty() {
            let _ = writeln!(text, "Source: {}", case.case.source);
        }
        let runs = table::runs("engine", &case.runs, case.case.columns);
        let _ = writeln!(text, "{runs}\n");
    }
    let cases = results.cases.iter();
    let judged = cases.flat_map(|case| table::with_name(case.case.name, case.judged()));
    text + &table::targets(judged) + "`null` is the harness alone. " + &table::notes(&results.notes)
}

/// Prints the cases and their targets.
pub(crate) fn list(cases: &[Case]) -> String {
    let mut table = new_table(&["case", "what", "source", "engines", "targets"]);
    for case in cases {
        let names: Vec<&str> = case.subjects.iter().map(|subject| subject.name).collect();
        let targets: Vec<String> = case.targets.iter().map(Target::text).collect();
        table.add_row([
            case.name,
            &case.title,
            &case.source,
            &names.join("\n"),
            &targets.join("\n"),
        ]);
    }
    table.to_string()
}

#[derive(Serialize)]
struct Params {
    rounds: usize,
    runtime_s: f64,
    size_bytes: u64,
    device: String,
    caches_dropped: bool,
    /// State of the page cache before each run.
    page_cache: &'static str,
    /// What the names of the engines mean.
    engines: BTreeMap<&'static str, &'static str>,
    cases: Vec<CaseParams>,
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: String,
    source: String,
    sync: bool,
    runtime_s: f64,
    work: BTreeMap<&'static str, Work>,
}

/// Prints the figures, and writes the reports asked for.
///
/// # Errors
/// A report cannot be written; the user asked to stop, or runs failed: all else is reported then.
pub(crate) fn tell(results: &WorkloadResults, reports: &ReportArgs) -> Result<()> {
    reports.say(&text(results));
    reports.write_text(&json_text(results)?)?;
    if results.interrupted {
        return Err(BenchError::failed("interrupted; what was measured until then is reported"));
    }
    match results.failed.as_slice() {
        [] => Ok(()),
        [only] => Err(BenchError::failed(only.clone())),
        [first, more @ ..] => {
            let (first, more) = (first.clone(), more.len());
            Err(BenchError::failed(format!("{first} (and {more} more: see the notes)")))
        }
    }
}

/// Returns the JSON of a measurement.
pub(crate) fn json_text(results: &WorkloadResults) -> Result<String> {
    let document = Document {
        schema: SCHEMA,
        host: &results.host,
        workload: results.workload,
        params: params(results),
        rows: results.cases.iter().flat_map(|case| case.runs.rows(case.case.name)).collect(),
        ratios: results.cases.iter().flat_map(ratios).collect(),
        verdicts: results.cases.iter().flat_map(verdicts).collect(),
        notes: &results.notes,
    };
    document.text()
}

fn params(results: &WorkloadResults) -> Params {
    let subjects = results.cases.iter().flat_map(|case| &case.case.subjects);
    let case = |case: &CaseResults| CaseParams {
        case: case.case.name,
        title: case.case.title.clone(),
        source: case.case.source.clone(),
        sync: case.case.sync,
        runtime_s: case.case.runtime(Duration::from_secs_f64(results.runtime_s)).as_secs_f64(),
        work: case.case.subjects.iter().map(|subject| (subject.name, subject.work)).collect(),
    };
    Params {
        rounds: results.rounds,
        runtime_s: results.runtime_s,
        size_bytes: results.size_bytes,
        device: results.device.display().to_string(),
        caches_dropped: results.caches_dropped,
        page_cache: cache::state(results.caches_dropped),
        engines: subjects.map(|subject| (subject.engine.name, subject.engine.about)).collect(),
        cases: results.cases.iter().map(case).collect(),
    }
}

/// Compares each subject with the first.
fn ratios(case: &CaseResults) -> Vec<RatioRow> {
    let mut names = case.runs.names();
    let Some(first) = names.next() else { return Vec::new() };
    case.runs.ratio_rows(case.case.name, names.map(|name| (first, name)), case.case.columns)
}

fn verdicts(case: &CaseResults) -> impl Iterator<Item = VerdictRow> + '_ {
    case.judged().map(|judged| VerdictRow::of(case.case.name, judged))
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::sample_results;
    use super::*;
    use crate::host::Host;
    use std::path::Path;

    #[test]
    fn the_text_and_the_json_have_source_figures_and_verdicts() {
        let results = WorkloadResults {
            workload: "aio-stress",
            host: Host::describe(Path::new("/"), "not used"),
            device: "/somewhere".into(),
            rounds: 5,
            runtime_s: 1.0,
            size_bytes: 1 << 30,
            caches_dropped: true,
            cases: vec![sample_results()],
            notes: vec!["made up".to_owned()],
            interrupted: false,
            failed: Vec::new(),
        };
        let text = text(&results);
        for part in ["10.08 → 23.91", "1.95 MiB/s", "1 of 3 targets", "Note: made up."] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = json_text(&results).expect("serializable");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["workload"], "aio-stress");
        assert_eq!(json["params"]["page_cache"], cache::state(true));
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(4));
        assert_eq!(json["ratios"][0]["b"], "fast");
        assert_eq!(json["verdicts"][0]["verdict"], "met");
    }
}
