//! The format of figures on the terminal.

use crate::KindStatus;

/// Formats requests and megabytes per second from the counters of `ms` milliseconds.
pub fn rate(kind: &KindStatus, ms: u64) -> String {
    let per_s = |count: u64| count as f64 * 1000.0 / ms as f64;
    format!("{:.0}/s {:.1} MB/s", per_s(kind.requests), per_s(kind.bytes) / 1e6)
}

/// Formats a time in nanoseconds with a unit; 0 becomes `-`.
pub fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        1..10_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000..10_000_000 => format!("{} µs", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}
