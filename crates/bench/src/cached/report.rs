//! The figures as tables for a terminal, and as JSON.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use comfy_table::Cell;
use serde::Serialize;

use super::cases::{Case, Subject, Target};
use super::results::{CachedResults, CaseResults};
use crate::error::{Context, Result};
use crate::metric::Metric;
use crate::report::{Document, Row, SCHEMA, VerdictRow};
use crate::table::{new_table, outcome_cell, right, with_spread};
use crate::units;
use crate::verdict;

/// The columns of a case.
const COLUMNS: [Metric; 8] = [
    Metric::Iops,
    Metric::IopsPerCore,
    Metric::BytesPerS,
    Metric::CpuUsPerIo,
    Metric::SubmitUsP50,
    Metric::SubmitUsP999,
    Metric::SubmitSleeps,
    Metric::OtherBusyCores,
];

/// Prints every case, the targets and the notes.
pub(crate) fn text(results: &CachedResults) -> String {
    let mut text = String::new();
    for case in &results.cases {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} · {}\n{}", case.case.name, case.case.title, how(results, case));
        let _ = writeln!(text, "{}\n", runs(case));
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
    let (met, all) = results.met();
    let _ = writeln!(text, "{table}\n\n{met} of {all} targets are met beyond the noise.");
    let _ = writeln!(text, "Medians ± median absolute deviation; ratios are medians of the ratios");
    let _ = writeln!(text, "within the rounds, with a 95 % bootstrap interval.");
    for note in &results.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

/// Tells how a case was run.
fn how(results: &CachedResults, case: &CaseResults) -> String {
    let work = &case.case.work;
    let size = |share: super::cases::Share| units::bytes(share.of(results.size_bytes) as f64);
    format!(
        "{} {} rounds of {} s on {}, our pool {}.",
        case.case.about,
        results.rounds,
        units::digits(results.runtime_s),
        size(work.set),
        size(work.pool)
    )
}

fn runs(case: &CaseResults) -> comfy_table::Table {
    let mut header = vec!["engine"];
    header.extend(COLUMNS.map(Metric::label));
    let mut table = new_table(&header);
    for (subject, _) in &case.runs {
        let mut row = vec![Cell::new(subject.name)];
        row.extend(COLUMNS.map(|metric| match case.summary(subject.name, metric) {
            Some(summary) => right(with_spread(metric, &summary)),
            None => right("–"),
        }));
        table.add_row(row);
    }
    table
}

/// Prints the cases and their targets.
pub(crate) fn list(selection: &[(&'static Case, Vec<Subject>)]) -> String {
    let mut table = new_table(&["case", "what", "engines", "targets"]);
    for (case, subjects) in selection {
        let names: Vec<&str> = subjects.iter().map(|subject| subject.name).collect();
        let targets: Vec<String> = case.targets.iter().map(Target::text).collect();
        table.add_row([case.name, case.title, &names.join("\n"), &targets.join("\n")]);
    }
    table.to_string()
}

#[derive(Serialize)]
struct Params {
    rounds: usize,
    runtime_s: f64,
    size_bytes: u64,
    cases: Vec<CaseParams>,
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: &'static str,
    write: bool,
    sync: bool,
    depth: usize,
    block_bytes: usize,
    set_bytes: u64,
    pool_bytes: u64,
}

/// Writes the JSON of a measurement.
pub(crate) fn write_json(results: &CachedResults, path: &Path) -> Result<()> {
    let document = Document {
        schema: SCHEMA,
        host: &results.host,
        workload: "cached",
        params: Params {
            rounds: results.rounds,
            runtime_s: results.runtime_s,
            size_bytes: results.size_bytes,
            cases: results.cases.iter().map(|case| case_params(results, case)).collect(),
        },
        rows: results.cases.iter().flat_map(rows).collect(),
        ratios: Vec::new(),
        verdicts: results.cases.iter().flat_map(verdicts).collect(),
        notes: &results.notes,
    };
    fs::write(path, document.text()?).context(|| format!("write {}", path.display()))
}

fn case_params(results: &CachedResults, case: &CaseResults) -> CaseParams {
    let work = &case.case.work;
    CaseParams {
        case: case.case.name,
        title: case.case.title,
        write: work.write,
        sync: work.sync,
        depth: work.depth,
        block_bytes: work.block_bytes,
        set_bytes: work.set.of(results.size_bytes),
        pool_bytes: work.pool.of(results.size_bytes),
    }
}

fn rows(case: &CaseResults) -> Vec<Row> {
    let mut rows = Vec::new();
    for (subject, _) in &case.runs {
        for metric in Metric::ALL {
            let Some(runs) = case.figures(subject.name, metric) else { continue };
            rows.extend(Row::of(case.case.name, subject.name, metric, runs));
        }
    }
    rows
}

fn verdicts(case: &CaseResults) -> Vec<VerdictRow> {
    let row = |judged: super::results::Judged| VerdictRow {
        case: case.case.name,
        target: judged.target.text(),
        median: judged.ratio.as_ref().map(|ratio| ratio.median),
        low: judged.ratio.as_ref().map(|ratio| ratio.low),
        high: judged.ratio.as_ref().map(|ratio| ratio.high),
        verdict: judged.outcome.name(),
    };
    case.judged().into_iter().map(row).collect()
}
