//! The figures of all cases.

use super::cases::{Case, Subject, Target};
use crate::host::Host;
use crate::runs::Runs;
use crate::stats;
use crate::verdict::{self, Judged};

/// All runs of one case.
#[derive(Debug, Clone)]
pub(crate) struct CaseResults {
    pub(crate) case: &'static Case,
    pub(crate) runs: Runs,
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

impl CaseResults {
    /// Returns the subjects that were measured.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = &'static Subject> + '_ {
        let subjects = self.case.subjects.iter();
        subjects.filter(|subject| self.runs.names().any(|name| name == subject.name))
    }

    /// Judges every target of the case.
    pub(crate) fn judged(&self) -> impl Iterator<Item = Judged> + '_ {
        self.case.targets.iter().map(|target| {
            let against = self.runs.figures(target.against, target.against_metric);
            let measured = self.runs.figures(target.subject, target.metric);
            let ratio = against.zip(measured).and_then(|(a, b)| stats::ratio(&a, &b));
            Judged::new(target.text(), target.comparison, target.ratio, ratio)
        })
    }
}

impl CachedResults {
    /// Returns how many targets are met beyond the noise, and how many there are.
    pub(crate) fn met(&self) -> (usize, usize) {
        verdict::count(self.cases.iter().flat_map(CaseResults::judged))
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
    use crate::metric::{Metric, Sample};
    use crate::verdict::Outcome;

    fn sample(iops: f64) -> Sample {
        Metric::ALL.into_iter().map(|metric| (metric, iops)).collect()
    }

    #[test]
    fn targets_compare_rounds_of_two_subjects() {
        let case = &CASES[0];
        let runs = |subject: &Subject| {
            let figure = if subject.name == "nowait" { 20.0 } else { 10.0 };
            (subject.name, vec![sample(figure); 5])
        };
        let results = CaseResults { case, runs: case.subjects.iter().map(runs).collect() };
        let judged: Vec<Judged> = results.judged().collect();
        let texts: Vec<&str> = judged.iter().map(|judged| judged.target.as_str()).collect();
        assert_eq!(texts[0], "IOPS a core of nowait ≥ 0.75 × memcpy");
        assert_eq!(texts[4], "submit p99.9 of nowait ≤ 20.00 × submit p50");
        assert_eq!(judged[0].outcome, Outcome::Met);
        assert_eq!(judged[3].outcome, Outcome::Missed, "kaio has half of it");
    }

    #[test]
    fn a_subject_that_did_not_run_is_not_judged() {
        let results = CaseResults { case: &CASES[0], runs: Runs::default() };
        assert!(results.judged().all(|judged| judged.outcome == Outcome::NotMeasured));
    }
}
