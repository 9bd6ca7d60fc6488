//! The figures as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use comfy_table::Cell;
use serde::Serialize;

use super::cases::{Case, Subject, Target};
use super::results::{CachedResults, CaseResults};
use crate::error::Result;
use crate::metric::Metric;
use crate::report::{self, Document, RatioRow, Row, SCHEMA, VerdictRow};
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
    /// State of the page cache before each run.
    page_cache: &'static str,
    /// What the names of the engines mean.
    engines: BTreeMap<&'static str, &'static str>,
    cases: Vec<CaseParams>,
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: &'static str,
    about: &'static str,
    /// Cases that differ in the block size only have the same.
    family: Option<&'static str>,
    write: bool,
    sync: bool,
    depth: usize,
    block_bytes: usize,
    set_bytes: u64,
    pool_bytes: u64,
}

/// Writes the reports of a measurement, and says where they are.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(
    results: &CachedResults,
    json: Option<&Path>,
    html: Option<&Path>,
) -> Result<()> {
    let subjects = results.cases.iter().flat_map(|case| &case.runs);
    let document = Document {
        schema: SCHEMA,
        host: &results.host,
        workload: "cached",
        params: Params {
            rounds: results.rounds,
            runtime_s: results.runtime_s,
            size_bytes: results.size_bytes,
            page_cache: match results.caches_dropped {
                true => "dropped before cold runs, else warmed up",
                false => "pages of the file dropped before cold runs, else warmed up",
            },
            engines: subjects.map(|(subject, _)| (subject.name, subject.describe())).collect(),
            cases: results.cases.iter().map(|case| case_params(results, case)).collect(),
        },
        rows: results.cases.iter().flat_map(rows).collect(),
        ratios: results.cases.iter().flat_map(ratios).collect(),
        verdicts: results.cases.iter().flat_map(verdicts).collect(),
        notes: &results.notes,
    };
    report::write(&document, json, html)
}

/// Compares the first subject, which is ours, with each peer.
fn ratios(case: &CaseResults) -> Vec<RatioRow> {
    let Some(((ours, _), others)) = case.runs.split_first() else { return Vec::new() };
    let mut rows = Vec::new();
    for (other, _) in others {
        for metric in Metric::ALL {
            let of = |name| case.figures(name, metric);
            let both = of(other.name).zip(of(ours.name));
            rows.extend(both.and_then(|(a, b)| {
                RatioRow::of(case.case.name, metric, (other.name, &a), (ours.name, &b))
            }));
        }
    }
    rows
}

fn case_params(results: &CachedResults, case: &CaseResults) -> CaseParams {
    let work = &case.case.work;
    CaseParams {
        case: case.case.name,
        title: case.case.title,
        about: case.case.about,
        family: case.case.family(),
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
