//! The JSON of a measurement, as `bench compare` reads it back.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Context, Failure, Result};
use crate::metric::{Better, Metric};
use crate::stats::{self, Summary};

/// The number of the schema. A change that an older reader would misunderstand raises the number.
pub const SCHEMA: u32 = 1;

#[derive(Debug, Clone, Deserialize)]
pub struct Document {
    pub(crate) schema: u32,
    pub(crate) host: Map<String, Value>,
    pub(crate) workload: String,
    #[serde(default)]
    pub(crate) params: Value,
    pub rows: Vec<Row>,
    /// The measurement was interrupted: all figures are valid, but some may be missing.
    #[serde(default)]
    pub(crate) partial: bool,
}

#[derive(Debug, Clone, Deserialize)]
pub struct Row {
    pub(crate) engine: String,
    pub(crate) case: String,
    pub(crate) metric: String,
    pub(crate) unit: String,
    /// `None` in files of older versions, which do not say which figures are better.
    better: Option<Better>,
    /// One figure for each round; `None` stands for infinity or NaN, which JSON has as null.
    runs: Vec<Option<f64>>,
    #[serde(skip)]
    pub(crate) summary: Option<Summary>,
}

impl Document {
    pub fn read(path: &Path) -> Result<Self> {
        let text = fs::read_to_string(path).context(|| format!("read {}", path.display()))?;
        Self::parse(&text)
            .map_err(|error| Failure::new(format!("{} is no measurement: {error}", path.display())))
    }

    pub fn parse(text: &str) -> Result<Self> {
        let mut saved: Self =
            serde_json::from_str(text).map_err(|error| Failure::new(error.to_string()))?;
        if saved.schema > SCHEMA {
            let (theirs, ours) = (saved.schema, SCHEMA);
            let what = format!("it has schema {theirs}, and this program knows up to {ours}");
            return Err(Failure::new(what));
        }
        for row in &mut saved.rows {
            row.summary = stats::summarize(&row.runs());
        }
        Ok(saved)
    }

    /// A measurement in virtual time describes no kernel.
    pub(crate) fn is_simulated(&self) -> bool {
        !self.host.contains_key("kernel")
    }

    pub fn cases(&self) -> Vec<&str> {
        distinct(self.rows.iter().map(|row| row.case.as_str()))
    }

    pub(crate) fn engines(&self, case: &str) -> Vec<&str> {
        distinct(self.rows_of(case).map(|row| row.engine.as_str()))
    }

    pub(crate) fn rows_of(&self, case: &str) -> impl Iterator<Item = &Row> {
        self.rows.iter().filter(move |row| row.case == case)
    }

    pub(crate) fn row(&self, case: &str, engine: &str, metric: &str) -> Option<&Row> {
        self.rows_of(case).find(|row| row.engine == engine && row.metric == metric)
    }

    pub(crate) fn case_param(&self, case: &str, name: &str) -> Option<&Value> {
        let cases = self.params.get("cases")?.as_array()?;
        cases.iter().find(|params| params["case"] == case)?.get(name)
    }

    pub(crate) fn contents(&self) -> String {
        if self.rows.is_empty() {
            return "nothing of what was asked for".to_owned();
        }
        let names = |name: fn(&Row) -> &str| distinct(self.rows.iter().map(name)).join(", ");
        let (cases, engines) = (names(|row| &row.case), names(|row| &row.engine));
        format!("case {cases} · engine {engines} · metric {}", names(|row| &row.metric))
    }
}

impl Row {
    /// Leaves out figures that are not finite.
    pub fn runs(&self) -> Vec<f64> {
        self.runs.iter().copied().flatten().collect()
    }

    pub(crate) fn better(&self) -> Better {
        let by_name = || Metric::named(&self.metric).map(Metric::better);
        self.better.or_else(by_name).unwrap_or_else(|| better_of_unit(&self.unit))
    }

    pub(crate) fn label(&self) -> &str {
        Metric::named(&self.metric).map_or(&self.metric, |metric| metric.label())
    }
}

pub fn to_text(document: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(document);
    text.map(|text| text + "\n").map_err(|error| Failure::new(format!("JSON: {error}")))
}

fn better_of_unit(unit: &str) -> Better {
    let first = unit.split(' ').next().unwrap_or(unit);
    match first {
        _ if first.ends_with("/s") || first == "IOPS" => Better::More,
        "ns" | "us" | "µs" | "ms" | "s" => Better::Less,
        _ => Better::Neither,
    }
}

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
