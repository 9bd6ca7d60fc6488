//! The verdict on a target: met, missed, or inside the noise.

use crate::case::Comparison;
use crate::metric::{Better, Metric};
use crate::stats::Ratio;
use crate::units;

/// The fewest rounds that give a useful interval. Two equal subjects differ in the same direction
/// in all of five rounds once in 16 measurements, in all of three once in four.
pub const ROUNDS_MIN: usize = 5;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    Met,
    Missed,
    /// The interval has figures on both sides of the target, so these runs do not decide.
    WithinNoise,
    TooFewRounds,
    /// There is no ratio, for example because a subject did not run here.
    NotMeasured,
}

#[derive(Debug, Clone)]
pub struct Judged {
    pub target: String,
    pub ratio: Option<Ratio>,
    pub outcome: Outcome,
}

impl Outcome {
    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::WithinNoise => "within noise",
            Self::TooFewRounds => "too few rounds",
            Self::NotMeasured => "not measured",
        }
    }
}

impl Judged {
    pub fn new(target: String, comparison: Comparison, limit: f64, ratio: Option<Ratio>) -> Self {
        let outcome = outcome(comparison, limit, ratio.as_ref());
        Self { target, ratio, outcome }
    }

    pub fn measured(&self) -> String {
        self.ratio.as_ref().map_or_else(|| "–".to_owned(), ratio_text)
    }
}

/// Returns how many targets are met beyond the noise, and how many there are.
pub fn count(judged: impl Iterator<Item = Judged>) -> (usize, usize) {
    judged.fold((0, 0), |(met, all), judged| {
        (met + usize::from(judged.outcome == Outcome::Met), all + 1)
    })
}

/// Formats a ratio with its interval, such as `1.62 × [1.58 – 1.66]`.
pub fn ratio_text(ratio: &Ratio) -> String {
    let [median, low, high] = [ratio.median, ratio.low, ratio.high].map(units::digits);
    format!("{median} × [{low} – {high}]")
}

fn outcome(comparison: Comparison, target: f64, ratio: Option<&Ratio>) -> Outcome {
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

/// `None`: there are too few rounds, the change is inside the noise, or neither side of the metric
/// is better.
pub fn is_better(metric: Metric, ratio: &Ratio) -> Option<bool> {
    let is_judged = differs(ratio) && metric.better() != Better::Neither;
    is_judged.then_some(metric.more_is_better() == (ratio.median > 1.0))
}

pub fn differs(ratio: &Ratio) -> bool {
    ratio.rounds.len() >= ROUNDS_MIN && !(ratio.low..=ratio.high).contains(&1.0)
}

#[cfg(test)]
mod tests {
    use super::Comparison::{AtLeast, AtMost};
    use super::*;

    fn measured(low: f64, median: f64, high: f64) -> Ratio {
        Ratio { median, low, high, rounds: vec![low, low, median, high, high] }
    }

    #[test]
    fn a_verdict_needs_the_whole_interval() {
        let of = |low, high| outcome(AtLeast, 1.4, Some(&measured(low, 1.5, high)));
        assert_eq!(of(1.4, 1.6), Outcome::Met);
        assert_eq!(of(1.3, 1.6), Outcome::WithinNoise);
        assert_eq!(of(1.1, 1.39), Outcome::Missed);
    }

    #[test]
    fn at_most_is_the_other_way_round() {
        let of = |low, high| outcome(AtMost, 0.1, Some(&measured(low, low, high)));
        assert_eq!(of(0.02, 0.1), Outcome::Met);
        assert_eq!(of(0.02, 0.2), Outcome::WithinNoise);
        assert_eq!(of(0.2, 0.3), Outcome::Missed);
    }

    #[test]
    fn few_rounds_are_no_evidence() {
        let ratio = Ratio { median: 9.0, low: 9.0, high: 9.0, rounds: vec![9.0; 4] };
        assert!(!differs(&ratio));
        assert_eq!(outcome(AtLeast, 1.4, Some(&ratio)), Outcome::TooFewRounds);
        assert_eq!(outcome(AtLeast, 1.4, None), Outcome::NotMeasured);
    }

    #[test]
    fn those_that_are_met_are_counted_among_all() {
        let judged = |low: f64| {
            let ratio = Some(measured(low, low, low));
            Judged::new("x".to_owned(), AtLeast, 1.0, ratio)
        };
        assert_eq!(judged(0.5).measured(), "0.50 × [0.50 – 0.50]");
        assert_eq!(count([judged(2.0), judged(0.5)].into_iter()), (1, 2));
    }
}
