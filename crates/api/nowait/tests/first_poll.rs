//! A future on cached data is over in its first poll, and allocates nothing.

mod common;

use common::{BLOCK, folder, open};
use core::{
    alloc::{GlobalAlloc, Layout},
    cell::Cell,
};
use futures_lite::future::{block_on, poll_once};
use nowait::{AlignedBuffer, AsyncFile, CacheMode, Nowait};
use std::alloc::System;

std::thread_local! {
    static TAKEN: Cell<usize> = const { Cell::new(0) };
}

struct Counting;

#[global_allocator]
static COUNTING: Counting = Counting;

// SAFETY: the system's allocator does everything.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // At the end of a thread its counter no longer exists.
        let _ = TAKEN.try_with(|taken| taken.set(taken.get() + 1));
        // SAFETY: as promised to this method.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        // SAFETY: as promised to this method.
        unsafe { System.dealloc(memory, layout) }
    }
}

#[test]
fn a_cached_read_takes_no_memory() {
    let (nowait, folder) = (Nowait::new().unwrap(), folder());
    for mode in [CacheMode::User, CacheMode::Host] {
        let file = open(&nowait, mode, &folder.path().join(format!("{mode:?}")));
        file.write_all_at(&vec![7; BLOCK], 0).unwrap();
        let file = AsyncFile::from(file);
        let mut buffer = AlignedBuffer::zeroed(BLOCK);
        // The first poll allocates the memory that is allocated once: the reactor, the file's
        // state.
        for round in 0..10 {
            let before = TAKEN.get();
            let polled = block_on(poll_once(file.read_at(buffer, 0)));
            let taken = TAKEN.get() - before;
            let (count, filled) = polled.expect("it is cached");
            assert_eq!((count.unwrap(), &filled[..]), (BLOCK, &[7; BLOCK][..]));
            assert!(round == 0 || taken == 0, "{mode:?}, round {round}: {taken} allocations");
            buffer = filled;
        }
    }
}
