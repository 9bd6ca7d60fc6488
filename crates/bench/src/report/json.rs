//! The JSON of a measurement.

use std::collections::BTreeMap;

use serde::Serialize;

use super::files::ReportArgs;
use crate::cache;
use crate::error::{BenchError, Result};
use crate::host::Host;
use crate::interrupt;
use crate::metric::{Better, Metric};
use crate::results::{CaseResults, Results};
use crate::stats;
use crate::subject::Subject;
use crate::submit::REFERENCES;
use crate::verdict::Judged;

/// Raised when a reader of an older schema would misunderstand a newer file.
pub(crate) const SCHEMA: u32 = 1;

/// What every benchmark writes; `P`: how it was made.
#[derive(Serialize)]
pub(crate) struct Document<'a, P> {
    pub(crate) schema: u32,
    pub(crate) host: &'a Host,
    pub(crate) workload: &'a str,
    pub(crate) params: P,
    pub(crate) rows: Vec<Row>,
    pub(crate) ratios: Vec<RatioRow>,
    pub(crate) verdicts: Vec<VerdictRow>,
    pub(crate) notes: &'a [String],
}

#[derive(Serialize)]
struct Params<'a> {
    rounds: usize,
    folder: &'a str,
    caches_dropped: bool,
    /// State of the page cache before each run.
    page_cache: &'static str,
    /// What the names of the engines mean.
    engines: BTreeMap<&'static str, &'static str>,
    /// Already subtracted from `cpu_us_per_io`.
    startup_cpu_us: BTreeMap<&'static str, f64>,
    library_reports: BTreeMap<&'static str, &'a str>,
    cases: Vec<CaseParams>,
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: &'static str,
    about: &'static str,
    rw: &'static str,
    block_bytes: u64,
    depth: u32,
    direct: bool,
    sync: bool,
    size_bytes: u64,
    runtime_s: f64,
}

/// One metric of one engine in one case.
#[derive(Serialize)]
pub(crate) struct Row {
    engine: &'static str,
    case: &'static str,
    metric: &'static str,
    unit: &'static str,
    better: Better,
    /// One a round.
    runs: Vec<f64>,
    median: f64,
    min: f64,
    max: f64,
    mad: f64,
}

impl Row {
    /// Sums up the runs; `None` of nothing.
    pub(crate) fn of(
        case: &'static str,
        engine: &'static str,
        metric: Metric,
        runs: Vec<f64>,
    ) -> Option<Self> {
        let summary = stats::summarize(&runs)?;
        Some(Self {
            engine,
            case,
            metric: metric.name(),
            unit: metric.unit(),
            better: metric.better(),
            runs,
            median: summary.median,
            min: summary.min,
            max: summary.max,
            mad: summary.mad,
        })
    }
}

/// How many times the figure of `a` is the figure of `b`: `b / a`, taken within the rounds.
#[derive(Serialize)]
pub(crate) struct RatioRow {
    case: &'static str,
    metric: &'static str,
    a: &'static str,
    b: &'static str,
    median: f64,
    low: f64,
    high: f64,
    runs: Vec<f64>,
}

impl RatioRow {
    /// Divides the rounds of `b` by those of `a`; `None` where that cannot be done.
    pub(crate) fn of(
        case: &'static str,
        metric: Metric,
        (a, runs_a): (&'static str, &[f64]),
        (b, runs_b): (&'static str, &[f64]),
    ) -> Option<Self> {
        let ratio = stats::ratio(runs_a, runs_b)?;
        let (median, low, high) = (ratio.median, ratio.low, ratio.high);
        Some(Self { case, metric: metric.name(), a, b, median, low, high, runs: ratio.rounds })
    }
}

/// A target and what became of it.
#[derive(Serialize)]
pub(crate) struct VerdictRow {
    case: &'static str,
    target: String,
    median: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: &'static str,
}

impl VerdictRow {
    /// Says what became of a target of a case.
    pub(crate) fn of(case: &'static str, judged: Judged) -> Self {
        let ratio = judged.ratio.as_ref();
        Self {
            case,
            median: ratio.map(|ratio| ratio.median),
            low: ratio.map(|ratio| ratio.low),
            high: ratio.map(|ratio| ratio.high),
            verdict: judged.outcome.name(),
            target: judged.target,
        }
    }
}

/// A document that may have ended before its time.
#[derive(Serialize)]
struct Marked<'a, D> {
    #[serde(flatten)]
    document: &'a D,
    partial: bool,
}

impl<P: Serialize> Document<'_, P> {
    /// Returns it as text; after Ctrl-C marked as partial.
    pub(crate) fn text(&self) -> Result<String> {
        let marked = Marked { document: self, partial: interrupt::happened() };
        let text = serde_json::to_string_pretty(&marked);
        text.map(|text| text + "\n").map_err(|error| BenchError::failed(format!("JSON: {error}")))
    }
}

