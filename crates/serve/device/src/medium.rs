//! The storage behind fronts, which ask it for reads, writes and flushes.

use crate::{BlockingTask, Chunk, Image, KnownFailures, LentMemory, Pool, RequestEnd, Tag};
use std::sync::Arc;

/// Memory that a front lends to the medium for one request.
#[derive(Debug)]
pub struct Loan {
    /// The pieces of the memory, in the order of the image's bytes. No piece is empty.
    pub segments: Vec<LentMemory>,
    /// `true`: the medium writes the memory to the image; `false`: it reads the image into the
    /// memory.
    pub writes: bool,
    /// `true`: the write must be durable when it succeeds; `false` for reads.
    pub durable: bool,
}

/// Carries out the requests of the fronts of one thread. No function of this trait waits for I/O.
///
/// The front checks that the range of each request lies within the image. Requests end in any
/// order. Requests that overlap and are in flight at the same time take effect in any order.
pub trait Medium {
    /// The medium's handle of an image's file.
    type File;

    /// Returns the pool of memory for transfers.
    fn pool(&mut self) -> &mut Pool;

    /// Fills the requested bytes of `chunk` from `offset` of the image. The read fails if the file
    /// ends before the last requested byte.
    fn read(&mut self, image: &Arc<Image<Self::File>>, chunk: Chunk, offset: u64, tag: Tag);

    /// Writes `chunk` at `offset` of the image; with `durable` the bytes are durable when the write
    /// succeeds.
    fn write(
        &mut self,
        image: &Arc<Image<Self::File>>,
        chunk: Chunk,
        offset: u64,
        durable: bool,
        tag: Tag,
    );

    /// Reads into or writes from memory of another owner, at `offset` of the image, if that is
    /// possible without a copy. The medium stops using the memory before it reports the end of the
    /// request.
    ///
    /// # Errors
    /// Returns the loan if the medium cannot use this memory, or cannot start the request without
    /// waiting: the caller must use a chunk instead.
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

    /// Makes all writes durable that ended before this call. For an image in a file, the flush also
    /// fails if data may have been lost and no flush of the client has reported that loss yet;
    /// `told` counts the losses that the client knows.
    fn flush(&mut self, image: &Arc<Image<Self::File>>, told: &KnownFailures, tag: Tag);

    /// Queues a blocking task.
    fn run(&mut self, image: &Arc<Image<Self::File>>, task: BlockingTask, tag: Tag);

    /// Tells the medium that the client `owner` has gone, and no longer waits for its requests. The
    /// medium may drop blocking tasks of `owner` that have not begun, and reports no end of these
    /// tasks.
    fn forget(&mut self, owner: u64) {
        let _ = owner;
    }

    /// Takes the end of a request that has ended; `None`: the medium has no such end now.
    fn pop(&mut self) -> Option<RequestEnd>;
}
