//! The storage that a protocol asks for reads and writes.

use crate::{BlockingTask, Chunk, Image, KnownFailures, LentMemory, Pool, RequestEnd, Tag};
use std::sync::Arc;

/// Memory lent for one request.
#[derive(Debug)]
pub struct Loan {
    /// The pieces in the order of the image, none of them empty.
    pub segments: Vec<LentMemory>,
    /// `true`: the image is written from the memory; `false`: the image is read into it.
    pub writes: bool,
    /// The write must be durable when it ends.
    pub durable: bool,
}

/// Carries out the requests of fronts on one thread. No function waits.
///
/// The front checks that the range of a request lies within the image. Requests end in any order.
/// Requests that overlap and are in flight at the same time take effect in any order.
pub trait Medium {
    /// The medium's handle of an image's file.
    type File;

    /// Returns the pool of memory for transfers.
    fn pool(&mut self) -> &mut Pool;

    /// Reads into `chunk` at `offset` of the image. Zeroes the bytes of the chunk's last block that
    /// lie behind the end of the file.
    fn read(&mut self, image: &Arc<Image<Self::File>>, chunk: Chunk, offset: u64, tag: Tag);

    /// Writes `chunk` at `offset` of the image; with `durable` the bytes are durable when the write
    /// ends.
    fn write(
        &mut self,
        image: &Arc<Image<Self::File>>,
        chunk: Chunk,
        offset: u64,
        durable: bool,
        tag: Tag,
    );

    /// Reads into or writes from memory of another owner, at `offset` of the image, if that is
    /// possible without a copy. The medium no longer uses the memory when the request has ended.
    ///
    /// # Errors
    /// Returns the loan if a copy is needed: the caller must use a chunk.
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

    /// Makes all writes durable that ended before this call. Fails if data may have been lost and
    /// no flush of the client has reported that yet.
    fn flush(&mut self, image: &Arc<Image<Self::File>>, told: &KnownFailures, tag: Tag);

    /// Queues a blocking task.
    fn run(&mut self, image: &Arc<Image<Self::File>>, task: BlockingTask, tag: Tag);

    /// Tells the medium that no client waits for the requests of `owner` any more. The medium may
    /// drop their blocking tasks that have not begun, and then reports no end of these tasks.
    fn forget(&mut self, owner: u64) {
        let _ = owner;
    }

    /// Returns the end of a request that has ended, if there is one.
    fn pop(&mut self) -> Option<RequestEnd>;
}
