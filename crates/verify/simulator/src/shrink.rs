//! Shortens a failing scenario.

use crate::{
    op::Op,
    run::{self, Report},
    scenario::Scenario,
};
use core::fmt::Write;
use nowait_sim::shrink;

/// Number of runs after which [`explain`] tries no further list of operations.
const RUNS_MAX: usize = 4_000;

/// Runs a scenario. A failure's text has the seed, the claim, the trace, the environment, and the
/// shortest failing list of operations that was found.
pub fn explain(scenario: &Scenario) -> Result<Report, String> {
    let failure = match run::check(scenario) {
        Ok(report) => return Ok(report),
        Err(failure) => failure,
    };
    // The panic messages of each attempt would hide the result.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let short = shrink(scenario.ops.clone(), failure, RUNS_MAX, |ops: &[Op], order| {
        let order = scenario.order.wrapping_add(order);
        run::check(&Scenario { order, ops: ops.to_vec(), ..scenario.clone() }).err()
    });
    std::panic::set_hook(hook);
    let mut text = format!("{:?} {}\n{:#?}\n", scenario.profile, short.failure, scenario.setup);
    for (index, op) in short.items.iter().enumerate() {
        let _ = writeln!(text, "{index:>5}  {op}");
    }
    let (seed, count) = (scenario.seed, scenario.ops.len());
    let _ = write!(text, "again: SIM_SEED={seed}, {count} operations, {:?}", scenario.profile);
    Err(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::Profile;
    use nowait_cache::mistake::Mistake;

    #[test]
    fn a_scenario_that_fails_is_explained_by_few_operations() {
        let of = |seed| {
            let mut scenario = Scenario::draw(seed, 100, Profile::Exact);
            scenario.setup.mistake = Some(Mistake::ForgetDirty);
            scenario
        };
        let text = (0..30).find_map(|seed| explain(&of(seed)).err()).expect("a seed fails");
        let is_op =
            |line: &&str| line.starts_with("    ") && line[4..].starts_with(char::is_numeric);
        let listed = text.lines().filter(is_op).count();
        assert!((1..10).contains(&listed), "{text}");
    }
}
