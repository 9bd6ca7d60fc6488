//! Reads and writes of the kernel's page cache, and syncs: tried inside submit, else a request.

use super::{
    Reason, Started, Submission,
    inline::{Attempt, LazyStat},
};
use crate::{
    Command, SubmitMode,
    cached::kernel_writes::KernelWrite,
    hints::Device,
    order::Reach,
    request::{Body, copy::OnDriver, event::EventTarget, kernel::KernelBody},
    route::Route,
};
use nowait_sys::{
    Errno,
    file::{self, IoVec, Stat, rwf},
    mistake::{self, Mistake},
};

impl<'a> Submission<'a> {
    pub(super) fn buffered_read(
        &mut self,
        command: &mut Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        let mut status = LazyStat::new(command.fd);
        if self.is_stream_still(&mut status)? {
            let stat = *status.stat()?;
            return self.stream(command, target, &stat);
        }
        if command.len == 0 && self.refuses_file(command, status.stat()?)? {
            return Err(Errno::INVAL);
        }
        let attempt = match self.tries_inline(command) {
            Err(reason) => Attempt::Rest(reason),
            Ok(()) if self.must_wait(command, &mut status)? => Attempt::Rest(Reason::Order),
            Ok(()) => self.attempt_read(command, &mut status)?,
        };
        match attempt {
            Attempt::Done(Err(_)) | Attempt::Refused(_) if command.is_hinted() => {
                self.decide_again(command, target)
            }
            Attempt::Done(result) => Ok(self.completed(result)),
            Attempt::Refused(errno) => Err(errno),
            Attempt::Stream => {
                let stat = *status.stat()?;
                self.stream(command, target, &stat)
            }
            Attempt::Rest(reason) => {
                let stat = *status.stat()?;
                if command.refresh()? && command.is_direct() {
                    return self.direct(command, target); // not the file it was a moment ago
                }
                if stat.is_directory() {
                    return Err(Errno::INVAL);
                }
                if !stat.has_offsets() {
                    return self.stream(command, target, &stat);
                }
                if self.refuses_file(command, &stat)? {
                    return Err(Errno::INVAL);
                }
                let on_driver = self.on_driver(command, &stat)?;
                // An attempt that the file system cannot make has started no read.
                let defers = reason != Reason::Unsupported && self.context.defers(&target);
                let route = match on_driver {
                    OnDriver::Copies => Route::Driver,
                    _ if defers => self.context.engine().route_of_reads(),
                    _ => self.read_route(&target),
                };
                let mut body = KernelBody::on(route, &stat).with_driver(on_driver);
                if defers {
                    body.defer(self.context, command.fd);
                }
                self.request(command, target, &stat, Body::Kernel(body), reason)
            }
        }
    }

    pub(super) fn buffered_write(
        &mut self,
        command: &mut Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        if command.is_hinted() {
            // In memory, or on a calm device, as far as is known: one system call, which also
            // checks the descriptor.
            let engine = self.context.engine();
            if engine.orders().is_empty()
                && let Some(_write) = engine.cached_files().begin_unknown(self.context)
                && let Some(Attempt::Done(Ok(bytes))) =
                    match self.context.history.may_be_in_memory(command.fd) {
                        Some(true) => {
                            self.tries_inline(command).ok().map(|()| self.transfer(command, 0))
                        }
                        _ => self.write_unseen(command),
                    }
            {
                return Ok(self.completed(Ok(bytes)));
            }
            return self.decide_again(command, target);
        }
        let mut status = LazyStat::new(command.fd);
        let stat = *status.stat()?;
        if stat.is_directory() {
            return Err(Errno::INVAL);
        }
        if !stat.has_offsets() {
            return self.stream(command, target, &stat);
        }
        let write = match self.begin_write(command, &stat, &target)? {
            Ok(write) => write,
            Err(started) => return Ok(started),
        };
        let fs = self.context.engine().filesystem(&stat, command.fd)?;
        if fs.shows_kernel && self.refuses_plain_calls(command, &stat) {
            return Err(Errno::INVAL);
        }
        self.context.history.is_in_memory(command.fd, fs.in_memory);
        let synchronous = command.is_synchronous();
        let attempt = if synchronous && !fs.in_memory {
            Attempt::Rest(Reason::Sync)
        } else if self.must_wait(command, &mut status)? {
            Attempt::Rest(Reason::Order)
        } else if !fs.in_memory && self.writes_here(command, &stat) {
            self.write_here(command, Device::of(stat.dev))
        } else if self.tries_inline(command).is_ok() {
            self.attempt_write(command, &stat, &fs)
        } else {
            Attempt::Rest(Reason::Write)
        };
        match attempt {
            Attempt::Done(result) => Ok(self.completed(result)),
            // The kernel's AIO has begun the write when the file system says so.
            Attempt::Refused(Errno::OPNOTSUPP) if is_refused_begun(command) => {
                Ok(self.completed(Err(Errno::OPNOTSUPP)))
            }
            Attempt::Refused(errno) => Err(errno),
            Attempt::Stream => self.stream(command, target, &stat),
            Attempt::Rest(reason) => {
                self.write_request(command, target, &stat, (!synchronous, write), reason)
            }
        }
    }

