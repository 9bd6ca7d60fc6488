//! The reason why a request was not completed inside submit.

use nowait_retry::stats::{Counter, Counters};

/// Each reason has a counter in the report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The data are not in the page cache.
    Miss,
    /// The request has more bytes than submit may still copy.
    Large,
    /// The file system does not support RWF_NOWAIT for this request.
    Unsupported,
    Write,
    /// The request is a write that must be durable when it ends.
    Sync,
    /// The request is a direct write that extends the file, fills a hole, or was refused.
    Extend,
    Fsync,
    /// The request must wait for an earlier one, in the order or by a link.
    Order,
    /// The submit mode is offload, or attempts have failed lately.
    Offload,
    /// A direct request, poll or stream that the own queue does not carry.
    Driver,
}

impl Reason {
    pub(super) fn counter(self, counters: &Counters) -> &Counter {
        match self {
            Reason::Miss => &counters.punt_miss,
            Reason::Large => &counters.punt_large,
            Reason::Unsupported => &counters.punt_unsupported,
            Reason::Write => &counters.punt_write,
            Reason::Sync => &counters.punt_sync,
            Reason::Extend => &counters.punt_extend,
            Reason::Fsync => &counters.punt_fsync,
            Reason::Order => &counters.punt_order,
            Reason::Offload => &counters.punt_offload,
            Reason::Driver => &counters.punt_driver,
        }
    }
}
