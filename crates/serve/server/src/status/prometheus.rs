//! The counters in the text format of Prometheus.

use core::fmt::Write;
use nowait_status::{ConnectionStatus, ExportStatus, KindStatus, Status, StoreStatus};

/// The bounds of the buckets, in nanoseconds: powers of two from 4 µs to 8 s.
const BOUNDS: core::ops::RangeInclusive<u32> = 12..=33;

/// Returns `status` as text of version 0.0.4.
pub fn metrics(status: &Status) -> String {
    let mut text = String::new();
    let clients = &status.clients;
    let plain = [
        ("clients", "gauge", "Connected clients.", clients.now),
        ("clients_total", "counter", "Clients that have come.", clients.total),
        ("clients_refused_total", "counter", "Clients beyond the limit.", clients.refused),
        ("clients_timed_out_total", "counter", "Clients that did not go on.", clients.timed_out),
        (
            "failed_threads_total",
            "counter",
            "Mistakes of its own; must be 0.",
            status.failed_threads,
        ),
    ];
    for (name, kind, help, value) in plain {
        head(&mut text, name, kind, help);
        let _ = writeln!(text, "nowait_serve_{name} {value}");
    }
    if let Some(cache) = &status.cache {
        let counters = [
            ("cache_hits_total", "Reads that the cache had all for.", cache.hits),
            ("cache_misses_total", "Reads that it had not.", cache.misses),
            ("cache_pages_read_total", "Pages of 4 KiB read into it.", cache.pages_read),
            ("cache_pages_written_total", "Pages of 4 KiB written from it.", cache.pages_written),
        ];
        for (name, help, value) in counters {
            head(&mut text, name, "counter", help);
            let _ = writeln!(text, "nowait_serve_{name} {value}");
        }
    }
    type Gauge = fn(&ExportStatus) -> u64;
    let gauges: [(&str, &str, Gauge); 4] = [
        ("size_bytes", "Size of the export.", |export| export.size),
        ("files", "Files that the export is shown as.", |export| export.files.len() as u64),
        ("connections", "Clients of the export.", |export| export.connections),
        ("in_flight", "Requests in flight.", |export| export.in_flight),
    ];
    for (name, help, value) in gauges {
        head(&mut text, name, "gauge", help);
        for export in &status.exports {
            let (label, value) = (escape(&export.name), value(export));
            let _ = writeln!(text, "nowait_serve_{name}{{export=\"{label}\"}} {value}");
        }
    }
    type Counter = fn(&KindStatus) -> u64;
    let counters: [(&str, &str, Counter); 3] = [
        ("requests_total", "Requests that ended.", |kind| kind.requests),
        ("bytes_total", "Bytes of requests that did not fail.", |kind| kind.bytes),
        ("errors_total", "Requests that failed.", |kind| kind.errors),
    ];
    for (name, help, value) in counters {
        head(&mut text, name, "counter", help);
        each_kind(status, |label, kind| {
            let _ = writeln!(text, "nowait_serve_{name}{{{label}}} {}", value(kind));
        });
    }
    latencies(&mut text, status);
    stores(&mut text, status);
    connections(&mut text, status);
    text
}

/// A metric: its name, its type, its description, and the function that returns its value.
type Row<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

fn stores(text: &mut String, status: &Status) {
    let rows: [Row<StoreStatus>; 12] = [
        ("store_puts_total", "counter", "PUTs to the store.", |it| it.puts),
        ("store_put_bytes_total", "counter", "Bytes of the PUTs.", |it| it.put_bytes),
        ("store_gets_total", "counter", "GETs from the store.", |it| it.gets),
        ("store_got_bytes_total", "counter", "Bytes asked for by GETs.", |it| it.got_bytes),
        ("store_deletes_total", "counter", "DELETEs of the store.", |it| it.deletes),
        ("store_failures_total", "counter", "Requests without a good answer.", |it| it.failures),
        ("store_moved_bytes_total", "counter", "Live bytes moved to free others.", |it| {
            it.moved_bytes
        }),
        ("store_segments_collected_total", "counter", "Segments freed by moving.", |it| {
            it.segments_collected
        }),
        ("store_cache_hits_total", "counter", "Reads the cache has answered.", |it| it.cache_hits),
        ("store_cache_misses_total", "counter", "Reads it has not.", |it| it.cache_misses),
        ("store_cache_aside", "gauge", "The disk of the cache does not answer.", |it| {
            it.cache_is_aside.into()
        }),
        ("store_unflushed_bytes", "gauge", "Bytes written, not durable.", |it| it.unflushed_bytes),
    ];
    each_export(text, status, &rows, |export| export.store.as_ref());
}

