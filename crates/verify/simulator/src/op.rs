//! Operations on a file as plain data: a list of them can be printed, cut and run again.

use core::fmt;
use nowait_cache::SyncLevel;

/// One thing to do. Offsets, lengths and sizes are bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Op {
    /// A read through the cache.
    Read {
        /// First byte.
        offset: u64,
        /// At least 1.
        len: usize,
        /// Into so many buffers.
        pieces: usize,
    },
    /// A write through the cache.
    Write {
        /// First byte; `None`: at the end of the file.
        offset: Option<u64>,
        /// At least 1.
        len: usize,
        /// From so many buffers.
        pieces: usize,
        /// What its end promises (O_DSYNC, O_SYNC).
        durable: Option<SyncLevel>,
    },
    /// A read past the cache; aligned.
    DirectRead {
        /// First byte.
        offset: u64,
        /// At least one block.
        len: usize,
    },
    /// A write past the cache; aligned.
    DirectWrite {
        /// First byte.
        offset: u64,
        /// At least one block.
        len: usize,
        /// With RWF_DSYNC.
        sync: bool,
    },
    /// Makes the file shorter or longer.
    Truncate {
        /// The new size.
        size: u64,
    },
    /// fsync, fdatasync, sync_file_range of these pages, inclusive.
    Sync {
        /// First page.
        from: u64,
        /// Last page.
        last: u64,
        /// What it promises.
        durable: SyncLevel,
    },
    /// Drops clean pages, as memory pressure or an advice does.
    Forget {
        /// First page.
        from: u64,
        /// Last page.
        last: u64,
    },
    /// Evicts what was not used lately.
    Reclaim,
    /// Starts the writeback of at most so many dirty pages.
    Clean {
        /// In 4 KiB.
        pages: u64,
    },
    /// Drops one of the operations in flight, counted in order of submission, modulo their number.
    Cancel {
        /// Which.
        nth: usize,
    },
    /// Waits for all, syncs, closes the file and opens it again.
    Reopen,
    /// Waits for all. Then another process writes those of these pages that are in the file whole,
    /// and not dirty here.
    Rival {
        /// First page.
        from: u64,
        /// Last page.
        last: u64,
    },
}

impl Op {
    /// Returns how many bytes of the user's memory it needs.
    pub(crate) fn memory_bytes(&self) -> usize {
        match self {
            Op::Read { len, .. }
            | Op::Write { len, .. }
            | Op::DirectRead { len, .. }
            | Op::DirectWrite { len, .. } => *len,
            _ => 0,
        }
    }

    /// Tells whether it fills the user's memory.
    pub(crate) fn is_read(&self) -> bool {
        matches!(self, Op::Read { .. } | Op::DirectRead { .. })
    }

    /// Tells whether it takes the user's memory.
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
