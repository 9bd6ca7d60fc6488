//! The counters of the store or NBD server behind an image.

use nowait_device::{Remote, Source};
use nowait_image_store::Object;
use nowait_status::{ConnectionStatus, StoreStatus};

pub(super) fn store(source: &dyn Source) -> Option<StoreStatus> {
    let image = source.downcast::<Object>()?.image();
    let figures = image.figures();
    Some(StoreStatus {
        state: image.status().to_string(),
        puts: figures.costs.puts,
        put_bytes: figures.costs.bytes_put,
        gets: figures.costs.gets,
        got_bytes: figures.costs.bytes_got,
        deletes: figures.costs.deletes,
        failures: figures.failures,
        last_error: image.last_error(),
        segments_collected: figures.costs.segments_collected,
        moved_bytes: figures.costs.bytes_moved,
        unflushed_bytes: figures.unflushed_bytes,
        cache_hits: figures.cache.hits,
        cache_misses: figures.cache.misses,
        cache_is_aside: image.is_cache_aside(),
    })
}

pub(super) fn connection(source: &dyn Source) -> Option<ConnectionStatus> {
    let counts = source.downcast::<Remote>()?.counts();
    Some(ConnectionStatus {
        is_up: counts.is_up,
        reconnects: counts.reconnects,
        repeated: counts.repeated,
        kept_bytes: counts.kept_bytes,
        cache_hits: counts.cache.hits,
        cache_misses: counts.cache.misses,
    })
}
