//! Which page of which segment is in which slot, and which one goes when room is needed: a clock
//! goes round, and takes the first page that was not asked for since it came by; after a while, the
//! next one.

use super::Segment;
use std::collections::HashMap;

/// Most pages for which there is room in the index from the beginning: 128 GiB.
const ROOM_MAX: u32 = 8 << 20;

/// Pages that the clock comes by at in vain; then the next one goes. A round of a large cache would
/// take long.
const STEPS_MAX: usize = 1024;

/// Names a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct PageKey {
    pub(super) segment: Segment,
    /// Its place in the segment, in pages.
    pub(super) number: u32,
}

/// A page that is in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page {
    pub(super) key: PageKey,
    /// In bytes; the last one of a segment is shorter.
    pub(super) len: u32,
    /// A checksum of its name and its bytes.
    pub(super) sum: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Slot {
    page: Option<Page>,
    is_used: bool,
    /// A page is on its way into it.
    is_busy: bool,
}

/// The slots of a cache.
#[derive(Debug)]
pub(super) struct Pages {
    slots: Vec<Slot>,
    slots_max: u32,
    index: HashMap<PageKey, u32>,
    hand: u32,
}

impl Pages {
    pub(super) fn new(slots_max: u32) -> Pages {
        // Tables that grow stop all images while they do; memory that is not touched is not used.
        let room = slots_max.min(ROOM_MAX) as usize;
        let (slots, index) = (Vec::with_capacity(room), HashMap::with_capacity(room));
        Pages { slots, slots_max, index, hand: 0 }
    }

    /// Adds a slot behind the others, with the page that it had before the program began.
    pub(super) fn restore(&mut self, page: Option<Page>) {
        let slot = self.slots.len() as u32;
        let new = page.filter(|page| !self.index.contains_key(&page.key));
        self.slots.push(Slot { page: new, ..Slot::default() });
        self.index.extend(new.map(|page| (page.key, slot)));
    }

    /// Returns how many slots were ever used.
    pub(super) fn len(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the page of a slot.
    pub(super) fn page(&self, slot: u32) -> Option<Page> {
        self.slots.get(slot as usize)?.page
    }

    /// Forgets the pages of a log from a segment on.
    pub(super) fn forget(&mut self, from: Segment) {
        let all = self.index.keys().copied();
        let behind: Vec<PageKey> = all.filter(|key| key.segment.follows(from)).collect();
        behind.iter().for_each(|key| self.remove(key));
    }

    pub(super) fn contains(&self, key: &PageKey) -> bool {
        self.index.contains_key(key)
    }

    /// Returns where a page is, which will stay a while.
    pub(super) fn find(&mut self, key: &PageKey) -> Option<(u32, Page)> {
        let number = *self.index.get(key)?;
        let slot = &mut self.slots[number as usize];
        slot.is_used = true;
        Some((number, slot.page?))
    }

    /// Takes a slot, which has no page then, until [`Pages::put`] or [`Pages::give_up`]. `None`:
    /// all are taken.
    pub(super) fn take(&mut self) -> Option<u32> {
        if self.len() < self.slots_max {
            self.slots.push(Slot { is_busy: true, ..Slot::default() });
            return Some(self.len() - 1);
        }
        for step in 0..2 * self.slots.len() {
            let number = self.hand;
            self.hand = (self.hand + 1) % self.len();
            let slot = &mut self.slots[number as usize];
            match slot {
                Slot { is_busy: true, .. } => {}
                Slot { is_used: true, .. } if step < STEPS_MAX => slot.is_used = false,
                _ => {
                    slot.is_busy = true;
                    if let Some(page) = slot.page.take() {
                        self.index.remove(&page.key);
                    }
                    return Some(number);
                }
            }
        }
        None
    }

    /// Puts a page into a slot that was taken. Another one of the name is gone.
    pub(super) fn put(&mut self, slot: u32, page: Page) {
        self.remove(&page.key);
        self.slots[slot as usize] = Slot { page: Some(page), is_used: false, is_busy: false };
        self.index.insert(page.key, slot);
    }

    /// Gives a slot that was taken back, without a page.
    pub(super) fn give_up(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::default();
    }

    /// Forgets a page.
    pub(super) fn remove(&mut self, key: &PageKey) {
        if let Some(slot) = self.index.remove(key) {
            self.slots[slot as usize].page = None;
        }
    }

    /// Takes no further slots: there is no room for more than there are.
    pub(super) fn stop_growing(&mut self) {
        self.slots_max = self.len();
    }
}
