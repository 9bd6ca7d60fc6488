//! The report of a failed simulated run.

use core::fmt;

/// What went wrong, and all that is needed to see why.
#[derive(Clone, Debug)]
pub struct Failure {
    /// The run.
    pub seed: u64,
    /// What.
    pub message: String,
    /// What happened last.
    pub trace: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}\n{}", self.seed, self.message, self.trace)
    }
}
