//! Makes a failing scenario shorter.

use crate::{run::Failure, scenario::Scenario};

/// In how many orders a shorter list is tried.
const ORDERS: u64 = 6;

/// Drops operations from `scenario` as long as `fails` says that it still fails, in any way, for
/// at most `runs_max` runs. Returns the shortest list found, and how it fails.
pub fn shrink(
    scenario: &Scenario,
    failure: Failure,
    runs_max: usize,
    mut fails: impl FnMut(&Scenario) -> Option<Failure>,
) -> (Scenario, Failure) {
    let (mut best, mut failure) = (scenario.clone(), failure);
    let mut size = best.ops.len().div_ceil(2).max(1);
    let mut runs = 0;
    loop {
        let mut at = 0;
        let before = best.ops.len();
        while at < best.ops.len() {
            if runs >= runs_max {
                return (best, failure);
            }
            let mut shorter = best.clone();
            shorter.ops.drain(at..(at + size).min(best.ops.len()));
            // Without an operation all that is drawn later is another: try some orders.
            let found = (0..ORDERS).find_map(|n| {
                runs += 1;
                shorter.order = best.order.wrapping_add(n);
                fails(&shorter)
            });
            match found {
                Some(found) => (best, failure) = (shorter, found),
                None => at += size,
            }
        }
        if size == 1 && best.ops.len() == before {
            return (best, failure);
        }
        size = size.div_ceil(2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{op::Op, scenario::Profile};

    #[test]
    fn only_what_is_needed_is_left() {
        let scenario = Scenario::draw(1, 200, Profile::Exact);
        let fails = |scenario: &Scenario| {
            let syncs = scenario.ops.iter().filter(|op| matches!(op, Op::Sync { .. })).count();
            let message = format!("{syncs} syncs");
            (syncs > 2).then_some(Failure { seed: 1, message, trace: String::new() })
        };
        let first = fails(&scenario).expect("more than two syncs in two hundred operations");
        let (shrunk, failure) = shrink(&scenario, first, 10_000, fails);
        assert_eq!((shrunk.ops.len(), failure.message.as_str()), (3, "3 syncs"));
    }
}
