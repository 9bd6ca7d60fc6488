//! Requests of C programs: their fields and their memory.

use crate::{File, file::vector, guard::Failure};
use core::{ffi::c_void, time::Duration};
use nowait::{Errno, IoBuffer, IoBufferMut, Nowait, Queue, RequestId, Stream};
use nowait_sys::file::IoVec;
use std::os::fd::{AsFd, BorrowedFd};

/// `NOWAIT_OP_*`.
pub mod op {
    /// Read into one buffer.
    pub const READ: u16 = 1;
    /// Write from one buffer.
    pub const WRITE: u16 = 2;
    /// Read into several buffers.
    pub const READV: u16 = 3;
    /// Write from several buffers.
    pub const WRITEV: u16 = 4;
    /// Make data and metadata durable.
    pub const SYNC: u16 = 5;
    /// Make the data durable.
    pub const DATASYNC: u16 = 6;
    /// Wait for readiness.
    pub const POLL: u16 = 7;
    /// Read without an offset.
    pub const READ_STREAM: u16 = 8;
    /// Write without an offset.
    pub const WRITE_STREAM: u16 = 9;
    /// Make a range of the data durable.
    pub const SYNC_RANGE: u16 = 10;
    /// Read without an offset into several buffers.
    pub const READV_STREAM: u16 = 11;
    /// Write without an offset from several buffers.
    pub const WRITEV_STREAM: u16 = 12;
}

/// `nowait_request`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// One of [`op`].
    pub op: u16,
    /// [`LINK`].
    pub flags: u16,
    /// The descriptor of a poll or a stream.
    pub fd: i32,
    /// The file of an operation that does not use `fd`; otherwise null.
    pub file: *mut File,
    /// The memory, or the array of vectors.
    pub buffer: *mut c_void,
    /// Number of bytes, or of vectors.
    pub length: u64,
    /// Offset in bytes.
    pub offset: u64,
    /// Events of a poll.
    pub events: u32,
    /// Zero.
    pub reserved_events: u32,
    /// Value for the completion.
    pub user_data: u64,
    /// Time limit in nanoseconds; 0: none.
    pub timeout_ns: u64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// `NOWAIT_LINK`.
pub const LINK: u16 = 1;

/// Memory that the caller lends until a call has returned the completion of the request.
#[derive(Clone, Copy, Debug)]
pub struct BorrowedMemory(IoVec);

// SAFETY: the caller lends the memory: it stays valid and unchanged until the queue returns the
// value (nowait.h, BUFFERS). The value holds only the address.
unsafe impl IoBuffer for BorrowedMemory {
    fn as_ptr(&self) -> *const u8 {
        self.0.base
    }

    fn len(&self) -> usize {
        self.0.len
    }
}

// SAFETY: as above, and nothing else uses the memory of a read meanwhile. The library does not
// write to the memory of a write: the queue takes this address for reads only.
unsafe impl IoBufferMut for BorrowedMemory {
    fn as_mut_ptr(&mut self) -> *mut u8 {
        self.0.base
    }
}

/// A descriptor that the caller keeps open until the submission; from then on the engine references
/// the open file.
struct Source(i32);

impl AsFd for Source {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: the queue uses the number only while it prepares and submits the request, and the
        // caller keeps it open until then. A number that is not open, other than -1, is an error of
        // the system, not undefined behaviour.
        unsafe { BorrowedFd::borrow_raw(self.0) }
    }
}

impl Request {
    /// Returns `true` if the next request begins when this one has succeeded.
    pub(crate) fn is_linked(&self) -> bool {
        self.flags & LINK != 0
    }

    /// Puts the request into the queue. If `first` is given, the request follows `first`.
    ///
    /// # Safety
    /// File and memory are as the header requires.
    pub(crate) unsafe fn prepare(
        &self,
        queue: &mut Queue<u64, BorrowedMemory>,
        nowait: &Nowait,
        first: Option<RequestId>,
    ) -> Result<RequestId, Failure> {
        self.check(first.is_some())?;
        // SAFETY: the caller's promise.
        let id = unsafe { self.take(queue, nowait) }?;
        if let Some(Err(error)) = first.map(|first| queue.link(first, id)) {
            queue.take_back(id); // must not run without the request before it
            return Err(error.into());
        }
        if self.timeout_ns != 0 {
            queue.timeout(id, Duration::from_nanos(self.timeout_ns))?;
        }
        Ok(id)
    }

