//! The counters of a server, which it sends as JSON.

use crate::{ConnectionStatus, StoreStatus};
use serde::{Deserialize, Serialize};

/// State and counters of a server. The counters count from the server's start.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of this format.
    pub schema: u32,
    /// The process ID of the server.
    pub pid: u32,
    /// Milliseconds since the server's start.
    pub uptime_ms: u64,
    /// The backend that carries out the server's requests.
    pub backend: String,
    /// How often a thread of the server panicked because of an internal error; must be 0.
    #[serde(default)]
    pub failed_threads: u64,
    /// Counters of nowait's own page cache, if the server uses it.
    #[serde(default)]
    pub cache: Option<CacheStatus>,
    /// Counters of NBD and vhost-user clients.
    pub clients: ClientsStatus,
    /// State and counters of each image.
    pub exports: Vec<ExportStatus>,
}

/// Counters of nowait's own page cache.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CacheStatus {
    /// Reads that found all their data cached.
    pub hits: u64,
    /// Reads that did not find all their data cached.
    pub misses: u64,
    /// Pages of 4 KiB read from the files, including readahead.
    pub pages_read: u64,
    /// Pages of 4 KiB written to the files.
    pub pages_written: u64,
}

/// Counters of NBD and vhost-user clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClientsStatus {
    /// Clients that are connected.
    pub now: u64,
    /// Clients that have connected since the server's start.
    pub total: u64,
    /// NBD clients that the server refused because there were too many.
    pub refused: u64,
    /// NBD clients that the server disconnected because they made no progress in time.
    pub timed_out: u64,
}

/// State and counters of one image.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ExportStatus {
    /// The name by which clients ask for the image.
    pub name: String,
    /// The path or the address of the image.
    pub path: String,
    /// The size of the image in bytes.
    pub size: u64,
    /// Clients may not change the image.
    pub read_only: bool,
    /// The files and block devices that show the image.
    #[serde(default)]
    pub files: Vec<String>,
    /// Clients of the image: NBD clients that have chosen it, virtual machines, open files of FUSE
    /// mounts, and its block devices.
    pub connections: u64,
    /// Requests that clients have made and that have not ended.
    pub in_flight: u64,
    /// The counters of each kind of request that has occurred.
    pub kinds: Vec<KindStatus>,
    /// Set only if the image is on an object store.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub store: Option<StoreStatus>,
    /// Set only if the image is on an NBD server.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection: Option<ConnectionStatus>,
}

/// Counters of the requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KindStatus {
    /// `read`, `write`, `flush`, `discard`, `zero`, `other`.
    pub kind: String,
    /// Requests that have ended, failed ones included.
    pub requests: u64,
    /// Bytes of the requests that did not fail.
    pub bytes: u64,
    /// Requests that have failed.
    pub errors: u64,
    /// Histogram of latencies, in ascending order. An entry is a bucket: its upper bound in
    /// nanoseconds, and the number of requests in it. The server leaves out empty buckets.
    pub latency_ns: Vec<(u64, u64)>,
}

impl Status {
    /// The version of this format, in [`Status::schema`].
    pub const SCHEMA: u32 = 1;
}

impl KindStatus {
    /// Returns the increase of the counters since `before`.
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

/// Returns the upper bound, in nanoseconds, of the bucket in which the share `share` of all
/// requests is reached; 0 if there were no requests. `latency_ns` must be in ascending order.
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
    fn intervals_are_differences_and_quantiles_upper_bounds() {
        let now = kind(5, vec![(100, 3), (300, 2)]);
        let since = now.since(&kind(4, vec![(100, 2), (300, 2)]));
        assert_eq!(since, kind(1, vec![(100, 1), (300, 0)]));
        assert_eq!((quantile_ns(&now.latency_ns, 0.5), quantile_ns(&[], 0.5)), (100, 0));
        assert_eq!(quantile_ns(&now.latency_ns, 0.99), 300);
    }
}
