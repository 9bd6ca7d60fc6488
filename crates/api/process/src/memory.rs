//! Checks of the application's pointers, which may be anything.
//!
//! The kernel answers EFAULT for an address that is not there. Asking it each time would cost
//! more than the request, so the process remembers pages that were found good: a program that
//! unmaps or protects such a page and then passes it gets SIGSEGV instead of EFAULT.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use nowait_sys::{
    Errno,
    file::IoVec,
    memory::{PAGE_SIZE, check_readable, check_writable},
};

/// A program has its buffers in turn, and each has two pages that are looked at.
const SLOTS: usize = 512;

/// Pages found good, by a hash of their number: buffers lie at powers of two.
static GOOD: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// A page number, and in the lowest bit whether the page may be written. Page 0 is never good.
#[derive(Clone, Copy)]
struct Page(usize);

impl Page {
    fn new(number: usize, writable: bool) -> Page {
        Page(number << 1 | usize::from(writable))
    }

    /// Tells whether what was found good is good for `asked`, too.
    fn serves(self, asked: Page) -> bool {
        asked.0 > 1 && (self.0 == asked.0 || self.0 == asked.0 | 1)
    }

    fn slot(self) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = (self.0 as u64 >> 1).wrapping_mul(FACTOR);
        (hash >> (u64::BITS - SLOTS.ilog2())) as usize
    }
}

/// Reads a `T` from `address`.
///
/// # Errors
/// `EFAULT`: not readable memory.
/// # Safety
/// `T` is plain data, valid for any bits.
pub unsafe fn read<T: Copy>(address: usize) -> Result<T, Errno> {
    require(address, size_of::<T>(), false)?;
    // SAFETY: every page of the range was found readable; alignment is not assumed.
    Ok(unsafe { (address as *const T).read_unaligned() })
}

/// Writes `value` to `address`.
///
/// # Errors
/// `EFAULT`: not writable memory.
/// # Safety
/// The application has given the memory at `address` to be overwritten.
pub unsafe fn write<T: Copy>(address: usize, value: T) -> Result<(), Errno> {
    require(address, size_of::<T>(), true)?;
    // SAFETY: every page of the range was found writable; it is the application's to give.
    unsafe { (address as *mut T).write_unaligned(value) };
    Ok(())
}

/// Returns the bytes in `parts` before the first that cannot be read or, if `writable`, written;
/// `None`: all can. Looks at the first and the last byte of each part, and at each page of one
/// whose last byte is bad.
pub(crate) fn before_bad(parts: &[IoVec], writable: bool) -> Option<usize> {
    let mut before = 0;
    for part in parts {
        let good = good_bytes(part, writable);
        before += good;
        if good < part.len {
            return Some(before);
        }
    }
    None
}

/// Returns how many bytes of a part are good, from its first on.
fn good_bytes(part: &IoVec, writable: bool) -> usize {
    let (start, len) = (part.base as usize, part.len);
    if len == 0 || require(start, len, writable).is_ok() {
        return len;
    }
    let pages = start / PAGE_SIZE..=start.saturating_add(len - 1) / PAGE_SIZE;
    let addresses = pages.map(|page| start.max(page * PAGE_SIZE));
    let bad = addresses.into_iter().find(|address| require_byte(*address, writable).is_err());
    bad.map_or(len, |address| address - start)
}

fn require(address: usize, len: usize, writable: bool) -> Result<(), Errno> {
    let last = address.checked_add(len - 1).ok_or(Errno::FAULT)?;
    require_byte(address, writable)?;
    if last / PAGE_SIZE != address / PAGE_SIZE {
        require_byte(last, writable)?;
    }
    Ok(())
}

fn require_byte(address: usize, writable: bool) -> Result<(), Errno> {
    let page = Page::new(address / PAGE_SIZE, writable);
    let slot = &GOOD[page.slot()];
    if Page(slot.load(Relaxed)).serves(page) {
        return Ok(());
    }
    match writable {
        true => check_writable(address)?,
        false => check_readable(address)?,
    }
    slot.store(page.0, Relaxed);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn good_memory_works_and_bad_memory_is_efault() {
        let mut value = 7u64;
        let address = core::ptr::from_mut(&mut value) as usize;
        // SAFETY: the address is that of a live local.
        unsafe {
            assert_eq!(read::<u64>(address), Ok(7));
            write(address, 8u64).unwrap();
            assert_eq!(read::<u64>(0), Err(Errno::FAULT));
            assert_eq!(read::<u64>(usize::MAX), Err(Errno::FAULT));
            assert_eq!(write(8, 1u64), Err(Errno::FAULT));
        }
        assert_eq!(value, 8);
    }

    #[test]
    fn parts_are_good_up_to_the_first_bad_one() {
        let mut bytes = [0u8; 64];
        let base = bytes.as_mut_ptr();
        let good = |len| IoVec { base, len };
        let bad = |len| IoVec { base: core::ptr::without_provenance_mut(4096), len };
        let of = |parts: &[IoVec]| before_bad(parts, true);
        assert_eq!(of(&[good(64), bad(0), good(8)]), None);
        assert_eq!(of(&[good(40), good(24), bad(1), good(8)]), Some(64));
        assert_eq!(of(&[bad(1), good(8)]), Some(0));
        assert_eq!(of(&[]), None);
        // Nothing is mapped there: a program's memory begins above.
        let across = IoVec { base: core::ptr::without_provenance_mut(PAGE_SIZE - 8), len: 16 };
        assert_eq!(of(&[good(3), across]), Some(3));
        let far = isize::MAX as usize;
        assert!(matches!(of(&[good(far)]), Some(bytes) if bytes >= 64 && bytes < far));
    }

    #[test]
    fn the_pages_of_large_buffers_have_places_of_their_own() {
        const BUFFERS: usize = 64;
        let start = 0x7f12_3456_7000 / PAGE_SIZE;
        for pages in [1, 2, 16, 256] {
            let ends = (0..BUFFERS).flat_map(|at| [at * pages, (at + 1) * pages - 1]);
            let ends: HashSet<_> = ends.map(|page| Page::new(start + page, true).0).collect();
            let places: HashSet<_> = ends.iter().map(|page| Page(*page).slot()).collect();
            let (ends, places) = (ends.len(), places.len());
            assert!(places * 4 >= ends * 3, "{places} of {ends}, {pages} pages each");
        }
    }

    #[test]
    fn what_was_written_may_be_read_and_not_the_reverse() {
        let [read, written] = [false, true].map(|writable| Page::new(7, writable));
        assert!(written.serves(read) && read.serves(read) && !read.serves(written));
        assert!(!Page::new(0, false).serves(Page::new(0, true)) && !Page(0).serves(Page(0)));
    }

    #[test]
    fn read_only_memory_is_efault_to_write() {
        static CONSTANT: [u64; 4] = [1; 4];
        let address = CONSTANT.as_ptr() as usize;
        // SAFETY: the write must fail before it touches anything.
        unsafe {
            assert_eq!(read::<u64>(address), Ok(1));
            assert_eq!(write(address, 1u64), Err(Errno::FAULT));
        }
    }
}
