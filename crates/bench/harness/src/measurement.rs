//! The results of a measurement: the figures of all cases, for tables, reports and verdicts.

use std::fmt::Write;

use serde_json::{Map, Value, json};

use crate::case::{Case, Target};
use crate::error::{Failure, Result};
use crate::host::Host;
use crate::interrupt;
use crate::report::{ReportArgs, SCHEMA, to_text};
use crate::runs::Runs;
use crate::table;
use crate::verdict::{self, Judged};

/// Fields of the JSON that describe the conditions of a measurement.
pub type Params = Map<String, Value>;

fn fields(value: Value) -> Params {
    match value {
        Value::Object(fields) => fields,
        _ => Params::new(),
    }
}

#[derive(Debug, Clone)]
pub struct CaseResults {
    pub case: Case<()>,
    pub runs: Runs,
    /// The conditions of the runs, as text for the terminal; may be empty.
    pub how: String,
    pub params: Params,
}

#[derive(Debug, Clone)]
pub struct Measurement {
    pub workload: &'static str,
    pub host: Host,
    pub params: Params,
    pub cases: Vec<CaseResults>,
    pub pairs: Pairs,
    pub notes: Vec<String>,
    /// Cases and subjects of cases that failed, with the reasons.
    pub failed: Vec<String>,
    /// The text on the terminal before the tables, and the text after the targets; may be empty.
    pub words: (String, &'static str),
}

/// The pairs of subjects of a case that are compared: `b` of a pair with `a`.
#[derive(Debug, Clone, Copy)]
pub enum Pairs {
    /// Each other subject with the first one.
    WithFirst,
    /// The first subject with each other one.
    FirstWith,
    /// Each subject with each other subject that is named here and was measured.
    With(&'static [&'static str]),
}

impl Pairs {
    fn of(self, names: &[&'static str]) -> Vec<(&'static str, &'static str)> {
        let Some(first) = names.first().copied() else { return Vec::new() };
        let others = names[1..].iter().copied();
        match self {
            Self::WithFirst => others.map(|other| (first, other)).collect(),
            Self::FirstWith => others.map(|other| (other, first)).collect(),
            Self::With(references) => {
                let measured = references.iter().copied().filter(|a| names.contains(a));
                let with = |a| names.iter().copied().filter(move |b| *b != a).map(move |b| (a, b));
                measured.flat_map(with).collect()
            }
        }
    }
}

impl CaseResults {
    pub fn new<J>(case: &Case<J>, runs: Runs, params: Value) -> Self {
        let (case, how) = (case.without_jobs(), String::new());
        Self { case, runs, how, params: fields(params) }
    }

    pub fn judged(&self) -> impl Iterator<Item = (&'static str, Judged)> + '_ {
        let judge = |target: &Target| (self.case.name, target.judge(&self.runs));
        self.case.targets.iter().map(judge)
    }

    fn text(&self) -> String {
        let case = &self.case;
        let source = match case.source.as_str() {
            "" => String::new(),
            source => format!("Source: {source}"),
        };
        let lines = [case.about, &source, &self.how].map(str::trim);
        let lines: Vec<&str> = lines.into_iter().filter(|line| !line.is_empty()).collect();
        let runs = table::runs("engine", &self.runs, case.columns);
        let lines = lines.join(" ") + if lines.is_empty() { "" } else { "\n" };
        format!("{} · {}\n{lines}{runs}\n\n", case.name, case.title)
    }

    fn params(&self) -> Value {
        let case = &self.case;
        let mut params = self.params.clone();
        let words = [("case", case.name), ("title", &case.title), ("about", case.about)];
        for (name, text) in words.into_iter().chain([("source", case.source.as_str())]) {
            if !text.is_empty() {
                params.insert(name.to_owned(), text.into());
            }
        }
        params.into()
    }
}

impl Measurement {
    pub fn new(workload: &'static str, host: Host, params: Value, cases: Vec<CaseResults>) -> Self {
        Self {
            workload,
            host,
            params: fields(params),
            cases,
            pairs: Pairs::WithFirst,
            notes: Vec::new(),
            failed: Vec::new(),
            words: (String::new(), ""),
        }
    }

    /// Returns how many targets are met beyond the noise, and how many there are.
    pub fn met(&self) -> (usize, usize) {
        let judged = self.cases.iter().flat_map(CaseResults::judged);
        verdict::count(judged.map(|(_, judged)| judged))
    }

    pub fn unmet(&self) -> Option<String> {
        let (met, all) = self.met();
        (met < all).then(|| format!("{met} of {all} targets are met beyond the noise"))
    }

    pub fn text(&self) -> String {
        let (before, behind) = &self.words;
        let mut text = before.clone();
        self.cases.iter().for_each(|case| text += &case.text());
        text += &table::targets(self.cases.iter().flat_map(CaseResults::judged));
        let _ = write!(text, "{behind}{}", table::notes(&self.notes));
        text
    }

