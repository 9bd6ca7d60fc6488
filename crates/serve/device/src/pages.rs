//! The index of a cache: which page is in which slot, and which page is evicted. To free a slot, a
//! clock hand goes round the slots, and evicts the first page that was not used since the hand last
//! passed it. After 1,024 slots the hand evicts the next page in any case. The hand skips slots
//! that a request is writing.

use std::collections::HashMap;
use std::hash::Hash;

/// The most pages for which the index allocates room at the beginning: 128 GiB in pages of 16 KiB.
const ROOM_MAX: u32 = 8 << 20;

/// After this many slots the hand evicts even a used page: a whole round may take long.
const STEPS_MAX: usize = 1024;

/// A page in a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page<K, S = ()> {
    /// The key of the page.
    pub key: K,
    /// The length in bytes; the last page of an image or segment may be shorter.
    pub len: u32,
    /// Checksums of key and bytes, if the cache uses them.
    pub sums: S,
}

#[derive(Clone, Copy, Debug)]
struct Slot<K, S> {
    page: Option<Page<K, S>>,
    is_used: bool,
    is_busy: bool,
}

impl<K, S> Slot<K, S> {
    fn with(page: Option<Page<K, S>>) -> Slot<K, S> {
        Slot { page, is_used: false, is_busy: false }
    }
}

/// The slots of a cache.
#[derive(Debug)]
pub struct Pages<K, S = ()> {
    slots: Vec<Slot<K, S>>,
    slots_max: u32,
    index: HashMap<K, u32>,
    /// Slots of removed pages. [`Pages::take`] takes these slots first, and moves the clock hand
    /// only if this list is empty, so the hand never finds a slot of this list.
    free: Vec<u32>,
    hand: u32,
}

impl<K: Copy + Eq + Hash, S: Copy> Pages<K, S> {
    /// Makes an empty index for at most `slots_max` pages.
    pub fn new(slots_max: u32) -> Pages<K, S> {
        // Growing a table later would stop all images meanwhile. Memory that is not touched costs
        // nothing.
        let room = slots_max.min(ROOM_MAX) as usize;
        let (slots, index) = (Vec::with_capacity(room), HashMap::with_capacity(room));
        Pages { slots, slots_max, index, free: Vec::new(), hand: 0 }
    }

    /// Adds a slot behind the others, with `page`, which the slot held before the program began.
    /// The slot stays empty if another slot has a page with the same key.
    pub fn restore(&mut self, page: Option<Page<K, S>>) {
        let slot = self.slots.len() as u32;
        let new = page.filter(|page| !self.index.contains_key(&page.key));
        self.slots.push(Slot::with(new));
        self.index.extend(new.map(|page| (page.key, slot)));
    }

    /// Returns the number of slots that were ever taken or restored.
    pub fn slots_used(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Returns the page of a slot, if the slot has one.
    pub fn page(&self, slot: u32) -> Option<Page<K, S>> {
        self.slots.get(slot as usize)?.page
    }

    /// Removes the pages whose keys satisfy `is_meant`.
    pub fn forget(&mut self, is_meant: impl Fn(&K) -> bool) {
        let meant: Vec<K> = self.index.keys().copied().filter(is_meant).collect();
        meant.iter().for_each(|key| self.remove(key));
    }

    /// Returns `true` if the cache holds the page `key`.
    pub fn contains(&self, key: &K) -> bool {
        self.index.contains_key(key)
    }

    /// Returns the page `key` and its slot, if the cache holds the page, and marks it as used.
    pub fn find(&mut self, key: &K) -> Option<(u32, Page<K, S>)> {
        let number = *self.index.get(key)?;
        let slot = &mut self.slots[number as usize];
        slot.is_used = true;
        Some((number, slot.page?))
    }

    /// Takes a slot and evicts its page, if it has one. The caller keeps the slot until
    /// [`Pages::put`] or [`Pages::give_up`]. `None`: other callers have taken all slots.
    pub fn take(&mut self) -> Option<u32> {
        if let Some(slot) = self.free.pop() {
            self.slots[slot as usize].is_busy = true;
            return Some(slot);
        }
        if self.slots_used() < self.slots_max {
            self.slots.push(Slot { is_busy: true, ..Slot::with(None) });
            return Some(self.slots_used() - 1);
        }
        for step in 0..2 * self.slots.len() {
            let number = self.hand;
            self.hand = (self.hand + 1) % self.slots_used();
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

    /// Puts a page into a slot that the caller has taken. Removes an older page with the same key
    /// from its slot.
    pub fn put(&mut self, slot: u32, page: Page<K, S>) {
        self.remove(&page.key);
        self.slots[slot as usize] = Slot::with(Some(page));
        self.index.insert(page.key, slot);
    }

    /// Gives back a slot that the caller has taken, without a page.
    pub fn give_up(&mut self, slot: u32) {
        self.slots[slot as usize] = Slot::with(None);
    }

    /// Removes the page `key`, if the cache holds it.
    pub fn remove(&mut self, key: &K) {
        if let Some(slot) = self.index.remove(key) {
            self.slots[slot as usize].page = None;
            self.free.push(slot);
        }
    }

    /// Adds no slots from now on, because the disk of the cache is full.
    pub fn stop_growing(&mut self) {
        self.slots_max = self.slots_used();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(pages: &mut Pages<u32>, key: u32) {
        let slot = pages.take().unwrap();
        pages.put(slot, Page { key, len: 1, sums: () });
    }

    #[test]
    fn the_slot_of_a_page_that_was_forgotten_is_taken_first() {
        let mut pages = Pages::new(4);
        (0..4).for_each(|key| put(&mut pages, key));
        for _ in 0..100 {
            pages.remove(&2);
            put(&mut pages, 2);
        }
        assert!((0..4).all(|key| pages.contains(&key)));
        put(&mut pages, 4);
        assert_eq!((0..5).filter(|key| pages.contains(key)).count(), 4, "one has gone");
        pages.forget(|key| *key < 5);
        (10..14).for_each(|key| put(&mut pages, key));
        assert!((10..14).all(|key| pages.contains(&key)) && pages.slots_used() == 4);
    }
}
