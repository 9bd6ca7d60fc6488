//! Direct requests on a context's own queue: carried whole, without an operation.
//!
//! Direct I/O has nothing to wait for but its one bio (OLS 2003 paper, section 4): no iterations,
//! no held file, no place in an order. What the event needs is kept in a table; only a request
//! that comes back short or refused becomes an operation, which goes on from there.

use super::{Body, Carrier, FileOperation, event::EventTarget, kernel::KernelBody};
use crate::{
    Command, Context, Kind,
    cached::kernel_writes::{KeptWrite, KernelWrites, Places},
    order::InodeKey,
    route::{
        Route,
        token::{self, Owner},
    },
};
use nowait_block::{BlockBackend, Completion, Slab};
use nowait_retry::Request;
use nowait_sys::mutex::Mutex;
use nowait_sys::{Errno, aio::IoEvent, cred::Credentials, file};
use std::sync::Arc;

/// A direct request in flight.
pub(crate) struct DirectRequest {
    pub(crate) command: Command,
    /// `data` of the iocb.
    pub(crate) data: u64,
    /// Address of the iocb.
    pub(crate) obj: u64,
    /// The inode, where it was looked up: needed to go on with a short transfer.
    pub(crate) inode: Option<InodeKey>,
    pub(crate) cancelled: bool,
    /// Where it is counted as a write past the page cache.
    pub(crate) write: Option<Places>,
}

/// One that needs more than its bio, and what the bio came to.
pub(crate) type Unfinished = (DirectRequest, Result<u32, Errno>);

/// The direct requests of a context.
pub(crate) struct DirectRequests(Mutex<Slab<DirectRequest>>);

impl Default for DirectRequests {
    fn default() -> DirectRequests {
        // The queue's depth is the limit; it is asked first.
        DirectRequests(Mutex::new(Slab::new(usize::MAX)))
    }
}

impl DirectRequests {
    /// Queues the request of `command`; the caller commits. False: the queue is full.
    pub(crate) fn queue(
        &self,
        own: &dyn BlockBackend,
        (command, rw_flags): (&Command, u32),
        request: DirectRequest,
    ) -> bool {
        let Ok(key) = self.0.lock().insert(request) else { return false };
        // Another thread may end the request as soon as its bio is queued.
        let mut bio = command.bio(command.fd, token::of_direct(key));
        bio.rw_flags = rw_flags;
        let queued = own.queue(bio).is_ok();
        queued || self.0.lock().remove(key).is_none()
    }

    /// Marks the first request named `obj` as cancelled; returns its token in the own queue.
    pub(crate) fn cancel(&self, obj: u64) -> Option<u64> {
        let mut table = self.0.lock();
        let key = table.find(|request| request.obj == obj && !request.cancelled)?;
        table.get_mut(key)?.cancelled = true;
        Some(token::of_direct(key))
    }

    /// Looks up the file of a request by its number, which cannot mean another yet.
    pub(crate) fn identify(&self, key: u64) {
        let mut table = self.0.lock();
        if let Some(request) = table.get_mut(key).filter(|it| it.inode.is_none()) {
            let stat = file::stat_cached(request.command.fd);
            request.inode = stat.ok().map(|stat| (stat.dev, stat.ino));
        }
    }

    /// Takes out a request that its queue has not taken in.
    pub(crate) fn take(&self, key: u64) -> Option<DirectRequest> {
        self.0.lock().remove(key)
    }

    /// Takes its own out of `completions`: those that are over into `events`, the others into
    /// `unfinished`. Returns the bytes of memory of those that are over.
    pub(crate) fn end(
        &self,
        completions: &mut Vec<Completion>,
        (events, unfinished): (&mut Vec<IoEvent>, &mut Vec<Unfinished>),
        writes: &KernelWrites,
    ) -> u64 {
        let mut table = self.0.lock();
        let mut bytes_over = 0;
        completions.retain(|completion| {
            let Owner::Direct(key) = Owner::of(completion.token) else { return true };
            if let Some(request) = table.remove(key) {
                let (data, obj) = (request.data, request.obj);
                let event = |res| IoEvent { data, obj, res, res2: 0 };
                match completion.result {
                    Ok(bytes) if u64::from(bytes) == request.command.len - request.command.done => {
                        events.push(event(request.command.len as i64));
                        bytes_over += request.command.len;
                    }
                    Err(Errno::CANCELED) if request.cancelled => {
                        events.push(event(-i64::from(Errno::CANCELED.raw())));
                        bytes_over += request.command.len;
                    }
                    result => {
                        unfinished.push((request, result));
                        return false;
                    }
                }
                request.write.into_iter().for_each(|places| writes.leave(places));
            }
            false
        });
        bytes_over
    }
}

impl DirectRequest {
    /// Makes the operation that goes on where the bio ended with `result`, a write with these
    /// rights, and says what to complete it with: a write for which they cannot be had ends here,
    /// because it would be done with those of the engine.
    pub(crate) fn into_operation(
        mut self,
        context: &Arc<Context>,
        rights: Result<Option<Arc<Credentials>>, Errno>,
        result: Result<u32, Errno>,
    ) -> (Arc<Request<FileOperation>>, Result<u32, Errno>) {
        let target = EventTarget { data: self.data, obj: self.obj, eventfd: None };
        let mut kernel = KernelBody::new(Carrier::by(Route::Own, self.inode));
        let result = match (rights, self.command.kind) {
            (Err(errno), Kind::Write) => {
                self.command.done += u64::from(result.unwrap_or(0));
                Err(errno)
            }
            (Ok(rights), Kind::Write) => {
                kernel.credentials = rights;
                result
            }
            _ => result,
        };
        kernel.write = self.write.map(|places| KeptWrite::of(places, context));
        let body = Body::Kernel(kernel);
        let operation = FileOperation::new(self.command, context, &target, None, body);
        (Request::new(operation, context.engine().kicked().clone()), result)
    }
}
