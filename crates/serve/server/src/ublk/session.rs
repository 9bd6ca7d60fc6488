//! The requests of one ublk queue, and their results. Uses no device: requests come in, results go
//! out.

use nowait::Errno;
use nowait_device::{
    BlockingTask, Image, Kind, KnownFailures, LentMemory, Loan, Medium, RequestEnd, Tag,
};
use nowait_sys::ublk::{Request, operation, request_flag};
use std::{
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    sync::Arc,
};

/// The kernel's side of a queue.
pub trait Kernel {
    /// Lends the memory for the data of a request. The memory holds the data of a write, or
    /// receives the data of a read. `None`: the memory is shorter than `len`.
    fn lend(&self, tag: u16, len: usize) -> Option<LentMemory>;

    /// Takes the result of a request: bytes of data, or a negative errno. Does not wait.
    fn commit(&mut self, tag: u16, result: i32);
}

#[derive(Clone, Copy, Debug)]
struct Active {
    kind: Kind,
    bytes: u64,
    /// The result on success.
    result: i32,
    began_ns: u64,
}

/// The requests of one queue.
#[derive(Debug)]
pub struct Session<F> {
    owner: u64,
    image: Arc<Image<F>>,
    told: KnownFailures,
    requests: Vec<Option<Active>>,
    in_flight: usize,
}

impl<F> Session<F> {
    /// Makes the session of a queue of `depth` requests. The tags of its requests carry `owner`.
    pub fn new(owner: u64, image: Arc<Image<F>>, depth: u16) -> Session<F> {
        let (told, requests) = (image.join(), vec![None; usize::from(depth)]);
        Session { owner, image, told, requests, in_flight: 0 }
    }

    /// Returns how many requests are in flight.
    pub fn in_flight(&self) -> usize {
        self.in_flight
    }

    /// Begins a request, or answers it with an error if it cannot begin. If the medium panics, the
    /// session answers the request with `EIO`, unless the request is in flight, and continues the
    /// panic.
    pub fn request<M: Medium<File = F>>(
        &mut self,
        request: Request,
        medium: &mut M,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) {
        let begin = || self.begin(request, medium, kernel, now_ns);
        match catch_unwind(AssertUnwindSafe(begin)) {
            Ok(Ok(())) => {}
            Ok(Err(errno)) => kernel.commit(request.tag, -errno.raw()),
            Err(cause) => {
                if self.requests.get(usize::from(request.tag)).is_none_or(Option::is_none) {
                    kernel.commit(request.tag, -Errno::IO.raw());
                }
                resume_unwind(cause);
            }
        }
    }

    /// Answers all requests in flight with `EIO`. The caller has dropped the medium, which
    /// therefore reports no ends of these requests.
    pub fn give_up(&mut self, kernel: &mut impl Kernel, now_ns: u64) {
        for slot in 0..self.requests.len() as u32 {
            let tag = Tag { owner: self.owner, slot, part: 0 };
            self.answer(tag, Err(Errno::IO), kernel, now_ns);
        }
    }

    fn begin<M: Medium<File = F>>(
        &mut self,
        request: Request,
        medium: &mut M,
        kernel: &impl Kernel,
        now_ns: u64,
    ) -> Result<(), Errno> {
        let Request { tag, operation, flags, offset, len } = request;
        let writes = !matches!(operation, operation::READ | operation::FLUSH);
        if writes && self.image.properties().read_only {
            return Err(Errno::ROFS);
        }
        if operation == operation::FLUSH {
            let tag = self.insert(tag, Kind::Flush, 0, now_ns);
            medium.flush(&self.image, &self.told, tag);
            return Ok(());
        }
        // The image may have become smaller than the disk.
        if len == 0 || !self.image.contains(offset, len) {
            return Err(Errno::IO);
        }
        let (range, durable) = (offset..offset + len, flags & request_flag::FUA != 0);
        match operation {
            operation::READ | operation::WRITE => {
                return self.transfer(request, durable, medium, kernel, now_ns);
            }
            operation::DISCARD => {
                let tag = self.insert(tag, Kind::Discard, len, now_ns);
                medium.run(&self.image, BlockingTask::Discard { range, durable }, tag);
            }
            operation::WRITE_ZEROES => {
                let allocated = flags & request_flag::NO_UNMAP != 0;
                let tag = self.insert(tag, Kind::Zero, len, now_ns);
                let task = BlockingTask::Zero { range, allocated, fast: false, durable };
                medium.run(&self.image, task, tag);
            }
            _ => return Err(Errno::OPNOTSUPP),
        }
        Ok(())
    }

