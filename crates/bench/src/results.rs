//! The figures of a measurement, as they are asked for by tables, reports and verdicts.

use std::collections::BTreeMap;

use crate::host::Host;
use crate::job::{Case, Criterion};
use crate::runs::Runs;
use crate::subject::Subject;
use crate::verdict::{self, Judged};

/// All runs of one case.
#[derive(Debug, Clone)]
pub(crate) struct CaseResults {
    pub(crate) case: &'static Case,
    pub(crate) runs: Runs,
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
    /// Returns the subjects that were measured.
    pub(crate) fn subjects(&self) -> impl Iterator<Item = Subject> + '_ {
        let measured = |subject: &Subject| self.runs.names().any(|name| name == subject.name());
        Subject::ALL.into_iter().filter(measured)
    }

    /// Judges every target of the case.
    pub(crate) fn judged(&self) -> impl Iterator<Item = Judged> + '_ {
        self.case.criteria.iter().map(|criterion: &Criterion| {
            let Criterion { metric, comparison, ratio, .. } = *criterion;
            let [against, subject] = [criterion.against, criterion.subject].map(Subject::name);
            let measured = self.runs.ratio(metric, against, subject);
            Judged::new(criterion.text(), comparison, ratio, measured)
        })
    }
}

impl Results {
    /// Returns how many targets are met beyond the noise, and how many there are.
    pub(crate) fn met(&self) -> (usize, usize) {
        verdict::count(self.cases.iter().flat_map(CaseResults::judged))
    }
}

/// Makes results up: `nowait` has twice the figures of `system`, and half of its submit times.
#[cfg(test)]
pub(crate) fn sample_results() -> Results {
    use crate::metric::{Metric, Sample};
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
        runs: [("system", runs(1.0)), ("nowait", runs(2.0))].into_iter().collect(),
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
