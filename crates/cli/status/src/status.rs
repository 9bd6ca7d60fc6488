//! The counters of a server, as it tells them in JSON.

use crate::{ConnectionStatus, StoreStatus};
use serde::{Deserialize, Serialize};

/// The counters of a server, since it started.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of this format.
    pub schema: u32,
    /// The process.
    pub pid: u32,
    /// How long it has been serving.
    pub uptime_ms: u64,
    /// What carries its requests.
    pub backend: String,
    /// How often a thread panicked by a mistake of its own; must be 0.
    #[serde(default)]
    pub failed_threads: u64,
    /// nowait's own page cache, if it is in use.
    #[serde(default)]
    pub cache: Option<CacheStatus>,
    /// All clients.
    pub clients: ClientsStatus,
    /// Each image.
    pub exports: Vec<ExportStatus>,
}

/// What nowait's own page cache has done.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Reads that found all they wanted.
    pub hits: u64,
    /// Reads that did not.
    pub misses: u64,
    /// Pages of 4 KiB read from the files, ahead of their readers too.
    pub pages_read: u64,
    /// Pages of 4 KiB written to the files.
    pub pages_written: u64,
}

impl CacheStatus {
    /// Returns how many of a hundred reads were hits since `before`; `None`: there were no reads.
    pub fn hit_percent_since(&self, before: &CacheStatus) -> Option<u64> {
        let hits = self.hits.saturating_sub(before.hits);
        let reads = hits + self.misses.saturating_sub(before.misses);
        (reads > 0).then(|| hits * 100 / reads)
    }
}

/// What is counted of clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// Connected.
    pub now: u64,
    /// Came since the start.
    pub total: u64,
    /// Were sent away because there were too many.
    pub refused: u64,
    /// Were sent away because they did not go on.
    pub timed_out: u64,
}

/// One image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// What clients ask for.
    pub name: String,
    /// The file.
    pub path: String,
    /// In bytes.
    pub size: u64,
    /// Nothing may be changed.
    pub read_only: bool,
    /// Files that it is shown as.
    #[serde(default)]
    pub files: Vec<String>,
    /// Clients that have chosen it, and how often its files are open.
    pub connections: u64,
    /// Requests in flight.
    pub in_flight: u64,
    /// Kinds of requests that there were.
    pub kinds: Vec<KindStatus>,
    /// If it lies on an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreStatus>,
    /// If it lies on an NBD server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionStatus>,
}

/// Requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindStatus {
    /// `read`, `write`, `flush`, `discard`, `zero`, `other`.
    pub kind: String,
    /// Ended.
    pub requests: u64,
    /// Asked for, by those that did not fail.
    pub bytes: u64,
    /// Failed.
    pub errors: u64,
    /// How many took up to so many nanoseconds, above the entry before; only those that are not 0.
    pub latency_ns: Vec<(u64, u64)>,
}

impl Status {
    /// The version of this format, in [`Status::schema`].
    pub const SCHEMA: u32 = 1;

    /// Adds up what stores have been asked for; `None`: no image is on one.
    pub fn stores(&self) -> Option<StoreStatus> {
        let stores = self.exports.iter().filter_map(|export| export.store.as_ref());
        stores.fold(None, |sum, store| Some(sum.unwrap_or_default().and(store)))
    }

    /// Adds up what the caches of images on NBD servers have done.
    pub fn server_caches(&self) -> ConnectionStatus {
        let all = self.exports.iter().filter_map(|export| export.connection.as_ref());
        all.fold(ConnectionStatus::default(), ConnectionStatus::with_cache_of)
    }

    /// Adds up a kind of all exports.
    pub fn sum(&self, kind: &str) -> KindStatus {
        let mut sum = KindStatus { kind: kind.to_owned(), ..KindStatus::default() };
        let kinds = self.exports.iter().flat_map(|export| &export.kinds);
        for one in kinds.filter(|one| one.kind == kind) {
            sum.requests += one.requests;
            sum.bytes += one.bytes;
            sum.errors += one.errors;
            sum.latency_ns.extend(&one.latency_ns);
        }
        sum.latency_ns.sort_unstable();
        sum.latency_ns.dedup_by(|later, kept| {
            let same = later.0 == kept.0;
            kept.1 += if same { later.1 } else { 0 };
            same
        });
        sum
    }
}

impl KindStatus {
    /// Returns what came since `before`.
    #[must_use]
    pub fn since(&self, before: &KindStatus) -> KindStatus {
        let earlier = |upper_ns| {
            let found = before.latency_ns.iter().find(|entry| entry.0 == upper_ns);
            found.map_or(0, |entry| entry.1)
        };
        let left = |entry: &(u64, u64)| (entry.0, entry.1.saturating_sub(earlier(entry.0)));
        KindStatus {
            kind: self.kind.clone(),
            requests: self.requests.saturating_sub(before.requests),
            bytes: self.bytes.saturating_sub(before.bytes),
            errors: self.errors.saturating_sub(before.errors),
            latency_ns: self.latency_ns.iter().map(left).collect(),
        }
    }
}

/// Returns the value in nanoseconds that this share of all stays below; 0 if there were none.
pub fn quantile_ns(latency_ns: &[(u64, u64)], share: f64) -> u64 {
    let total: u64 = latency_ns.iter().map(|entry| entry.1).sum();
    let wanted = (total as f64 * share).ceil() as u64;
    let mut seen = 0;
    for (upper_ns, count) in latency_ns {
        seen += count;
        if *count > 0 && seen >= wanted {
            return *upper_ns;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(requests: u64, latency_ns: Vec<(u64, u64)>) -> KindStatus {
        let kind = "read".to_owned();
        KindStatus { kind, requests, bytes: requests * 512, errors: 0, latency_ns }
    }

    #[test]
    fn exports_are_added_up_and_intervals_are_differences() {
        let export = |kind| ExportStatus { kinds: vec![kind], ..ExportStatus::default() };
        let exports =
            vec![export(kind(3, vec![(100, 1), (300, 2)])), export(kind(2, vec![(100, 2)]))];
        let status = Status { exports, ..Status::default() };
        let sum = status.sum("read");
        assert_eq!(sum, kind(5, vec![(100, 3), (300, 2)]));
        let since = sum.since(&kind(4, vec![(100, 2), (300, 2)]));
        assert_eq!(since, kind(1, vec![(100, 1), (300, 0)]));
        assert_eq!((quantile_ns(&sum.latency_ns, 0.5), quantile_ns(&[], 0.5)), (100, 0));
        assert_eq!(quantile_ns(&sum.latency_ns, 0.99), 300);
    }
}
