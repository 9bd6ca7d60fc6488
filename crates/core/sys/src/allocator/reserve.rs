//! A reserve of memory, so that calls which have begun can end when the system has no more memory.
//!
//! A failed allocation ends the process, except where the code can do without the memory. Threads
//! of the engine allocate memory for a request, and have no caller to whom they could return an
//! error. So a call that would begin a request first checks [`is_there`], and fails with ENOMEM or
//! EAGAIN if it returns `false`; requests that have begun use the reserve. Between two such checks
//! a thread takes at most a few chunks, and a table or list doubles when it grows. The whole
//! reserve is four times the largest table or list, and at least 1 MiB. Half of the reserve is
//! enough to begin a request.

use super::{PAGE, unmap_if_any};
use crate::memory::map;
use core::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// The number of the reserve's first page and, in the lower bits, the count of its pages.
static RESERVE: AtomicU64 = AtomicU64::new(0);
const COUNT_BITS: u32 = 28;
/// The fewest pages of the reserve with which a call may begin a request.
static ENOUGH: AtomicUsize = AtomicUsize::new((512 << 10) / PAGE);

fn split(reserve: u64) -> (usize, usize) {
    let count = reserve & ((1 << COUNT_BITS) - 1);
    ((reserve >> COUNT_BITS) as usize * PAGE, count as usize)
}

fn joined(start: usize, pages: usize) -> u64 {
    ((start / PAGE) as u64) << COUNT_BITS | pages as u64
}

/// Returns `true` if a call may begin a request. If the reserve is low, renews it first; `false`:
/// the kernel has no memory for that.
#[inline]
pub fn is_there() -> bool {
    split(RESERVE.load(Relaxed)).1 >= ENOUGH.load(Relaxed) || renew()
}

/// Returns `true` if the whole reserve is available; if not, renews it first. A call needs the
/// whole reserve to start an engine or a context.
pub fn is_whole() -> bool {
    split(RESERVE.load(Relaxed)).1 >= 2 * ENOUGH.load(Relaxed) || renew()
}

/// Returns `true` if the reserve holds `bytes`; renews it first if it does not.
pub fn holds(bytes: usize) -> bool {
    let pages = bytes.div_ceil(PAGE);
    split(RESERVE.load(Relaxed)).1 >= pages || renew_with(pages.max(2 * ENOUGH.load(Relaxed)))
}

#[cold]
fn renew() -> bool {
    renew_with(2 * ENOUGH.load(Relaxed))
}

fn renew_with(pages: usize) -> bool {
    let Ok(start) = map(pages * PAGE, libc::MAP_PRIVATE) else { return false };
    // The number of a page fits into 36 bits: the kernel maps memory above 48 bits of address only
    // if the program names such an address (x86-64 with five levels of page tables, arm64 with 52
    // bits).
    let (rest, pages) = split(RESERVE.swap(joined(start, pages), AcqRel));
    unmap_if_any(rest, pages * PAGE);
    true
}

#[cold]
pub(super) fn take(len: usize, align: usize) -> Option<usize> {
    let mut seen = RESERVE.load(Acquire);
    loop {
        let (start, pages) = split(seen);
        let at = start.next_multiple_of(align);
        let left = (start + pages * PAGE).checked_sub(at.checked_add(len)?)?;
        match RESERVE.compare_exchange_weak(seen, joined(at + len, left / PAGE), AcqRel, Acquire) {
            Ok(_) => {
                unmap_if_any(start, at - start);
                return Some(at);
            }
            Err(now) => seen = now,
        }
    }
}

/// Records an allocation of `len` bytes: a list needs twice as many when it grows. Ignores
/// allocations larger than any list of requests: a page cache makes these once, and they do not
/// grow.
pub(super) fn note_large(len: usize) {
    const GROWS_TO: usize = 8 << 20;
    if len <= GROWS_TO {
        ENOUGH.fetch_max(2 * len / PAGE, Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::unmap;

    #[test]
    #[cfg_attr(miri, ignore = "no mappings")]
    fn what_is_taken_is_there_once_and_what_is_left_says_so() {
        assert!(is_there());
        let chunk = 128 << 10;
        let (mut taken, mut before) = (Vec::new(), usize::MAX);
        while let Some(start) = take(chunk, chunk) {
            let left = split(RESERVE.load(Relaxed)).1 * PAGE;
            assert!(start.is_multiple_of(chunk) && left + chunk <= before);
            // SAFETY: it was just taken, and is of that size.
            unsafe { (start as *mut u8).write_bytes(taken.len() as u8 + 1, chunk) };
            taken.push(start);
            before = left;
        }
        assert!(taken.len() >= 6, "{}", taken.len());
        assert_eq!(take(2 << 20, PAGE), None);
        for (index, start) in taken.into_iter().enumerate() {
            // SAFETY: as above.
            let bytes = unsafe { core::slice::from_raw_parts(start as *const u8, chunk) };
            assert!(bytes.iter().all(|byte| usize::from(*byte) == index + 1));
            unmap(start, chunk);
        }
        assert!(
            is_there()
                && take(2 * chunk, PAGE).is_some_and(|start| {
                    unmap(start, 2 * chunk);
                    true
                })
        );
    }
}
