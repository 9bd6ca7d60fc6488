//! The figures as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use comfy_table::Cell;
use serde::Serialize;

use super::cases::{Case, SUBJECTS, Target};
use super::suite::{Plan, Results, Runs};
use crate::error::Result;
use crate::metric::{Metric, Sample};
use crate::report::{self, Document, RatioRow, Row, SCHEMA, VerdictRow};
use crate::stats::{self, Ratio};
use crate::table::{new_table, outcome_cell, right, with_spread};
use crate::units;
use crate::verdict::{self, Outcome};

/// The columns of a case.
const COLUMNS: [Metric; 6] = [
    Metric::Iops,
    Metric::BytesPerS,
    Metric::LatencyUsP50,
    Metric::LatencyUsP99,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

/// The subject that is judged.
const OURS: &str = "nowait";

fn figures(
    runs: &[(&'static str, Vec<Sample>)],
    subject: &str,
    metric: Metric,
) -> Option<Vec<f64>> {
    let (_, samples) = runs.iter().find(|(name, _)| *name == subject)?;
    samples.iter().map(|sample| sample.get(&metric).copied()).collect()
}

fn judge(runs: &[(&'static str, Vec<Sample>)], target: &Target) -> (Option<Ratio>, Outcome) {
    let against = figures(runs, target.against, target.metric);
    let ours = figures(runs, OURS, target.metric);
    let ratio = against.zip(ours).and_then(|(a, b)| stats::ratio(&a, &b));
    let outcome = verdict::outcome(target.comparison, target.ratio, ratio.as_ref());
    (ratio, outcome)
}

/// Returns how many targets are met beyond the noise, and how many there are.
pub(crate) fn met(results: &Results) -> (usize, usize) {
    let judged = |(case, runs): &(&'static Case, Runs)| {
        case.targets.iter().map(|target| judge(runs, target).1).collect::<Vec<_>>()
    };
    let outcomes: Vec<Outcome> = results.cases.iter().flat_map(judged).collect();
    (outcomes.iter().filter(|outcome| **outcome == Outcome::Met).count(), outcomes.len())
}

/// Prints the cases and their targets.
pub(crate) fn list(plan: &Plan) -> String {
    let mut table = new_table(&["case", "servers", "targets"]);
    let names: Vec<&str> = plan.subjects.iter().map(|subject| subject.0).collect();
    for case in &plan.cases {
        let targets: Vec<String> = case.targets.iter().map(Target::text).collect();
        table.add_row([case.name, &names.join("\n"), &targets.join("\n")]);
    }
    table.to_string()
}

/// Prints every case, the targets and the notes.
pub(crate) fn text(results: &Results) -> String {
    let mut text = String::new();
    let mut targets = new_table(&["case", "target", "measured", "verdict"]);
    for (case, runs) in &results.cases {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} · {}", case.name, how(results, case));
        let mut header = vec!["server"];
        header.extend(COLUMNS.map(Metric::label));
        let mut table = new_table(&header);
        for (name, _) in runs {
            let mut row = vec![Cell::new(name)];
            row.extend(COLUMNS.map(|metric| {
                let summary = figures(runs, name, metric).and_then(|all| stats::summarize(&all));
                summary.map_or(right("–"), |summary| right(with_spread(metric, &summary)))
            }));
            table.add_row(row);
        }
        let _ = writeln!(text, "{table}\n");
        for target in case.targets {
            let (ratio, outcome) = judge(runs, target);
            let measured = ratio.as_ref().map_or("–".to_owned(), verdict::ratio_text);
            targets.add_row([
                Cell::new(case.name),
                Cell::new(target.text()),
                right(measured),
                outcome_cell(outcome),
            ]);
        }
    }
    let _ = writeln!(text, "{targets}\n\nCPU and switches are those of the server. Medians ±");
    let _ =
        writeln!(text, "median absolute deviation; ratios are medians of the ratios within the");
    let _ = writeln!(text, "rounds, with a 95 % bootstrap interval.");
    for note in &results.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

fn how(results: &Results, case: &Case) -> String {
    format!(
        "{} of {}, 32 deep, on {}; {} rounds of {} s",
        case.rw,
        units::bytes(case.block_bytes as f64),
        units::bytes(results.size_bytes as f64),
        results.rounds,
        units::digits(results.runtime_s)
    )
}

#[derive(Serialize)]
struct Params {
    rounds: usize,
    runtime_s: f64,
    size_bytes: u64,
    depth: u32,
    /// State of the page cache before each run.
    page_cache: &'static str,
    /// What the names of the servers mean.
    engines: BTreeMap<&'static str, &'static str>,
    cases: Vec<CaseParams>,
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: String,
    rw: &'static str,
    block_bytes: u64,
}

/// Writes the reports of a measurement, and says where they are.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write(results: &Results, json: Option<&Path>, html: Option<&Path>) -> Result<()> {
    let cases = || results.cases.iter();
    let document = Document {
        schema: SCHEMA,
        host: &results.host,
        workload: "serve",
        params: params(results),
        rows: cases().flat_map(|(case, runs)| rows(case, runs)).collect(),
        ratios: cases().flat_map(|(case, runs)| ratios(case, runs)).collect(),
        verdicts: cases().flat_map(|(case, runs)| verdicts(case, runs)).collect(),
        notes: &results.notes,
    };
    report::write(&document, json, html)
}

fn params(results: &Results) -> Params {
    let case = |(case, _): &(&'static Case, Runs)| CaseParams {
        case: case.name,
        title: how(results, case),
        rw: case.rw,
        block_bytes: case.block_bytes,
    };
    Params {
        rounds: results.rounds,
        runtime_s: results.runtime_s,
        size_bytes: results.size_bytes,
        depth: 32,
        page_cache: match results.caches_dropped {
            true => "dropped before each run",
            false => "pages of the image dropped before each run",
        },
        engines: SUBJECTS.iter().map(|(name, subject)| (*name, subject.describe())).collect(),
        cases: results.cases.iter().map(case).collect(),
    }
}

fn rows(case: &Case, runs: &Runs) -> Vec<Row> {
    let mut rows = Vec::new();
    for (name, _) in runs {
        for metric in Metric::ALL {
            let Some(figures) = figures(runs, name, metric) else { continue };
            rows.extend(Row::of(case.name, name, metric, figures));
        }
    }
    rows
}

/// Compares ours with each other server.
fn ratios(case: &Case, runs: &Runs) -> Vec<RatioRow> {
    let mut rows = Vec::new();
    for (name, _) in runs.iter().filter(|(name, _)| *name != OURS) {
        for metric in Metric::ALL {
            let both = figures(runs, name, metric).zip(figures(runs, OURS, metric));
            rows.extend(
                both.and_then(|(a, b)| RatioRow::of(case.name, metric, (name, &a), (OURS, &b))),
            );
        }
    }
    rows
}

fn verdicts(case: &Case, runs: &Runs) -> Vec<VerdictRow> {
    let verdict = |target: &Target| {
        let (ratio, outcome) = judge(runs, target);
        VerdictRow {
            case: case.name,
            target: target.text(),
            median: ratio.as_ref().map(|ratio| ratio.median),
            low: ratio.as_ref().map(|ratio| ratio.low),
            high: ratio.as_ref().map(|ratio| ratio.high),
            verdict: outcome.name(),
        }
    };
    case.targets.iter().map(verdict).collect()
}
