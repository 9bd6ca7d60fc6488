//! Time limits for an unreachable server.

use core::time::Duration;

/// How long an image waits for a server that cannot be reached.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long requests wait for an answer, over all connections, until all fail. Zero: they fail
    /// when the connection is lost.
    pub outage: Duration,
    /// With an `outage` above 0: the time after which the client reconnects to a server that has
    /// requests and answers nothing.
    pub silence: Duration,
    /// How long the flush at the end of serving may take in addition to `outage`, also if `outage`
    /// has no limit.
    pub end: Duration,
    /// Gets a line of text when the connection is lost, is there again, or is given up. Further
    /// losses are not reported until a connection has answered.
    pub say: Option<fn(&str)>,
}

impl Default for Patience {
    fn default() -> Patience {
        let none = Duration::ZERO;
        Patience { outage: none, silence: none, end: Duration::from_mins(1), say: None }
    }
}
