//! Target met or missed, and silence inside the noise.

use crate::job::{Comparison, Criterion};
use crate::stats::Ratio;
use crate::units;

/// Fewer rounds have no interval worth the name.
///
/// With so few, the bootstrap interval is all of the runs. Two equal subjects then differ in the
/// same direction in all of five rounds once in 16 times; in all of three, once in four.
pub(crate) const ROUNDS_MIN: usize = 5;

/// What the figures say about a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// The whole interval lies on the good side.
    Met,
    /// The whole interval lies on the wrong side.
    Missed,
    /// The interval holds the target: these runs cannot tell.
    WithinNoise,
    /// Too few rounds for an interval.
    TooFewRounds,
    /// A subject did not run here.
    NotMeasured,
}

/// A target, what was measured, and what follows.
#[derive(Debug, Clone)]
pub(crate) struct Verdict {
    pub(crate) criterion: Criterion,
    pub(crate) ratio: Option<Ratio>,
    pub(crate) outcome: Outcome,
}

impl Outcome {
    /// Returns the words of tables and of the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::WithinNoise => "within noise",
            Self::TooFewRounds => "too few rounds",
            Self::NotMeasured => "not measured",
        }
    }
}

impl Verdict {
    /// Returns the target in words, such as `submit mean of nowait ≤ 0.10 × system`.
    pub(crate) fn target(&self) -> String {
        let criterion = &self.criterion;
        let sign = criterion.comparison.sign();
        format!(
            "{} of {} {sign} {:.2} × {}",
            criterion.metric.label(),
            criterion.subject.name(),
            criterion.ratio,
            criterion.against.name()
        )
    }

    /// Returns the measured ratio with its interval.
    pub(crate) fn measured(&self) -> String {
        self.ratio.as_ref().map_or_else(|| "–".to_owned(), ratio_text)
    }
}

/// Prints a ratio with its interval, such as `1.62 × [1.58 – 1.66]`.
pub(crate) fn ratio_text(ratio: &Ratio) -> String {
    let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(units::digits);
    format!("{median} × [{low} – {high}]")
}

/// Holds a ratio against its target.
pub(crate) fn judge(criterion: Criterion, ratio: Option<Ratio>) -> Verdict {
    let outcome = outcome(criterion.comparison, criterion.ratio, ratio.as_ref());
    Verdict { criterion, ratio, outcome }
}

/// Tells what a ratio says about the target to be at least, or at most, `target`.
pub(crate) fn outcome(comparison: Comparison, target: f64, ratio: Option<&Ratio>) -> Outcome {
    let Some(ratio) = ratio else { return Outcome::NotMeasured };
    if ratio.rounds.len() < ROUNDS_MIN {
        return Outcome::TooFewRounds;
    }
    let good = |value: f64| match comparison {
        Comparison::AtMost => value <= target,
        Comparison::AtLeast => value >= target,
    };
    match (good(ratio.low), good(ratio.high)) {
        (true, true) => Outcome::Met,
        (false, false) => Outcome::Missed,
        _ => Outcome::WithinNoise,
    }
}

/// Tells whether two subjects differ beyond the noise.
pub(crate) fn differs(ratio: &Ratio) -> bool {
    ratio.rounds.len() >= ROUNDS_MIN && !(ratio.low..=ratio.high).contains(&1.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::CASES;
    use crate::metric::Metric;
    use crate::subject::Subject;

    fn measured(low: f64, median: f64, high: f64) -> Ratio {
        Ratio { median, low, high, rounds: vec![low, low, median, high, high] }
    }

    fn iops_at_least(ratio: f64) -> Criterion {
        Criterion {
            metric: Metric::Iops,
            subject: Subject::Nowait,
            comparison: Comparison::AtLeast,
            ratio,
            against: Subject::System,
        }
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        let outcome = |low, high| judge(iops_at_least(1.4), Some(measured(low, 1.5, high))).outcome;
        assert_eq!(outcome(1.4, 1.6), Outcome::Met);
        assert_eq!(outcome(1.3, 1.6), Outcome::WithinNoise);
        assert_eq!(outcome(1.1, 1.39), Outcome::Missed);
    }

    #[test]
    fn at_most_is_the_other_way_round() {
        let criterion = Criterion { comparison: Comparison::AtMost, ..iops_at_least(0.1) };
        let outcome = |low, high| judge(criterion, Some(measured(low, low, high))).outcome;
        assert_eq!(outcome(0.02, 0.1), Outcome::Met);
        assert_eq!(outcome(0.02, 0.2), Outcome::WithinNoise);
        assert_eq!(outcome(0.2, 0.3), Outcome::Missed);
    }

    #[test]
    fn few_rounds_are_no_evidence() {
        let ratio = Ratio { median: 9.0, low: 9.0, high: 9.0, rounds: vec![9.0; 4] };
        assert!(!differs(&ratio));
        assert_eq!(judge(iops_at_least(1.4), Some(ratio)).outcome, Outcome::TooFewRounds);
        assert_eq!(judge(iops_at_least(1.4), None).outcome, Outcome::NotMeasured);
    }

    #[test]
    fn a_target_reads_as_a_sentence() {
        let verdict = judge(CASES[0].criteria[0], Some(measured(0.01, 0.02, 0.03)));
        assert_eq!(verdict.target(), "submit mean of nowait ≤ 0.10 × system");
        assert_eq!(verdict.measured(), "0.020 × [0.010 – 0.030]");
    }
}
