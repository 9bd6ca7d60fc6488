//! The requests of a context that are under way, by what a cancellation names them with.

use crate::operation::FileOperation;
use nowait_block::Slab;
use nowait_retry::Request;
use parking_lot::Mutex;
use std::sync::Arc;

/// One request under way.
struct Entry {
    obj: u64,
    /// May wait for ever: a poll, or a stream that waits for its peer.
    endless: bool,
    request: Arc<Request<FileOperation>>,
}

/// The requests of a context that have not ended, but not direct ones on its own queue
/// (`direct.rs`), nor copies that wait for nothing but their turn on the driver. A request is in
/// here from before its first iteration until its event is due.
pub(crate) struct UnderWay(Mutex<Slab<Entry>>);

impl Default for UnderWay {
    fn default() -> UnderWay {
        // The slots of the context are the limit; they are reserved first.
        UnderWay(Mutex::new(Slab::new(usize::MAX)))
    }
}

impl UnderWay {
    /// Takes a request in, whose first iteration has not run; `obj` is what it can be found by.
    pub(crate) fn add(&self, request: &Arc<Request<FileOperation>>, obj: u64, endless: bool) {
        let key = self.insert(request.clone(), obj, endless);
        request.prepare(|operation, _| operation.under_way = key);
    }

    /// Takes a request in that is in an iteration; returns what it is taken out by.
    pub(crate) fn insert(
        &self,
        request: Arc<Request<FileOperation>>,
        obj: u64,
        endless: bool,
    ) -> Option<u64> {
        self.0.lock().insert(Entry { obj, endless, request }).ok()
    }

    /// Takes a request out, which has ended.
    pub(crate) fn remove(&self, key: u64) {
        // Dropped after the lock is given up.
        let _ended = self.0.lock().remove(key);
    }

    /// Returns the first request named `obj` that nobody has cancelled yet.
    pub(crate) fn find(&self, obj: u64) -> Option<Arc<Request<FileOperation>>> {
        let requests = self.0.lock();
        let key = requests.find(|it| it.obj == obj && !it.request.is_cancelled())?;
        requests.get(key).map(|entry| entry.request.clone())
    }

    /// Returns those that may never end by themselves.
    pub(crate) fn endless(&self) -> Vec<Arc<Request<FileOperation>>> {
        let requests = self.0.lock();
        requests.iter().filter(|it| it.endless).map(|entry| entry.request.clone()).collect()
    }
}
