//! Wait entries, which kick a waiting operation.

use crate::{Operation, Request, primitives::Arc};
use std::task::Waker;

/// A waker that an operation leaves in a wait queue. `wake` asks for another iteration, because the
/// operation's condition may have come true.
pub type WaitEntry = Waker;

/// Makes wait entries and tokens of the request that is being run.
pub struct Wait<'a, O: Operation>(pub(crate) &'a Arc<Request<O>>);

impl<O: Operation> Wait<'_, O> {
    /// Makes a wait entry of the request.
    pub fn entry(&self) -> WaitEntry {
        Waker::from(self.0.clone())
    }

    /// Makes the token of a bio: it owns a reference, which [`Request::from_token`] takes back
    /// once.
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
