//! Time limits for an unreachable server.

use core::time::Duration;

/// How long an image waits for a server that cannot be reached.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// The time from the last answer until all requests fail. Zero: no waiting.
    pub outage: Duration,
    /// The time after which the client reconnects to a server that has requests and answers
    /// nothing.
    pub silence: Duration,
    /// The time that the flush at the end may take in addition to `outage`, also if `outage` has no
    /// limit.
    pub end: Duration,
    /// Reports each event of a connection, in one line.
    pub say: Option<fn(&str)>,
}

impl Default for Patience {
    fn default() -> Patience {
        let none = Duration::ZERO;
        Patience { outage: none, silence: none, end: Duration::from_mins(1), say: None }
    }
}
