//! The estimate of how long the remaining runs take.
//!
//! Runs differ: one that ends with an fsync takes several times as long as one that does not. So
//! each is expected to take as long as the last one of its kind did, and as planned before there
//! was one; what was planned is scaled by how all others kept to their plan.

/// The runs of a measurement: those that have ended, and those to come.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    kinds: Vec<Kind>,
    /// Of runs that have ended.
    planned_s: f64,
    taken_s: f64,
    ended: usize,
}

/// The runs of one engine in one case.
#[derive(Debug)]
struct Kind {
    case: String,
    subject: String,
    left: usize,
    planned_s: f64,
    /// What the last one took.
    taken_s: Option<f64>,
}

impl Pace {
    /// Expects `count` runs, of which each is planned to take `planned_s`.
    pub(crate) fn expect(&mut self, case: &str, subject: &str, count: usize, planned_s: f64) {
        let (case, subject) = (case.to_owned(), subject.to_owned());
        self.kinds.push(Kind { case, subject, left: count, planned_s, taken_s: None });
    }

    /// Notes that a run has ended.
    pub(crate) fn end(&mut self, case: &str, subject: &str, taken_s: f64) {
        self.ended += 1;
        let same = |kind: &&mut Kind| kind.case == case && kind.subject == subject;
        if let Some(kind) = self.kinds.iter_mut().find(same) {
            kind.left = kind.left.saturating_sub(1);
            kind.taken_s = Some(taken_s);
            self.planned_s += kind.planned_s;
            self.taken_s += taken_s;
        }
    }

    /// Returns how many runs have ended, and how many there are.
    pub(crate) fn runs(&self) -> (usize, usize) {
        (self.ended, self.ended + self.kinds.iter().map(|kind| kind.left).sum::<usize>())
    }

    /// Returns the seconds that the runs to come will take.
    pub(crate) fn left_s(&self) -> f64 {
        let scale = if self.planned_s > 0.0 { self.taken_s / self.planned_s } else { 1.0 };
        let one_s = |kind: &Kind| kind.taken_s.unwrap_or(kind.planned_s * scale);
        self.kinds.iter().map(|kind| kind.left as f64 * one_s(kind)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two cases, of which the second takes ten times as long, on a machine that needs half as long
    /// again as planned.
    fn pace() -> Pace {
        let mut pace = Pace::default();
        pace.expect("short", "a", 5, 1.0);
        pace.expect("long", "a", 5, 10.0);
        pace
    }

    #[test]
    fn the_plan_is_believed_until_there_is_something_better() {
        let mut pace = pace();
        assert_eq!((pace.left_s(), pace.runs()), (55.0, (0, 10)));
        pace.end("short", "a", 1.5);
        assert_eq!(pace.left_s(), 4.0 * 1.5 + 5.0 * 15.0);
    }

    #[test]
    fn after_one_round_the_estimate_is_what_the_others_take() {
        let mut pace = pace();
        let took = |case| if case == "short" { 0.5 } else { 22.0 };
        let mut left_s = 5.0 * (took("short") + took("long"));
        for round in 0..5 {
            for case in ["short", "long"] {
                pace.end(case, "a", took(case));
                left_s -= took(case);
                if round > 0 || case == "long" {
                    assert!((pace.left_s() - left_s).abs() < 1e-9, "{round} {case}");
                }
            }
        }
        assert_eq!((pace.left_s(), pace.runs()), (0.0, (10, 10)));
    }

    #[test]
    fn an_unexpected_run_is_counted_and_changes_nothing() {
        let mut pace = pace();
        pace.end("other", "b", 99.0);
        assert_eq!((pace.left_s(), pace.runs()), (55.0, (1, 11)));
    }
}
