//! The storage that a protocol asks for reads and writes.

use crate::{Chore, Chunk, Image, LentMemory, Pool, RequestEnd, Tag};
use std::sync::Arc;

/// Memory lent for one request.
#[derive(Debug)]
pub struct Loan {
    /// In the order of the image, none of them empty.
    pub segments: Vec<LentMemory>,
    /// The image is written from it, else it is read into it.
    pub writes: bool,
    /// What is written is durable when it ends.
    pub durable: bool,
}

/// Carries out the requests of fronts on one thread. Nothing here waits.
///
/// The range of a request lies within the image: the front has checked that. Requests end in any
/// order. Those that overlap and are in flight at the same time take effect in any order.
pub trait Medium {
    /// How it knows the file of an image.
    type File;

    /// Returns the memory of transfers.
    fn pool(&mut self) -> &mut Pool;

    /// Reads into `chunk` at `offset` of the image. What lies behind the end of the file reads as
    /// zeroes.
    fn read(&mut self, image: &Arc<Image<Self::File>>, chunk: Chunk, offset: u64, tag: Tag);

    /// Writes `chunk` at `offset` of the image; with `durable` it is that when it ends.
    fn write(
        &mut self,
        image: &Arc<Image<Self::File>>,
        chunk: Chunk,
        offset: u64,
        durable: bool,
        tag: Tag,
    );

    /// Reads into or writes from memory of another owner, at `offset` of the image, if that is
    /// possible without a copy. It is not used any more when the request has ended.
    ///
    /// # Errors
    /// The loan: a chunk has to do.
    fn borrow(
        &mut self,
        image: &Arc<Image<Self::File>>,
        loan: Loan,
        offset: u64,
        tag: Tag,
    ) -> Result<(), Loan> {
        let _ = (image, offset, tag);
        Err(loan)
    }

    /// Makes durable what ended before.
    fn flush(&mut self, image: &Arc<Image<Self::File>>, tag: Tag);

    /// Does what takes longer.
    fn run(&mut self, image: &Arc<Image<Self::File>>, chore: Chore, tag: Tag);

    /// Notes that no client waits for what `owner` has asked for: chores that have not begun need
    /// not be done, and then have no end.
    fn forget(&mut self, owner: u64) {
        let _ = owner;
    }

    /// Returns a request that has ended.
    fn pop(&mut self) -> Option<RequestEnd>;
}
