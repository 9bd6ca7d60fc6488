//! A table of values by key, for example of the requests in flight.

/// A bounded table of values by key. The table gives out no key twice until the key's slot has been
/// used 2^31 times.
///
/// A key is `generation << 32 | index`: a late cancellation of a request that has ended finds
/// nothing, even if another request has the slot. Bit 63 of a key is always clear.
#[derive(Debug)]
pub struct Slab<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
    depth: usize,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

const GENERATION_MASK: u32 = u32::MAX >> 1;

impl<T> Slab<T> {
    /// Makes an empty table for up to `depth` values; the table grows as values come.
    pub fn new(depth: usize) -> Slab<T> {
        Slab { slots: Vec::new(), free: Vec::new(), depth }
    }

    /// Adds `value` and returns its key; returns `value` as `Err` if the table is full.
    #[inline]
    pub fn insert(&mut self, value: T) -> Result<u64, T> {
        if let Some(index) = self.free.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Ok(u64::from(slot.generation) << 32 | u64::from(index));
        }
        if self.slots.len() == self.depth {
            return Err(value);
        }
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Ok(self.slots.len() as u64 - 1)
    }

    /// Calls `make` with a new key, adds the value that `make` returns, and returns the key; `None`
    /// if the table is full.
    #[inline]
    pub fn insert_with(&mut self, make: impl FnOnce(u64) -> T) -> Option<u64> {
        if self.free.is_empty() {
            if self.slots.len() == self.depth {
                return None;
            }
            self.free.push(self.slots.len() as u32);
            self.slots.push(Slot { generation: 0, value: None });
        }
        let index = self.free.pop()?;
        let slot = &mut self.slots[index as usize];
        let key = u64::from(slot.generation) << 32 | u64::from(index);
        slot.value = Some(make(key));
        Some(key)
    }

    /// Returns the keys of all values.
    pub fn keys(&self) -> impl Iterator<Item = u64> + '_ {
        let used = self.slots.iter().enumerate().filter(|(_, slot)| slot.value.is_some());
        used.map(|(index, slot)| u64::from(slot.generation) << 32 | index as u64)
    }

    /// Removes and returns a value; `None` if the key has no value.
    #[inline]
    pub fn remove(&mut self, key: u64) -> Option<T> {
        let slot = self.slots.get_mut(key as u32 as usize)?;
        if u64::from(slot.generation) != key >> 32 {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
        self.free.push(key as u32);
        Some(value)
    }

    /// Drops a value without moving it; does nothing if the key has no value.
    #[inline]
    pub fn discard(&mut self, key: u64) {
        let Some(slot) = self.slots.get_mut(key as u32 as usize) else { return };
        if u64::from(slot.generation) == key >> 32 && slot.value.is_some() {
            slot.value = None;
            slot.generation = slot.generation.wrapping_add(1) & GENERATION_MASK;
            self.free.push(key as u32);
        }
    }

    /// Returns a value by its key.
    #[inline]
    pub fn get(&self, key: u64) -> Option<&T> {
        let slot = self.slots.get(key as u32 as usize)?;
        if u64::from(slot.generation) == key >> 32 { slot.value.as_ref() } else { None }
    }

    /// Returns a value by its key, to change it.
    #[inline]
    pub fn get_mut(&mut self, key: u64) -> Option<&mut T> {
        let slot = self.slots.get_mut(key as u32 as usize)?;
        if u64::from(slot.generation) == key >> 32 { slot.value.as_mut() } else { None }
    }

    /// Returns the key of the first value that `is` accepts; searches the slots in their order.
    pub fn find(&self, mut is: impl FnMut(&T) -> bool) -> Option<u64> {
        let index = self.slots.iter().position(|slot| slot.value.as_ref().is_some_and(&mut is))?;
        Some(u64::from(self.slots[index].generation) << 32 | index as u64)
    }

    /// Returns the values, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// Returns mutable references to the values, in no particular order.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.slots.iter_mut().filter_map(|slot| slot.value.as_mut())
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Returns `true` if there is no value.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn full_table_gives_the_value_back() {
        let mut slab = Slab::new(1);
        let key = slab.insert("first").unwrap();
        assert_eq!(slab.insert("second"), Err("second"));
        assert_eq!(slab.remove(key), Some("first"));
        assert!(slab.insert("second").is_ok());
    }

    #[test]
    fn a_value_may_know_its_key() {
        let mut slab = Slab::new(1);
        let key = slab.insert_with(|key| key).unwrap();
        assert_eq!((slab.get(key), slab.keys().collect()), (Some(&key), vec![key]));
        assert_eq!(slab.insert_with(|key| key), None);
        slab.remove(key);
        let next = slab.insert_with(|key| key).unwrap();
        assert!(next != key && slab.get(next) == Some(&next));
    }

    #[test]
    fn old_key_does_not_find_the_next_value_of_its_slot() {
        let mut slab = Slab::new(1);
        let old = slab.insert(1).unwrap();
        slab.remove(old);
        let new = slab.insert(2).unwrap();
        assert_eq!(slab.remove(old), None);
        assert_eq!(slab.find(|value| *value == 2), Some(new));
        assert_eq!((slab.remove(new), slab.len()), (Some(2), 0));
    }
}