    fn transfer<M: Medium<File = F>>(
        &mut self,
        request: Request,
        durable: bool,
        medium: &mut M,
        kernel: &impl Kernel,
        now_ns: u64,
    ) -> Result<(), Errno> {
        let Request { tag, operation, offset, len, .. } = request;
        let writes = operation == operation::WRITE;
        let len = usize::try_from(len).map_err(|_| Errno::INVAL)?;
        let memory = kernel.lend(tag, len).ok_or(Errno::INVAL)?;
        let kind = if writes { Kind::Write } else { Kind::Read };
        let asked = self.insert(tag, kind, len as u64, now_ns);
        let loan = Loan { segments: vec![memory], writes, durable: writes && durable };
        let Err(loan) = medium.borrow(&self.image, loan, offset, asked) else { return Ok(()) };
        let mut chunk = medium.pool().take_for(self.image.number(), len);
        if writes {
            loan.segments.iter().for_each(|memory| memory.copy_to(chunk.data_mut()));
            medium.write(&self.image, chunk, offset, durable, asked);
        } else {
            medium.read(&self.image, chunk, offset, asked);
        }
        Ok(())
    }

    fn insert(&mut self, tag: u16, kind: Kind, bytes: u64, now_ns: u64) -> Tag {
        self.image.stats().begin();
        let data = matches!(kind, Kind::Read | Kind::Write);
        let result = if data { i32::try_from(bytes).unwrap_or(i32::MAX) } else { 0 };
        let active = Active { kind, bytes, result, began_ns: now_ns };
        self.requests[usize::from(tag)] = Some(active);
        self.in_flight += 1;
        Tag { owner: self.owner, slot: u32::from(tag), part: 0 }
    }

    fn remove(&mut self, tag: u16) -> Option<Active> {
        let active = self.requests.get_mut(usize::from(tag))?.take()?;
        self.in_flight -= 1;
        Some(active)
    }

    /// Passes the result of a request that has ended at the medium to the kernel.
    pub fn end<M: Medium<File = F>>(
        &mut self,
        ended: RequestEnd,
        medium: &mut M,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) {
        let RequestEnd { tag, result, chunk, .. } = ended;
        if let Some(chunk) = chunk {
            let is_read = self.active(tag).is_some_and(|active| active.kind == Kind::Read);
            if is_read && result.is_ok() {
                let memory = kernel.lend(tag.slot as u16, chunk.data().len());
                memory.into_iter().for_each(|mut memory| memory.copy_from(chunk.data()));
            }
            medium.pool().give_back(chunk);
        }
        self.answer(tag, result, kernel, now_ns);
    }

    fn active(&self, tag: Tag) -> Option<&Active> {
        self.requests.get(tag.slot as usize)?.as_ref()
    }

    fn answer(
        &mut self,
        tag: Tag,
        ended: Result<(), Errno>,
        kernel: &mut impl Kernel,
        now_ns: u64,
    ) {
        let tag = tag.slot as u16;
        let Some(active) = self.remove(tag) else { return };
        let Active { kind, bytes, result, began_ns } = active;
        let elapsed_ns = now_ns.saturating_sub(began_ns);
        self.image.stats().end(kind, bytes, elapsed_ns, ended.is_err());
        let result = ended.map_or_else(|errno| -errno.raw(), |()| result);
        kernel.commit(tag, result);
    }
}
