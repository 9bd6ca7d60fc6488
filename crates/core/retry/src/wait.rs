//! Wait entries: how a dormant operation is kicked.

use crate::{Operation, Request, primitives::Arc};
use std::task::Waker;

/// A waiting operation that a kick makes check its condition again.
pub trait Kickable: Send + Sync {
    /// Reports that the condition may have come true. Cheap; never blocks.
    fn kick(self: Arc<Self>);
}

/// An entry that an operation leaves in a wait queue. It identifies the operation and keeps it
/// alive.
#[derive(Clone)]
pub enum WaitEntry {
    /// A request of the engine.
    Request(Arc<dyn Kickable>),
    /// The waker of a Rust future's task or of a parked thread, which run the same operations.
    Waker(Waker),
}

impl WaitEntry {
    /// Kicks the operation that left this entry.
    pub fn kick(self) {
        match self {
            WaitEntry::Request(request) => request.kick(),
            WaitEntry::Waker(waker) => waker.wake(),
        }
    }
}

impl From<Waker> for WaitEntry {
    fn from(waker: Waker) -> WaitEntry {
        WaitEntry::Waker(waker)
    }
}

impl core::fmt::Debug for WaitEntry {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("WaitEntry")
    }
}

/// The means by which an iteration waits: makes entries and tokens of the iteration's request.
pub struct Wait<'a, O: Operation>(pub(crate) &'a Arc<Request<O>>);

impl<O: Operation> Wait<'_, O> {
    /// Makes an entry to leave in a wait queue.
    pub fn entry(&self) -> WaitEntry {
        WaitEntry::Request(self.0.clone())
    }

    /// Makes the token of a bio: a reference that [`Request::from_token`] takes back, once.
    pub fn token(&self) -> u64 {
        Arc::into_raw(self.0.clone()) as u64
    }

    /// Returns `true` if the operation was asked to end: it should begin nothing new.
    pub fn is_cancelled(&self) -> bool {
        self.0.is_cancelled()
    }

    /// Returns the request, for handing it to another run list.
    pub fn request(&self) -> Arc<Request<O>> {
        self.0.clone()
    }
}
