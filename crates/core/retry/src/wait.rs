//! Wait entries, which kick a waiting operation.

use crate::{Operation, Request, primitives::Arc};
use std::task::Waker;

/// An entry that an operation leaves in a wait queue: the waker of a request, of a Rust future's
/// task, or of a parked thread, which all run the same operations. `wake` kicks the operation: its
/// condition may have come true.
pub type WaitEntry = Waker;

/// The means by which an iteration waits: makes entries and tokens of the iteration's request.
pub struct Wait<'a, O: Operation>(pub(crate) &'a Arc<Request<O>>);

impl<O: Operation> Wait<'_, O> {
    /// Makes an entry to leave in a wait queue.
    pub fn entry(&self) -> WaitEntry {
        Waker::from(self.0.clone())
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
