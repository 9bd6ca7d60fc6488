//! An allocator that is independent of malloc, and keeps a reserve of memory for calls that have
//! begun.
//!
//! A signal handler of the program may interrupt malloc or free, whose lock is then held until the
//! handler returns. The handler may call `_exit` or aio_suspend and wait for a request. So no
//! thread may need malloc's lock to allocate or free memory for the request.
//!
//! The libraries therefore take their memory from the kernel, in chunks of 128 KiB that are cut
//! into pieces of 44 sizes. Threads take pieces from the free list of a size, and return them,
//! without a lock. Each allocation above 64 KiB, or aligned to more than a page, is a mapping of
//! its own. Chunks are never returned to the kernel. The first chunk is a static variable, so that
//! the first allocations need no mapping.
//!
//! If the kernel provides no memory (RLIMIT_AS, RLIMIT_DATA, locked memory), the allocator takes
//! memory from a [`reserve`].

use crate::memory::{BY_LIBRARY, map, map_near, unmap};
use core::{
    alloc::{GlobalAlloc, Layout},
    cell::UnsafeCell,
    ptr::null_mut,
    sync::atomic::{
        AtomicBool, AtomicU32, AtomicU64, AtomicUsize,
        Ordering::{AcqRel, Acquire, Relaxed, Release},
    },
};
use std::alloc::System;

pub mod reserve;

/// The allocator of a library that is loaded into other programs.
#[derive(Debug)]
pub struct Allocator;

/// A piece's number, of 32 bits, counts the units before it in all chunks.
const UNIT: usize = 16;
/// A chunk's first page holds the chunk's number.
const CHUNK: usize = 128 << 10;
const UNITS: usize = CHUNK / UNIT;
/// The largest number of chunks: 2 GiB in all.
const CHUNKS: usize = 1 << 14;
/// The usual bytes of a run: memory that is cut into pieces of one size at once. A run of larger
/// pieces is longer.
const RUN: usize = 16 << 10;
/// The largest size of pieces whose run is a single page. Cutting a run writes to all of its pages.
const SMALL: usize = 512;
const PIECE_MAX: usize = 64 << 10;
const PAGE: usize = 4096;
const SIZES: usize = 44;

/// The lower half is the number of the first piece (0: none), the upper half a count of changes. A
/// list head fills one cache line.
#[repr(align(64))]
struct Free(AtomicU64);

static FREE: [Free; SIZES] = [const { Free(AtomicU64::new(0)) }; SIZES];
/// Pages of this table without a chunk use no memory.
static CHUNK_AT: [AtomicUsize; CHUNKS] = [const { AtomicUsize::new(0) }; CHUNKS];
static CHUNK_COUNT: AtomicUsize = AtomicUsize::new(0);
static FIRST: First = First(UnsafeCell::new([0; 2 * CHUNK]));
static IS_FIRST_TAKEN: AtomicBool = AtomicBool::new(false);
/// The address of the next run in the newest chunk. The chunk's end, or 0, means that there is no
/// room.
static NEXT_RUN: AtomicUsize = AtomicUsize::new(0);

struct First(UnsafeCell<[u8; 2 * CHUNK]>);

// SAFETY: it is memory of the allocator, as mappings are.
unsafe impl Sync for First {}

/// Returns the size of pieces that serves a layout: its index, and its bytes. The sizes are the
/// multiples of 16 up to 128, then four for each doubling. `None`: the layout needs a mapping.
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
        // Runs begin at a page, so pieces of a size that is a multiple of the alignment are
        // aligned.
        if size & (layout.align() - 1) == 0 || layout.align() <= UNIT {
            return Some((index, size));
        }
        len = size + 1;
        if len > PIECE_MAX {
            return None;
        }
    }
}

#[inline]
fn piece(number: u32) -> *mut u8 {
    let (chunk, unit) = (number as usize / UNITS % CHUNKS, number as usize % UNITS);
    (CHUNK_AT[chunk].load(Relaxed) + unit * UNIT) as *mut u8
}

#[inline]
fn number(piece: *mut u8) -> u32 {
    let (chunk, offset) = (piece as usize & !(CHUNK - 1), piece as usize & (CHUNK - 1));
    // SAFETY: the chunk of a piece stays; its number was written before there were pieces in it.
    unsafe { (*(chunk as *const AtomicU32)).load(Relaxed) * UNITS as u32 + (offset / UNIT) as u32 }
}

#[inline]
fn pop(index: usize) -> Option<*mut u8> {
    let free = &FREE[index].0;
    let mut seen = free.load(Acquire);
    loop {
        let first = seen as u32;
        if first == 0 {
            return None;
        }
        let taken = piece(first);
        // SAFETY: pieces stay usable for ever. If another thread has taken this one meanwhile, the
        // value read is that user's data, and the exchange fails because the count has changed.
        let next = unsafe { taken.cast::<u32>().read_volatile() };
        let changed = (seen >> 32).wrapping_add(1) << 32 | u64::from(next);
        match free.compare_exchange_weak(seen, changed, AcqRel, Acquire) {
            Ok(_) => return Some(taken),
            Err(now) => seen = now,
        }
    }
}

