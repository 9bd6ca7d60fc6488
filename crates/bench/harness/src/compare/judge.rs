//! Each figure that both measurements have: how many times, how sure, and what follows.

use serde::Serialize;

use super::settings::{self, Setting};
use crate::error::{BenchError, Result};
use crate::metric::Better;
use crate::report::{Document, Row, distinct};
use crate::stats::{self, Ratio};
use crate::verdict::ROUNDS_MIN;

/// The verdict on two sets of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Difference {
    /// The interval lies on the good side.
    Better,
    /// The interval lies on the bad side.
    Worse,
    /// The figures differ, in a metric that is no judgement.
    Changed,
    /// The interval holds no difference: these runs cannot tell.
    InsideNoise,
    /// Too few rounds for an interval.
    TooFewRounds,
    /// All figures are equal.
    Same,
}

/// A figure of both measurements, as the JSON has it.
#[derive(Debug, Clone, Serialize)]
pub(super) struct Compared {
    pub(super) case: String,
    pub(super) engine: String,
    metric: String,
    pub(super) label: String,
    pub(super) unit: String,
    better: Better,
    pub(super) a_median: f64,
    pub(super) b_median: f64,
    a_mad: f64,
    b_mad: f64,
    /// `b` divided by `a`, with its interval; `None` when `a` has zeros.
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    pub(super) verdict: Difference,
}

/// Two measurements side by side.
#[derive(Debug)]
pub(super) struct Comparison {
    pub(super) a: Document,
    pub(super) b: Document,
    pub(super) params: Vec<Setting>,
    pub(super) host: Vec<Setting>,
    pub(super) compared: Vec<Compared>,
    /// Shows only what differs beyond the noise.
    pub(super) changed: bool,
    /// `case, engine` that only one of them has.
    pub(super) only_a: Vec<String>,
    pub(super) only_b: Vec<String>,
}

impl Difference {
    /// All, in the order of the type, with the words of tables and of the JSON.
    pub(super) const ALL: [(Self, &'static str); 6] = [
        (Self::Better, "better"),
        (Self::Worse, "worse"),
        (Self::Changed, "changed"),
        (Self::InsideNoise, "inside the noise"),
        (Self::TooFewRounds, "too few rounds"),
        (Self::Same, "the same"),
    ];

    pub(super) fn name(self) -> &'static str {
        Self::ALL[self as usize].1
    }

    /// Returns `true` beyond the noise.
    pub(super) fn is_change(self) -> bool {
        matches!(self, Self::Better | Self::Worse | Self::Changed)
    }
}

impl Serialize for Difference {
    fn serialize<S: serde::Serializer>(&self, to: S) -> std::result::Result<S::Ok, S::Error> {
        to.serialize_str(self.name())
    }
}

impl Compared {
    /// Compares two rows; `None` if one of them has no figures.
    ///
    /// `exact`: they were computed, not measured, so that any difference is one.
    fn of(a: &Row, b: &Row, exact: bool) -> Option<Self> {
        let (runs_a, runs_b) = (a.runs(), b.runs());
        let (summary_a, summary_b) = (a.summary?, b.summary?);
        let unpaired = stats::unpaired(&runs_a, &runs_b)?;
        let (low, high) = unpaired.difference;
        let better = b.better();
        let rounds = runs_a.len().min(runs_b.len());
        let verdict = match () {
            () if low == 0.0 && high == 0.0 => Difference::Same,
            () if rounds < ROUNDS_MIN && !exact => Difference::TooFewRounds,
            () if low <= 0.0 && high >= 0.0 => Difference::InsideNoise,
            () if better == Better::Neither => Difference::Changed,
            () if (low > 0.0) == (better == Better::More) => Difference::Better,
            () => Difference::Worse,
        };
        let ratio = unpaired.ratio.as_ref();
        Some(Self {
            case: a.case.clone(),
            engine: a.engine.clone(),
            metric: a.metric.clone(),
            label: b.label().to_owned(),
            unit: b.unit.clone(),
            better,
            a_median: summary_a.median,
            b_median: summary_b.median,
            a_mad: summary_a.mad,
            b_mad: summary_b.mad,
            ratio: ratio.map(|ratio| ratio.median),
            low: ratio.map(|ratio| ratio.low),
            high: ratio.map(|ratio| ratio.high),
            verdict,
        })
    }

    /// Returns `b` divided by `a`, with its interval.
    pub(super) fn ratio(&self) -> Option<Ratio> {
        let (median, low, high) = (self.ratio?, self.low?, self.high?);
        Some(Ratio { median, low, high, rounds: Vec::new() })
    }

