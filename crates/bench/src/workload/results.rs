//! The figures of all cases.

use std::path::PathBuf;

use super::case::Case;
use crate::host::Host;
use crate::runs::Runs;
use crate::verdict::{self, Judged};

/// All runs of one case.
#[derive(Debug, Clone)]
pub(crate) struct CaseResults {
    pub(crate) case: Case,
    pub(crate) runs: Runs,
}

/// A finished measurement, or what there is of an interrupted one.
#[derive(Debug, Clone)]
pub struct WorkloadResults {
    pub(crate) workload: &'static str,
    pub(crate) host: Host,
    pub(crate) device: PathBuf,
    pub(crate) rounds: usize,
    pub(crate) runtime_s: f64,
    pub(crate) size_bytes: u64,
    pub(crate) caches_dropped: bool,
    pub(crate) cases: Vec<CaseResults>,
    /// What a reader must know to trust the figures.
    pub(crate) notes: Vec<String>,
    pub(crate) interrupted: bool,
    /// What failed, and why.
    pub(crate) failed: Vec<String>,
}

impl CaseResults {
    /// Begins without a run.
    pub(crate) fn none(case: Case) -> Self {
        let runs = case.subjects.iter().map(|subject| (subject.name, Vec::new())).collect();
        Self { case, runs }
    }

    /// Judges every target of the case.
    pub(crate) fn judged(&self) -> impl Iterator<Item = Judged> + '_ {
        self.case.targets.iter().map(|target| {
            let ratio = self.runs.ratio(target.metric, target.against, target.subject);
            Judged::new(target.text(), target.comparison, target.ratio, ratio)
        })
    }
}

impl WorkloadResults {
    /// Returns how many targets are met beyond the noise, and how many there are.
    pub(crate) fn met(&self) -> (usize, usize) {
        verdict::count(self.cases.iter().flat_map(CaseResults::judged))
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::super::case::Target;
    use super::*;
    use crate::metric::{Metric, Sample};
    use crate::verdict::Outcome;

    /// A case of two subjects, the second twice as fast.
    pub(crate) fn sample_results() -> CaseResults {
        let case = Case {
            name: "random-read",
            title: "random reads".to_owned(),
            source: "10.08 → 23.91 MB/s".to_owned(),
            sync: false,
            cold: true,
            longer: 1,
            columns: &[Metric::BytesPerS, Metric::CpuUsPerIo],
            subjects: Vec::new(),
            targets: vec![
                Target::at_least(Metric::BytesPerS, "fast", 1.5, "slow"),
                Target::at_most(Metric::CpuUsPerIo, "fast", 0.5, "slow"),
                Target::at_most(Metric::SubmitUsMean, "fast", 0.5, "slow"),
            ],
        };
        let runs = |rate: f64| {
            let sample = |round: u32| {
                let factor = 1.0 + f64::from(round) / 100.0;
                let figures = [(Metric::BytesPerS, rate * factor), (Metric::CpuUsPerIo, 9.0)];
                Sample::from(figures)
            };
            (0..5).map(sample).collect()
        };
        CaseResults { case, runs: [("slow", runs(1e6)), ("fast", runs(2e6))].into_iter().collect() }
    }

    #[test]
    fn the_subject_is_held_against_the_target() {
        let results = sample_results();
        let judged: Vec<Judged> = results.judged().collect();
        assert_eq!(judged[0].target, "throughput of fast ≥ 1.50 × slow");
        assert_eq!(judged[0].ratio.as_ref().map(|ratio| ratio.median), Some(2.0));
        assert_eq!(judged[0].outcome, Outcome::Met);
        assert_eq!(judged[1].outcome, Outcome::Missed, "the same CPU");
        assert_eq!(judged[2].outcome, Outcome::NotMeasured);
    }
}