#[inline]
fn push(index: usize, first: *mut u8, last: *mut u8) {
    let free = &FREE[index].0;
    let number = u64::from(number(first));
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

/// Makes pieces of a size, and returns one; null when there is no memory.
#[cold]
fn make(index: usize, size: usize) -> *mut u8 {
    let usual = if size <= SMALL { PAGE } else { RUN };
    let Some((start, len)) = run(usual.max(size.next_multiple_of(PAGE))) else { return null_mut() };
    let run = start as *mut u8;
    let count = len / size;
    let at = |nth: usize| run.wrapping_add(nth * size);
    for nth in 1..count.saturating_sub(1) {
        // SAFETY: a piece of the run, which no other thread knows yet.
        unsafe { at(nth).cast::<u32>().write_volatile(number(at(nth + 1))) };
    }
    if count > 1 {
        push(index, at(1), at(count - 1));
    }
    run
}

/// Returns the address and length of memory for pieces: `len` bytes or more, from a page on.
fn run(len: usize) -> Option<(usize, usize)> {
    let mut at = NEXT_RUN.load(Acquire);
    while at.next_multiple_of(CHUNK) - at >= len {
        match NEXT_RUN.compare_exchange_weak(at, at + len, AcqRel, Acquire) {
            Ok(_) => return Some((at, len)),
            Err(now) => at = now,
        }
    }
    let start = new_chunk()? + PAGE;
    match NEXT_RUN.compare_exchange(at, start + len, AcqRel, Relaxed) {
        Ok(_) => Some((start, len)),
        // Another thread has installed its new chunk first: this whole chunk becomes one run.
        Err(_) => Some((start, CHUNK - PAGE)),
    }
}

fn new_chunk() -> Option<usize> {
    let start = match IS_FIRST_TAKEN.swap(true, Relaxed) {
        false => FIRST.0.get().expose_provenance().next_multiple_of(CHUNK),
        true => mapped(CHUNK, CHUNK)?,
    };
    let number = CHUNK_COUNT.fetch_add(1, Relaxed);
    let Some(place) = CHUNK_AT.get(number) else {
        CHUNK_COUNT.fetch_sub(1, Relaxed);
        unmap(start, CHUNK);
        return None;
    };
    // SAFETY: memory that no other thread knows yet.
    unsafe { (*(start as *const AtomicU32)).store(number as u32, Relaxed) };
    place.store(start, Release);
    Some(start)
}

/// Takes the memory from the reserve if the kernel has none.
fn mapped(len: usize, align: usize) -> Option<usize> {
    map_aligned(len, align).or_else(|| reserve::take(len, align))
}

fn map_aligned(len: usize, align: usize) -> Option<usize> {
    let start = map(len, libc::MAP_PRIVATE).ok()?;
    if start.is_multiple_of(align) {
        return Some(start);
    }
    unmap(start, len);
    // The kernel usually maps downwards, so the range below this one is probably free.
    let start = map_near(start & !(align - 1), len).ok()?;
    if start.is_multiple_of(align) {
        return Some(start);
    }
    unmap(start, len);
    let more = len.checked_add(align)?;
    let start = map(more, libc::MAP_PRIVATE).ok()?;
    let aligned = start.next_multiple_of(align);
    unmap_if_any(start, aligned - start);
    unmap_if_any(aligned + len, start + more - (aligned + len));
    Some(aligned)
}

fn unmap_if_any(start: usize, len: usize) {
    if len > 0 {
        unmap(start, len);
    }
}

#[cold]
fn large(layout: Layout) -> *mut u8 {
    let len = layout.size().next_multiple_of(PAGE);
    reserve::note_large(len);
    mapped(len, layout.align().max(PAGE)).map_or(null_mut(), |start| start as *mut u8)
}

// SAFETY: pieces are aligned, and each is of one user at a time, as the lists have it; mappings are
// the kernel's.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if BY_LIBRARY {
            // SAFETY: the caller's promise. Sanitizers watch only the memory of malloc.
            return unsafe { System.alloc(layout) };
        }
        match size_of(layout) {
            Some((index, size)) => pop(index).unwrap_or_else(|| make(index, size)),
            None => large(layout),
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise; the memory is of that size.
        unsafe {
            let taken = self.alloc(layout);
            let is_new = size_of(layout).is_none() && !BY_LIBRARY;
            if !taken.is_null() && !is_new {
                taken.write_bytes(0, layout.size());
            }
            taken
        }
    }

    #[inline]
    unsafe fn dealloc(&self, address: *mut u8, layout: Layout) {
        if BY_LIBRARY {
            // SAFETY: the caller's promise; it came from there.
            return unsafe { System.dealloc(address, layout) };
        }
        match size_of(layout) {
            Some((index, _)) => push(index, address, address),
            None => unmap(address as usize, layout.size().next_multiple_of(PAGE)),
        }
    }

    unsafe fn realloc(&self, address: *mut u8, layout: Layout, len: usize) -> *mut u8 {
        // SAFETY: the alignment is that of a layout, the length the caller's promise; the two
        // pieces are apart, or the same.
        unsafe {
            let wanted = Layout::from_size_align_unchecked(len, layout.align());
            let size = size_of(layout);
            if size.is_some() && size == size_of(wanted) && !BY_LIBRARY {
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

    #[test]
    #[cfg_attr(miri, ignore = "no mappings")]
    fn no_piece_has_two_users() {
        const THREADS: u64 = 4;
        const ROUNDS: u64 = 4_000;
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
                        assert!(size > PIECE_MAX || piece(number(taken)) == taken);
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
    #[cfg_attr(miri, ignore = "no mappings")]
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
