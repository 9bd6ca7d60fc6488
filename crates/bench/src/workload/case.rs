//! What is measured: cases, the ways to do each, and what must come out.

use std::time::Duration;

use super::engine::EngineDef;
use super::job::Work;
use crate::job::Comparison::{self, AtLeast, AtMost};
use crate::metric::Metric;

/// One way to do a case.
#[derive(Debug, Clone)]
pub(crate) struct Subject {
    pub(crate) name: &'static str,
    pub(crate) engine: &'static EngineDef,
    pub(crate) work: Work,
}

/// What must come out: `metric` of `subject`, compared with that of `against`. One of ours is named
/// before the runs: the better of two would be judged by its luck as well.
#[derive(Debug, Clone)]
pub(crate) struct Target {
    pub(crate) metric: Metric,
    pub(crate) subject: &'static str,
    pub(crate) comparison: Comparison,
    pub(crate) ratio: f64,
    pub(crate) against: &'static str,
}

/// A row of a table.
#[derive(Debug, Clone)]
pub(crate) struct Case {
    pub(crate) name: &'static str,
    pub(crate) title: String,
    /// The figures of the source, in words.
    pub(crate) source: String,
    /// `O_DSYNC`.
    pub(crate) sync: bool,
    /// Runs begin with empty caches.
    pub(crate) cold: bool,
    /// A run takes so many times the runtime of the measurement.
    pub(crate) longer: u32,
    pub(crate) columns: &'static [Metric],
    /// The first is what the others are compared with.
    pub(crate) subjects: Vec<Subject>,
    pub(crate) targets: Vec<Target>,
}

/// Keeps a name for the life of the program: figures are found by their names, of which there are
/// as many as rows in its tables.
pub(crate) fn name(text: String) -> &'static str {
    Box::leak(text.into_boxed_str())
}

impl Target {
    /// At least `ratio` times the figure of `against`.
    pub(crate) fn at_least(
        metric: Metric,
        subject: &'static str,
        ratio: f64,
        against: &'static str,
    ) -> Self {
        Self { metric, subject, comparison: AtLeast, ratio, against }
    }

    /// At most `ratio` times the figure of `against`.
    pub(crate) fn at_most(
        metric: Metric,
        subject: &'static str,
        ratio: f64,
        against: &'static str,
    ) -> Self {
        Self { comparison: AtMost, ..Self::at_least(metric, subject, ratio, against) }
    }

    /// Returns the target in words, such as `IOPS of nowait ≥ 1.00 × libaio`.
    pub(crate) fn text(&self) -> String {
        let (metric, sign) = (self.metric.label(), self.comparison.sign());
        format!("{metric} of {} {sign} {:.2} × {}", self.subject, self.ratio, self.against)
    }
}

impl Case {
    /// Returns the longest time of a run.
    pub(crate) fn runtime(&self, of_all: Duration) -> Duration {
        of_all * self.longer
    }

    /// Leaves only targets whose subjects are there.
    pub(crate) fn with_possible_targets(mut self) -> Self {
        let subjects = &self.subjects;
        let has = |name: &str| subjects.iter().any(|subject| subject.name == name);
        self.targets.retain(|target| has(target.subject) && has(target.against));
        self
    }
}
