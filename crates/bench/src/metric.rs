//! What is measured in each run, with its name in the JSON and its unit.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One figure of one run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// Requests completed per second.
    Iops,
    /// Requests completed per second of processor time, which others cannot take away.
    IopsPerCore,
    /// Bytes moved per second.
    BytesPerS,
    /// The same, the time of a final fsync included.
    BytesPerSSynced,
    /// Transactions of a database per second.
    TransactionsPerS,
    /// Of the pages that were written, those that cleaners wrote, in percent.
    WrittenByCleaners,
    /// Mean time from the prepared request to the return of `io_submit`.
    SubmitUsMean,
    /// Median of the same.
    SubmitUsP50,
    /// 99 % of the calls were shorter.
    SubmitUsP99,
    /// 99.9 % of the calls were shorter.
    SubmitUsP999,
    /// The longest call.
    SubmitUsMax,
    /// Mean time of a call that submits one read.
    SubmitReadUsMean,
    /// Mean time of a call that submits one write.
    SubmitWriteUsMean,
    /// How often the submitting thread slept inside the calls, in all of the run.
    SubmitSleeps,
    /// Median time from the return of `io_submit` to the completion.
    LatencyUsP50,
    /// 90 % of the completions were faster.
    LatencyUsP90,
    /// 99 % of the completions were faster.
    LatencyUsP99,
    /// 99.9 % of the completions were faster.
    LatencyUsP999,
    /// The slowest completion.
    LatencyUsMax,
    /// User and system time of the whole process, library and kernel workers included.
    CpuUsPerIo,
    /// Voluntary and involuntary switches of the whole process.
    ContextSwitchesPerIo,
    /// Memory of the process at its largest, what it shares with others included.
    RssBytesMax,
    /// By how much the kernel's page cache was larger after the run than before it.
    PageCacheGrowthBytes,
    /// Processor time used by everything else meanwhile: other programs, kernel threads, steal.
    OtherBusyCores,
}

/// Which figure of a metric is the better one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Better {
    /// The larger one.
    More,
    /// The smaller one.
    Less,
    /// It describes the run, and judges nobody.
    Neither,
}

/// The figures of one run.
pub(crate) type Sample = BTreeMap<Metric, f64>;

impl Metric {
    /// Every metric, in the order of the report.
    pub(crate) const ALL: [Self; 24] = [
        Self::Iops,
        Self::IopsPerCore,
        Self::BytesPerS,
        Self::BytesPerSSynced,
        Self::TransactionsPerS,
        Self::WrittenByCleaners,
        Self::SubmitUsMean,
        Self::SubmitUsP50,
        Self::SubmitUsP99,
        Self::SubmitUsP999,
        Self::SubmitUsMax,
        Self::SubmitReadUsMean,
        Self::SubmitWriteUsMean,
        Self::SubmitSleeps,
        Self::LatencyUsP50,
        Self::LatencyUsP90,
        Self::LatencyUsP99,
        Self::LatencyUsP999,
        Self::LatencyUsMax,
        Self::CpuUsPerIo,
        Self::ContextSwitchesPerIo,
        Self::RssBytesMax,
        Self::PageCacheGrowthBytes,
        Self::OtherBusyCores,
    ];

    /// Returns the name used in the JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Iops => "iops",
            Self::IopsPerCore => "iops_per_core",
            Self::BytesPerS => "bytes_per_s",
            Self::BytesPerSSynced => "bytes_per_s_synced",
            Self::TransactionsPerS => "transactions_per_s",
            Self::WrittenByCleaners => "written_by_cleaners_percent",
            Self::SubmitUsMean => "submit_us_mean",
            Self::SubmitUsP50 => "submit_us_p50",
            Self::SubmitUsP99 => "submit_us_p99",
            Self::SubmitUsP999 => "submit_us_p999",
            Self::SubmitUsMax => "submit_us_max",
            Self::SubmitReadUsMean => "submit_read_us_mean",
            Self::SubmitWriteUsMean => "submit_write_us_mean",
            Self::SubmitSleeps => "submit_sleeps",
            Self::LatencyUsP50 => "latency_us_p50",
            Self::LatencyUsP90 => "latency_us_p90",
            Self::LatencyUsP99 => "latency_us_p99",
            Self::LatencyUsP999 => "latency_us_p999",
            Self::LatencyUsMax => "latency_us_max",
            Self::CpuUsPerIo => "cpu_us_per_io",
            Self::ContextSwitchesPerIo => "context_switches_per_io",
            Self::RssBytesMax => "rss_bytes_max",
            Self::PageCacheGrowthBytes => "page_cache_growth_bytes",
            Self::OtherBusyCores => "other_busy_cores",
        }
    }

    /// Returns the unit used in the JSON.
    pub(crate) fn unit(self) -> &'static str {
        match self {
            Self::Iops | Self::IopsPerCore | Self::TransactionsPerS => "1/s",
            Self::BytesPerS | Self::BytesPerSSynced => "B/s",
            Self::WrittenByCleaners => "%",
            Self::ContextSwitchesPerIo | Self::SubmitSleeps => "1",
            Self::RssBytesMax | Self::PageCacheGrowthBytes => "B",
            Self::OtherBusyCores => "cores",
            _ => "us",
        }
    }

    /// Returns the words used in tables and verdicts.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Iops => "IOPS",
            Self::IopsPerCore => "IOPS a core",
            Self::BytesPerS => "throughput",
            Self::BytesPerSSynced => "synced",
            Self::TransactionsPerS => "transactions",
            Self::WrittenByCleaners => "written by cleaners",
            Self::SubmitUsMean => "submit mean",
            Self::SubmitUsP50 => "submit p50",
            Self::SubmitUsP99 => "submit p99",
            Self::SubmitUsP999 => "submit p99.9",
            Self::SubmitUsMax => "submit max",
            Self::SubmitReadUsMean => "submit of a read",
            Self::SubmitWriteUsMean => "submit of a write",
            Self::SubmitSleeps => "sleeps in submit",
            Self::LatencyUsP50 => "latency p50",
            Self::LatencyUsP90 => "latency p90",
            Self::LatencyUsP99 => "latency p99",
            Self::LatencyUsP999 => "latency p99.9",
            Self::LatencyUsMax => "latency max",
            Self::CpuUsPerIo => "CPU per I/O",
            Self::ContextSwitchesPerIo => "switches per I/O",
            Self::RssBytesMax => "peak memory",
            Self::PageCacheGrowthBytes => "cache growth",
            Self::OtherBusyCores => "other work",
        }
    }

    /// Finds a metric by its name in the JSON.
    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// Tells which figure is the better one.
    pub(crate) fn better(self) -> Better {
        match self {
            Self::Iops
            | Self::IopsPerCore
            | Self::BytesPerS
            | Self::BytesPerSSynced
            | Self::TransactionsPerS
            | Self::WrittenByCleaners => Better::More,
            Self::OtherBusyCores => Better::Neither,
            _ => Better::Less,
        }
    }

    /// Tells whether a larger figure is the better one.
    pub(crate) fn more_is_better(self) -> bool {
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
    }
}
