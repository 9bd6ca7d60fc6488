//! Checks of the application's pointers, which may have any value.
//!
//! The kernel answers EFAULT for an address that is not mapped. Asking the kernel each time would
//! be slow, so the process remembers pages that it has checked. A program that unmaps or protects a
//! remembered page, and then passes an address in it, may get SIGSEGV instead of EFAULT.

use core::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use nowait_sys::{
    Errno,
    memory::{PAGE_SIZE, check_readable, check_writable},
};

/// If a program uses two pages in turn that share a slot, each use costs a system call.
const SLOTS: usize = 8192;

/// Checked pages, each in the slot that a hash of its number chooses: without a hash, buffers at
/// equal distances of a power of two would share slots.
static GOOD: [AtomicUsize; SLOTS] = [const { AtomicUsize::new(0) }; SLOTS];

/// A page number, shifted left by one bit; the lowest bit is set if the page may be written. Page 0
/// is never valid.
#[derive(Clone, Copy)]
struct Page(usize);

impl Page {
    fn new(number: usize, writable: bool) -> Page {
        Page(number << 1 | usize::from(writable))
    }

    /// A page that was checked for writing also answers for reading.
    fn serves(self, asked: Page) -> bool {
        asked.0 > 1 && (self.0 == asked.0 || self.0 == asked.0 | 1)
    }

    fn slot(self) -> usize {
        const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;
        let hash = (self.0 as u64 >> 1).wrapping_mul(FACTOR);
        (hash >> (u64::BITS - SLOTS.ilog2())) as usize
    }
}

/// First address that user memory cannot have: x86-64 excludes the last page of the 47 bits.
#[cfg(target_arch = "x86_64")]
const USER_END: u64 = 0x7fff_ffff_f000;
/// On arm64 user addresses have 48 or 52 bits: no user memory is at this address or above.
#[cfg(target_arch = "aarch64")]
const USER_END: u64 = 1 << 52;

/// Checks that the range is in the address range of user memory, as the kernel does before it reads
/// or writes.
///
/// # Errors
/// `EFAULT`: a part of the range is outside.
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
    // SAFETY: every page of the range was checked to be readable; alignment is not assumed.
    Ok(unsafe { (address as *const T).read_unaligned() })
}

/// Writes `value` to `address`.
///
/// # Errors
/// `EFAULT`: not writable memory.
/// # Safety
/// The application passed the memory at `address` to be overwritten.
pub unsafe fn write<T: Copy>(address: usize, value: T) -> Result<(), Errno> {
    require(address, size_of::<T>(), true)?;
    // SAFETY: every page of the range was checked to be writable, and the caller may overwrite it.
    unsafe { (address as *mut T).write_unaligned(value) };
    Ok(())
}

#[inline]
fn require(address: usize, len: usize, writable: bool) -> Result<(), Errno> {
    let last = address.checked_add(len - 1).ok_or(Errno::FAULT)?;
    require_page(address / PAGE_SIZE, writable)?;
    if last / PAGE_SIZE != address / PAGE_SIZE {
        require_page(last / PAGE_SIZE, writable)?;
    }
    Ok(())
}

#[inline]
fn require_page(number: usize, writable: bool) -> Result<(), Errno> {
    let page = Page::new(number, writable);
    let slot = &GOOD[page.slot()];
    if Page(slot.load(Relaxed)).serves(page) { Ok(()) } else { check(page, slot) }
}

#[cold]
fn check(page: Page, slot: &AtomicUsize) -> Result<(), Errno> {
    let address = (page.0 >> 1) * PAGE_SIZE;
    match page.0 & 1 {
        0 => check_readable(address)?,
        _ => check_writable(address)?,
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
        // SAFETY: the address of a live local.
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
    fn pages_at_equal_distances_have_places_of_their_own() {
        const PLACES: usize = 64;
        let start = 0x7f12_3456_7000 / PAGE_SIZE;
        for pages in [1, 2, 16, 256] {
            let ends = (0..PLACES).flat_map(|at| [at * pages, (at + 1) * pages - 1]);
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
