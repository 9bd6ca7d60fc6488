//! Operations on a file as plain data: a list of them can be printed, shortened and run again.

use core::fmt;
use nowait_cache::SyncLevel;

/// One operation. Offsets, lengths and sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read through the cache.
    Read {
        /// First byte.
        offset: u64,
        /// Length, at least 1.
        len: usize,
        /// Number of buffers.
        pieces: usize,
    },
    /// A write through the cache.
    Write {
        /// First byte; `None`: at the end of the file.
        offset: Option<u64>,
        /// Length, at least 1.
        len: usize,
        /// Number of buffers.
        pieces: usize,
        /// Durability when the write ends (O_DSYNC, O_SYNC).
        durable: Option<SyncLevel>,
    },
    /// A read that bypasses the cache; aligned.
    DirectRead {
        /// First byte.
        offset: u64,
        /// Length, at least one block.
        len: usize,
    },
    /// A write that bypasses the cache; aligned.
    DirectWrite {
        /// First byte.
        offset: u64,
        /// Length, at least one block.
        len: usize,
        /// With RWF_DSYNC.
        sync: bool,
    },
    /// Makes the file shorter or longer.
    Truncate {
        /// The new size.
        size: u64,
    },
    /// fsync, fdatasync or sync_file_range of the pages `from` to `last`, inclusive.
    Sync {
        /// First page.
        from: u64,
        /// Last page.
        last: u64,
        /// Durability when the sync ends.
        durable: SyncLevel,
    },
    /// Drops the clean ones of the pages `from` to `last`, as memory pressure or an advice does.
    Forget {
        /// First page.
        from: u64,
        /// Last page.
        last: u64,
    },
    /// Evicts pages that were not used lately.
    Reclaim,
    /// Starts the writeback of at most this number of dirty pages.
    Clean {
        /// Number of pages of 4 KiB.
        pages: u64,
    },
    /// Cancels an operation in flight, if possible.
    Cancel {
        /// Index of the operation.
        nth: usize,
    },
    /// Waits for all operations and syncs the file; after a successful sync, opens the file again.
    Reopen,
    /// Waits for all operations. Then another process writes whole pages that are not dirty in the
    /// cache.
    Rival {
        /// First page.
        from: u64,
        /// Last page.
        last: u64,
    },
}

impl Op {
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Op::Read { len, .. }
            | Op::Write { len, .. }
            | Op::DirectRead { len, .. }
            | Op::DirectWrite { len, .. } => *len,
            _ => 0,
        }
    }

    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Op::Read { .. } | Op::DirectRead { .. })
    }

    pub(crate) fn is_write(&self) -> bool {
        matches!(self, Op::Write { .. } | Op::DirectWrite { .. })
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Op::Read { offset, len, pieces } => write!(f, "read {offset} +{len} /{pieces}"),
            Op::Write { offset: None, len, pieces, durable } => {
                write!(f, "append +{len} /{pieces} {}", promise(*durable))
            }
            Op::Write { offset: Some(offset), len, pieces, durable } => {
                write!(f, "write {offset} +{len} /{pieces} {}", promise(*durable))
            }
            Op::DirectRead { offset, len } => write!(f, "direct read {offset} +{len}"),
            Op::DirectWrite { offset, len, sync } => {
                let sync = if *sync { " dsync" } else { "" };
                write!(f, "direct write {offset} +{len}{sync}")
            }
            Op::Truncate { size } => write!(f, "truncate {size}"),
            Op::Sync { from, last, durable } => {
                write!(f, "sync of pages {from} to {last} {}", promise(Some(*durable)))
            }
            Op::Forget { from, last } => write!(f, "forget pages {from} to {last}"),
            Op::Reclaim => f.write_str("reclaim"),
            Op::Clean { pages } => write!(f, "clean {pages} pages"),
            Op::Cancel { nth } => write!(f, "cancel {nth}"),
            Op::Reopen => f.write_str("reopen"),
            Op::Rival { from, last } => write!(f, "a rival writes pages {from} to {last}"),
        }
    }
}

fn promise(durable: Option<SyncLevel>) -> &'static str {
    match durable {
        None => "",
        Some(SyncLevel::WriteOnly) => "written",
        Some(SyncLevel::Data) => "data",
        Some(SyncLevel::All) => "all",
    }
}
