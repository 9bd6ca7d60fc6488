//! The figures as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::cases::{Against, Case, OURS, On, SUBJECTS, Target};
use super::suite::{Plan, Results};
use crate::error::Result;
use crate::metric::Metric;
use crate::report::{Document, RatioRow, ReportArgs, SCHEMA, VerdictRow};
use crate::runs::Runs;
use crate::table::{self, new_table};
use crate::units;
use crate::verdict::{self, Judged};

/// The columns of a case.
const COLUMNS: [Metric; 6] = [
    Metric::Iops,
    Metric::BytesPerS,
    Metric::LatencyUsP50,
    Metric::LatencyUsP99,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

/// Judges every target of a case.
fn judged<'a>(case: &'a Case, runs: &'a Runs) -> impl Iterator<Item = Judged> + 'a {
    case.targets.iter().map(|target| {
        let ratio = match target.against {
            Against::Server(name) => runs.ratio(target.metric, name, target.ours),
            Against::Bytes(bytes) => runs.share(target.metric, bytes, target.ours),
        };
        Judged::new(target.text(), target.comparison, target.ratio, ratio)
    })
}

/// Returns how many targets are met beyond the noise, and how many there are.
pub(crate) fn met(results: &Results) -> (usize, usize) {
    verdict::count(results.cases.iter().flat_map(|(case, runs)| judged(case, runs)))
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
    for (case, runs) in &results.cases {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{} · {}", case.name, how(results, case));
        let _ = writeln!(text, "{}\n", table::runs("server", runs, &COLUMNS));
    }
    let cases = results.cases.iter();
    let judged = cases.flat_map(|(case, runs)| table::with_name(case.name, judged(case, runs)));
    text + &table::targets(judged)
        + "CPU and switches are those of the server. "
        + &table::notes(&results.notes)
}

fn how(results: &Results, case: &Case) -> String {
    let depth = match case.on {
        On::Disk => "32 deep",
        On::Ext4 => "4 jobs of blocking calls in an ext4",
    };
    format!(
        "{}{} of {}, {depth}, on {}; {} rounds of {} s",
        if results.is_quick() { "quick, not to be published: " } else { "" },
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
    /// Shorter or fewer than runs that are published.
    quick: bool,
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
pub(crate) fn write(results: &Results, reports: &ReportArgs) -> Result<()> {
    let cases = || results.cases.iter();
    let document = Document {
        schema: SCHEMA,
        host: &results.host,
        workload: "serve",
        params: params(results),
        rows: cases().flat_map(|(case, runs)| runs.rows(case.name)).collect(),
        ratios: cases().flat_map(|(case, runs)| ratios(case, runs)).collect(),
        verdicts: cases().flat_map(|(case, runs)| verdicts(case, runs)).collect(),
        notes: &results.notes,
    };
    reports.write(&document)
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
        quick: results.is_quick(),
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

/// Compares ours with each other server.
fn ratios(case: &Case, runs: &Runs) -> Vec<RatioRow> {
    let others = runs.names().filter(|name| *name != OURS);
    runs.ratio_rows(case.name, others.map(|name| (name, OURS)), &Metric::ALL)
}

fn verdicts<'a>(case: &'a Case, runs: &'a Runs) -> impl Iterator<Item = VerdictRow> + 'a {
    judged(case, runs).map(|judged| VerdictRow::of(case.name, judged))
}
