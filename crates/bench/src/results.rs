//! The figures of a measurement, as they are asked for by tables, reports and verdicts.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::job::{Case, Criterion};
use crate::metric::{Metric, Sample};
use crate::stats::{self, Ratio, Summary};
use crate::subject::Subject;
use crate::verdict::{self, Outcome, Verdict};

/// All runs of one case.
#[derive(Debug, Clone)]
pub(crate) struct CaseResults {
    pub(crate) case: &'static Case,
    /// By subject, in the order of the case; one sample a round.
    pub(crate) runs: Vec<(Subject, Vec<Sample>)>,
    /// How long each run took.
    pub(crate) runtime_s: f64,
    /// Bytes of the file worked on.
    pub(crate) size_bytes: u64,
}

/// How a measurement was made.
#[derive(Debug, Clone)]
pub(crate) struct Params {
    pub(crate) rounds: usize,
    pub(crate) folder: String,
    /// Whether the whole page cache was dropped, or only the pages of the file.
    pub(crate) caches_dropped: bool,
    /// Start-up cost subtracted, by subject, in microseconds of processor time.
    pub(crate) startup_cpu_us: BTreeMap<Subject, f64>,
    /// What the library says it chose, by subject.
    pub(crate) library_reports: BTreeMap<Subject, String>,
}

/// A finished measurement.
#[derive(Debug, Clone)]
pub struct Results {
    pub(crate) workload: &'static str,
    pub(crate) host: Host,
    pub(crate) params: Params,
    pub(crate) cases: Vec<CaseResults>,
    /// What a reader must know to trust the figures.
    pub(crate) notes: Vec<String>,
}

impl CaseResults {
    /// Returns the figures of a subject, one a round; `None` if it was not measured.
    pub(crate) fn figures(&self, subject: Subject, metric: Metric) -> Option<Vec<f64>> {
        let (_, samples) = self.runs.iter().find(|(measured, _)| *measured == subject)?;
        samples.iter().map(|sample| sample.get(&metric).copied()).collect()
    }

    /// Summarizes the figures of a subject.
    pub(crate) fn summary(&self, subject: Subject, metric: Metric) -> Option<Summary> {
        stats::summarize(&self.figures(subject, metric)?)
    }

    /// Returns the figures of `b` divided by those of `a`.
    pub(crate) fn ratio(&self, metric: Metric, a: Subject, b: Subject) -> Option<Ratio> {
        stats::ratio(&self.figures(a, metric)?, &self.figures(b, metric)?)
    }

    /// Returns the subjects that were measured.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = Subject> + '_ {
        self.runs.iter().map(|(subject, _)| *subject)
    }

    /// Judges every target of the case.
    pub(crate) fn verdicts(&self) -> Vec<Verdict> {
        let judge = |criterion: Criterion| {
            let ratio = self.ratio(criterion.metric, criterion.against, criterion.subject);
            verdict::judge(criterion, ratio)
        };
        self.case.criteria.iter().copied().map(judge).collect()
    }
}

impl Results {
    /// Counts the targets with a given outcome.
    pub(crate) fn count(&self, outcome: Outcome) -> usize {
        let verdicts = self.cases.iter().flat_map(CaseResults::verdicts);
        verdicts.filter(|verdict| verdict.outcome == outcome).count()
    }

    /// Returns how many targets are met beyond the noise, and how many there are.
    pub(crate) fn met(&self) -> (usize, usize) {
        (self.count(Outcome::Met), self.cases.iter().map(|case| case.case.criteria.len()).sum())
    }
}

/// Makes results up: `nowait` has twice the figures of `system`, and half of its submit times.
#[cfg(test)]
pub(crate) fn sample_results() -> Results {
    let sample = |round: u32, factor: f64| {
        let value = |metric: Metric| match metric.name() {
            name if name.starts_with("submit") => f64::from(100 + round) / factor,
            _ => f64::from(100 + round) * factor,
        };
        Metric::ALL.into_iter().map(|metric| (metric, value(metric))).collect::<Sample>()
    };
    let runs = |factor: f64| (0..5).map(|round| sample(round, factor)).collect::<Vec<_>>();
    let case = CaseResults {
        case: &crate::job::CASES[0],
        runs: vec![(Subject::System, runs(1.0)), (Subject::Nowait, runs(2.0))],
        runtime_s: 3.0,
        size_bytes: 8 << 30,
    };
    Results {
        workload: "submit",
        host: Host::describe(std::path::Path::new("/"), "fio-3.33"),
        params: Params {
            rounds: 5,
            folder: "/somewhere".to_owned(),
            caches_dropped: true,
            startup_cpu_us: BTreeMap::new(),
            library_reports: BTreeMap::new(),
        },
        cases: vec![case],
        notes: vec!["made up <for a test>".to_owned()],
    }
}
