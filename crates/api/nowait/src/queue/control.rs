//! Control of a queue's requests between their preparation and their end: cancellation, time
//! limits, links; and the descriptor that reports their ends.

use super::{PrepareResult, Queue, RequestId};
use crate::{
    Buffers, Error, IoBuffer, IoBufferMut, Nowait, Stream,
    request::{Request, readable, writable},
    timer::{Action, DeadlineId},
};
use core::time::Duration;
use nowait_file::{Kind, Link, Links};
use nowait_sys::{Errno, time::Deadline};
use std::{collections::HashMap, os::fd::BorrowedFd};

/// State of event descriptor, links and time limits, which few queues use.
#[derive(Debug, Default)]
pub(super) struct Control {
    /// `true`: the program may poll the eventfd of the queue's context.
    has_event: bool,
    links: HashMap<u64, Links>,
    timers: HashMap<u64, DeadlineId>,
    /// Prepared requests with a time limit.
    limited: Vec<u64>,
}

impl Control {
    #[inline]
    pub(super) fn is_special(&self, key: u64) -> bool {
        !self.links.is_empty() && self.links.contains_key(&key)
    }

    pub(super) fn links(&self, key: u64) -> Links {
        self.links.get(&key).cloned().unwrap_or_default()
    }

    #[inline]
    pub(super) fn forget(&mut self, key: u64, nowait: &Nowait) {
        if !self.timers.is_empty()
            && let Some(id) = self.timers.remove(&key)
        {
            nowait.timer().remove(id);
        }
    }

    pub(super) fn forget_all(&mut self, nowait: &Nowait) {
        for id in core::mem::take(&mut self.timers).into_values() {
            nowait.timer().remove(id);
        }
    }
}

impl<T, B> Queue<T, B> {
    /// Asks for an early end of a request. Returns `true` if the request was neither over nor
    /// cancelled before. Does not wait for the end of the request.
    ///
    /// The request comes back as a [`Completion`](super::Completion). If the request had not begun,
    /// or waits for another request, for readiness or for its turn, it ends with `ECANCELED`.
    /// Otherwise it may end with its own result, for example if the device works on it.
    pub fn cancel(&mut self, id: RequestId) -> bool {
        let RequestId(key) = id;
        let Some(request) = self.requests.get_mut(key) else { return false };
        if let Some(place) = self.prepared.iter().position(|(other, _)| *other == key) {
            request.is_cancelled = true;
            self.prepared.remove(place);
            self.end_early(key);
            return true;
        }
        if self.nowait.is_the_parents() || self.over.iter().any(|(other, _)| *other == key) {
            return false;
        }
        request.is_cancelled = true;
        // The call fails only if the request is over already: the queue takes the event later.
        self.context.cancel(key).is_ok()
    }

    /// Takes back a request that is not submitted yet, with its tag and its memory, as if the
    /// program had never prepared it. Requests that were linked to follow it end with `ECANCELED`.
    /// `None`: the request was submitted, cancelled or popped.
    pub fn take_back(&mut self, id: RequestId) -> Option<(T, Buffers<B>)> {
        let RequestId(key) = id;
        let place = self.prepared.iter().position(|(other, _)| *other == key)?;
        self.prepared.remove(place);
        self.control.limited.retain(|other| *other != key);
        if let Some(end) = self.control.links.remove(&key).and_then(|links| links.end) {
            end.end(Err(Errno::CANCELED));
        }
        self.requests.remove(key).map(|request| (request.tag, request.buffers))
    }

    /// Calls [`Queue::cancel`] for the requests whose tag `is` accepts, until one returns `true`.
    /// Looks at every request.
    #[doc(hidden)]
    pub fn cancel_one(&mut self, is: impl Fn(&T) -> bool) -> bool {
        let requests = &self.requests;
        let is_meant = |key: &u64| requests.get(*key).is_some_and(|request| is(&request.tag));
        let keys: Vec<u64> = requests.keys().filter(is_meant).collect();
        keys.into_iter().any(|key| self.cancel(RequestId(key)))
    }

