//! Direct requests on a context's own queue, which need no operation.
//!
//! A direct request waits for its single bio only (OLS 2003 paper, section 4). So it has no
//! iterations, holds no file, and has no place in an order unless a later request has to wait for
//! it. A table keeps the data for its event. Only a request that ends short or with an error
//! becomes an operation, which transfers the rest or reports the error.

use super::{
    Body, Carrier, FileOperation, event::EventTarget, kernel::KernelBody, unordered::Unordered,
};
use crate::{
    Command, Context, Kind,
    cached::kernel_writes::{KeptWrite, KernelWrites, Places},
    order::{Access, FileState, InodeKey, Orders, Reach, Ticket, Way},
    route::{
        Route,
        token::{self, Owner},
    },
};
use core::{
    mem::replace,
    sync::atomic::{
        AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};
use nowait_block::{Bio, Completion, Slab, bio::Descriptor};
use nowait_retry::{
    Request,
    stats::{Server, Stats},
};
use nowait_sys::mutex::Mutex;
use nowait_sys::{
    Errno,
    aio::IoEvent,
    cred::Credentials,
    fd, file,
    mistake::{self, Mistake},
    thread,
};
use std::{sync::Arc, task::Waker};

/// The kernel carries out a request of at most this size as a whole or refuses it; it ends such a
/// request short only at the end of the file.
pub(crate) const BLOCK: u64 = 4096;

pub(crate) struct DirectRequest {
    pub(crate) command: Command,
    pub(crate) data: u64,
    pub(crate) obj: u64,
    /// The inode and size of the file at submission, looked up or remembered: needed to transfer
    /// the rest of a short transfer.
    pub(crate) file: Option<FileState>,
    pub(crate) cancelled: bool,
    /// The eventfd that the kernel signals when the request ends; the result is then final.
    pub(crate) counter: Option<i32>,
    pub(crate) write: Option<Places>,
    /// `true`: the kernel carries the request out before all that are committed later, as far as
    /// the submission knows.
    pub(crate) is_in_order: bool,
    /// The request's place in the order; taken when a request came that has to wait for this one.
    pub(crate) ticket: Option<Ticket>,
}

pub(crate) type Unfinished = (DirectRequest, Result<u32, Errno>);

pub(crate) struct DirectRequests {
    table: Mutex<Slab<DirectRequest>>,
    /// The number of requests in the table that the kernel may carry out after later ones; changed
    /// under the table's lock.
    unordered: AtomicUsize,
    /// The mark ([`thread::mark`]) of the thread that has last added a request.
    pub(super) submitter: Arc<AtomicUsize>,
    /// `true`: a sync covers the writes submitted before it. `false`: it need not cover direct
    /// writes in flight, as in the kernel's AIO.
    pub(super) syncs_cover: bool,
    all: Arc<Unordered>,
}

impl DirectRequests {
    pub(crate) fn new(all: &Arc<Unordered>, syncs_cover: bool) -> DirectRequests {
        DirectRequests {
            syncs_cover,
            // The table has no limit: if the queue refuses a request's bio, `start` removes the
            // request again.
            table: Mutex::new(Slab::new(usize::MAX)),
            unordered: AtomicUsize::new(0),
            submitter: Arc::default(),
            all: all.clone(),
        }
    }

    /// `give` gives the bio to the context's queue. Returns `None` if the queue is full.
    pub(crate) fn start<T>(
        &self,
        (command, rw_flags): (&Command, u32),
        counter: Option<i32>,
        make: impl FnOnce() -> DirectRequest,
        give: impl FnOnce(Bio) -> Result<T, Bio>,
    ) -> Option<T> {
        let key = self.insert(make)?;
        // Another thread may end the request as soon as its bio is given.
        let mut bio = command.bio(command.fd, token::of_direct(key));
        (bio.rw_flags, bio.counter) = (rw_flags, counter);
        let given = give(bio).ok();
        if given.is_none() {
            self.take(key);
        }
        given
    }

    fn insert(&self, make: impl FnOnce() -> DirectRequest) -> Option<u64> {
        let mut table = self.table.lock();
        // Made inside the table, because the value is large.
        let key = table.insert_with(|_| make())?;
        let request = table.get(key)?;
        self.submitter.store(thread::mark(), Relaxed);
        if !request.is_in_order {
            self.count_unordered(request);
        }
        Some(key)
    }

    fn count_unordered(&self, request: &DirectRequest) {
        self.unordered.fetch_add(1, Relaxed);
        self.all.entered(request.command.kind);
    }

    /// Takes a request out that goes on as an operation. The request enters the order first: a
    /// later request finds it here or there.
    fn move_on(
        &self,
        table: &mut Slab<DirectRequest>,
        key: u64,
        orders: &Orders,
    ) -> Option<DirectRequest> {
        let request = table.get_mut(key)?;
        if let Some(file) = request.file
            && request.ticket.is_none()
            && !mistake::makes(Mistake::RefuseOutOfOrder)
        {
            request.enter(file.key, orders);
        }
        self.remove(table, key)
    }

    fn remove(&self, table: &mut Slab<DirectRequest>, key: u64) -> Option<DirectRequest> {
        self.uncount(table.get(key)?);
        table.remove(key)
    }

    fn uncount(&self, request: &DirectRequest) {
        if !request.is_in_order {
            // Release: a thread that no longer finds the request here finds its place in the order.
            self.unordered.fetch_sub(1, Release);
            self.all.left(request.command.kind);
        }
    }

    /// Gives places in the order to the requests that `later` must not overtake, but that the
    /// kernel may carry out after it. Returns `true` if there were such requests.
    ///
    /// For a sync that covers them, these are all earlier writes: fsync(2) waits for no direct
    /// write in flight.
    pub(super) fn take_places_before(&self, later: &Command, end: u64, orders: &Orders) -> bool {
        let reach = Reach::of(later, end);
        let is_sync = self.syncs_cover && reach.access == Access::Sync;
        if !is_sync && self.unordered.load(Acquire) == 0 {
            return false;
        }
        let mut key_of_later = None;
        let mut any = false;
        for request in self.table.lock().iter_mut() {
            let is_kept = request.is_in_order && !is_sync;
            if is_kept || request.ticket.is_some() || !request.reach().precedes(&reach) {
                continue;
            }
            let Some(key) = request.key() else { continue };
            let stat = || file::stat(later.fd).ok().map(|stat| FileState::of(&stat).key);
            if later.fd == request.command.fd || *key_of_later.get_or_insert_with(stat) == Some(key)
            {
                request.enter(key, orders);
                any = true;
            }
        }
        any
    }

    pub(crate) fn cancel(&self, obj: u64) -> Option<u64> {
        let mut table = self.table.lock();
        let key = table.find(|request| request.obj == obj && !request.cancelled)?;
        table.get_mut(key)?.cancelled = true;
        Some(token::of_direct(key))
    }

    /// Called inside submit, while the number of the request still means its file.
    pub(crate) fn identify(&self, key: u64) {
        let mut table = self.table.lock();
        table.get_mut(key).into_iter().for_each(DirectRequest::identify);
    }

    /// Called inside submit as [`DirectRequests::identify`], if the backend does not know whether
    /// the kernel has refused the request. A refused request goes on after later ones.
    pub(crate) fn is_undecided(&self, key: u64) {
        let mut table = self.table.lock();
        let Some(request) = table.get_mut(key) else { return };
        request.identify();
        if replace(&mut request.is_in_order, false) {
            self.count_unordered(request);
        }
    }

    pub(crate) fn take(&self, key: u64) -> Option<DirectRequest> {
        self.remove(&mut self.table.lock(), key)
    }

    pub(crate) fn take_back(&self, token: u64) {
        if let Owner::Direct(key) = Owner::of(token) {
            self.take(key);
        }
    }

    /// Removes the completions of direct requests from `completions`. A request that is over leaves
    /// its event in `events` and its place in `tickets`; other requests move to `unfinished`.
    /// Returns the bytes of memory of the requests that are over.
    pub(crate) fn end(
        &self,
        completions: &mut Vec<Completion>,
        (events, tickets): (&mut Vec<IoEvent>, &mut Vec<Ticket>),
        unfinished: &mut Vec<Unfinished>,
        (writes, orders, stats): (&KernelWrites, &Orders, &Stats),
    ) -> u64 {
        let mut table = self.table.lock();
        let mut bytes_over = 0;
        completions.retain(|completion| {
            let Owner::Direct(key) = Owner::of(completion.token) else { return true };
            let Some(request) = table.get_mut(key) else { return false };
            let Some(res) = request.end_of(completion.result) else {
                let request = match request.ends_short(completion.result) {
                    true => self.remove(&mut table, key),
                    false => self.move_on(&mut table, key, orders),
                };
                unfinished.extend(request.map(|request| (request, completion.result)));
                return false;
            };
            stats.serve(request.command.work(), Server::Kernel, 1);
            events.push(IoEvent { data: request.data, obj: request.obj, res, res2: 0 });
            bytes_over += request.command.len;
            request.write.into_iter().for_each(|places| writes.leave(places));
            tickets.extend(request.ticket.take());
            self.uncount(request);
            table.discard(key);
            false
        });
        bytes_over
    }
}

impl DirectRequest {
    /// Returns `None` if a bio with this result does not end the request.
    fn end_of(&self, result: Result<u32, Errno>) -> Option<i64> {
        // A request whose eventfd the kernel has signalled is over.
        let is_over = match result {
            Ok(bytes) => u64::from(bytes) == self.command.len - self.command.done,
            Err(errno) => errno == Errno::CANCELED && self.cancelled,
        };
        (is_over || self.counter.is_some()).then(|| match result {
            Ok(bytes) => (self.command.done + u64::from(bytes)) as i64,
            Err(errno) => -i64::from(errno.raw()),
        })
    }

    fn identify(&mut self) {
        if self.command.is_hinted() {
            self.file = None; // it was remembered, too
        }
        self.key();
    }

    fn key(&mut self) -> Option<InodeKey> {
        if self.file.is_none() {
            let stat = file::stat_cached(self.command.fd);
            self.file = stat.ok().map(|stat| FileState::of(&stat));
        }
        self.file.map(|file| file.key)
    }

    /// A write in this table does not move the end of its file.
    fn reach(&self) -> Reach {
        Reach::of(&self.command, u64::MAX)
    }

    /// Registers the request, which has begun, so that later requests wait for its end.
    fn enter(&mut self, key: InodeKey, orders: &Orders) {
        let waits_for_none = || Waker::noop().clone();
        self.ticket = Some(orders.enter_by(Way::Kernel, key, self.reach(), waits_for_none).0);
    }

    /// Returns `true` if `result`, of fewer bytes than asked for, ends the request.
    pub(crate) fn ends_short(&self, result: Result<u32, Errno>) -> bool {
        self.reaches_end(result) || self.is_short_write(result)
    }

    /// Returns `true` if the request is a read that `result` has brought to the end of its file, as
    /// that was at submission.
    pub(crate) fn reaches_end(&self, result: Result<u32, Errno>) -> bool {
        let (Ok(bytes), Kind::Read) = (result, self.command.kind) else { return false };
        let next = self.command.offset as u64 + self.command.done + u64::from(bytes);
        match self.file {
            Some(file) => next >= file.end,
            None => bytes > 0 && self.command.len <= BLOCK,
        }
    }

    /// Returns `true` for a short write whose rest must not be written, because later writes may
    /// have been committed and would be overwritten. The kernel's AIO ends such a write, too.
    fn is_short_write(&self, result: Result<u32, Errno>) -> bool {
        self.command.kind == Kind::Write && self.is_in_order && result.is_ok_and(|bytes| bytes > 0)
    }

    pub(crate) fn end_short(self, context: &Arc<Context>, result: Result<u32, Errno>) {
        let bytes = self.command.done + u64::from(result.unwrap_or(0));
        let event = IoEvent { data: self.data, obj: self.obj, res: bytes as i64, res2: 0 };
        let engine = context.engine();
        self.write.into_iter().for_each(|places| engine.user_files.writes.leave(places));
        self.ticket.iter().for_each(|ticket| engine.orders.leave(ticket));
        context.dismiss(1, self.command.len);
        context.io().stats().serve(self.command.work(), Server::Kernel, 1);
        context.io().complete_batch(&[event]);
    }

    /// Makes the operation that goes on where the bio ended with `result`. Also returns the result
    /// with which to complete the operation. A write whose credentials cannot be read ends, with
    /// the bytes written so far or that error: the engine's threads would write with their own.
    pub(crate) fn into_operation(
        mut self,
        context: &Arc<Context>,
        credentials: Result<Option<Arc<Credentials>>, Errno>,
        result: Result<u32, Errno>,
    ) -> (Arc<Request<FileOperation>>, Result<u32, Errno>) {
        let target = EventTarget { data: self.data, obj: self.obj, eventfd: None };
        let mut kernel = KernelBody::new(Carrier::by(Route::Own, self.file));
        let result = match (credentials, self.command.kind) {
            (Err(errno), Kind::Write) => {
                self.command.done += u64::from(result.unwrap_or(0));
                Err(errno)
            }
            (Ok(credentials), Kind::Write) => {
                kernel.credentials = credentials;
                result
            }
            _ => result,
        };
        kernel.write = self.write.map(|places| KeptWrite::of(places, context));
        let counter = self.counter.and_then(|number| event_counter(context, number));
        let body = Body::Kernel(kernel);
        let operation = FileOperation::new(self.command, context, &target, counter, body);
        let request = Request::new(operation, context.engine().threads.kicked.clone());
        request.prepare(|operation, wait| operation.take_place_late(self.ticket, wait));
        (request, result)
    }
}

/// Returns the eventfd with the application's `number`, for a request that may end on any thread.
fn event_counter(context: &Context, number: i32) -> Option<Arc<dyn Descriptor>> {
    let engine = context.engine();
    let copy = fd::duplicate_high(number).and_then(|here| {
        // Another thread may have given the number to another file meanwhile.
        context.check_event_counter(number, here.raw())?;
        engine.in_both_tables(here, None)
    });
    match copy {
        Ok(counter) => Some(counter),
        // Falls back on the eventfd that only the engine's threads can signal.
        Err(_) => engine.holds.counter(number).map(|held| held as Arc<dyn Descriptor>),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Flags;
    use nowait_block::Segments;
    use nowait_sys::file::{IoVec, O_DIRECT, O_RDWR};
    use std::os::fd::AsRawFd;

    #[test]
    fn a_remembered_file_is_looked_up_again_where_the_request_is_refused() {
        let opened = tempfile::tempfile().unwrap();
        let stat = file::stat(opened.as_raw_fd()).unwrap();
        let (its, other) = (FileState::of(&stat), FileState { key: (0, 0), end: 0 });
        let after = |flags: Flags| {
            let part = IoVec { base: core::ptr::null_mut(), len: 8192 };
            let at = (opened.as_raw_fd(), flags);
            // SAFETY: the command is never carried out.
            let command = unsafe { Command::new(Kind::Read, at, Segments::One(part), 0) };
            let requests = DirectRequests::new(&Arc::default(), true);
            let make = || DirectRequest {
                command: command.clone(),
                data: 0,
                obj: 0,
                file: Some(other),
                cancelled: false,
                counter: None,
                write: None,
                is_in_order: true,
                ticket: None,
            };
            let given = requests.start((&command, 0), None, make, |bio| Ok(bio.token));
            let Some(Owner::Direct(key)) = given.map(Owner::of) else { panic!("{given:?}") };
            requests.identify(key);
            requests.take(key).unwrap().file.unwrap().key
        };
        assert_eq!(after(Flags::Remembered(O_RDWR | O_DIRECT)), its.key);
        assert_eq!(after(Flags::Read(O_RDWR | O_DIRECT)), other.key, "it was just looked up");
    }
}
