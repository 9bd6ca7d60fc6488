//! Shortens a failing run.

use crate::{
    process::{Failed, Plan},
    schedule::Report,
    steps::Step,
};
use core::fmt;
use nowait_sim::{Failure, shrink};

/// Number of runs, each a process, after which the search for a shorter run stops.
const RUNS_MAX: usize = 2_000;

/// A failing run with the fewest steps found.
#[derive(Debug)]
pub struct Smallest {
    /// The failure of the run.
    pub failure: Failure,
    /// The steps of the run.
    pub steps: Vec<Step>,
    /// Number of steps of the first run until it failed.
    pub steps_before: usize,
}

impl fmt::Display for Smallest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.failure)?;
        let (left, before) = (self.steps.len(), self.steps_before);
        writeln!(f, "seed {} fails with {left} of {before} steps:", self.failure.seed)?;
        self.steps.iter().try_for_each(|step| writeln!(f, "  {step}"))
    }
}

/// Runs `main` as [`process::run`](crate::process::run) does. If the run fails, searches for a
/// failing run with fewer [steps](crate::step).
///
/// # Errors
/// The shortest failing run found.
pub fn explain(seed: u64, main: impl Fn() + Clone + Send + 'static) -> Result<Report, Smallest> {
    let Failed { failure, steps } = match Plan::of(seed).run(main.clone()) {
        Ok(report) => return Ok(report),
        Err(failed) => failed,
    };
    let steps_before = steps.len();
    let shrunk = shrink(steps, failure, RUNS_MAX, |steps: &[Step], order| {
        let plan = Plan { seed, order, only: Some(steps.to_vec()) };
        Some(plan.run(main.clone()).err()?.failure)
    });
    Err(Smallest { failure: shrunk.failure, steps: shrunk.items, steps_before })
}