    /// Returns by how many percent of the figure before it got worse; negative: better.
    ///
    /// Infinite when there is no ratio and the figure has grown from zero.
    fn worse_percent(&self) -> f64 {
        let change = match self.ratio {
            Some(ratio) => ratio - 1.0,
            None if self.b_median > self.a_median => f64::INFINITY,
            None => 0.0,
        };
        match self.better {
            Better::More => -100.0 * change,
            Better::Less => 100.0 * change,
            Better::Neither => 0.0,
        }
    }
}

impl Comparison {
    /// Compares the cases and figures that both documents have.
    ///
    /// # Errors
    /// The documents are of different workloads, or have no figure in common.
    pub(super) fn of(a: Document, b: Document) -> Result<Self> {
        if a.workload != b.workload {
            let message = format!("a {} and a {} cannot be compared", a.workload, b.workload);
            return Err(BenchError::failed(message));
        }
        let exact = a.is_simulated() && b.is_simulated();
        let pair = |row: &Row| {
            let other = b.row(&row.case, &row.engine, &row.metric)?;
            Compared::of(row, other, exact)
        };
        let compared: Vec<Compared> = a.rows.iter().filter_map(pair).collect();
        if compared.is_empty() {
            let [a, b] = [&a, &b].map(contents);
            let message = format!("they have no figure in common; A has {a}; B has {b}");
            return Err(BenchError::failed(message));
        }
        let host = |saved: &Document| serde_json::Value::Object(saved.host.clone());
        Ok(Self {
            params: settings::differences("params", &a.params, &b.params),
            host: settings::differences("host", &host(&a), &host(&b)),
            only_a: missing(&a, &b),
            only_b: missing(&b, &a),
            compared,
            changed: false,
            a,
            b,
        })
    }

    /// Returns `true` if both were computed in virtual time.
    pub(super) fn is_exact(&self) -> bool {
        self.a.is_simulated() && self.b.is_simulated()
    }

    /// Returns the figures to be shown.
    pub(super) fn shown(&self) -> impl Iterator<Item = &Compared> {
        self.compared.iter().filter(|one| !self.changed || one.verdict.is_change())
    }

    /// Returns the figures that are worse by more than `percent`, beyond the noise.
    pub(super) fn worse_than(&self, percent: f64) -> impl Iterator<Item = &Compared> {
        let worse = self.compared.iter().filter(|one| one.verdict == Difference::Worse);
        worse.filter(move |one| one.worse_percent() > percent)
    }

    /// Counts the figures with a verdict.
    pub(super) fn count(&self, verdict: Difference) -> usize {
        self.compared.iter().filter(|one| one.verdict == verdict).count()
    }
}

/// Names the contents of a file, or of what is left of it.
fn contents(saved: &Document) -> String {
    if saved.rows.is_empty() {
        return "nothing of what was asked for".to_owned();
    }
    let names = |name: fn(&Row) -> &str| some_of(&distinct(saved.rows.iter().map(name)));
    let (cases, engines) = (names(|row| &row.case), names(|row| &row.engine));
    format!("case {cases} · engine {engines} · metric {}", names(|row| &row.metric))
}

