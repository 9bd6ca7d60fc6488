//! Makes a failing scenario shorter.

use crate::{
    Failure,
    run::{self, Report},
    scenario::Scenario,
};
use core::fmt::Write;

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

/// Most runs of [`explain`].
const RUNS_MAX: usize = 4_000;

/// Runs a scenario. If it fails, returns all that is needed to find out why: the seed, what is
/// wrong, the device's trace, the world, and a list of operations that cannot be made shorter.
///
/// # Errors
/// That text.
pub fn explain(scenario: &Scenario) -> Result<Report, String> {
    let failure = match run::check(scenario) {
        Ok(report) => return Ok(report),
        Err(failure) => failure,
    };
    // The panics of each attempt would bury what matters.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let (short, failure) =
        shrink(scenario, failure, RUNS_MAX, |scenario| run::check(scenario).err());
    std::panic::set_hook(hook);
    let mut text = format!("{:?} {failure}\n{:#?}\n", scenario.profile, short.setup);
    for (index, op) in short.ops.iter().enumerate() {
        let _ = writeln!(text, "{index:>5}  {op}");
    }
    let (seed, count) = (scenario.seed, scenario.ops.len());
    let _ = write!(text, "again: SIM_SEED={seed}, {count} operations, {:?}", scenario.profile);
    Err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{op::Op, scenario::Profile};

    #[test]
    fn only_what_is_needed_is_left() {
        let scenario = Scenario::draw(1, 200, Profile::Exact);
        let fails = |scenario: &Scenario| {
            let reads = scenario.ops.iter().filter(|op| matches!(op, Op::Read { .. })).count();
            let message = format!("{reads} reads");
            (reads > 2).then_some(Failure { seed: 1, message, trace: String::new() })
        };
        let first = fails(&scenario).expect("more than two reads in two hundred operations");
        let (shrunk, failure) = shrink(&scenario, first, 10_000, fails);
        assert_eq!((shrunk.ops.len(), failure.message.as_str()), (3, "3 reads"));
    }
}
