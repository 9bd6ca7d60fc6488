//! Deliberate mistakes: tests that do not find them have a gap.

/// A mistake of the layer above the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Canary {
    /// A sync ends after its first iteration: writeback and flush are only in flight.
    SyncDoesNotWait,
    /// A direct write leaves the pages of its range in the cache.
    KeepPages,
    /// A direct write leaves the pages of its range that are being read. While the write is in
    /// flight, other requests may cache pages.
    SkipLocked,
    /// Truncation and direct requests take no place in the order.
    NoOrder,
    /// Every second kick is lost.
    LoseKicks,
}
