//! How long a server is waited for.

use core::time::Duration;

/// How long an image waits for a server that cannot be reached.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long everything waits, from the last answer on, until it fails. Zero: not at all.
    pub outage: Duration,
    /// How long a server may answer nothing while it has requests until it is connected anew.
    pub silence: Duration,
    /// How long the flush at the end may take besides, also where a server stands still that is
    /// waited for without limit.
    pub end: Duration,
    /// Takes what is to be said of it, each in a line.
    pub say: Option<fn(&str)>,
}

impl Default for Patience {
    fn default() -> Patience {
        let none = Duration::ZERO;
        Patience { outage: none, silence: none, end: Duration::from_mins(1), say: None }
    }
}