    /// Cancels a request if the request is not over when the time `after` has passed since this
    /// call. The request then ends with `ETIMEDOUT`, if [`Queue::cancel`] can stop it. A later call
    /// for the same request replaces the earlier limit. A thread of the engine keeps the time, so
    /// no thread has to wait in the queue.
    ///
    /// # Errors
    /// `EINVAL`: no such request, or this is a forked child. `EAGAIN`: the request is in flight,
    /// and no thread could be started to keep the time.
    pub fn timeout(&mut self, id: RequestId, after: Duration) -> Result<(), Error> {
        let RequestId(key) = id;
        let failed = |errno| Error::new(errno, "time limit of a request");
        let request = self.requests.get_mut(key).ok_or_else(|| failed(Errno::INVAL))?;
        if self.nowait.is_the_parents() {
            return Err(failed(Errno::INVAL));
        }
        let ns = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        request.deadline = Deadline::after_ns(ns);
        let at_ns = request.deadline.ns();
        self.control.forget(key, &self.nowait);
        if self.prepared.iter().any(|(other, _)| *other == key) {
            self.control.limited.push(key);
        } else if let Some(at_ns) = at_ns {
            let timer = self.nowait.timer();
            let id = timer.add(at_ns, &self.context, Action::Cancel(key)).map_err(failed)?;
            self.control.timers.insert(key, id);
        }
        Ok(())
    }

    /// Makes `then`, for example a sync, begin when `first`, for example a write, has succeeded. If
    /// `first` fails, is short, cancelled or taken back, `then` ends with `ECANCELED`. Chains are
    /// possible, and several requests may follow one.
    ///
    /// The program must have prepared `first` before `then`, and submitted neither.
    /// # Errors
    /// `EINVAL`: the requests are not prepared in this order, or `then` already follows a request.
    /// `EOPNOTSUPP`: `then` transfers to or from a stream.
    pub fn link(&mut self, first: RequestId, then: RequestId) -> Result<(), Error> {
        let failed = |errno, why: &str| {
            Err(Error::new(errno, "link from one request to another").because(why))
        };
        let place = |id: RequestId| self.prepared.iter().position(|(key, _)| *key == id.0);
        match (place(first), place(then)) {
            (Some(before), Some(after)) if before < after => {}
            _ => {
                return failed(Errno::INVAL, "prepare both requests, in this order, before submit");
            }
        }
        if self.control.links.get(&then.0).is_some_and(|links| links.after.is_some()) {
            return failed(Errno::INVAL, "the request already follows another one");
        }
        if self.requests.get(then.0).is_some_and(Request::is_stream_transfer) {
            return failed(Errno::OPNOTSUPP, "a stream request cannot follow another request");
        }
        let expected = self.requests.get(first.0).and_then(Request::whole);
        let end = &mut self.control.links.entry(first.0).or_default().end;
        let link = end.get_or_insert_with(|| Link::new(expected)).clone();
        self.control.links.entry(then.0).or_default().after = Some(link);
        Ok(())
    }

