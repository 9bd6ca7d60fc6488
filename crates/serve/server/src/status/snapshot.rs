//! Copies the counters of a server.

use super::backing;
use crate::server::View;
use nowait_device::{Image, Kind};
use nowait_status::{CacheStatus, ClientsStatus, ExportStatus, KindStatus, Status};
use std::{process, sync::Arc, time::Instant};

/// Copies the counters of `server`, which was started at `started`.
pub fn snapshot(server: &View, started: Instant) -> Status {
    let clients = server.clients();
    Status {
        schema: Status::SCHEMA,
        pid: process::id(),
        uptime_ms: u64::try_from(started.elapsed().as_millis()).unwrap_or(u64::MAX),
        backend: server.backend().to_owned(),
        failed_threads: server.shared().nowait.failed_threads(),
        cache: server.cache().map(|counts| CacheStatus {
            hits: counts.reads_cached,
            misses: counts.reads_missed,
            pages_read: counts.pages_read,
            pages_written: counts.pages_written,
        }),
        clients: ClientsStatus {
            now: clients.now() as u64,
            total: clients.total(),
            refused: clients.refused(),
            timed_out: clients.timed_out(),
        },
        exports: server.images().iter().map(|image| export(server, image)).collect(),
    }
}

fn export(server: &View, image: &Arc<Image>) -> ExportStatus {
    let files = server.files_of(image);
    let counted = |kind: &Kind| {
        let counted = image.stats().of(*kind);
        KindStatus {
            kind: kind.name().to_owned(),
            requests: counted.requests,
            bytes: counted.bytes,
            errors: counted.errors,
            latency_ns: counted.latency.entries(),
        }
    };
    let kinds = Kind::ALL.iter().map(counted).filter(|kind| kind.requests > 0);
    ExportStatus {
        name: image.name().to_owned(),
        path: image.file().path().display().to_string(),
        size: image.size(),
        read_only: image.properties().read_only,
        files: files.iter().map(|path| path.display().to_string()).collect(),
        connections: image.stats().connections(),
        in_flight: image.stats().in_flight(),
        kinds: kinds.collect(),
        store: backing::store(&**image.file()),
        connection: backing::connection(&**image.file()),
    }
}
