//! The figures as tables for a terminal, and as JSON.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use comfy_table::Cell;
use serde::Serialize;

use super::cases::{Case, Target};
use super::suite::Results;
use crate::error::{Context, Result};
use crate::metric::{Metric, Sample};
use crate::report::{Document, Row, SCHEMA, VerdictRow};
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
    let ours = figures(runs, "nowait", target.metric);
    let ratio = against.zip(ours).and_then(|(a, b)| stats::ratio(&a, &b));
    let outcome = verdict::outcome(target.comparison, target.ratio, ratio.as_ref());
    (ratio, outcome)
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
}

/// Writes the JSON of a measurement.
pub(crate) fn write_json(results: &Results, path: &Path) -> Result<()> {
    let mut rows = Vec::new();
    let mut verdicts = Vec::new();
    for (case, runs) in &results.cases {
        for (name, _) in runs {
            for metric in Metric::ALL {
                let Some(figures) = figures(runs, name, metric) else { continue };
                rows.extend(Row::of(case.name, name, metric, figures));
            }
        }
        for target in case.targets {
            let (ratio, outcome) = judge(runs, target);
            verdicts.push(VerdictRow {
                case: case.name,
                target: target.text(),
                median: ratio.as_ref().map(|ratio| ratio.median),
                low: ratio.as_ref().map(|ratio| ratio.low),
                high: ratio.as_ref().map(|ratio| ratio.high),
                verdict: outcome.name(),
            });
        }
    }
    let document = Document {
        schema: SCHEMA,
        host: &results.host,
        workload: "serve",
        params: Params {
            rounds: results.rounds,
            runtime_s: results.runtime_s,
            size_bytes: results.size_bytes,
            depth: 32,
        },
        rows,
        ratios: Vec::new(),
        verdicts,
        notes: &results.notes,
    };
    fs::write(path, document.text()?).context(|| format!("write {}", path.display()))
}
