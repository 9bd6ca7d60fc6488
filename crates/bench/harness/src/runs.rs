//! The results of a case: the runs of each of its subjects.

use serde_json::{Value, json};

use crate::case::Case;
use crate::metric::{Metric, Sample};
use crate::stats::{self, Ratio, Summary};

/// The runs of each subject, in the order of the case. A run is one sample.
#[derive(Debug, Clone, Default)]
pub struct Runs(Vec<(&'static str, Vec<Sample>)>);

impl FromIterator<(&'static str, Vec<Sample>)> for Runs {
    fn from_iter<I: IntoIterator<Item = (&'static str, Vec<Sample>)>>(runs: I) -> Self {
        Self(runs.into_iter().collect())
    }
}

pub type Figure<'a> = (&'a str, Metric);

impl Runs {
    pub fn none<J>(case: &Case<J>) -> Self {
        case.subjects.iter().map(|subject| (subject.name, Vec::new())).collect()
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.0.iter().map(|(name, _)| *name)
    }

    /// `None`: the subject has no runs, or a run without the metric.
    pub fn figures(&self, subject: &str, metric: Metric) -> Option<Vec<f64>> {
        let (_, samples) = self.0.iter().find(|(name, _)| *name == subject)?;
        let figures: Option<Vec<f64>> =
            samples.iter().map(|sample| sample.get(&metric).copied()).collect();
        figures.filter(|figures| !figures.is_empty())
    }

    pub fn summary(&self, subject: &str, metric: Metric) -> Option<Summary> {
        stats::summarize(&self.figures(subject, metric)?)
    }

    /// Returns the figures `b` divided by `a`.
    pub fn ratio(&self, a: Figure<'_>, b: Figure<'_>) -> Option<Ratio> {
        stats::ratio(&self.figures(a.0, a.1)?, &self.figures(b.0, b.1)?)
    }

    pub fn share(&self, metric: Metric, whole: f64, subject: &str) -> Option<Ratio> {
        let figures = self.figures(subject, metric)?;
        stats::ratio(&vec![whole; figures.len()], &figures)
    }

    pub fn rows(&self, case: &str) -> Vec<Value> {
        let row = |name: &str, metric: Metric| {
            let runs = self.figures(name, metric)?;
            let Summary { median, min, max, mad } = stats::summarize(&runs)?;
            let (unit, better) = (metric.unit(), metric.better());
            Some(json!({
                "case": case, "engine": name, "metric": metric.name(), "unit": unit,
                "better": better, "runs": runs, "median": median, "min": min, "max": max,
                "mad": mad,
            }))
        };
        let of = |name| Metric::ALL.into_iter().filter_map(move |metric| row(name, metric));
        self.names().flat_map(of).collect()
    }

    /// A ratio is the figure of the second subject of a pair, divided by the figure of the first.
    pub fn ratio_rows(&self, case: &str, pairs: &[(&str, &str)]) -> Vec<Value> {
        let row = |a: &str, b: &str, metric: Metric| {
            let Ratio { median, low, high, rounds } = self.ratio((a, metric), (b, metric))?;
            Some(json!({
                "case": case, "metric": metric.name(), "a": a, "b": b, "median": median,
                "low": low, "high": high, "runs": rounds,
            }))
        };
        let of = |&(a, b): &(&str, &str)| {
            Metric::ALL.into_iter().filter_map(|metric| row(a, b, metric)).collect::<Vec<_>>()
        };
        pairs.iter().flat_map(of).collect()
    }

    pub fn push(&mut self, index: usize, sample: Sample) {
        self.0[index].1.push(sample);
    }

    #[must_use]
    pub fn only(self, wanted: impl Fn(&str) -> bool) -> Self {
        let runs = self.0.into_iter();
        runs.filter(|(name, samples)| !samples.is_empty() && wanted(name)).collect()
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn runs() -> Runs {
        let sample = |iops| Sample::from([(Metric::Iops, iops)]);
        let samples = |iops: f64| (0..5).map(|_| sample(iops)).collect();
        [("slow", samples(10.0)), ("fast", samples(20.0)), ("none", Vec::new())]
            .into_iter()
            .collect()
    }

    #[test]
    fn figures_are_found_by_name_and_metric() {
        let runs = runs();
        assert_eq!(runs.figures("fast", Metric::Iops), Some(vec![20.0; 5]));
        assert_eq!(runs.figures("fast", Metric::BytesPerS), None);
        assert_eq!(
            (runs.figures("none", Metric::Iops), runs.figures("x", Metric::Iops)),
            (None, None)
        );
        let ratio = runs.ratio(("slow", Metric::Iops), ("fast", Metric::Iops));
        assert_eq!(ratio.map(|ratio| ratio.median), Some(2.0));
        assert_eq!(runs.rows("case").len(), 2);
        assert_eq!(runs.ratio_rows("case", &[("slow", "fast"), ("slow", "none")]).len(), 1);
    }

    #[test]
    fn what_has_no_runs_can_be_left_out() {
        let runs = runs().only(|name| name != "slow");
        assert_eq!(runs.names().collect::<Vec<_>>(), ["fast"]);
        assert_eq!(runs.figures("fast", Metric::Iops).map(|figures| figures.len()), Some(5));
    }
}