/// Writes the reports of a measurement with fio, and says where they are.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn write_results(results: &Results, reports: &ReportArgs) -> Result<()> {
    reports.write(&document(results))
}

/// Returns the JSON of a measurement.
#[cfg(test)]
pub(crate) fn json_text(results: &Results) -> Result<String> {
    document(results).text()
}

fn document(results: &Results) -> Document<'_, Params<'_>> {
    Document {
        schema: SCHEMA,
        host: &results.host,
        workload: results.workload,
        params: params(results),
        rows: results.cases.iter().flat_map(rows).collect(),
        ratios: results.cases.iter().flat_map(ratios).collect(),
        verdicts: results.cases.iter().flat_map(verdicts).collect(),
        notes: &results.notes,
    }
}

fn params(results: &Results) -> Params<'_> {
    let params = &results.params;
    let startups = params.startup_cpu_us.iter();
    let reports = params.library_reports.iter();
    let subjects = results.cases.iter().flat_map(CaseResults::subjects);
    Params {
        rounds: params.rounds,
        folder: &params.folder,
        caches_dropped: params.caches_dropped,
        page_cache: cache::state(params.caches_dropped),
        engines: subjects.map(|subject| (subject.name(), subject.describe())).collect(),
        startup_cpu_us: startups.map(|(subject, us)| (subject.name(), *us)).collect(),
        library_reports: reports.map(|(subject, text)| (subject.name(), text.as_str())).collect(),
        cases: results.cases.iter().map(case_params).collect(),
    }
}

fn case_params(results: &CaseResults) -> CaseParams {
    let job = &results.case.job;
    CaseParams {
        case: results.case.name,
        title: results.case.title,
        about: results.case.about,
        rw: job.rw,
        block_bytes: job.block_bytes,
        depth: job.depth,
        direct: job.direct,
        sync: job.sync,
        size_bytes: results.size_bytes,
        runtime_s: results.runtime_s,
    }
}

fn rows(results: &CaseResults) -> Vec<Row> {
    results.runs.rows(results.case.name)
}

fn ratios(results: &CaseResults) -> Vec<RatioRow> {
    let references = REFERENCES.map(Subject::name);
    let pairs = references.into_iter().flat_map(|a| results.runs.names().map(move |b| (a, b)));
    let pairs = pairs.filter(|(a, b)| a != b);
    results.runs.ratio_rows(results.case.name, pairs, &Metric::ALL)
}

fn verdicts(results: &CaseResults) -> impl Iterator<Item = VerdictRow> + '_ {
    results.judged().map(|judged| VerdictRow::of(results.case.name, judged))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample_results;
    use serde_json::Value;

    #[test]
    fn the_document_has_the_shape_of_every_benchmark() {
        let text = json_text(&sample_results()).expect("serializable");
        let document: Value = serde_json::from_str(&text).expect("valid JSON");
        assert_eq!(document["schema"], 1);
        assert_eq!(document["workload"], "submit");
        for field in ["kernel", "cores", "memory_bytes", "filesystem", "device"] {
            assert!(!document["host"][field].is_null(), "{field}");
        }
        for row in document["rows"].as_array().expect("a list") {
            for field in ["engine", "case", "metric", "unit", "runs", "median", "min", "max"] {
                assert!(!row[field].is_null(), "{field}");
            }
        }
        for field in ["case", "metric", "a", "b", "median"] {
            assert!(!document["ratios"][0][field].is_null(), "{field}");
        }
    }

    #[test]
    fn every_metric_of_every_engine_is_there() {
        let results = sample_results();
        let rows = rows(&results.cases[0]);
        assert_eq!(rows.len(), 2 * Metric::ALL.len());
    }

    #[test]
    fn a_ratio_is_b_over_a() {
        let ratios = ratios(&sample_results().cases[0]);
        let iops = ratios.iter().find(|row| row.metric == "iops" && row.b == "nowait");
        let iops = iops.expect("system and nowait were measured");
        assert_eq!((iops.a, iops.median), ("system", 2.0));
    }
}
