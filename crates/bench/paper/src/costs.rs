//! The processor time of each simulated action, in one place.
//!
//! The machine is that of the sources: a Pentium III of 700 MHz (2003). If a figure has a source,
//! its comment names the source. All figures of the tables follow from these costs, the device
//! model and the page cache; no clock is read.

/// A system call, without its work.
pub(crate) const SYSCALL_NS: u64 = 500;

/// A thread sleeps and is woken: two context switches, the scheduler, cold caches.
pub(crate) const SWITCH_NS: u64 = 4_000;

/// A request to the device: block layer, driver, interrupt, completion.
pub(crate) const BLOCK_NS: u64 = 15_000;

/// A 4 KiB page of a request: pinned or mapped, and entered into the list for the adapter.
pub(crate) const PAGE_NS: u64 = 700;

/// A page found in, or put into, the page cache.
pub(crate) const LOOKUP_NS: u64 = 500;

/// A page copied between the page cache and the application: 256 MB/s.
pub(crate) const COPY_PAGE_NS: u64 = 16_000;

/// The cost of a request of the kernel's AIO of 2003, without its device request and its system
/// calls. From the source: with one request at a time, AIO took "20 % to 25 %" more processor time
/// than synchronous calls (OLS 2003, 6.3).
pub(crate) const KAIO_REQUEST_NS: u64 = 4_000;

/// The cost of a request of nowait, without its device request and its system calls. Today a native
/// AIO request costs 414 ns besides its call, at 112 ns a call; scaled to [`SYSCALL_NS`], this is
/// 1.85 µs. For a direct 4 KiB read, nowait takes 1.07 times the processor time of native AIO
/// (measured): 7 % of the whole request is another 1.4 µs.
pub(crate) const OWN_REQUEST_NS: u64 = 3_250;

/// Handing a request to the thread that runs it, with its share of one wakeup for the batch.
pub(crate) const HAND_OVER_NS: u64 = 400;

pub(crate) fn device_ns(bytes: u64) -> u64 {
    BLOCK_NS + PAGE_NS * bytes.div_ceil(4096)
}

pub(crate) fn cached_ns(bytes: u64) -> u64 {
    (LOOKUP_NS + COPY_PAGE_NS) * bytes.div_ceil(4096)
}
