//! Direct requests: one bio on the context's own queue, where nothing stands in the way.

use super::{Reason, Started, Submission, inline::LazyStat};
use crate::{
    Command, Kind, SubmitMode,
    cached::kernel_writes::KernelWrite,
    hints::Device,
    order::FileState,
    request::{Body, direct::DirectRequest, event::EventTarget, kernel::KernelBody},
    route::Route,
};
use nowait_sys::{
    Errno,
    file::{self, Stat},
};

impl<'a> Submission<'a> {
    pub(super) fn direct(
        &mut self,
        command: &mut Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        if command.is_hinted() {
            return self.decide_again(command, target);
        }
        let mut status = LazyStat::new(command.fd);
        if self.is_in_memory(&mut status)? {
            return self.direct_in_memory(command, target);
        }
        let (mut reason, mut route) = (Reason::Driver, self.async_route(&target));
        if self.context.history.always_waits(command.fd) {
            route = self.context.engine().route_past_own();
        }
        let (context, mut rights, mut write, mut offloads) = (self.context, None, None, false);
        let ordered = self.must_wait(command, &mut status)?;
        // A read that the kernel refuses late looks for its file by the inode.
        let refused_late = context.may_refuse_late(command);
        if command.kind == Kind::Write || route != Route::Own || refused_late {
            status.stat()?; // that the number meant a file lately says nothing
        }
        if let Some(stat) = status.known().filter(|stat| !stat.has_offsets()) {
            return self.stream(command, target, &stat); // a pipe in packet mode
        }
        let alone = !ordered && self.links.is_none();
        if ordered {
            route = self.context.engine().route_past_own();
            reason = Reason::Order;
        }
        if command.kind == Kind::Write {
            let stat = *status.stat()?;
            let begun = match self.begin_write(command, &stat, &target)? {
                Ok(begun) => begun,
                Err(started) => return Ok(started),
            };
            let regular = stat.is_regular();
            let end = command.offset.saturating_add(command.len as i64);
            if regular && (end > stat.size || command.is_append()) {
                // Serial in the kernel too: one after another, to the end.
                return self.write_request(command, target, &stat, (true, begun), Reason::Extend);
            }
            let holes = regular && stat.may_have_holes();
            if holes && alone && self.submits_here(&stat, route) {
                return self.whole(command, target, Some(FileState::of(&stat)), Some(begun), true);
            }
            if holes && !(alone && self.attempts_holes(command.fd, route)) {
                offloads = self.offloads_from(route);
                route = self.context.engine().route_past_own();
                reason = Reason::Extend;
                rights = self.rights()?;
            } else if route == Route::Own && !alone {
                rights = self.rights()?; // if it is refused
            }
            write = Some(begun);
        }
        if route == Route::Own && alone {
            let file = status.known().map(|stat| FileState::of(&stat));
            return self.whole(command, target, file, write, false);
        }
        let stat = *status.stat()?;
        let mut body = KernelBody::on(route, &stat);
        body.credentials = rights;
        body.write = write.map(|write| write.keep(context));
        if offloads {
            self.offload(&mut body, command, &target);
        }
        self.request(command, target, &stat, Body::Kernel(body), reason)
    }

    /// Has another thread submit a write to the own queue: the one that waits for it, or a worker.
    fn offload(&self, body: &mut KernelBody, command: &Command, target: &EventTarget) {
        body.offload(self.context);
        if self.context.defers(target) {
            body.defer(self.context, command.fd);
        }
    }

    /// Direct I/O on a memory file system is the page cache by another name.
    fn direct_in_memory(
        &mut self,
        command: &mut Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        match command.kind {
            Kind::Read => self.buffered_read(command, target),
            _ => self.buffered_write(command, target),
        }
    }

    /// Tells whether the own queue is asked first for a write that may have to find blocks: it
    /// refuses one that has to. Counts the attempt.
    fn attempts_holes(&self, fd: i32, route: Route) -> bool {
        let history = &self.context.history;
        let attempts = self.offloads_from(route) && history.favours_inline(fd, true);
        if attempts {
            history.hit(fd);
        }
        attempts
    }

    /// Returns `true` if a write that may have to find blocks is submitted at once, as io_submit(2)
    /// does: native AIO carries it, and finding blocks has not blocked for long.
    fn submits_here(&self, stat: &Stat, route: Route) -> bool {
        let engine = self.context.engine();
        self.context.mode == SubmitMode::Auto
            && self.context.answers_as_aio()
            && self.offloads_from(route)
            && engine.calm.is_calm(Device::of(stat.dev), || engine.clock().now_ns())
    }

    /// Tells whether a worker submits to the own queue what would wait there.
    fn offloads_from(&self, route: Route) -> bool {
        route == Route::Own && self.context.submits_by_workers()
    }

    /// Queues a direct request that nothing stands in the way of, or submits it if it `may_block`.
    fn whole(
        &mut self,
        command: &Command,
        target: EventTarget,
        file: Option<FileState>,
        write: Option<KernelWrite<'a>>,
        may_block: bool,
    ) -> Result<Started, Errno> {
        let (context, len) = (self.context, command.len);
        context.admit(len)?;
        let write = write.map(KernelWrite::forget);
        context.io().stats().add(|c| &c.iterations, 1);
        let (data, obj) = (target.data, target.obj);
        let request = DirectRequest {
            command: command.clone(),
            data,
            obj,
            file,
            cancelled: false,
            write,
            is_in_order: context.own_keeps_order(command),
            ticket: None,
        };
        let is_started = if may_block {
            let device = Device::of(file.map_or(0, |file| file.key.0));
            self.timed(device, || (context.submit_direct(command, request), 0))
        } else {
            context.queue_direct(command, request)
        };
        if is_started {
            self.own_used = true;
            if !may_block {
                self.uncommitted.push(command, file);
            }
            return Ok(Started::Queued);
        }
        let write = write.map(|places| context.engine().cached_files().writes.remember(places));
        context.dismiss(1, len);
        // Another thread took the last place.
        let route = context.engine().route_past_own();
        let stat = file::stat(command.fd)?;
        let mut body = KernelBody::on(route, &stat);
        body.credentials = if command.kind == Kind::Write { self.rights()? } else { None };
        body.write = write.map(|write| write.keep(context));
        self.request(command, target, &stat, Body::Kernel(body), Reason::Driver)
    }
}
