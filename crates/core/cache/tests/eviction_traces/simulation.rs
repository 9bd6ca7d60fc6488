//! A simulated cache of keys under a policy. Hits raise counters, as in the real cache.

use super::traces::Access;
use nowait_cache::policy::{self, s3_fifo::Take};
use std::collections::HashMap;

pub(crate) trait Policy {
    fn insert(&mut self, id: u32, hash: u32, frames: u16);
    fn evict(&mut self, look: &mut dyn FnMut(u32, Take) -> Option<u8>) -> Option<u32>;
    /// Called at each hit that counts, for policies that need more than the counter.
    fn hit(&mut self, _id: u32) {}
}

impl Policy for policy::S3Fifo {
    fn insert(&mut self, id: u32, hash: u32, frames: u16) {
        self.insert(id, hash, frames);
    }

    fn evict(&mut self, look: &mut dyn FnMut(u32, Take) -> Option<u8>) -> Option<u32> {
        self.evict(look)
    }
}

#[derive(Clone, Copy, Default)]
struct Folio {
    key: u64,
    frames: u16,
    hits: u8,
}

pub(crate) struct Simulation {
    policy: Box<dyn Policy>,
    here: HashMap<u64, u32>,
    folios: Vec<Folio>,
    ids_free: Vec<u32>,
    frames_free: u32,
    every_hit: bool,
}

impl Simulation {
    pub(crate) fn new(policy: Box<dyn Policy>, frames: u32, every_hit: bool) -> Simulation {
        let folios = vec![Folio::default(); frames as usize];
        let ids_free = (0..frames).rev().collect();
        let here = HashMap::new();
        Simulation { policy, here, folios, ids_free, frames_free: frames, every_hit }
    }

    pub(crate) fn holds(&self, key: u64) -> bool {
        self.here.contains_key(&key)
    }

    /// Returns `true` if the simulated cache has the key; otherwise inserts it.
    pub(crate) fn access(&mut self, access: &Access) -> bool {
        if let Some(id) = self.here.get(&access.key) {
            if access.counts || self.every_hit {
                let hits = &mut self.folios[*id as usize].hits;
                *hits = (*hits + 1).min(3);
                self.policy.hit(*id);
            }
            return true;
        }
        while self.frames_free < u32::from(access.frames) {
            self.evict();
        }
        let id = self.ids_free.pop().expect("as many ids as frames");
        // If the folio was read ahead, the request that wanted it counts as a hit.
        let hits = u8::from(access.read_ahead);
        self.folios[id as usize] = Folio { key: access.key, frames: access.frames, hits };
        self.frames_free -= u32::from(access.frames);
        self.here.insert(access.key, id);
        self.policy.insert(id, policy::hash(0, access.key), access.frames);
        false
    }

    fn evict(&mut self) {
        let folios = &mut self.folios;
        let mut look = |id: u32, take| {
            let hits = &mut folios[id as usize].hits;
            let before = *hits;
            *hits = if take == Take::All { 0 } else { before.saturating_sub(1) };
            Some(before)
        };
        let id = self.policy.evict(&mut look).expect("nothing is pinned");
        let gone = self.folios[id as usize];
        assert_eq!(self.here.remove(&gone.key), Some(id), "evicted twice");
        self.frames_free += u32::from(gone.frames);
        self.ids_free.push(id);
    }
}