fn connections(text: &mut String, status: &Status) {
    let rows: [Row<ConnectionStatus>; 6] = [
        ("backing_up", "gauge", "There is a connection to the server.", |it| it.is_up.into()),
        ("backing_reconnects_total", "counter", "Connections after the first.", |it| it.reconnects),
        ("backing_repeated_total", "counter", "Requests asked again.", |it| it.repeated),
        ("backing_kept_bytes", "gauge", "Bytes kept to be written again.", |it| it.kept_bytes),
        ("backing_cache_hits_total", "counter", "Reads the cache has answered.", |it| {
            it.cache_hits
        }),
        ("backing_cache_misses_total", "counter", "Reads it has not.", |it| it.cache_misses),
    ];
    each_export(text, status, &rows, |export| export.connection.as_ref());
}

fn each_export<T>(
    text: &mut String,
    status: &Status,
    rows: &[Row<T>],
    of: fn(&ExportStatus) -> Option<&T>,
) {
    let with = status.exports.iter().filter_map(|export| Some((escape(&export.name), of(export)?)));
    let with: Vec<_> = with.collect();
    for (name, kind, help, value) in rows.iter().filter(|_| !with.is_empty()) {
        head(text, name, kind, help);
        for (label, it) in &with {
            let _ = writeln!(text, "nowait_serve_{name}{{export=\"{label}\"}} {}", value(it));
        }
    }
}

fn latencies(text: &mut String, status: &Status) {
    const NAME: &str = "request_duration_seconds";
    head(text, NAME, "histogram", "From the arrival of a request to its end.");
    each_kind(status, |label, kind| {
        let below = |bound_ns: u64| -> u64 {
            let inside = kind.latency_ns.iter().filter(|entry| entry.0 <= bound_ns);
            inside.map(|entry| entry.1).sum()
        };
        for power in BOUNDS {
            let bound_ns = 1u64 << power;
            let (le, count) = (bound_ns as f64 / 1e9, below(bound_ns));
            let _ = writeln!(text, "nowait_serve_{NAME}_bucket{{{label},le=\"{le}\"}} {count}");
        }
        let count = below(u64::MAX);
        // The values inside a bucket are unknown, so each counts as the upper end of its bucket.
        // The sum is too large by an eighth at most.
        let sum_ns: u64 = kind.latency_ns.iter().map(|(upper, count)| upper * count).sum();
        let _ = writeln!(text, "nowait_serve_{NAME}_bucket{{{label},le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "nowait_serve_{NAME}_sum{{{label}}} {}", sum_ns as f64 / 1e9);
        let _ = writeln!(text, "nowait_serve_{NAME}_count{{{label}}} {count}");
    });
}

fn each_kind(status: &Status, mut each: impl FnMut(&str, &KindStatus)) {
    for export in &status.exports {
        for kind in &export.kinds {
            let label = format!("export=\"{}\",kind=\"{}\"", escape(&export.name), kind.kind);
            each(&label, kind);
        }
    }
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP nowait_serve_{name} {help}");
    let _ = writeln!(text, "# TYPE nowait_serve_{name} {kind}");
}

fn escape(label: &str) -> String {
    label.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_status::CacheStatus;

    #[test]
    fn names_are_escaped_and_buckets_add_up() {
        let read = KindStatus {
            kind: "read".to_owned(),
            requests: 3,
            latency_ns: vec![(4000, 2), (1 << 40, 1)],
            ..KindStatus::default()
        };
        let export = ExportStatus {
            name: "a\"b".to_owned(),
            size: 512,
            kinds: vec![read],
            ..ExportStatus::default()
        };
        let cache = Some(CacheStatus { hits: 7, ..CacheStatus::default() });
        let store = Some(StoreStatus { puts: 5, ..StoreStatus::default() });
        let stored = ExportStatus { name: "s".to_owned(), store, ..ExportStatus::default() };
        let connection =
            Some(ConnectionStatus { is_up: true, cache_hits: 9, ..ConnectionStatus::default() });
        let remote = ExportStatus { name: "r".to_owned(), connection, ..ExportStatus::default() };
        let exports = vec![export, stored, remote];
        let text = metrics(&Status { cache, exports, ..Status::default() });
        assert_eq!(text.matches("nowait_serve_store_puts_total{").count(), 1);
        let label = "export=\"a\\\"b\"";
        for line in [
            "nowait_serve_cache_hits_total 7".to_owned(),
            "nowait_serve_store_puts_total{export=\"s\"} 5".to_owned(),
            "nowait_serve_backing_up{export=\"r\"} 1".to_owned(),
            "nowait_serve_backing_cache_hits_total{export=\"r\"} 9".to_owned(),
            format!("nowait_serve_files{{{label}}} 0"),
            format!("nowait_serve_size_bytes{{{label}}} 512"),
            format!("nowait_serve_requests_total{{{label},kind=\"read\"}} 3"),
            format!(
                "nowait_serve_request_duration_seconds_bucket{{{label},kind=\"read\",\
                 le=\"0.000004096\"}} 2"
            ),
            format!(
                "nowait_serve_request_duration_seconds_bucket{{{label},kind=\"read\",\
                 le=\"+Inf\"}} 3"
            ),
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
