//! The JSON of a measurement: written by each, read back by comparisons and by the page.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{BenchError, Context, Result};
use crate::metric::{Better, Metric};
use crate::stats::{self, Ratio, Summary};
use crate::verdict::Judged;

/// Raised when a reader of an older schema would misunderstand a newer file.
pub const SCHEMA: u32 = 1;

/// A measurement of any workload, as every benchmark writes it and as it is read back.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Document {
    pub(crate) schema: u32,
    pub(crate) host: Map<String, Value>,
    pub(crate) workload: String,
    #[serde(default)]
    pub(crate) params: Value,
    pub rows: Vec<Row>,
    #[serde(default)]
    pub(crate) ratios: Vec<RatioRow>,
    #[serde(default)]
    pub(crate) verdicts: Vec<VerdictRow>,
    #[serde(default)]
    pub(crate) notes: Vec<String>,
    /// The measurement was interrupted: all figures are valid, and some are missing.
    #[serde(default)]
    pub(crate) partial: bool,
}

/// One metric of one engine in one case.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Row {
    pub(crate) engine: String,
    pub(crate) case: String,
    pub(crate) metric: String,
    pub(crate) unit: String,
    /// `None` in files of older versions.
    better: Option<Better>,
    /// One figure a round; JSON has null for infinity.
    runs: Vec<Option<f64>>,
    /// `None` without runs.
    #[serde(flatten, skip_deserializing)]
    pub(crate) summary: Option<Summary>,
    /// Where the figure stands among those of other block sizes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) point: Option<Point>,
}

/// The place of a figure in a plot against the block size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Point {
    pub(crate) block_bytes: u64,
    /// Mode of the requests, such as `batch`.
    pub(crate) series: String,
    /// Measured quantity, such as `throughput`.
    pub(crate) quantity: String,
}

/// How many times the figure of `a` that of `b` is, taken within the rounds.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct RatioRow {
    pub(crate) case: String,
    pub(crate) metric: String,
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) median: f64,
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    #[serde(default)]
    runs: Vec<f64>,
    /// The ratio of a source whose experiment is simulated, if the source gives a figure.
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_range: Option<(f64, f64)>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) source_words: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    met: Option<bool>,
}

/// A target and its verdict.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct VerdictRow {
    pub(crate) case: String,
    pub(crate) target: String,
    pub(crate) median: Option<f64>,
    pub(crate) low: Option<f64>,
    pub(crate) high: Option<f64>,
    pub(crate) verdict: String,
}

impl Document {
    /// Reads a file that a benchmark has written.
    ///
    /// # Errors
    /// The file cannot be read, is no measurement, or is one of a later version.
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
        Self::parse(&text).map_err(|error| {
            BenchError::failed(format!("{} is no measurement: {error}", path.display()))
        })
    }

    /// Understands the text of such a file.
    ///
    /// # Errors
    /// The text is no measurement, or one of a later version.
    pub fn parse(text: &str) -> Result<Self> {
        let mut saved: Self =
            serde_json::from_str(text).map_err(|error| BenchError::failed(error.to_string()))?;
        if saved.schema > SCHEMA {
            let (theirs, ours) = (saved.schema, SCHEMA);
            let what = format!("it has schema {theirs}, and this program knows up to {ours}");
            return Err(BenchError::failed(what));
        }
        for row in &mut saved.rows {
            row.summary = stats::summarize(&row.runs());
        }
        Ok(saved)
    }

    /// Returns `true` if it was made in virtual time: the same seed gives the same figures.
    pub(crate) fn is_simulated(&self) -> bool {
        !self.host.contains_key("kernel")
    }

    /// Returns the cases in the order of the file.
    pub fn cases(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.case.as_str()))
    }

    /// Returns the engines of a case in the order of the file.
    pub(crate) fn engines(&self, case: &str) -> Vec<&str> {
        distinct(self.rows_of(case).map(|row| row.engine.as_str()))
    }

    /// Returns the rows of a case.
    pub(crate) fn rows_of(&self, case: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.case == case)
    }

    /// Finds a row.
    pub(crate) fn row(&self, case: &str, engine: &str, metric: &str) -> Option<&Row> {
        self.rows_of(case).find(|row| row.engine == engine && row.metric == metric)
    }

    /// Returns the ratios of a case.
    pub(crate) fn ratios_of(&self, case: &str) -> impl Iterator<Item = &RatioRow> {
        self.ratios.iter().filter(move |ratio| ratio.case == case)
    }

    /// Returns the parameters of a case.
    pub(crate) fn case_params(&self, case: &str) -> Option<&Value> {
        let cases = self.params.get("cases")?.as_array()?;
        cases.iter().find(|params| params["case"] == case)
    }

    /// Returns a field of the parameters of a case.
    pub(crate) fn case_param(&self, case: &str, name: &str) -> Option<&Value> {
        self.case_params(case)?.get(name)
    }
}

