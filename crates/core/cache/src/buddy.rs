//! The buddy allocator of frames: runs of 1 to 64 frames, naturally aligned.
//!
//! ```text
//! block   64 frames (256 KiB), one bit each: set = free
//!         0b…1111_0011   frames 0, 1 and 4 to 7 are free: one run of order 1, one of order 2
//! list    blocks whose largest free run has the same order; one list for each order, 0 to 6
//! ```
//!
//! A run is free if all of its bits are set. Freeing needs no merge: two free neighbours already
//! form a larger free run. `allocate` takes the smallest run that fits, in a block with the
//! smallest sufficient run, so that large runs last.

use nowait_sys::memory::PAGE_SIZE;

/// Bytes of a frame, which is as large as a page.
pub const FRAME_BYTES: usize = PAGE_SIZE;

/// The largest order: 2^6 frames, 256 KiB.
pub const ORDER_MAX: u32 = 6;

const FRAMES: u32 = 1 << ORDER_MAX;
const ORDERS: usize = ORDER_MAX as usize + 1;
const NONE: u32 = u32::MAX;

const ALIGNED: [u64; ORDERS] = [
    u64::MAX,
    0x5555_5555_5555_5555,
    0x1111_1111_1111_1111,
    0x0101_0101_0101_0101,
    0x0001_0001_0001_0001,
    0x0000_0001_0000_0001,
    1,
];

#[derive(Debug)]
pub(crate) struct Buddy {
    blocks: Vec<Block>,
    heads: [u32; ORDERS],
    lengths: [u32; ORDERS],
    free: u64,
}

#[derive(Clone, Copy, Debug)]
struct Block {
    free: u64,
    next: u32,
    previous: u32,
}

impl Buddy {
    pub(crate) fn new(frames: u32) -> Buddy {
        let blocks = frames.div_ceil(FRAMES);
        let mut buddy = Buddy {
            blocks: Vec::with_capacity(blocks as usize),
            heads: [NONE; ORDERS],
            lengths: [0; ORDERS],
            free: u64::from(frames),
        };
        for number in 0..blocks {
            let free = lowest_bits((frames - number * FRAMES).min(FRAMES));
            buddy.blocks.push(Block { free, next: NONE, previous: NONE });
        }
        // The lowest block comes first, because `link` puts a block at the front of its list.
        for number in (0..blocks).rev() {
            buddy.link(number);
        }
        buddy
    }

    pub(crate) fn allocate(&mut self, order: u32) -> Option<u32> {
        let mut lists = self.heads[order as usize..].iter();
        let number = *lists.find(|head| **head != NONE)?;
        self.unlink(number);
        let block = &mut self.blocks[number as usize];
        let start = tightest(block.free, order);
        block.free &= !(lowest_bits(1 << order) << start);
        self.free -= 1 << order;
        self.link(number);
        Some(number * FRAMES + start)
    }

    pub(crate) fn free(&mut self, first: u32, order: u32) {
        let (number, start) = (first / FRAMES, first % FRAMES);
        let run = lowest_bits(1 << order) << start;
        self.unlink(number);
        let block = &mut self.blocks[number as usize];
        assert_eq!(block.free & run, 0, "frame {first} of order {order} was free already");
        block.free |= run;
        self.free += 1 << order;
        self.link(number);
    }

    pub(crate) fn free_frames(&self) -> u64 {
        self.free
    }

    pub(crate) fn blocks_by_largest(&self) -> [u32; ORDERS] {
        self.lengths
    }

    fn link(&mut self, number: u32) {
        let Some(order) = largest(self.blocks[number as usize].free) else { return };
        let next = core::mem::replace(&mut self.heads[order], number);
        self.blocks[number as usize].next = next;
        self.blocks[number as usize].previous = NONE;
        if next != NONE {
            self.blocks[next as usize].previous = number;
        }
        self.lengths[order] += 1;
    }

    fn unlink(&mut self, number: u32) {
        let Block { free, next, previous } = self.blocks[number as usize];
        let Some(order) = largest(free) else { return };
        match previous {
            NONE => self.heads[order] = next,
            _ => self.blocks[previous as usize].next = next,
        }
        if next != NONE {
            self.blocks[next as usize].previous = previous;
        }
        self.lengths[order] -= 1;
    }
}

