//! The format of figures on the terminal.

use crate::{KindStatus, StoreStatus};

/// Returns requests and megabytes a second.
pub fn rate(kind: &KindStatus, ms: u64) -> String {
    let per_s = |count: u64| count as f64 * 1000.0 / ms as f64;
    format!("{:.0}/s {:.1} MB/s", per_s(kind.requests), per_s(kind.bytes) / 1e6)
}

/// Returns the requests to stores per second, and the bytes that the stores do not have yet.
pub fn store(store: &StoreStatus, ms: u64) -> String {
    let per_s = |count: u64| count as f64 * 1000.0 / ms as f64;
    let failed = match store.failures {
        0 => String::new(),
        failures => format!("  {failures} failed"),
    };
    let hits = match store.hit_percent() {
        None => String::new(),
        Some(percent) => format!("  hits {percent} %"),
    };
    let aside = if store.cache_is_aside { "  cache set aside" } else { "" };
    format!(
        "{:.0} PUT/s {:.1} MB/s  {:.0} GET/s{hits}{aside}  {:.1} MB unflushed{failed}",
        per_s(store.puts),
        per_s(store.put_bytes) / 1e6,
        per_s(store.gets),
        store.unflushed_bytes as f64 / 1e6,
    )
}

/// Returns a time with its unit.
pub fn time(ns: u64) -> String {
    match ns {
        0 => "-".to_owned(),
        1..10_000 => format!("{:.1} µs", ns as f64 / 1e3),
        10_000..10_000_000 => format!("{} µs", ns / 1000),
        _ => format!("{} ms", ns / 1_000_000),
    }
}
