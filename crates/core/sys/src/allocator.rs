//! An allocator that is independent of malloc.
//!
//! A signal handler of the program may have interrupted malloc or free, whose lock then waits for
//! the handler to return; and that may call `_exit`, or aio_suspend, and wait for a request. What
//! the request takes and gives back on its way must not need that lock, on any thread.
//!
//! So the preload library takes its memory from a region of its own: pieces of 44 sizes, each with
//! a list of free ones, which threads take from and give to without a lock. Larger ones are
//! mappings. What was once taken for pieces stays: as much as is used at a time.

use crate::{
    memory::{map, unmap},
    sys,
};
use core::{
    alloc::{GlobalAlloc, Layout},
    ptr::null_mut,
    sync::atomic::{
        AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};
use std::alloc::System;

/// The allocator of a library that lives in other people's processes.
#[derive(Debug)]
pub struct Allocator;

/// Addresses in the region are counted in units of so many bytes, by 32 bits.
const UNIT: usize = 16;
const REGION: usize = 32 << 30;
const REGION_MIN: usize = 16 << 20;
/// So much of the region is made usable at a time.
const STEP: usize = 1 << 20;
/// So much is made into pieces of one size at a time, unless a piece is larger.
const RUN: usize = 16 << 10;
/// Pieces have up to so many bytes.
const PIECE_MAX: usize = 64 << 10;
const PAGE: usize = 4096;
const SIZES: usize = 44;

/// Free pieces of one size: the first one's number in units, 0 for none, and how often that was
/// changed, in the upper half. A line of the processor's cache.
#[repr(align(64))]
struct Free(AtomicU64);

static FREE: [Free; SIZES] = [const { Free(AtomicU64::new(0)) }; SIZES];
/// Where the region begins, 0 until there is one, 1 if there can be none.
static START: AtomicUsize = AtomicUsize::new(0);
static LEN: AtomicUsize = AtomicUsize::new(0);
/// The part that was made into pieces, and the part that is usable.
static USED: AtomicUsize = AtomicUsize::new(PAGE);
static USABLE: AtomicUsize = AtomicUsize::new(0);

/// Returns the size of pieces for a layout: its place in the list, and the bytes. Multiples of 16
/// up to 128, then four for each doubling.
#[inline]
fn size_of(layout: Layout) -> Option<(usize, usize)> {
    let mut len = layout.size().max(1);
    if len > PIECE_MAX || layout.align() > PAGE {
        return None;
    }
    loop {
        let (index, size) = if len <= 128 {
            let index = len.div_ceil(UNIT) - 1;
            (index, (index + 1) * UNIT)
        } else {
            let last = len - 1;
            let top = last.ilog2() as usize;
            let shift = top - 2;
            (8 + (top - 7) * 4 + ((last >> shift) & 3), ((last >> shift) + 1) << shift)
        };
        // Runs begin at a page, so a piece is aligned as its size is.
        if size & (layout.align() - 1) == 0 || layout.align() <= UNIT {
            return Some((index, size));
        }
        len = size + 1;
        if len > PIECE_MAX {
            return None;
        }
    }
}

fn is_of_the_region(address: *mut u8) -> bool {
    (address as usize).wrapping_sub(START.load(Relaxed)) < LEN.load(Relaxed)
}

/// Returns where the piece with this number lies.
fn piece(number: u32) -> *mut u8 {
    (START.load(Relaxed) + number as usize * UNIT) as *mut u8
}

/// Takes a free piece.
#[inline]
fn pop(index: usize) -> Option<*mut u8> {
    let free = &FREE[index].0;
    let mut seen = free.load(Acquire);
    loop {
        let first = seen as u32;
        if first == 0 {
            return None;
        }
        // SAFETY: pieces stay usable for ever. If another thread has taken this one meanwhile, what
        // is read is of its user, and the exchange fails by the count.
        let next = unsafe { piece(first).cast::<u32>().read_volatile() };
        let changed = (seen >> 32).wrapping_add(1) << 32 | u64::from(next);
        match free.compare_exchange_weak(seen, changed, AcqRel, Acquire) {
            Ok(_) => return Some(piece(first)),
            Err(now) => seen = now,
        }
    }
}

/// Gives pieces back that are linked from `first` to `last`.
#[inline]
fn push(index: usize, first: *mut u8, last: *mut u8) {
    let free = &FREE[index].0;
    let number = ((first as usize - START.load(Relaxed)) / UNIT) as u64;
    let mut seen = free.load(Relaxed);
    loop {
        // SAFETY: the piece is the caller's.
        unsafe { last.cast::<u32>().write_volatile(seen as u32) };
        let changed = (seen >> 32).wrapping_add(1) << 32 | number;
        match free.compare_exchange_weak(seen, changed, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => seen = now,
        }
    }
}

/// Makes new pieces of a size, and returns one of them; null when the region is used up.
#[cold]
fn make(index: usize, size: usize) -> *mut u8 {
    let len = RUN.max(size.next_multiple_of(PAGE));
    let start = region();
    if start == 0 {
        return null_mut();
    }
    let from = USED.fetch_add(len, Relaxed);
    if from + len > LEN.load(Acquire) || !make_usable(start, from + len) {
        return null_mut();
    }
    let run = (start + from) as *mut u8;
    let count = len / size;
    let at = |nth: usize| run.wrapping_add(nth * size);
    for nth in 1..count.saturating_sub(1) {
        let number = (at(nth + 1) as usize - start) / UNIT;
        // SAFETY: a piece of the run, which no other thread knows yet.
        unsafe { at(nth).cast::<u32>().write_volatile(number as u32) };
    }
    if count > 1 {
        push(index, at(1), at(count - 1));
    }
    run
}

/// Makes the region usable up to `end`. Several threads may, at once.
fn make_usable(start: usize, end: usize) -> bool {
    let mut usable = USABLE.load(Acquire);
    while usable < end {
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let more = STEP.min(LEN.load(Relaxed) - usable);
        // SAFETY: a part of the region, which is reserved; what is in use there stays as it is.
        let made = unsafe { sys!(libc::SYS_mprotect, start + usable, more, protection) };
        if made.is_err() {
            return false;
        }
        usable = USABLE.fetch_max(usable + more, AcqRel).max(usable + more);
    }
    true
}

/// Returns where the region begins, reserved at first use: addresses only, and fewer where those
/// are limited (RLIMIT_AS). 0: there is none.
fn region() -> usize {
    match START.load(Acquire) {
        0 => {}
        1 => return 0,
        start => return start,
    }
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let mut len = REGION;
    while len >= REGION_MIN {
        // SAFETY: a new mapping at an address of the kernel's choice disturbs nothing.
        let made = unsafe { sys!(libc::SYS_mmap, 0, len, libc::PROT_NONE, flags, -1isize, 0) };
        if let Ok(start) = made {
            return match START.compare_exchange(0, start, AcqRel, Acquire) {
                Ok(_) => {
                    // Until then others find no room in it.
                    LEN.store(len, Release);
                    start
                }
                Err(other) => {
                    unmap(start, len);
                    if other == 1 { 0 } else { other }
                }
            };
        }
        len /= 2;
    }
    let _ = START.compare_exchange(0, 1, AcqRel, Acquire);
    match START.load(Acquire) {
        1 => 0,
        start => start,
    }
}

/// Returns the bytes of the mapping for a layout that is too large for a piece; `None`: its
/// alignment is the system's business.
fn mapped(layout: Layout) -> Option<usize> {
    (layout.align() <= PAGE).then(|| layout.size().next_multiple_of(PAGE))
}

// SAFETY: pieces are aligned, and each is of one user at a time, as the lists have it; mappings are
// the kernel's. What the region has no room for is the system's, and goes back to it.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if let Some((index, size)) = size_of(layout) {
            let taken = pop(index).unwrap_or_else(|| make(index, size));
            if !taken.is_null() {
                return taken;
            }
        } else if let Some(len) = mapped(layout) {
            return map(len, libc::MAP_PRIVATE).map_or(null_mut(), |start| start as *mut u8);
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; the memory is of that size.
        unsafe {
            let taken = self.alloc(layout);
            let is_new = size_of(layout).is_none() && mapped(layout).is_some();
            if !taken.is_null() && !is_new {
                taken.write_bytes(0, layout.size());
            }
            taken
        }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        match size_of(layout) {
            Some((index, _)) if is_of_the_region(address) => push(index, address, address),
            None if mapped(layout).is_some() => {
                unmap(address as usize, layout.size().next_multiple_of(PAGE));
            }
            // SAFETY: the caller's promise; it came from there.
            _ => unsafe { System.dealloc(address, layout) },
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the alignment is that of a layout, the length the caller's promise; the two
        // pieces are apart, or the same.
        unsafe {
            let wanted = Layout::from_size_align_unchecked(len, layout.align());
            let size = size_of(layout);
            if size.is_some() && size == size_of(wanted) && is_of_the_region(address) {
                return address;
            }
            let new = self.alloc(wanted);
            if !new.is_null() {
                new.copy_from_nonoverlapping(address, layout.size().min(len));
                self.dealloc(address, layout);
            }
            new
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(size: usize, align: usize) -> Layout {
        Layout::from_size_align(size, align).unwrap()
    }

    #[test]
    fn sizes_grow_and_pieces_hold_what_they_are_for() {
        let mut before = (0, UNIT);
        for len in 1..=PIECE_MAX {
            let (index, size) = size_of(layout(len, 1)).unwrap();
            assert!(size >= len && index < SIZES && size.is_multiple_of(UNIT), "{len}");
            assert!(size == before.1 || index == before.0 + 1 && size > before.1, "{len}");
            before = (index, size);
        }
        assert_eq!(before.0, SIZES - 1);
        assert_eq!(size_of(layout(PIECE_MAX + 1, 1)), None);
        for align in [32, 64, 256, 4096] {
            let (_, size) = size_of(layout(100, align)).unwrap();
            assert!(size.is_multiple_of(align), "{align}");
        }
    }

    /// Threads give to each other what they have taken, and find it as they have filled it.
    #[test]
    #[cfg_attr(miri, ignore = "a region of gibibytes")]
    fn no_piece_has_two_users() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 4_000;
        assert_ne!(region(), 0, "made by one of them, others would use the system's meanwhile");
        let (send, receive) = std::sync::mpsc::channel::<(usize, usize, u8)>();
        let receive = std::sync::Mutex::new(receive);
        let check = |(address, size, mark): (usize, usize, u8)| {
            // SAFETY: filled by its taker, and given away.
            let bytes = unsafe { core::slice::from_raw_parts(address as *const u8, size) };
            assert!(bytes.iter().all(|byte| *byte == mark), "{size} bytes of another");
            // SAFETY: taken with this layout, and given back once.
            unsafe { Allocator.dealloc(address as *mut u8, layout(size, 16)) };
        };
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let (send, receive) = (send.clone(), &receive);
                scope.spawn(move || {
                    let mut dice = 88_172_645_463_325_252 + thread;
                    for round in 0..ROUNDS {
                        dice ^= dice << 13;
                        dice ^= dice >> 7;
                        dice ^= dice << 17;
                        let size =
                            1 + (dice % [64, 600, 5000, 100_000][dice as usize % 4]) as usize;
                        // SAFETY: not empty; filled before it is read.
                        let taken = unsafe { Allocator.alloc(layout(size, 16)) };
                        assert!(size > PIECE_MAX || is_of_the_region(taken));
                        let mark = (thread * 64 + round % 64) as u8;
                        // SAFETY: of that size.
                        unsafe { taken.write_bytes(mark, size) };
                        send.send((taken as usize, size, mark)).unwrap();
                        let other = receive.lock().unwrap().try_recv();
                        other.into_iter().for_each(check);
                    }
                });
            }
        });
        drop(send);
        receive.into_inner().unwrap().into_iter().for_each(check);
    }

    #[test]
    #[cfg_attr(miri, ignore = "a region of gibibytes")]
    fn what_grows_keeps_its_bytes() {
        // SAFETY: layouts are not empty; memory is filled before it is read, and given back once.
        unsafe {
            let mut len = 10;
            let mut memory = Allocator.alloc_zeroed(layout(len, 64));
            while len < 1_000_000 {
                let bytes = core::slice::from_raw_parts_mut(memory, len);
                bytes.fill(7);
                memory = Allocator.realloc(memory, layout(len, 64), len * 2);
                assert!((memory as usize).is_multiple_of(64));
                assert!(core::slice::from_raw_parts(memory, len).iter().all(|byte| *byte == 7));
                len *= 2;
            }
            Allocator.dealloc(memory, layout(len, 64));
            let zeroed = Allocator.alloc_zeroed(layout(4096, 4096));
            assert!(core::slice::from_raw_parts(zeroed, 4096).iter().all(|byte| *byte == 0));
            Allocator.dealloc(zeroed, layout(4096, 4096));
        }
    }
}
