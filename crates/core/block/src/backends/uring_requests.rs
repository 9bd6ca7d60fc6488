//! The requests of an io_uring in flight, and the look-up of requests to cancel.
//!
//! At most `depth` requests wait for a device, so a cancellation searches these. Endless requests
//! (polls, and transfers of streams) may be a hundred thousand, so a map finds them by token.

use crate::slab::Slab;
use nowait_sys::file::IoVec;
use rustc_hash::FxHashMap;
use std::sync::Arc;

pub(super) struct Request {
    pub(super) token: u64,
    pub(super) cancelled: bool,
    pub(super) endless: bool,
    pub(super) _segments: Option<Arc<[IoVec]>>,
}

/// Bit 63 of a key is always clear.
pub(super) struct Requests {
    on_devices: Slab<Request>,
    endless: Slab<Request>,
    /// The keys of endless requests that were not cancelled, by token.
    by_token: FxHashMap<u64, u64>,
}

/// The bit that marks keys of endless requests: no table has 2^31 slots.
const ENDLESS: u64 = 1 << 31;

impl Requests {
    pub(super) fn new(depth: usize) -> Requests {
        Requests {
            on_devices: Slab::new(depth),
            endless: Slab::new(usize::MAX),
            by_token: FxHashMap::default(),
        }
    }

    /// Adds a request; `None` if `depth` other requests wait for a device, and this one would, too.
    pub(super) fn insert(&mut self, request: Request) -> Option<u64> {
        if !request.endless {
            return self.on_devices.insert(request).ok();
        }
        let token = request.token;
        let key = self.endless.insert(request).ok()? | ENDLESS;
        self.by_token.insert(token, key);
        Some(key)
    }

    pub(super) fn remove(&mut self, key: u64) -> Option<Request> {
        if key & ENDLESS == 0 {
            return self.on_devices.remove(key);
        }
        let request = self.endless.remove(key & !ENDLESS)?;
        self.forget(request.token, key);
        Some(request)
    }

    pub(super) fn cancel(&mut self, token: u64) -> Option<u64> {
        let endless = self.by_token.get(&token).copied();
        let on_a_device = || self.on_devices.find(|it| it.token == token && !it.cancelled);
        let key = endless.or_else(on_a_device)?;
        self.mark(key);
        Some(key)
    }

    pub(super) fn cancel_all(&mut self) -> Vec<u64> {
        let keys = self.on_devices.keys().chain(self.endless.keys().map(|key| key | ENDLESS));
        let keys: Vec<u64> = keys.collect();
        keys.into_iter().filter(|key| self.mark(*key)).collect()
    }

    pub(super) fn len(&self) -> usize {
        self.on_devices.len() + self.endless.len()
    }

    pub(super) fn on_devices(&self) -> usize {
        self.on_devices.len()
    }

    fn mark(&mut self, key: u64) -> bool {
        let request = match key & ENDLESS {
            0 => self.on_devices.get_mut(key),
            _ => self.endless.get_mut(key & !ENDLESS),
        };
        let Some(request) = request.filter(|it| !it.cancelled) else { return false };
        request.cancelled = true;
        let token = request.token;
        self.forget(token, key);
        true
    }

    fn forget(&mut self, token: u64, key: u64) {
        if self.by_token.get(&token) == Some(&key) {
            self.by_token.remove(&token);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn request(token: u64, endless: bool) -> Request {
        Request { token, cancelled: false, endless, _segments: None }
    }

    #[test]
    fn only_requests_of_devices_are_limited() {
        let mut requests = Requests::new(1);
        assert!(requests.insert(request(1, false)).is_some());
        assert_eq!(requests.insert(request(2, false)), None);
        (3..100).for_each(|token| assert!(requests.insert(request(token, true)).is_some()));
        assert_eq!((requests.len(), requests.on_devices()), (98, 1));
    }

    /// With a search, these 200,000 cancellations would read 20,000,000,000 entries.
    #[test]
    fn a_cancellation_among_many_endless_requests_finds_its_own() {
        let mut requests = Requests::new(192);
        let count = if cfg!(miri) { 100 } else { 200_000 };
        let keys: Vec<_> =
            (0..count).map(|token| requests.insert(request(token, true)).unwrap()).collect();
        for (token, key) in keys.iter().enumerate().rev() {
            assert_eq!(requests.cancel(token as u64), Some(*key));
            assert_eq!(requests.cancel(token as u64), None, "only once");
        }
        assert!(keys.iter().all(|key| requests.remove(*key).is_some_and(|it| it.cancelled)));
        assert_eq!((requests.len(), requests.by_token.len()), (0, 0));
    }

    proptest! {
        /// No two requests in flight have the same token.
        #[test]
        fn finds_what_a_scan_would_find(
            steps in prop::collection::vec((0u8..5, 0u64..12, any::<bool>()), 0..200),
        ) {
            let mut requests = Requests::new(6);
            // Key, token, endless, cancelled.
            let mut model: Vec<(u64, u64, bool, bool)> = Vec::new();
            for (step, token, endless) in steps {
                let place = model.iter().position(|it| it.1 == token);
                match step {
                    0 | 1 if place.is_none() => {
                        let full = model.iter().filter(|it| !it.2).count() == 6;
                        let key = requests.insert(request(token, endless));
                        prop_assert_eq!(key.is_none(), full && !endless);
                        model.extend(key.map(|key| (key, token, endless, false)));
                    }
                    2 => {
                        let live = place.filter(|place| !model[*place].3);
                        prop_assert_eq!(requests.cancel(token), live.map(|place| model[place].0));
                        live.inspect(|place| model[*place].3 = true);
                    }
                    3 if place.is_some() => {
                        let (key, token, endless, cancelled) = model.remove(place.unwrap());
                        let gone = requests.remove(key).unwrap();
                        let found = (gone.token, gone.endless, gone.cancelled);
                        prop_assert_eq!(found, (token, endless, cancelled));
                        prop_assert!(requests.remove(key).is_none());
                    }
                    4 if token == 0 => {
                        let all = requests.cancel_all();
                        let live = model.iter_mut().filter(|it| !it.3);
                        let marked = live.map(|it| {
                            it.3 = true;
                            it.0
                        });
                        let marked: BTreeSet<u64> = marked.collect();
                        prop_assert_eq!(all.into_iter().collect::<BTreeSet<_>>(), marked);
                    }
                    _ => {}
                }
                prop_assert_eq!(requests.len(), model.len());
                prop_assert_eq!(requests.on_devices(), model.iter().filter(|it| !it.2).count());
            }
        }
    }
}
