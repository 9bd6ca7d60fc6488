//! Why a request was not over inside submit.

use nowait_retry::stats::{Counter, Counters};

/// Why a request was not over inside submit. A report counts each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The data is not in the page cache.
    Miss,
    /// The request is larger than a submit may copy itself.
    Large,
    /// The file system cannot try this without waiting.
    Unsupported,
    /// The request is a buffered write.
    Write,
    /// The request is a write that must be durable when it ends.
    Sync,
    /// The request is a direct write that extends the file, fills a hole, or was refused.
    Extend,
    /// The request is an fsync or fdatasync.
    Fsync,
    /// An earlier request on the same bytes is not over.
    Order,
    /// The submit mode is offload, or attempts were in vain lately.
    Offload,
    /// Only an eventfd or the ring's reader will collect the completion.
    Driver,
}

impl Reason {
    /// Returns the counter of the report.
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
