//! The runner: runs every subject of every case once in each round.
//!
//! The speed of a machine changes with time: a disk's cache fills up, other programs start. The
//! runs of one round follow each other closely (A B C, then C B A, then A B C …), and reversing the
//! order each round gives no subject the better place.

use crate::case::{Case, Subject};
use crate::interrupt;
use crate::metric::Sample;
use crate::progress::Progress;
use crate::runs::Runs;

/// After Ctrl-C, drops the current run even if it succeeded: its programs got the signal, too.
pub fn measure<J>(
    progress: &Progress,
    cases: &[Case<J>],
    rounds: usize,
    mut run: impl FnMut(&Case<J>, &Subject<J>, usize) -> Option<Sample>,
) -> Vec<Runs> {
    let mut measured: Vec<Runs> = cases.iter().map(Runs::none).collect();
    for round in 0..rounds {
        for (case, runs) in cases.iter().zip(&mut measured) {
            let count = case.subjects.len();
            for place in 0..count {
                let index = if round % 2 == 0 { place } else { count - 1 - place };
                if interrupt::happened() {
                    return measured;
                }
                let subject = &case.subjects[index];
                progress.start(case.name, subject.name, round);
                let sample = run(case, subject, round);
                if interrupt::happened() {
                    return measured;
                }
                sample.into_iter().for_each(|sample| runs.push(index, sample));
                progress.finish_run();
            }
        }
    }
    measured
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    fn case(name: &'static str) -> Case<char> {
        let subject = |(name, job): (&'static str, char)| Subject { name, engine: (name, ""), job };
        Case {
            name,
            title: String::new(),
            about: "",
            source: String::new(),
            columns: &[],
            subjects: [("a", 'A'), ("b", 'B'), ("c", 'C')].map(subject).to_vec(),
            targets: Vec::new(),
        }
    }

    #[test]
    fn order_is_reversed_each_round() {
        let mut order = String::new();
        let cases = [case("one")];
        let runs = measure(&Progress::new(), &cases, 3, |_, subject, round| {
            order.push(subject.job);
            Some(Sample::from([(Metric::Iops, f64::from(round as u32))]))
        });
        assert_eq!(order, "ABCCBAABC");
        assert_eq!(runs[0].figures("b", Metric::Iops), Some(vec![0.0, 1.0, 2.0]));
    }

    #[test]
    fn a_round_of_all_cases_comes_before_the_next() {
        let mut order = String::new();
        let cases = [case("one"), case("two")];
        let runs = measure(&Progress::new(), &cases, 2, |case, subject, _| {
            order.push_str(&case.name[..1]);
            (subject.job != 'B').then(|| Sample::from([(Metric::Iops, 1.0)]))
        });
        assert_eq!(order, "ooottt".repeat(2));
        assert_eq!(runs[1].figures("b", Metric::Iops), None);
    }
}
