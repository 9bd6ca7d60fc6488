//! The requests of a context in flight, by the names that a cancellation uses.

use super::FileOperation;
use nowait_retry::Request;
use nowait_sys::mutex::Mutex;
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, collections::hash_map::Entry, sync::Arc};

/// One request in flight.
struct Known {
    number: u64,
    /// May wait for ever: a poll, or a stream that waits for its peer.
    endless: bool,
    request: Arc<Request<FileOperation>>,
    /// Others of the same name: a program may use an iocb again before its event.
    namesakes: Vec<Known>,
}

#[derive(Default)]
struct Table {
    by_obj: FxHashMap<u64, Known>,
    last_number: u64,
}

/// The requests of a context that have not ended, but not direct ones on its own queue
/// (`direct.rs`), nor copies that wait for nothing but their turn on the driver. A request is in
/// here from before its first iteration until its event is due.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Table>);

/// The key by which a request is taken out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    obj: u64,
    number: u64,
}

impl InFlight {
    /// Takes a request in, whose first iteration has not run; `obj` is what it can be found by.
    pub(crate) fn add(&self, request: &Arc<Request<FileOperation>>, obj: u64, endless: bool) {
        let key = self.insert(request.clone(), obj, endless);
        request.prepare(|operation, _| operation.in_flight_as(key));
    }

    /// Takes a request in that is in an iteration; returns what it is taken out by.
    pub(crate) fn insert(
        &self,
        request: Arc<Request<FileOperation>>,
        obj: u64,
        endless: bool,
    ) -> Key {
        let mut table = self.0.lock();
        table.last_number += 1;
        let number = table.last_number;
        let known = Known { number, endless, request, namesakes: Vec::new() };
        match table.by_obj.entry(obj) {
            Entry::Vacant(place) => drop(place.insert(known)),
            Entry::Occupied(mut first) => first.get_mut().namesakes.push(known),
        }
        Key { obj, number }
    }

    /// Takes a request out, which has ended.
    pub(crate) fn remove(&self, key: Key) {
        let mut table = self.0.lock();
        let Entry::Occupied(mut first) = table.by_obj.entry(key.obj) else { return };
        let known = first.get_mut();
        let ended = if known.number != key.number {
            let index = known.namesakes.iter().position(|other| other.number == key.number);
            index.map(|index| known.namesakes.swap_remove(index))
        } else if let Some(mut other) = known.namesakes.pop() {
            other.namesakes = core::mem::take(&mut known.namesakes);
            Some(first.insert(other))
        } else {
            Some(first.remove())
        };
        drop(table);
        drop(ended);
    }

    /// Returns the first request named `obj` that is not cancelled yet.
    pub(crate) fn find(&self, obj: u64) -> Option<Arc<Request<FileOperation>>> {
        let table = self.0.lock();
        let first = table.by_obj.get(&obj)?;
        let mut all = core::iter::once(first).chain(&first.namesakes);
        all.find(|known| !known.request.is_cancelled()).map(|known| known.request.clone())
    }

    /// Returns those that may never end by themselves, the newest first, as aio_cancel takes them.
    pub(crate) fn endless(&self) -> Vec<Arc<Request<FileOperation>>> {
        let table = self.0.lock();
        let all =
            table.by_obj.values().flat_map(|first| core::iter::once(first).chain(&first.namesakes));
        let mut endless: Vec<&Known> = all.filter(|known| known.endless).collect();
        endless.sort_unstable_by_key(|known| Reverse(known.number));
        endless.into_iter().map(|known| known.request.clone()).collect()
    }
}
