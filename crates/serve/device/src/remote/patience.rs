//! Time limits for a server that cannot be reached or does not answer.

use core::time::Duration;

/// How long an image waits for its server.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long requests wait for the server to answer any of them, over all connections, until all
    /// requests fail. Zero: all requests fail when the connection is lost.
    pub outage: Duration,
    /// With an `outage` above 0: if the server has requests and answers none for this long, the
    /// client connects again.
    pub silence: Duration,
    /// How long the flush at the end of serving may take in addition to `outage`.
    pub end: Duration,
    /// The function that gets a line of text when the connection is lost, when the client has
    /// connected again, and when it gives up. After a loss the client reports no further loss until
    /// a connection has answered a request.
    pub say: Option<fn(&str)>,
}

impl Default for Patience {
    fn default() -> Patience {
        let none = Duration::ZERO;
        Patience { outage: none, silence: none, end: Duration::from_mins(1), say: None }
    }
}