fn lowest_bits(count: u32) -> u64 {
    u64::MAX >> (64 - count)
}

/// A mask with a bit for each aligned free run of `order`, at its first frame.
fn runs(free: u64, order: u32) -> u64 {
    (0..order).fold(free, |runs, half| runs & (runs >> (1 << half))) & ALIGNED[order as usize]
}

fn largest(free: u64) -> Option<usize> {
    (0..=ORDER_MAX).rev().find(|order| runs(free, *order) != 0).map(|order| order as usize)
}

/// Returns the first frame of the smallest free run that contains a run of `order`. Such a run must
/// exist.
fn tightest(free: u64, order: u32) -> u32 {
    for larger in order..ORDER_MAX {
        let parents = runs(free, larger + 1);
        let alone = runs(free, larger) & !(parents | parents << (1 << larger));
        if alone != 0 {
            return alone.trailing_zeros();
        }
    }
    runs(free, ORDER_MAX).trailing_zeros()
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    #[test]
    fn a_small_request_takes_the_tightest_hole() {
        let mut buddy = Buddy::new(64);
        let runs: Vec<u32> = (0..16).map(|_| buddy.allocate(2).unwrap()).collect();
        buddy.free(runs[3], 2);
        buddy.free(runs[8], 2);
        buddy.free(runs[9], 2);
        assert_eq!(buddy.allocate(1), Some(runs[3]));
        assert_eq!(buddy.allocate(3), Some(runs[8]));
        assert_eq!(buddy.allocate(3), None);
    }

    #[test]
    fn a_part_of_a_block_is_no_run_beyond_the_end() {
        let mut buddy = Buddy::new(65);
        assert_eq!(buddy.allocate(6), Some(0));
        assert_eq!(buddy.allocate(1), None);
        assert_eq!(buddy.allocate(0), Some(64));
        assert_eq!((buddy.allocate(0), buddy.free_frames()), (None, 0));
    }

    #[test]
    #[should_panic(expected = "was free already")]
    fn freeing_twice_is_caught() {
        let mut buddy = Buddy::new(64);
        let run = buddy.allocate(0).unwrap();
        buddy.free(run, 0);
        buddy.free(run, 0);
    }

    const FRAMES_MAX: u32 = if cfg!(miri) { 130 } else { 300 };
    const STEPS_MAX: usize = if cfg!(miri) { 30 } else { 200 };

    proptest! {
        #[test]
        fn runs_are_aligned_disjoint_and_coalesce(
            frames in 1..FRAMES_MAX,
            steps in vec(
                (any::<bool>(), 0..=ORDER_MAX, any::<prop::sample::Index>()),
                0..STEPS_MAX,
            ),
        ) {
            let mut buddy = Buddy::new(frames);
            let fresh = buddy.blocks_by_largest();
            let mut used = vec![false; frames as usize];
            let mut held = Vec::new();
            for (allocate, order, which) in steps {
                if allocate {
                    let fits = |at: u32| (at..at + (1 << order)).all(|f| {
                        used.get(f as usize) == Some(&false)
                    });
                    let possible = (0..frames).step_by(1 << order).any(fits);
                    let got = buddy.allocate(order);
                    prop_assert_eq!(got.is_some(), possible);
                    let Some(first) = got else { continue };
                    prop_assert!(first.is_multiple_of(1 << order));
                    prop_assert!(fits(first));
                    used[first as usize..][..1 << order].fill(true);
                    held.push((first, order));
                } else if !held.is_empty() {
                    let (first, order) = held.swap_remove(which.index(held.len()));
                    used[first as usize..][..1 << order].fill(false);
                    buddy.free(first, order);
                }
                let free = used.iter().filter(|used| !**used).count() as u64;
                prop_assert_eq!(buddy.free_frames(), free);
            }
            for (first, order) in held {
                buddy.free(first, order);
            }
            prop_assert_eq!(buddy.blocks_by_largest(), fresh);
        }
    }
}