    /// # Safety
    /// File and memory are as the header requires.
    unsafe fn take(
        &self,
        queue: &mut Queue<u64, BorrowedMemory>,
        nowait: &Nowait,
    ) -> Result<RequestId, Failure> {
        let (tag, source) = (self.user_data, Source(self.fd));
        match self.op {
            op::POLL => return Ok(queue.poll(source, self.events as u16, tag)?),
            op::READ_STREAM => {
                let stream = Stream::new(nowait, source);
                return Ok(queue.read_stream(&stream, self.memory(), tag)?);
            }
            op::WRITE_STREAM => {
                let stream = Stream::new(nowait, source);
                return Ok(queue.write_stream(&stream, self.memory(), tag)?);
            }
            op::READV_STREAM => {
                let stream = Stream::new(nowait, source);
                // SAFETY: the caller's array, as promised.
                return Ok(queue.read_stream_vectored(
                    &stream,
                    unsafe { self.memories() }?,
                    tag,
                )?);
            }
            op::WRITEV_STREAM => {
                let stream = Stream::new(nowait, source);
                // SAFETY: as above.
                return Ok(queue.write_stream_vectored(
                    &stream,
                    unsafe { self.memories() }?,
                    tag,
                )?);
            }
            _ => {}
        }
        // SAFETY: the caller's file; `check` has found that it is not null.
        let file = unsafe { &(*self.file).0 };
        // SAFETY: for these operations the caller's memory, as promised.
        let taken = unsafe {
            match self.op {
                op::READ => queue.read(file, self.memory(), self.offset, tag),
                op::WRITE => queue.write(file, self.memory(), self.offset, tag),
                op::READV => queue.read_vectored(file, self.memories()?, self.offset, tag),
                op::WRITEV => queue.write_vectored(file, self.memories()?, self.offset, tag),
                op::SYNC => queue.sync_all(file, tag),
                op::SYNC_RANGE => queue.sync_range(file, self.offset, self.length, tag),
                _ => queue.sync_data(file, tag),
            }
        };
        Ok(taken?)
    }

    fn memory(&self) -> BorrowedMemory {
        BorrowedMemory(IoVec { base: self.buffer.cast(), len: self.length as usize })
    }

    /// # Safety
    /// `buffer` points to `length` vectors.
    unsafe fn memories(&self) -> Result<Vec<BorrowedMemory>, Failure> {
        // SAFETY: promised above.
        let parts = unsafe { vector(self.buffer.cast(), self.length as usize) }?;
        Ok(parts.iter().copied().map(BorrowedMemory).collect())
    }

    /// Checks operation, file and descriptor, and that the fields that this operation does not use
    /// are 0: a later version may give these a meaning.
    fn check(&self, is_later: bool) -> Result<(), Failure> {
        let refused = |errno: Errno, because: &str| {
            let doing = format!("submit of a request {:#x}", self.user_data);
            Err(Failure::new(errno, &doing, because))
        };
        let is_stream = matches!(
            self.op,
            op::READ_STREAM | op::WRITE_STREAM | op::READV_STREAM | op::WRITEV_STREAM
        );
        let has_fd = is_stream || self.op == op::POLL;
        let has_memory = is_stream || (op::READ..=op::WRITEV).contains(&self.op);
        let has_place = (op::READ..=op::WRITEV).contains(&self.op) || self.op == op::SYNC_RANGE;
        if !(op::READ..=op::WRITEV_STREAM).contains(&self.op) {
            return refused(Errno::INVAL, "op is none of NOWAIT_OP_*");
        }
        if has_fd && self.fd < 0 {
            return refused(Errno::BADF, "fd is negative");
        }
        match (self.file.is_null(), has_fd) {
            (true, false) => return refused(Errno::INVAL, "this operation needs file"),
            (false, true) => {
                return refused(Errno::INVAL, "this operation works on fd: file must be NULL");
            }
            _ => {}
        }
        let memory = has_memory || self.buffer.is_null();
        let length = has_memory || has_place || self.length == 0;
        let place = has_place || self.offset == 0;
        let source = has_fd || self.fd == 0;
        let events = self.op == op::POLL || self.events == 0;
        let unused = self.flags & !LINK == 0
            && self.reserved_events == 0
            && self.reserved == [0; 2]
            && u16::try_from(self.events).is_ok();
        if !(memory && length && place && source && events && unused) {
            return refused(Errno::INVAL, "a field that the operation does not use must be 0");
        }
        if is_later && is_stream {
            return refused(Errno::OPNOTSUPP, "a stream request cannot follow another request");
        }
        Ok(())
    }
}
