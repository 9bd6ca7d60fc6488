//! Checks of the application's pointers, which may be anything.
//!
//! The kernel answers EFAULT for an address that is not there. Asking it each time would cost
//! more than the request, so the process remembers pages that were found good: a program that
//! unmaps or protects such a page and then passes it gets SIGSEGV instead of EFAULT.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use nowait::command::LEN_MAX;
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

/// First address that no user memory has: on x86-64 the last page of 47 bits is one of them.
#[cfg(target_arch = "x86_64")]
const USER_END: u64 = 0x7fff_ffff_f000;
/// First address that no user memory has: on arm64, whose memory has 48 bits, or 52.
#[cfg(target_arch = "aarch64")]
const USER_END: u64 = 1 << 52;

/// Checks that user memory can be where the kernel is asked to read or write, as it does before it
/// looks.
///
/// # Errors
/// `EFAULT`: it cannot.
pub fn check_range(base: u64, len: u64) -> Result<(), Errno> {
    match base.checked_add(len) {
        Some(end) if end <= USER_END => Ok(()),
        _ => Err(Errno::FAULT),
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

/// Pages of a part that are looked at one by one: a longer walk would hold submit up.
const PAGES_MAX: usize = 64;

/// Returns the bytes in `parts` before the first that cannot be read or, if `writable`, written;
/// `None`: all can. Looks at the first and the last byte of each part, and at the first pages of
/// one whose last byte is bad: what lies behind these counts as bad, too.
pub(crate) fn before_bad(parts: &[IoVec], writable: bool) -> Option<usize> {
    let mut before = 0;
    for part in parts {
        // What lies behind the longest transfer is not used.
        let used = part.len.min(LEN_MAX as usize - before);
        let good = good_bytes(part.base as usize, used, writable);
        before += good;
        if good < used {
            return Some(before);
        }
    }
    None
}

/// Returns how many of `len` bytes are good, from the first on.
fn good_bytes(start: usize, len: usize, writable: bool) -> usize {
    if len == 0 || require(start, len, writable).is_ok() {
        return len;
    }
    let first = start / PAGE_SIZE;
    let pages = (first..first + PAGES_MAX).map(|page| start.max(page * PAGE_SIZE));
    let last = pages.take_while(|address| require_byte(*address, writable).is_ok()).last();
    let good = last.map_or(0, |address| (address / PAGE_SIZE + 1) * PAGE_SIZE - start);
    good.min(len - 1)
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
        // Of one that is too long, some pages.
        let far = of(&[good(isize::MAX as usize)]);
        assert!(far.is_some_and(|bytes| (64..=PAGES_MAX * PAGE_SIZE).contains(&bytes)), "{far:?}");
        assert_eq!(of(&[good(64), good(64), good(64)]), None);
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