    /// Returns a descriptor for epoll(7) and similar calls, readable when requests have ended since
    /// the last [`Queue::wait`]: call `wait` with `min` 0, and pop until nothing is left. Use the
    /// descriptor only for polling. The descriptor may be readable although nothing has ended.
    ///
    /// From the first call on, the engine's threads reap the requests of this queue, which costs a
    /// thread switch for each request that is not over at once. The engine's threads take over
    /// requests that are in flight at this call some milliseconds later. [`Queue::descriptors`]
    /// avoids such switches, but the event loop must call [`Queue::sleep`].
    /// # Errors
    /// `EMFILE`, `ENFILE`, `EAGAIN`: no descriptor left. `EINVAL`: this is a forked child.
    pub fn event_fd(&mut self) -> Result<BorrowedFd<'_>, Error> {
        let failed = |errno| Error::new(errno, "eventfd of a queue");
        if self.nowait.is_the_parents() {
            return Err(failed(Errno::INVAL));
        }
        let number = self.context.event_counter().map_err(failed)?;
        if !core::mem::replace(&mut self.control.has_event, true) {
            self.ring_if_over();
        }
        // SAFETY: the queue's context keeps it open as long as it lives, and `self` is borrowed.
        Ok(unsafe { BorrowedFd::borrow_raw(number) })
    }

    /// Makes the descriptor of [`Queue::event_fd`] readable if requests are over and not popped. A
    /// program that does not pop all such requests after a wait calls this function.
    #[doc(hidden)]
    pub fn ring_if_over(&self) {
        if self.control.has_event && !self.over.is_empty() {
            self.context.ring_event_counter();
        }
    }

    fn end_early(&mut self, key: u64) {
        self.over.push_back((key, Err(Errno::CANCELED)));
        if let Some(end) = self.control.links.get(&key).and_then(|links| links.end.clone()) {
            end.end(Err(Errno::CANCELED));
        }
        self.ring_if_over();
    }

    pub(super) fn before_submit(&mut self) {
        if self.control.limited.is_empty() {
            return;
        }
        let requests = &self.requests;
        let is_late = |key: u64| requests.get(key).is_some_and(|it| it.deadline.has_passed());
        let (late, prepared) = self.prepared.drain(..).partition(|(key, _)| is_late(*key));
        self.prepared = prepared;
        let late: Vec<_> = late;
        late.into_iter().for_each(|(key, _)| self.end_early(key));
    }

    /// Clears the links, which the submission has passed to the engine, and starts the time limits.
    pub(super) fn after_submit(&mut self) {
        self.control.links.clear();
        for key in core::mem::take(&mut self.control.limited) {
            let deadline = self.requests.get(key).and_then(|request| request.deadline.ns());
            let (timer, cancel) = (self.nowait.timer(), Action::Cancel(key));
            // If the timer's thread cannot be started, the request has no time limit.
            if let Some(Ok(id)) = deadline.map(|at_ns| timer.add(at_ns, &self.context, cancel)) {
                self.control.timers.insert(key, id);
            }
        }
    }
}

impl<T, B: IoBufferMut> Queue<T, B> {
    /// Prepares a read of the available bytes, up to the whole of `buffer`. The request waits for
    /// the first byte.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full. `EBADF`: not open for reading.
    pub fn read_stream(&mut self, stream: &Stream, buffer: B, tag: T) -> PrepareResult<T, B> {
        let buffers = Buffers::One(buffer);
        self.prepare(Request::on_other(stream.held(), Kind::Read, buffers, tag), writable)
    }

    /// Prepares [`Queue::read_stream`] into several buffers, one after another.
    ///
    /// # Errors
    /// The errors of [`Queue::read_stream`]; `EINVAL`: more than 1024 buffers.
    pub fn read_stream_vectored(
        &mut self,
        stream: &Stream,
        buffers: Vec<B>,
        tag: T,
    ) -> PrepareResult<T, B> {
        let buffers = Buffers::Many(buffers);
        self.prepare(Request::on_other(stream.held(), Kind::Read, buffers, tag), writable)
    }
}

impl<T, B: IoBuffer> Queue<T, B> {
    /// Prepares a write of up to the whole of `buffer`. The request waits for room for the first
    /// byte.
    ///
    /// # Errors
    /// `EAGAIN`: the queue is full. `EBADF`: not open for writing.
    pub fn write_stream(&mut self, stream: &Stream, buffer: B, tag: T) -> PrepareResult<T, B> {
        let buffers = Buffers::One(buffer);
        self.prepare(Request::on_other(stream.held(), Kind::Write, buffers, tag), readable)
    }

    /// Prepares [`Queue::write_stream`] from several buffers, one after another.
    ///
    /// # Errors
    /// The errors of [`Queue::write_stream`]; `EINVAL`: more than 1024 buffers.
    pub fn write_stream_vectored(
        &mut self,
        stream: &Stream,
        buffers: Vec<B>,
        tag: T,
    ) -> PrepareResult<T, B> {
        let buffers = Buffers::Many(buffers);
        self.prepare(Request::on_other(stream.held(), Kind::Write, buffers, tag), readable)
    }
}
