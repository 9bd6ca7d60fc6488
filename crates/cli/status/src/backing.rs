//! Counters of an image on an object store, and of the connection to an NBD server.

use serde::{Deserialize, Serialize};

/// State and counters of an image on an object store. The counters begin at 0 when `nowait serve`
/// opens the image.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreStatus {
    /// `serving, epoch 3`, or another state of the image, such as the reason why all requests fail.
    pub state: String,
    /// PUT requests to the store.
    pub puts: u64,
    /// Bytes of the PUT requests.
    pub put_bytes: u64,
    /// GET requests to the store.
    pub gets: u64,
    /// Bytes that the GET requests asked for.
    pub got_bytes: u64,
    /// DELETE requests to the store.
    pub deletes: u64,
    /// Requests to the store that failed; the server repeats most of them.
    pub failures: u64,
    /// The reason of the last failure of a request to the store.
    pub last_error: Option<String>,
    /// Segments of the log whose live data the server has moved, or clients have replaced.
    pub segments_collected: u64,
    /// Bytes of the moved data; the bytes of the PUT requests include them.
    pub moved_bytes: u64,
    /// Bytes of written and moved data that are not durable yet.
    pub unflushed_bytes: u64,
    /// Reads of data that the cache has answered; 0 if the image has no cache.
    #[serde(default)]
    pub cache_hits: u64,
    /// Reads of data that the store had to answer; 0 if the image has no cache.
    #[serde(default)]
    pub cache_misses: u64,
    /// The server does not read the cache now, because the disk of the cache's folder does not
    /// answer.
    #[serde(default)]
    pub cache_is_aside: bool,
}

/// State and counters of the connection to an NBD server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConnectionStatus {
    /// The connection exists now.
    pub is_up: bool,
    /// Connections that the client made after its first one.
    pub reconnects: u64,
    /// Acknowledged changes that the client repeated on a later connection.
    pub repeated: u64,
    /// Bytes of changes that the client keeps to repeat, because they are not durable yet.
    pub kept_bytes: u64,
    /// Reads that the cache has answered; 0 if there is no cache.
    #[serde(default)]
    pub cache_hits: u64,
    /// Reads that the server had to answer; 0 if there is no cache.
    #[serde(default)]
    pub cache_misses: u64,
}

impl StoreStatus {
    /// Returns the percentage of reads that the cache answered; `None`: no reads, or no cache.
    pub fn hit_percent(&self) -> Option<u64> {
        (self.cache_hits * 100).checked_div(self.cache_hits + self.cache_misses)
    }

    /// Returns the increase of the counters since `before`; the other fields keep their values.
    #[must_use]
    pub fn since(&self, before: &StoreStatus) -> StoreStatus {
        StoreStatus {
            puts: self.puts.saturating_sub(before.puts),
            put_bytes: self.put_bytes.saturating_sub(before.put_bytes),
            gets: self.gets.saturating_sub(before.gets),
            got_bytes: self.got_bytes.saturating_sub(before.got_bytes),
            deletes: self.deletes.saturating_sub(before.deletes),
            failures: self.failures.saturating_sub(before.failures),
            segments_collected: self.segments_collected.saturating_sub(before.segments_collected),
            moved_bytes: self.moved_bytes.saturating_sub(before.moved_bytes),
            cache_hits: self.cache_hits.saturating_sub(before.cache_hits),
            cache_misses: self.cache_misses.saturating_sub(before.cache_misses),
            ..self.clone()
        }
    }
}

impl ConnectionStatus {
    /// Like [`StoreStatus::hit_percent`], of the reads since `before`.
    pub fn hit_percent_since(&self, before: &ConnectionStatus) -> Option<u64> {
        let hits = self.cache_hits.saturating_sub(before.cache_hits);
        let misses = self.cache_misses.saturating_sub(before.cache_misses);
        (hits * 100).checked_div(hits + misses)
    }
}
