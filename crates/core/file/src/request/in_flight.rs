//! The requests of a context in flight, by the names that a cancellation uses.

use super::FileOperation;
use nowait_retry::Request;
use nowait_sys::mutex::Mutex;
use rustc_hash::FxHashMap;
use std::{cmp::Reverse, collections::hash_map::Entry, sync::Arc};

struct Known {
    number: u64,
    /// `true`: the request may wait for ever: a poll, or a stream that waits for its peer.
    endless: bool,
    request: Arc<Request<FileOperation>>,
    /// Other requests of the same name: a program may reuse an iocb before its event.
    namesakes: Vec<Known>,
}

#[derive(Default)]
struct Table {
    by_obj: FxHashMap<u64, Known>,
    last_number: u64,
}

/// The requests of a context that have not ended. Direct requests that its own queue has accepted
/// (`direct.rs`) are not included. A request is added before its first iteration, and removed when
/// its event is due.
#[derive(Default)]
pub(crate) struct InFlight(Mutex<Table>);

#[derive(Clone, Copy, Debug)]
pub(crate) struct Key {
    obj: u64,
    number: u64,
}

impl InFlight {
    pub(crate) fn add(&self, request: &Arc<Request<FileOperation>>, obj: u64, endless: bool) {
        let mut table = self.0.lock();
        table.last_number += 1;
        let number = table.last_number;
        request.prepare(|operation, _| operation.in_flight = Some(Key { obj, number }));
        let known = Known { number, endless, request: request.clone(), namesakes: Vec::new() };
        match table.by_obj.entry(obj) {
            Entry::Vacant(place) => drop(place.insert(known)),
            Entry::Occupied(mut first) => first.get_mut().namesakes.push(known),
        }
    }

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

    pub(crate) fn find(&self, obj: u64) -> Option<Arc<Request<FileOperation>>> {
        let table = self.0.lock();
        let first = table.by_obj.get(&obj)?;
        let mut all = core::iter::once(first).chain(&first.namesakes);
        all.find(|known| !known.request.is_cancelled()).map(|known| known.request.clone())
    }

    /// Returns the requests that may never end by themselves, the newest first.
    pub(crate) fn endless(&self) -> Vec<Arc<Request<FileOperation>>> {
        let table = self.0.lock();
        let all =
            table.by_obj.values().flat_map(|first| core::iter::once(first).chain(&first.namesakes));
        let mut endless: Vec<&Known> = all.filter(|known| known.endless).collect();
        endless.sort_unstable_by_key(|known| Reverse(known.number));
        endless.into_iter().map(|known| known.request.clone()).collect()
    }
}
