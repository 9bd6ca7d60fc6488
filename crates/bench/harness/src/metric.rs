//! The metrics of a run, with their names in the JSON and their units.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use self::Better::{Less, More, Neither};

/// Defines the metrics in the order of the report: a description, the name and the unit in the
/// JSON, the name in tables, and which figures are better.
macro_rules! metrics {
    ($($(#[$about:meta])+ $name:ident = $json:literal, $unit:literal, $label:literal,
       $better:ident;)+) => {
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum Metric {
            $($(#[$about])+ $name,)+
        }

        impl Metric {
            pub const ALL: [Self; ROWS.len()] = [$(Self::$name,)+];
        }

        const ROWS: &[Row] = &[$((Metric::$name, $json, $unit, $label, $better),)+];
    };
}

metrics! {
    /// Requests completed per second.
    Iops = "iops", "1/s", "IOPS", More;
    /// Requests completed per second of processor time.
    IopsPerCore = "iops_per_core", "1/s", "IOPS a core", More;
    /// Bytes moved per second.
    BytesPerS = "bytes_per_s", "B/s", "throughput", More;
    /// Bytes moved per second, if the time of a final fsync is included.
    BytesPerSSynced = "bytes_per_s_synced", "B/s", "synced", More;
    /// Bytes loaded from a store per second.
    LoadedBytesPerS = "loaded_bytes_per_s", "B/s", "loads", More;
    /// Bytes stored per second.
    StoredBytesPerS = "stored_bytes_per_s", "B/s", "stores", More;
    /// Transactions of a database per second.
    TransactionsPerS = "transactions_per_s", "1/s", "transactions", More;
    /// The share of the written pages that cleaners wrote, in percent.
    WrittenByCleaners = "written_by_cleaners_percent", "%", "written by cleaners", More;
    /// Mean time of a call that submits.
    SubmitUsMean = "submit_us_mean", "us", "submit mean", Less;
    /// Median time of a call that submits.
    SubmitUsP50 = "submit_us_p50", "us", "submit p50", Less;
    /// 99 % of the calls that submit were shorter.
    SubmitUsP99 = "submit_us_p99", "us", "submit p99", Less;
    /// 99.9 % of the calls that submit were shorter.
    SubmitUsP999 = "submit_us_p999", "us", "submit p99.9", Less;
    /// 99.99 % of the calls that submit were shorter.
    SubmitUsP9999 = "submit_us_p9999", "us", "submit p99.99", Less;
    /// The longest call that submits.
    SubmitUsMax = "submit_us_max", "us", "submit max", Less;
    /// Mean time of a call that submits one read.
    SubmitReadUsMean = "submit_read_us_mean", "us", "submit of a read", Less;
    /// Mean time of a call that submits one write.
    SubmitWriteUsMean = "submit_write_us_mean", "us", "submit of a write", Less;
    /// How often the submitting thread slept inside the calls that submit, in the whole run.
    SubmitSleeps = "submit_sleeps", "1", "sleeps in submit", Less;
    /// Median time of a request. fio leaves out the call that submits it.
    LatencyUsP50 = "latency_us_p50", "us", "latency p50", Less;
    /// 90 % of the requests took less time.
    LatencyUsP90 = "latency_us_p90", "us", "latency p90", Less;
    /// 99 % of the requests took less time.
    LatencyUsP99 = "latency_us_p99", "us", "latency p99", Less;
    /// 99.9 % of the requests took less time.
    LatencyUsP999 = "latency_us_p999", "us", "latency p99.9", Less;
    /// 99.99 % of the requests took less time.
    LatencyUsP9999 = "latency_us_p9999", "us", "latency p99.99", Less;
    /// The time of the slowest request.
    LatencyUsMax = "latency_us_max", "us", "latency max", Less;
    /// The median of the hold-ups: times in which a program can do nothing else, inside a call that
    /// should return at once, or between two turns of its event loop.
    HeldUpUsP50 = "held_up_us_p50", "us", "held up p50", Less;
    /// 99 % of the hold-ups were shorter.
    HeldUpUsP99 = "held_up_us_p99", "us", "held up p99", Less;
    /// 99.9 % of the hold-ups were shorter.
    HeldUpUsP999 = "held_up_us_p999", "us", "held up p99.9", Less;
    /// 99.99 % of the hold-ups were shorter.
    HeldUpUsP9999 = "held_up_us_p9999", "us", "held up p99.99", Less;
    /// The longest hold-up.
    HeldUpUsMax = "held_up_us_max", "us", "longest hold-up", Less;
    /// A thread of an interpreter wakes each millisecond: 99 % of its delays were shorter.
    LateUsP99 = "late_us_p99", "us", "thread late p99", Less;
    /// The longest delay of a thread of an interpreter that wakes each millisecond.
    LateUsMax = "late_us_max", "us", "thread late max", Less;
    /// User and system time of the process for each request, with its `io_uring` workers.
    CpuUsPerIo = "cpu_us_per_io", "us", "CPU per I/O", Less;
    /// User and system time for each operation of the program, such as a transaction.
    CpuUsPerOperation = "cpu_us_per_operation", "us", "CPU per operation", Less;
    /// User and system time for each operation, without the threads of the driver that acts as the
    /// program. The driver's calls into the tier count.
    TierCpuUsPerOperation = "tier_cpu_us_per_operation", "us", "CPU of the tier", Less;
    /// Voluntary and involuntary context switches of the whole process for each request.
    ContextSwitchesPerIo = "context_switches_per_io", "1", "switches per I/O", Less;
    /// PUTs to an object store for each request of the client.
    PutsPerIo = "puts_per_io", "1", "PUTs per I/O", Less;
    /// GETs from an object store for each request of the client.
    GetsPerIo = "gets_per_io", "1", "GETs per I/O", Less;
    /// Bytes sent to an object store for each byte that the client wrote.
    BytesSentPerByte = "bytes_sent_per_byte", "1", "bytes sent per byte", Less;
    /// Blocks that were flushed, and lost because their server was killed.
    BlocksLost = "blocks_lost", "1", "blocks lost", Less;
    /// Largest resident memory of the process, shared memory included.
    RssBytesMax = "rss_bytes_max", "B", "peak memory", Less;
    /// The most memory that an engine adds to a process, without buffers and without the kernel's
    /// memory.
    MemoryAddedBytes = "memory_added_bytes", "B", "memory added", Less;
    /// Growth of the kernel's page cache during the run.
    PageCacheGrowthBytes = "page_cache_growth_bytes", "B", "cache growth", Less;
    /// Bytes read from a disk for the process, for each byte that it moved.
    DiskReadPerByte = "disk_read_bytes_per_byte", "1", "disk reads per byte", Neither;
    /// Runs with wrong data.
    VerifyErrors = "verify_errors", "1", "verify errors", Less;
    /// Processor time that everything else used during the run, with kernel threads and steal.
    OtherBusyCores = "other_busy_cores", "cores", "other work", Neither;
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Better {
    More,
    Less,
    /// Neither: the figure describes the run.
    Neither,
}

pub type Sample = BTreeMap<Metric, f64>;

type Row = (Metric, &'static str, &'static str, &'static str, Better);

impl Metric {
    const fn row(self) -> Row {
        ROWS[self as usize]
    }

    pub fn name(self) -> &'static str {
        self.row().1
    }

    pub fn unit(self) -> &'static str {
        self.row().2
    }

    pub fn label(self) -> &'static str {
        self.row().3
    }

    /// Returns the suffix of a count in a column whose figures have several units.
    pub fn counted(self) -> &'static str {
        if self.unit() == "1/s" { "/s" } else { "" }
    }

    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    pub fn better(self) -> Better {
        self.row().4
    }

    pub fn more_is_better(self) -> bool {
        self.better() == Better::More
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<_> = Metric::ALL.iter().map(|metric| metric.name()).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Metric::ALL.len());
        assert!(Metric::ALL.into_iter().all(|metric| Metric::named(metric.name()) == Some(metric)));
        assert!(ROWS.iter().all(|row| row.0.row().0 == row.0), "the order of the enum");
    }
}