    /// Tells whether the context refuses to read a file that shows the kernel's state.
    fn refuses_file(&self, command: &Command, stat: &Stat) -> Result<bool, Errno> {
        Ok(self.shows_kernel(command, stat)? && self.refuses_plain_calls(command, stat))
    }

    /// Tells whether a file shows the kernel's state, and the context answers as the kernel's AIO.
    fn shows_kernel(&self, command: &Command, stat: &Stat) -> Result<bool, Errno> {
        // None of these files has blocks.
        if stat.blocks != 0 || !stat.is_regular() || !self.context.answers_as_aio() {
            return Ok(false);
        }
        Ok(self.context.engine().filesystem(stat, command.fd)?.shows_kernel)
    }

    /// Counts a write that goes to the kernel. The inner error: its file is in the page cache of
    /// the engine by now, where the command was started.
    pub(super) fn begin_write(
        &mut self,
        command: &Command,
        stat: &Stat,
        target: &EventTarget,
    ) -> Result<Result<KernelWrite<'a>, Started>, Errno> {
        self.commit_before_end(command, stat);
        match self.context.engine().cached_files().begin_write((stat.dev, stat.ino)) {
            Ok(write) => Ok(Ok(write)),
            Err(file) => self.start_cached(&file, command, target).map(Err),
        }
    }

    pub(super) fn sync(
        &mut self,
        command: &Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        let stat = file::stat(command.fd)?;
        if !stat.has_offsets() && !stat.is_directory() {
            return Err(Errno::INVAL);
        }
        if self.shows_kernel(command, &stat)? {
            return Err(Errno::INVAL); // such files have no sync
        }
        if mistake::makes(Mistake::SyncAtOnce) {
            return Ok(Started::Completed(Ok(0)));
        }
        let on_driver = self.on_driver(command, &stat)?;
        let body = KernelBody::on(Route::Workers, &stat).with_driver(on_driver);
        self.request(command, target, &stat, Body::Kernel(body), Reason::Fsync)
    }

    /// Makes the request of a write that was counted; `exclusive`: it runs after one another with
    /// others of its inode.
    pub(super) fn write_request(
        &mut self,
        command: &Command,
        target: EventTarget,
        stat: &Stat,
        (exclusive, write): (bool, KernelWrite<'_>),
        reason: Reason,
    ) -> Result<Started, Errno> {
        let engine = self.context.engine();
        let fs = engine.filesystem(stat, command.fd)?;
        let range = Reach::of(command, stat.size as u64).range;
        let on_driver = self.on_driver(command, stat)?;
        let copies = on_driver == OnDriver::Copies;
        let route = if copies { Route::Driver } else { Route::Workers };
        let mut body = KernelBody::on(route, stat).with_driver(on_driver);
        body.credentials = if fs.rights_matter(stat, &range) { self.rights()? } else { None };
        body.wants_lane = exclusive && !copies;
        body.write = Some(write.keep(self.context));
        let blocks_long = command.is_synchronous() || command.is_direct();
        if self.context.defers(&target) && !blocks_long || self.defers_alone(&target) {
            body.defer(self.context, command.fd);
        }
        self.request(command, target, stat, Body::Kernel(body), reason)
    }

    /// Returns `true` if a write that blocks for long is deferred. Several of them block side by
    /// side on the threads of the engine.
    fn defers_alone(&self, target: &EventTarget) -> bool {
        self.context.io().outstanding() == 1 && self.context.defers(target)
    }

    /// Chooses the way of a read of the page cache that found something to wait for.
    pub(super) fn read_route(&self, target: &EventTarget) -> Route {
        let engine = self.context.engine();
        if !engine.queues_buffered_reads() {
            return Route::Workers;
        }
        let alone = self.context.look_at_depth();
        match self.async_route(target) {
            Route::Own
                if self.context.own_limits().buffered_reads
                    && (alone || self.context.mode == SubmitMode::Inline) =>
            {
                Route::Own
            }
            _ => engine.route_past_own(),
        }
    }
}

/// Tells whether it is the file system that has refused a write, because that must not wait. The
/// kernel refuses it before if no request on the file may say so, or if another of its flags is not
/// for this file. A read shows which, at an offset where nothing is; of a file that is not open for
/// reading, the file system is taken for it.
fn is_refused_begun(command: &Command) -> bool {
    const NOWHERE: i64 = i64::MAX - 4097;
    if !command.wants_nowait() || command.rw_flags & (rwf::ATOMIC | rwf::DONTCACHE) != 0 {
        return false;
    }
    let mut byte = 0u8;
    let part = IoVec { base: &raw mut byte, len: 1 };
    // SAFETY: room for a byte.
    let asked = unsafe { file::preadv2(command.fd, &[part], NOWHERE, rwf::NOWAIT) };
    asked != Err(Errno::OPNOTSUPP)
}