impl Row {
    /// Makes a row of a metric; `None` without runs.
    pub fn of(case: &str, engine: &str, metric: Metric, runs: &[f64]) -> Option<Self> {
        let summary = stats::summarize(runs)?;
        Some(Self {
            engine: engine.to_owned(),
            case: case.to_owned(),
            metric: metric.name().to_owned(),
            unit: metric.unit().to_owned(),
            better: Some(metric.better()),
            runs: runs.iter().copied().map(Some).collect(),
            summary: Some(summary),
            point: None,
        })
    }

    /// Returns the figures, one a round.
    pub fn runs(&self) -> Vec<f64> {
        self.runs.iter().copied().flatten().collect()
    }

    /// Returns which figure is the better one; by the unit where nothing else is known.
    pub(crate) fn better(&self) -> Better {
        let by_name = || Metric::named(&self.metric).map(Metric::better);
        self.better.or_else(by_name).unwrap_or_else(|| better_of_unit(&self.unit))
    }

    /// Returns the words for the metric.
    pub(crate) fn label(&self) -> &str {
        Metric::named(&self.metric).map_or(&self.metric, |metric| metric.label())
    }
}

impl RatioRow {
    /// Names a ratio.
    pub fn of(case: &str, metric: Metric, (a, b): (&str, &str), ratio: Ratio) -> Self {
        Self {
            case: case.to_owned(),
            metric: metric.name().to_owned(),
            a: a.to_owned(),
            b: b.to_owned(),
            median: ratio.median,
            low: Some(ratio.low),
            high: Some(ratio.high),
            runs: ratio.rounds,
            ..Self::default()
        }
    }

    /// Returns the ratio with its interval; `None` for a simulation, which has none.
    pub(crate) fn ratio(&self) -> Option<Ratio> {
        let rounds = self.runs.clone();
        Some(Ratio { median: self.median, low: self.low?, high: self.high?, rounds })
    }
}

impl VerdictRow {
    /// Makes a row of a judged target.
    pub fn of(case: &str, judged: Judged) -> Self {
        let ratio = judged.ratio.as_ref();
        Self {
            case: case.to_owned(),
            median: ratio.map(|ratio| ratio.median),
            low: ratio.map(|ratio| ratio.low),
            high: ratio.map(|ratio| ratio.high),
            verdict: judged.outcome.name().to_owned(),
            target: judged.target,
        }
    }
}

/// Returns a document as text.
pub fn to_text(document: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(document);
    text.map(|text| text + "\n").map_err(|error| BenchError::failed(format!("JSON: {error}")))
}

fn better_of_unit(unit: &str) -> Better {
    let first = unit.split(' ').next().unwrap_or(unit);
    match first {
        _ if first.ends_with("/s") || first == "IOPS" => Better::More,
        "ns" | "us" | "µs" | "ms" | "s" => Better::Less,
        _ => Better::Neither,
    }
}

/// Returns each text once, in the order of first appearance.
pub fn distinct<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for text in texts {
        if !seen.contains(&text) {
            seen.push(text);
        }
    }
    seen
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::sample;

    #[test]
    fn what_is_written_can_be_read_back() {
        let text = sample().json().expect("serializable");
        let saved = Document::parse(&text).expect("a measurement");
        assert_eq!(saved.workload, "submit");
        assert_eq!(saved.engines(saved.cases()[0]), ["system", "nowait"]);
        let iops = saved.row("a", "nowait", "iops").expect("measured");
        assert_eq!(iops.summary.map(|summary| summary.median), Some(204.0));
        assert_eq!(iops.better(), Better::More);
        assert!(!saved.is_simulated() && !saved.partial);
    }

    #[test]
    fn a_later_schema_is_refused_and_garbage_too() {
        let text = sample().json().expect("serializable");
        let later = text.replace("\"schema\": 1", "\"schema\": 99");
        let error = Document::parse(&later).expect_err("later");
        assert!(error.to_string().contains("schema 99"), "{error}");
        assert!(Document::parse("{}").is_err() && Document::parse("").is_err());
    }

    #[test]
    fn the_direction_of_an_unknown_metric_follows_its_unit() {
        let of = better_of_unit;
        assert_eq!(
            (of("MB/s"), of("transactions/s"), of("IOPS")),
            (Better::More, of("B/s"), of("1/s"))
        );
        assert_eq!(
            (of("µs CPU"), of("us"), of("× sync")),
            (Better::Less, Better::Less, Better::Neither)
        );
    }
}
