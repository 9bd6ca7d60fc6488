//! The order of the runs: A B C, then C B A, then A B C …
//!
//! A machine drifts: its disk fills a cache, its neighbours wake up. Runs of one round lie close
//! together, and reversing the order each round gives no subject the better place.

use crate::error::Result;
use crate::interrupt;

/// Runs every subject once a round, the order reversed each round.
///
/// Returns the outcomes by subject, in the order of `subjects`, one a round. After Ctrl-C those are
/// the runs before it: the run under way is no outcome, whether it failed or not, because the
/// signal reaches the programs it runs too.
///
/// # Errors
/// The first error of a run ends everything.
pub(crate) fn interleave<S, T>(
    subjects: &[S],
    rounds: usize,
    mut run: impl FnMut(usize, &S) -> Result<T>,
) -> Result<Vec<Vec<T>>> {
    let mut outcomes: Vec<Vec<T>> = subjects.iter().map(|_| Vec::with_capacity(rounds)).collect();
    for round in 0..rounds {
        for place in 0..subjects.len() {
            let index = if round % 2 == 0 { place } else { subjects.len() - 1 - place };
            if interrupt::happened() {
                return Ok(outcomes);
            }
            let outcome = run(round, &subjects[index]);
            if interrupt::happened() {
                return Ok(outcomes);
            }
            outcomes[index].push(outcome?);
        }
    }
    Ok(outcomes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::BenchError;

    #[test]
    fn order_is_reversed_each_round() {
        let mut order = String::new();
        let outcomes = interleave(&['A', 'B', 'C'], 3, |round, subject| {
            order.push(*subject);
            Ok((round, *subject))
        });
        assert_eq!(order, "ABCCBAABC");
        let outcomes = outcomes.expect("no run failed");
        assert_eq!(outcomes[1], [(0, 'B'), (1, 'B'), (2, 'B')]);
    }

    #[test]
    fn an_error_ends_everything() {
        let mut runs = 0;
        let outcome: Result<Vec<Vec<()>>> = interleave(&[1, 2], 5, |_, _| {
            runs += 1;
            Err(BenchError::failed("no"))
        });
        assert!(outcome.is_err());
        assert_eq!(runs, 1);
    }
}