    pub fn json(&self) -> Result<String> {
        let mut params = self.params.clone();
        let subjects = self.cases.iter().flat_map(|case| {
            let measured = |name| case.runs.names().any(|measured| measured == name);
            case.case.subjects.iter().filter(move |subject| measured(subject.name))
        });
        let engines = subjects.map(|subject| subject.engine);
        let engines: Params = engines
            .filter(|(_, about)| !about.is_empty())
            .map(|(name, about)| (name.to_owned(), about.into()))
            .collect();
        if !engines.is_empty() {
            params.insert("engines".to_owned(), engines.into());
        }
        params.insert("cases".to_owned(), self.cases.iter().map(CaseResults::params).collect());
        let ratios = |results: &CaseResults| {
            let names: Vec<&'static str> = results.runs.names().collect();
            results.runs.ratio_rows(results.case.name, &self.pairs.of(&names))
        };
        let verdict = |(case, Judged { target, ratio, outcome }): (&str, Judged)| {
            let ratio = ratio.as_ref();
            json!({
                "case": case, "target": target, "verdict": outcome.name(),
                "median": ratio.map(|it| it.median), "low": ratio.map(|it| it.low),
                "high": ratio.map(|it| it.high),
            })
        };
        let cases = || self.cases.iter();
        to_text(&json!({
            "schema": SCHEMA,
            "host": self.host,
            "workload": self.workload,
            "params": params,
            "rows": cases().flat_map(|it| it.runs.rows(it.case.name)).collect::<Vec<_>>(),
            "ratios": cases().flat_map(ratios).collect::<Vec<_>>(),
            "verdicts": cases().flat_map(CaseResults::judged).map(verdict).collect::<Vec<_>>(),
            "notes": self.notes,
            "partial": interrupt::happened(),
        }))
    }

    /// Writes the reports. Then fails if the measurement was interrupted, or if a case or a run
    /// failed.
    pub fn write(&self, reports: &ReportArgs) -> Result<()> {
        reports.write(&self.json()?)?;
        interrupt::check()?;
        match self.failed.as_slice() {
            [] => Ok(()),
            [only] => Err(Failure::new(only.clone())),
            [first, more @ ..] => {
                let more = more.len();
                Err(Failure::new(format!("{first} (and {more} more: see the notes)")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;
    use crate::testing::sample;
    use crate::verdict::Outcome;

    #[test]
    fn the_document_has_the_shape_of_every_benchmark() {
        let text = sample().json().expect("serializable");
        let document: Value = serde_json::from_str(&text).expect("valid JSON");
        assert_eq!((&document["schema"], &document["workload"]), (&1.into(), &"submit".into()));
        for field in ["kernel", "cores", "memory_bytes", "filesystem", "device"] {
            assert!(!document["host"][field].is_null(), "{field}");
        }
        let rows = document["rows"].as_array().expect("a list");
        assert_eq!(rows.len(), 2 * Metric::ALL.len(), "every metric of every engine");
        for row in rows {
            for field in ["engine", "case", "metric", "unit", "runs", "median", "min", "max"] {
                assert!(!row[field].is_null(), "{field}");
            }
        }
        let ratio = &document["ratios"][0];
        assert_eq!((&ratio["a"], &ratio["b"]), (&"system".into(), &"nowait".into()));
        assert_eq!((&ratio["metric"], &ratio["median"]), (&"iops".into(), &2.0.into()), "b over a");
        assert_eq!(document["verdicts"][1]["verdict"], "met");
        assert_eq!(document["params"]["engines"]["nowait"], "one of two");
        assert_eq!(document["params"]["cases"][0]["source"], "10.08 → 23.91 MB/s");
    }

    #[test]
    fn targets_are_judged_by_the_rounds_of_two_figures() {
        let measurement = sample();
        let judged = measurement.cases[0].judged();
        let outcomes: Vec<Outcome> = judged.map(|(_, judged)| judged.outcome).collect();
        use Outcome::{Met, Missed, NotMeasured};
        assert_eq!(outcomes, [Missed, Met, NotMeasured, Met], "half is more than a tenth");
        assert_eq!(measurement.met(), (2, 4));
    }

    #[test]
    fn the_text_has_figures_verdicts_and_notes() {
        let text = sample().text();
        for part in ["a · random reads\nMade for a test. Source: 10.08", "204 ±1 %", "2 of 4"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(
            text.contains("One is enough. Medians") && text.contains("Note: made up"),
            "{text}"
        );
    }

    #[test]
    fn pairs_compare_what_was_asked_for() {
        let names = ["x", "y", "z"];
        assert_eq!(Pairs::WithFirst.of(&names), [("x", "y"), ("x", "z")]);
        assert_eq!(Pairs::FirstWith.of(&names), [("y", "x"), ("z", "x")]);
        assert_eq!(Pairs::With(&["z", "none"]).of(&names), [("z", "x"), ("z", "y")]);
    }
}