/// Lists the first of the names: a line is to be read.
pub(super) fn some_of(names: &[&str]) -> String {
    const SHOWN: usize = 16;
    let shown = names[..names.len().min(SHOWN)].join(", ");
    match names.len().saturating_sub(SHOWN) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Names cases and engines of `these` that `others` has not.
fn missing(these: &Document, others: &Document) -> Vec<String> {
    let of = |case| {
        let has = others.engines(case);
        let only = these.engines(case).into_iter().filter(move |engine| !has.contains(engine));
        only.map(move |engine| format!("{case}, {engine}"))
    };
    these.cases().into_iter().flat_map(of).collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Makes a file up: rows of `(engine, metric, unit, runs)` of one case.
    pub(crate) fn file(rows: &[(&str, &str, &str, &[f64])]) -> Value {
        let rows: Vec<Value> = rows
            .iter()
            .map(|(engine, metric, unit, runs)| {
                json!({"engine": engine, "case": "a", "metric": metric, "unit": unit, "runs": runs})
            })
            .collect();
        json!({
            "schema": 1, "workload": "submit", "rows": rows, "params": {"rounds": 5},
            "host": {"kernel": "6.1", "cores": 2},
        })
    }

    pub(crate) fn saved(value: &Value) -> Document {
        Document::parse(&value.to_string()).expect("well-formed")
    }

    /// Compares one metric of one engine.
    fn judge(metric: &str, unit: &str, a: &[f64], b: &[f64]) -> Compared {
        let file = |runs| saved(&file(&[("nowait", metric, unit, runs)]));
        let mut compared = Comparison::of(file(a), file(b)).expect("comparable").compared;
        compared.remove(0)
    }

    const LOW: [f64; 5] = [100.0, 101.0, 102.0, 103.0, 104.0];
    const HIGH: [f64; 5] = [200.0, 202.0, 204.0, 206.0, 208.0];

    #[test]
    fn a_verdict_follows_the_direction_of_the_metric_beyond_the_noise() {
        use Difference::{Better, Changed, InsideNoise, Same, TooFewRounds, Worse};
        let near = [99.0, 104.0, 102.5, 101.0, 105.0];
        type Claim<'a> = (&'a str, &'a str, &'a [f64], &'a [f64], Difference);
        let table: [Claim<'_>; 9] = [
            ("iops", "1/s", &LOW, &HIGH, Better),
            ("iops", "1/s", &HIGH, &LOW, Worse),
            ("cpu_us_per_io", "us", &LOW, &HIGH, Worse),
            ("other_busy_cores", "cores", &LOW, &HIGH, Changed),
            ("random read", "MB/s", &LOW, &HIGH, Better),
            ("iops", "1/s", &LOW, &near, InsideNoise),
            ("iops", "1/s", &LOW, &LOW, InsideNoise),
            ("iops", "1/s", &[7.0; 5], &[7.0; 5], Same),
            ("iops", "1/s", &LOW[..4], &HIGH, TooFewRounds),
        ];
        for (metric, unit, a, b, verdict) in table {
            assert_eq!(judge(metric, unit, a, b).verdict, verdict, "{metric}: {a:?} {b:?}");
        }
    }

    #[test]
    fn a_figure_that_was_zero_has_a_verdict_without_a_ratio() {
        let slept = judge("submit_sleeps", "1", &[0.0; 5], &[3.0, 4.0, 5.0, 4.0, 3.0]);
        assert_eq!((slept.verdict, slept.ratio), (Difference::Worse, None));
        assert_eq!(slept.worse_percent(), f64::INFINITY);
    }

    #[test]
    fn percent_of_worse_is_of_the_figure_before() {
        let worse = |metric, unit, a, b| judge(metric, unit, &[a; 5], &[b; 5]).worse_percent();
        assert_eq!(worse("iops", "1/s", 200.0, 100.0), 50.0);
        assert_eq!(worse("cpu_us_per_io", "us", 2.0, 3.0), 50.0);
        assert_eq!(worse("cpu_us_per_io", "us", 2.0, 1.0), -50.0);
    }

    #[test]
    fn a_simulation_needs_no_rounds() {
        let file = |figure: f64| {
            let mut file = file(&[("nowait", "random read", "MB/s", &[figure])]);
            file["host"] = json!({"device": "sim:u2scsi"});
            saved(&file)
        };
        let of = |a, b| Comparison::of(file(a), file(b)).expect("comparable").compared[0].verdict;
        assert_eq!(of(10.0, 11.0), Difference::Better);
        assert_eq!(of(10.0, 10.0), Difference::Same);
    }

    #[test]
    fn what_only_one_has_is_named_and_nothing_in_common_is_an_error() {
        let a = file(&[("nowait", "iops", "1/s", &LOW), ("old", "iops", "1/s", &LOW)]);
        let b = file(&[("nowait", "iops", "1/s", &LOW), ("new", "iops", "1/s", &LOW)]);
        let both = Comparison::of(saved(&a), saved(&b)).expect("comparable");
        assert_eq!((both.only_a, both.only_b), (vec!["a, old".into()], vec!["a, new".into()]));
        let other = file(&[("x", "iops", "1/s", &LOW)]);
        let error = Comparison::of(saved(&a), saved(&other)).expect_err("nothing in common");
        let text = error.to_string();
        assert!(text.contains("A has case a · engine nowait, old · metric iops"), "{text}");
        assert!(text.contains("B has case a · engine x"), "{text}");
        let mut served = a.clone();
        served["workload"] = json!("serve");
        let error = Comparison::of(saved(&a), saved(&served)).expect_err("two workloads");
        assert!(error.to_string().contains("a submit and a serve"), "{error}");
    }
}
