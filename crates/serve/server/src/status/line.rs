//! The status line on the terminal: the figures of the last second.

use core::fmt::Write as _;

use nowait_status::{
    Status,
    format::{self, rate, time},
    quantile_ns,
};

/// Makes the line from the difference between two copies of the counters.
#[derive(Debug, Default)]
pub struct StatusLine {
    before: Status,
}

impl StatusLine {
    /// Returns the line for the time since the last call.
    pub fn next(&mut self, status: Status) -> String {
        let ms = status.uptime_ms.saturating_sub(self.before.uptime_ms).max(1);
        let since = |kind: &str| status.sum(kind).since(&self.before.sum(kind));
        let (read, write) = (since("read"), since("write"));
        let mut both = read.latency_ns.clone();
        both.extend(&write.latency_ns);
        both.sort_unstable();
        let in_flight: u64 = status.exports.iter().map(|export| export.in_flight).sum();
        let files: usize = status.exports.iter().map(|export| export.files.len()).sum();
        let files = match files {
            0 => String::new(),
            count => format!("  {}", counted(count as u64, "file")),
        };
        let mut text = format!(
            "{}{files}  read {}  write {}  depth {in_flight}  p50 {}  p99 {}",
            counted(status.clients.now, "client"),
            rate(&read, ms),
            rate(&write, ms),
            time(quantile_ns(&both, 0.5)),
            time(quantile_ns(&both, 0.99)),
        );
        if let Some(cache) = &status.cache {
            let before = self.before.cache.take().unwrap_or_default();
            // Writing to a string cannot fail.
            let _ = match cache.hit_percent_since(&before) {
                Some(percent) => write!(text, "  hits {percent} %"),
                None => write!(text, "  hits –"),
            };
        }
        let caches = status.server_caches();
        if let Some(percent) = caches.hit_percent_since(&self.before.server_caches()) {
            let _ = write!(text, "  hits {percent} % before NBD servers");
        }
        if let Some(stores) = status.stores() {
            let since = stores.since(&self.before.stores().unwrap_or_default());
            let _ = write!(text, "  store {}", format::store(&since, ms));
        }
        self.before = status;
        text
    }
}

fn counted(count: u64, what: &str) -> String {
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}s") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_status::{CacheStatus, ConnectionStatus, ExportStatus, KindStatus, StoreStatus};

    #[test]
    fn the_line_covers_the_time_since_the_previous_one() {
        let status = |uptime_ms, requests| {
            let latency_ns = vec![(50_000, requests)];
            let bytes = requests * 4096;
            let kind =
                KindStatus { kind: "read".to_owned(), requests, bytes, errors: 0, latency_ns };
            let export = ExportStatus { kinds: vec![kind], ..ExportStatus::default() };
            Status { uptime_ms, exports: vec![export], ..Status::default() }
        };
        let mut line = StatusLine::default();
        line.next(status(1000, 500));
        let text = line.next(status(3000, 2500));
        assert_eq!(
            text,
            "0 clients  read 1000/s 4.1 MB/s  write 0/s 0.0 MB/s  depth 0  p50 50 µs  p99 50 µs"
        );
        let cached = |hits| {
            let cache = Some(CacheStatus { hits, misses: hits / 3, ..CacheStatus::default() });
            Status { cache, ..status(4000, 2500) }
        };
        let text = line.next(cached(300));
        assert!(text.ends_with("  hits 75 %"), "{text}");
        let mut shown = cached(300);
        shown.exports[0].files = vec!["/run/disk".to_owned()];
        let text = line.next(shown);
        assert!(text.starts_with("0 clients  1 file  ") && text.ends_with("hits –"), "{text}");
        let far = |cache_hits| {
            let connection =
                ConnectionStatus { cache_hits, cache_misses: cache_hits / 4, ..Default::default() };
            let mut far = status(4000, 2500);
            far.exports[0].connection = Some(connection);
            far
        };
        line.next(far(100));
        let text = line.next(far(500));
        assert!(text.ends_with("  hits 80 % before NBD servers"), "{text}");
        let text = line.next(far(500));
        assert!(!text.contains("hits"), "no reads: {text}");
        let mut stored = status(5000, 2500);
        let puts = StoreStatus { puts: 30, put_bytes: 3_000_000, gets: 5, ..Default::default() };
        stored.exports[0].store = Some(puts);
        let text = line.next(stored);
        assert!(text.ends_with("  store 30 PUT/s 3.0 MB/s  5 GET/s  0.0 MB unflushed"), "{text}");
    }
}
