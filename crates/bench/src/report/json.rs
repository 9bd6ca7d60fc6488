//! The JSON of a measurement.

use serde::Serialize;

use crate::error::{BenchError, Result};
use crate::host::Host;
use crate::measurement::Params;
use crate::metric::{Better, Metric};
use crate::stats::{self, Ratio};
use crate::verdict::Judged;

/// Raised when a reader of an older schema would misunderstand a newer file.
pub(crate) const SCHEMA: u32 = 1;

/// What every benchmark writes.
#[derive(Serialize)]
pub(crate) struct Document<'a> {
    pub(crate) schema: u32,
    pub(crate) host: &'a Host,
    pub(crate) workload: &'a str,
    /// How it was made.
    pub(crate) params: Params,
    pub(crate) rows: Vec<Row>,
    pub(crate) ratios: Vec<RatioRow>,
    pub(crate) verdicts: Vec<VerdictRow>,
    pub(crate) notes: &'a [String],
    /// It has ended before its time.
    pub(crate) partial: bool,
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
    /// Names a ratio.
    pub(crate) fn of(
        case: &'static str,
        metric: Metric,
        (a, b): (&'static str, &'static str),
        ratio: Ratio,
    ) -> Self {
        let (median, low, high) = (ratio.median, ratio.low, ratio.high);
        Self { case, metric: metric.name(), a, b, median, low, high, runs: ratio.rounds }
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

impl Document<'_> {
    /// Returns it as text.
    pub(crate) fn text(&self) -> Result<String> {
        to_text(self)
    }
}

/// Returns a document as text.
pub(crate) fn to_text(document: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(document);
    text.map(|text| text + "\n").map_err(|error| BenchError::failed(format!("JSON: {error}")))
}
