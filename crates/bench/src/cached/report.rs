//! The figures as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use serde::Serialize;

use super::cases::{Case, Subject, Target};
use super::results::{CachedResults, CaseResults};
use crate::error::Result;
use crate::metric::Metric;
use crate::report::{Document, RatioRow, ReportArgs, SCHEMA, VerdictRow};
use crate::table::{self, new_table};
use crate::units;

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
        let _ = writeln!(text, "{}\n", table::runs("engine", &case.runs, &COLUMNS));
    }
    let cases = results.cases.iter();
    let judged = cases.flat_map(|case| table::with_name(case.case.name, case.judged()));
    text + &table::targets(judged) + &table::notes(&results.notes)
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
pub(crate) fn write(results: &CachedResults, reports: &ReportArgs) -> Result<()> {
    let subjects = results.cases.iter().flat_map(CaseResults::subjects);
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
            engines: subjects.map(|subject| (subject.name, subject.describe())).collect(),
            cases: results.cases.iter().map(|case| case_params(results, case)).collect(),
        },
        rows: results.cases.iter().flat_map(|case| case.runs.rows(case.case.name)).collect(),
        ratios: results.cases.iter().flat_map(ratios).collect(),
        verdicts: results.cases.iter().flat_map(verdicts).collect(),
        notes: &results.notes,
    };
    reports.write(&document)
}

/// Compares the first subject, which is ours, with each peer.
fn ratios(case: &CaseResults) -> Vec<RatioRow> {
    let mut names = case.runs.names();
    let Some(ours) = names.next() else { return Vec::new() };
    case.runs.ratio_rows(case.case.name, names.map(|other| (other, ours)), &Metric::ALL)
}

fn verdicts(case: &CaseResults) -> impl Iterator<Item = VerdictRow> + '_ {
    case.judged().map(|judged| VerdictRow::of(case.case.name, judged))
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
