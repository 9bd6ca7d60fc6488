//! The figures as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use comfy_table::Cell;
use serde::Serialize;

use super::case::{Case, Target};
use super::job::Work;
use super::results::{CaseResults, Judged, WorkloadResults};
use crate::error::Result;
use crate::metric::Metric;
use crate::report::{Document, RatioRow, Row, SCHEMA, VerdictRow, write_text};
use crate::table::{new_table, outcome_cell, right, with_spread};
use crate::units;
use crate::verdict;

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
        let _ = writeln!(text, "{}\n", runs(case));
    }
    text + &targets(results) + &notes(results)
}

fn targets(results: &WorkloadResults) -> String {
    let (met, all) = results.met();
    if all == 0 {
        return String::new();
    }
    let mut table = new_table(&["case", "target", "measured", "verdict"]);
    for case in &results.cases {
        for judged in case.judged() {
            let measured = judged.ratio.as_ref().map_or("–".to_owned(), verdict::ratio_text);
            let target = Cell::new(judged.target.text());
            let verdict = outcome_cell(judged.outcome);
            table.add_row([Cell::new(case.case.name), target, right(measured), verdict]);
        }
    }
    format!("{table}\n\n{met} of {all} targets are met beyond the noise.\n")
}

fn notes(results: &WorkloadResults) -> String {
    let mut text = "Medians ± median absolute deviation; ratios are medians of the ratios within \
                    the rounds,\nwith a 95 % bootstrap interval. `null` is the harness alone.\n"
        .to_owned();
    for note in &results.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

fn runs(case: &CaseResults) -> comfy_table::Table {
    let mut header = vec!["engine"];
    header.extend(case.case.columns.iter().map(|metric| metric.label()));
    let mut table = new_table(&header);
    for (name, _) in &case.runs {
        let mut row = vec![Cell::new(name)];
        row.extend(case.case.columns.iter().map(|metric| match case.summary(name, *metric) {
            Some(summary) => right(with_spread(*metric, &summary)),
            None => right("–"),
        }));
        table.add_row(row);
    }
    table
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
    work: BTreeMap<&'static str, Work>,
}

/// Writes the reports asked for.
pub(crate) fn write(
    results: &WorkloadResults,
    json: Option<&Path>,
    html: Option<&Path>,
) -> Result<()> {
    write_text(&json_text(results)?, json, html)
}

/// Returns the JSON of a measurement.
pub(crate) fn json_text(results: &WorkloadResults) -> Result<String> {
    let document = Document {
        schema: SCHEMA,
        host: &results.host,
        workload: results.workload,
        params: params(results),
        rows: results.cases.iter().flat_map(rows).collect(),
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
        work: case.case.subjects.iter().map(|subject| (subject.name, subject.work)).collect(),
    };
    Params {
        rounds: results.rounds,
        runtime_s: results.runtime_s,
        size_bytes: results.size_bytes,
        device: results.device.display().to_string(),
        caches_dropped: results.caches_dropped,
        engines: subjects.map(|subject| (subject.engine.name, subject.engine.about)).collect(),
        cases: results.cases.iter().map(case).collect(),
    }
}

fn rows(case: &CaseResults) -> Vec<Row> {
    let mut rows = Vec::new();
    for (subject, _) in &case.runs {
        for metric in Metric::ALL {
            let Some(runs) = case.figures(subject, metric) else { continue };
            rows.extend(Row::of(case.case.name, subject, metric, runs));
        }
    }
    rows
}

/// Compares each subject with the first.
fn ratios(case: &CaseResults) -> Vec<RatioRow> {
    let mut rows = Vec::new();
    let Some((first, _)) = case.runs.first() else { return rows };
    for (subject, _) in &case.runs[1..] {
        for metric in case.case.columns {
            let pair = case.figures(first, *metric).zip(case.figures(subject, *metric));
            let Some((a, b)) = pair else { continue };
            rows.extend(RatioRow::of(case.case.name, *metric, (first, &a), (subject, &b)));
        }
    }
    rows
}

fn verdicts(case: &CaseResults) -> Vec<VerdictRow> {
    let row = |judged: Judged| VerdictRow {
        case: case.case.name,
        target: judged.target.text(),
        median: judged.ratio.as_ref().map(|ratio| ratio.median),
        low: judged.ratio.as_ref().map(|ratio| ratio.low),
        high: judged.ratio.as_ref().map(|ratio| ratio.high),
        verdict: judged.outcome.name(),
    };
    case.judged().into_iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::super::results::tests::sample_results;
    use super::*;
    use crate::host::Host;

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
        };
        let text = text(&results);
        for part in ["10.08 → 23.91", "1.95 MiB/s", "1 of 3 targets", "Note: made up."] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let json = json_text(&results).expect("serializable");
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        assert_eq!(json["workload"], "aio-stress");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(4));
        assert_eq!(json["ratios"][0]["b"], "fast");
        assert_eq!(json["verdicts"][0]["verdict"], "met");
    }
}
