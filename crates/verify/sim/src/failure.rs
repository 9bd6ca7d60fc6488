//! The report of a failed simulated run.

use core::fmt;

/// A failure: the seed, the failed claim and the last events.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The seed of the run.
    pub seed: u64,
    /// The failed claim.
    pub message: String,
    /// The last events.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\n{}", self.seed, self.message, self.trace)
    }
}
