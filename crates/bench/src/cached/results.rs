//! The figures of all cases.

use super::cases::{Case, Subject, Target};
use crate::host::Host;
use crate::metric::{Metric, Sample};
use crate::stats::{self, Ratio, Summary};
use crate::verdict::{self, Outcome};

/// All runs of one case.
#[derive(Debug, Clone)]
pub(crate) struct CaseResults {
    pub(crate) case: &'static Case,
    /// By subject; one sample a round.
    pub(crate) runs: Vec<(Subject, Vec<Sample>)>,
}

/// A finished measurement of cached files.
#[derive(Debug, Clone)]
pub struct CachedResults {
    pub(crate) host: Host,
    pub(crate) rounds: usize,
    pub(crate) runtime_s: f64,
    /// `--size`, of which sets and pools are shares.
    pub(crate) size_bytes: u64,
    /// Whether the whole page cache was dropped before cold runs, or only the pages of the file.
    pub(crate) caches_dropped: bool,
    pub(crate) cases: Vec<CaseResults>,
    /// What a reader must know to trust the figures.
    pub(crate) notes: Vec<String>,
}

/// A target, what was measured, and what follows.
#[derive(Debug, Clone)]
pub(crate) struct Judged {
    pub(crate) target: Target,
    pub(crate) ratio: Option<Ratio>,
    pub(crate) outcome: Outcome,
}

impl CaseResults {
    /// Returns the figures of a subject, one a round; `None` if it was not measured.
    pub(crate) fn figures(&self, subject: &str, metric: Metric) -> Option<Vec<f64>> {
        let (_, samples) = self.runs.iter().find(|(measured, _)| measured.name == subject)?;
        samples.iter().map(|sample| sample.get(&metric).copied()).collect()
    }

    /// Summarizes the figures of a subject.
    pub(crate) fn summary(&self, subject: &str, metric: Metric) -> Option<Summary> {
        stats::summarize(&self.figures(subject, metric)?)
    }

    /// Judges every target of the case.
    pub(crate) fn judged(&self) -> Vec<Judged> {
        let judge = |target: Target| {
            let against = self.figures(target.against, target.against_metric);
            let measured = self.figures(target.subject, target.metric);
            let ratio = against.zip(measured).and_then(|(a, b)| stats::ratio(&a, &b));
            let outcome = verdict::outcome(target.comparison, target.ratio, ratio.as_ref());
            Judged { target, ratio, outcome }
        };
        self.case.targets.iter().copied().map(judge).collect()
    }
}

impl CachedResults {
    /// Returns how many targets are met beyond the noise, and how many there are.
    pub(crate) fn met(&self) -> (usize, usize) {
        let judged = || self.cases.iter().flat_map(CaseResults::judged);
        (judged().filter(|judged| judged.outcome == Outcome::Met).count(), judged().count())
    }
}

impl Target {
    /// Returns the target in words, such as `IOPS of nowait ≥ 2.20 × libaio`.
    pub(crate) fn text(&self) -> String {
        let (metric, sign) = (self.metric.label(), self.comparison.sign());
        let against = if self.against_metric == self.metric {
            self.against.to_owned()
        } else {
            self.against_metric.label().to_owned()
        };
        format!("{metric} of {} {sign} {:.2} × {against}", self.subject, self.ratio)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cached::cases::CASES;

    fn sample(iops: f64) -> Sample {
        Metric::ALL.into_iter().map(|metric| (metric, iops)).collect()
    }

    #[test]
    fn targets_compare_rounds_of_two_subjects() {
        let case = &CASES[0];
        let runs = |subject: &Subject| {
            let figure = if subject.name == "nowait" { 20.0 } else { 10.0 };
            (*subject, vec![sample(figure); 5])
        };
        let results = CaseResults { case, runs: case.subjects.iter().map(runs).collect() };
        let judged = results.judged();
        let texts: Vec<String> = judged.iter().map(|judged| judged.target.text()).collect();
        assert_eq!(texts[0], "IOPS a core of nowait ≥ 0.75 × memcpy");
        assert_eq!(texts[4], "submit p99.9 of nowait ≤ 20.00 × submit p50");
        assert_eq!(judged[0].outcome, Outcome::Met);
        assert_eq!(judged[3].outcome, Outcome::Missed, "kaio has half of it");
    }

    #[test]
    fn a_subject_that_did_not_run_is_not_judged() {
        let results = CaseResults { case: &CASES[0], runs: Vec::new() };
        assert!(results.judged().iter().all(|judged| judged.outcome == Outcome::NotMeasured));
    }
}
