//! From a command to an event or a request: validation, the choice of a way and a route.
//!
//! Nothing here waits. A request is either refused with an errno, ended on the spot, or made
//! into a [`FileOperation`] that an own queue, the driver or a worker carries on.

use crate::{
    Command, Context, Kind, SubmitMode, Target,
    attempt::{About, Attempt},
    direct::DirectRequest,
    driver::Driver,
    hold::HeldFile,
    kernel_writes::KernelWrite,
    native::Native,
    operation::{FileOperation, Route},
    order::{InodeKey, reach},
    plug::{Place, Plug},
    section::Section,
    user::BothTables,
};
use nowait_block::bio::Descriptor;
use nowait_retry::{
    Request,
    stats::{Counter, Counters},
    wait::Wait,
};
use nowait_sys::{
    Errno,
    cred::Credentials,
    file::{self, Stat},
};
use std::sync::Arc;

/// Most bytes that one submit copies itself: a huge hit must not stall the caller either.
pub const INLINE_BYTES_MAX: usize = 256 << 10;

/// Where the event goes, before it is known that there will be one.
#[derive(Clone, Copy, Debug)]
pub struct Reply {
    /// `data` of the iocb.
    pub data: u64,
    /// Address of the iocb; what [`Context::cancel`] finds the request by.
    pub obj: u64,
    /// The application's event counter to signal.
    pub eventfd: Option<i32>,
}

/// One call of submit: several commands, one hand-over at its end.
pub struct Submission<'a> {
    pub(crate) context: &'a Arc<Context>,
    pub(crate) plug: Option<Box<Plug>>,
    /// Since there is a plug.
    pub(crate) section: Option<Section<'a>>,
    pub(crate) inline_left: usize,
    /// What the requests to user files on the plug move.
    pub(crate) plugged_bytes: usize,
    /// The last of them writes by the bio of the one before: a bio that is full ends that.
    pub(crate) joined: bool,
    /// The event counter of this submission's requests, as the engine's threads will know it.
    event_counter: Option<(i32, Arc<HeldFile>)>,
    /// The same for requests that end on any thread.
    pub(crate) counter_everywhere: Option<(i32, Arc<BothTables>)>,
    own_used: bool,
    /// One of them has a place in the order.
    own_ordered: bool,
    /// Direct requests were queued and wait for the commit.
    own_queued: bool,
    pub(crate) completed: bool,
    pub(crate) native: Native,
    /// Requests that ended in their first iteration, and are not counted yet.
    pub(crate) inline: u64,
    /// Reads of user files that found all, and that did not, not counted yet.
    pub(crate) user_reads: (u64, u64),
    /// The submitter's, once one of the requests needed them.
    pub(crate) rights: Option<Arc<Credentials>>,
}

pub(crate) type Reason = fn(&Counters) -> &Counter;

impl<'a> Submission<'a> {
    /// Begins a submission to `context`.
    pub fn new(context: &'a Arc<Context>) -> Submission<'a> {
        Submission {
            context,
            plug: None,
            section: None,
            inline_left: INLINE_BYTES_MAX,
            plugged_bytes: 0,
            joined: false,
            event_counter: None,
            counter_everywhere: None,
            own_used: false,
            own_ordered: false,
            own_queued: false,
            completed: false,
            native: Native::default(),
            inline: 0,
            user_reads: (0, 0),
            rights: None,
        }
    }

    /// Starts a command for which the caller has reserved a slot.
    ///
    /// # Errors
    /// As io_submit(2): the command was refused, nothing was started, the slot is still the
    /// caller's. `EBADF`: not open, or not open for this. `EINVAL`: not possible on this kind of
    /// file. `EOPNOTSUPP`: unknown flags. `EAGAIN`: too many files are under way.
    pub fn start(&mut self, mut command: Command, reply: Reply) -> Result<(), Errno> {
        if let Some(file) = self.context.engine().cached(command.fd) {
            command.refresh()?;
            return self.start_cached(&file, &command, &reply);
        }
        if self.native.is_later() {
            command.refresh()?;
            return self.start_later(&command, reply);
        }
        match self.decide(&mut command, reply) {
            // Who is told to ask again asks for the same bytes; but an append is done.
            Err(Errno::AGAIN) if !command.is_append() => Err(Errno::AGAIN),
            // Bytes already transferred win over a later error, as in read(2).
            Err(_) if command.done > 0 => {
                self.end(&reply, Ok(command.transferred()));
                Ok(())
            }
            decided => decided,
        }
    }

    /// Hands over what was started; the last word of a submission, as dropping it is.
    pub fn finish(self) {}

    // --- the kinds ---------------------------------------------------------------------------

    /// Chooses the way by the kind and the flags, for what is left of the command.
    fn decide(&mut self, command: &mut Command, reply: Reply) -> Result<(), Errno> {
        match command.kind {
            Kind::Poll(events) => self.poll(events, command, reply),
            Kind::Fsync | Kind::Fdatasync => self.sync(command, reply),
            Kind::Read if !command.is_direct() => self.buffered_read(command, reply),
            Kind::Write if !command.is_direct() => self.buffered_write(command, reply),
            _ => self.direct(command, reply),
        }
    }

    /// Decides by flags just read, where what followed from remembered ones is not all.
    fn decide_again(&mut self, command: &mut Command, reply: Reply) -> Result<(), Errno> {
        command.refresh()?;
        self.decide(command, reply)
    }

    fn buffered_read(&mut self, command: &mut Command, reply: Reply) -> Result<(), Errno> {
        let mut about = About::new(command.fd);
        if self.is_stream_still(&mut about)? {
            let stat = *about.stat()?;
            return self.stream(command, reply, &stat);
        }
        let attempt = if self.tries_inline(command) && !self.must_wait(command, &mut about)? {
            self.attempt_read(command, &mut about)?
        } else {
            Attempt::Rest(|c| &c.punt_offload)
        };
        match attempt {
            Attempt::Done(Err(_)) | Attempt::Refused(_) if command.is_hinted() => {
                return self.decide_again(command, reply);
            }
            Attempt::Done(result) => self.end(&reply, result),
            Attempt::Refused(errno) => return Err(errno),
            Attempt::Stream => {
                let stat = *about.stat()?;
                return self.stream(command, reply, &stat);
            }
            Attempt::Rest(reason) => {
                let stat = *about.stat()?;
                if command.refresh()? && command.is_direct() {
                    return self.direct(command, reply); // not the file it was a moment ago
                }
                match stat.file_type() {
                    S_IFDIR => return Err(Errno::INVAL),
                    S_IFREG | S_IFBLK => {}
                    _ => return self.stream(command, reply, &stat),
                }
                let (late, copies) = self.goes_to_driver(command, &stat)?;
                let route = if copies { Route::Driver } else { self.read_route(&reply) };
                let set = |op: &mut FileOperation| (op.enters_late, op.copies) = (late, copies);
                self.request(command, reply, Some(&stat), route, set, reason)?;
            }
        }
        Ok(())
    }

    fn buffered_write(&mut self, command: &mut Command, reply: Reply) -> Result<(), Errno> {
        if command.is_hinted() {
            // In memory, as far as is known: one system call, which also checks the descriptor.
            let engine = self.context.engine();
            if engine.orders().is_empty()
                && self.tries_inline(command)
                && let Some(_write) = engine.users().begin_unknown(self.context)
                && let Attempt::Done(Ok(bytes)) = self.transfer(command, 0)
            {
                self.end(&reply, Ok(bytes));
                return Ok(());
            }
            return self.decide_again(command, reply);
        }
        let mut about = About::new(command.fd);
        let stat = *about.stat()?;
        match stat.file_type() {
            S_IFDIR => return Err(Errno::INVAL),
            S_IFREG | S_IFBLK => {}
            _ => return self.stream(command, reply, &stat),
        }
        let Some(write) = self.begin_write(command, &stat, &reply)? else { return Ok(()) };
        let fs = self.context.engine().filesystems().of(&stat, command.fd)?;
        self.context.history.is_in_memory(command.fd, fs.in_memory);
        let synchronous = command.is_synchronous();
        let tries = self.tries_inline(command) && (!synchronous || fs.in_memory);
        let attempt = if tries && !self.must_wait(command, &mut about)? {
            self.attempt_write(command, &stat, &fs)
        } else {
            Attempt::Rest(if synchronous { |c| &c.punt_sync } else { |c| &c.punt_write })
        };
        match attempt {
            Attempt::Done(result) => self.end(&reply, result),
            Attempt::Refused(errno) => return Err(errno),
            Attempt::Stream => return self.stream(command, reply, &stat),
            Attempt::Rest(reason) => {
                let context = self.context;
                let set = |op: &mut FileOperation| op.write = Some(write.keep(context));
                self.write_request(command, reply, &stat, !synchronous, set, reason)?;
            }
        }
        Ok(())
    }

    /// Counts a write that goes to the kernel. `None`: its file is in the page cache by now, which
    /// has the command.
    pub(crate) fn begin_write(
        &mut self,
        command: &Command,
        stat: &Stat,
        reply: &Reply,
    ) -> Result<Option<KernelWrite<'a>>, Errno> {
        match self.context.engine().users().begin_write((stat.dev, stat.ino)) {
            Ok(write) => Ok(Some(write)),
            Err(file) => self.start_cached(&file, command, reply).map(|()| None),
        }
    }

    fn direct(&mut self, command: &mut Command, reply: Reply) -> Result<(), Errno> {
        if command.is_hinted() {
            return self.decide_again(command, reply);
        }
        let mut about = About::new(command.fd);
        if self.is_in_memory(&mut about)? {
            // Direct I/O on a memory file system is the page cache by another name.
            return match command.kind {
                Kind::Read => self.buffered_read(command, reply),
                _ => self.buffered_write(command, reply),
            };
        }
        let mut reason: Reason = |c| &c.punt_driver;
        let mut route = self.async_route(&reply);
        if let Some(stat) = about.known().filter(|stat| !stat.has_offsets()) {
            return self.stream(command, reply, &stat); // a pipe in packet mode
        }
        let (context, mut rights, mut write) = (self.context, None, None);
        let ordered = self.must_wait(command, &mut about)?;
        let alone = !ordered && self.native.links.is_none();
        if ordered {
            route = self.context.engine().async_route();
            reason = |c| &c.punt_order;
        }
        if command.kind == Kind::Write {
            let stat = *about.stat()?;
            let Some(begun) = self.begin_write(command, &stat, &reply)? else { return Ok(()) };
            let regular = stat.file_type() == S_IFREG;
            let end = command.offset.saturating_add(command.len as i64);
            if regular && (end > stat.size || command.is_append()) {
                // Serial in the kernel too: one after another, to the end.
                let set = |op: &mut FileOperation| op.write = Some(begun.keep(context));
                return self.write_request(command, reply, &stat, true, set, |c| &c.punt_extend);
            }
            if regular && stat.may_have_holes() {
                route = self.context.engine().async_route();
                reason = |c| &c.punt_extend;
                rights = self.rights()?;
            }
            write = Some(begun);
        }
        if route == Route::Own && alone {
            let inode = about.known().map(|stat| (stat.dev, stat.ino));
            return self.whole(command, reply, inode, write);
        }
        let stat = *about.stat()?;
        let registers = ordered || (command.kind == Kind::Write && self.context.syncs_cover_all());
        let set = |op: &mut FileOperation| {
            (op.registers, op.credentials) = (registers, rights);
            op.write = write.map(|write| write.keep(context));
        };
        self.request(command, reply, Some(&stat), route, set, reason)
    }

    /// Queues a direct request that nothing stands in the way of.
    fn whole(
        &mut self,
        command: &Command,
        reply: Reply,
        inode: Option<InodeKey>,
        write: Option<KernelWrite<'a>>,
    ) -> Result<(), Errno> {
        let (context, len) = (self.context, command.len);
        context.admit(len)?;
        let write = write.map(KernelWrite::forget);
        context.io().stats().add(|c| &c.iterations, 1);
        let (data, obj) = (reply.data, reply.obj);
        let request =
            DirectRequest { command: command.clone(), data, obj, inode, cancelled: false, write };
        if context.queue_direct(command, request) {
            self.own_queued = true;
            self.own_used = true;
            return Ok(());
        }
        let write = write.map(|places| context.engine().users().writes.remember(places));
        context.dismiss(1, len);
        // Another thread took the last place.
        let route = context.engine().async_route();
        let stat = file::stat(command.fd)?;
        let set = |op: &mut FileOperation| {
            op.registers = false;
            op.write = write.map(|write| write.keep(context));
        };
        self.request(command, reply, Some(&stat), route, set, |c| &c.punt_driver)
    }

    pub(crate) fn sync(&mut self, command: &Command, reply: Reply) -> Result<(), Errno> {
        let stat = file::stat(command.fd)?;
        if !matches!(stat.file_type(), S_IFREG | S_IFBLK | S_IFDIR) {
            return Err(Errno::INVAL);
        }
        let reason: Reason = |c| &c.punt_fsync;
        let (late, _) = self.goes_to_driver(command, &stat)?;
        let set = |op: &mut FileOperation| op.enters_late = late;
        self.request(command, reply, Some(&stat), Route::Workers, set, reason)
    }

    // --- ends --------------------------------------------------------------------------------

    pub(crate) fn end(&mut self, reply: &Reply, result: Result<u32, Errno>) {
        let stats = self.context.io().stats();
        stats.add(|c| &c.iterations, 1);
        stats.add(|c| &c.completed_inline, 1);
        self.deliver(reply, result);
    }

    /// Delivers the result of what was over at once.
    pub(crate) fn deliver(&mut self, reply: &Reply, result: Result<u32, Errno>) {
        if self.native.tells {
            self.native.told = Some(result);
            return;
        }
        Target::deliver_inline(self.context, reply, result);
        self.completed = true;
    }

    // --- requests ----------------------------------------------------------------------------

    /// Chooses the way of a read of the page cache that found something to wait for.
    fn read_route(&self, reply: &Reply) -> Route {
        let engine = self.context.engine();
        if !engine.queues_buffered_reads() {
            return Route::Workers;
        }
        let alone = self.context.depth_is_low();
        match self.async_route(reply) {
            Route::Own if alone || self.context.mode == SubmitMode::Inline => Route::Own,
            _ => engine.async_route(),
        }
    }

    pub(crate) fn async_route(&self, reply: &Reply) -> Route {
        let own = self.context.is_caller_driven()
            && reply.eventfd.is_none()
            && self.context.mode != SubmitMode::Offload
            && match &self.plug {
                Some(plug) => plug.own_has_room(self.context),
                None => self.context.own_has_room(),
            };
        if own { Route::Own } else { self.context.engine().async_route() }
    }

    pub(crate) fn write_request(
        &mut self,
        command: &Command,
        reply: Reply,
        stat: &Stat,
        exclusive: bool,
        set: impl FnOnce(&mut FileOperation),
        reason: Reason,
    ) -> Result<(), Errno> {
        let engine = self.context.engine();
        let fs = engine.filesystems().of(stat, command.fd)?;
        let (range, _) = reach(command);
        let credentials = if fs.rights_matter(stat, &range) { self.rights()? } else { None };
        let (late, copies) = self.goes_to_driver(command, stat)?;
        let set = |op: &mut FileOperation| {
            op.credentials = credentials;
            op.wants_lane = exclusive && !copies;
            (op.enters_late, op.copies) = (late, copies);
            set(op);
        };
        let route = if copies { Route::Driver } else { Route::Workers };
        self.request(command, reply, Some(stat), route, set, reason)
    }

    /// Makes a request and runs its first iteration. What leaves the caller's hands holds its
    /// file and takes its place in the order.
    pub(crate) fn request(
        &mut self,
        command: &Command,
        reply: Reply,
        stat: Option<&Stat>,
        route: Route,
        set: impl FnOnce(&mut FileOperation),
        reason: Reason,
    ) -> Result<(), Errno> {
        debug_assert!(!command.is_hinted(), "what leaves the submitter's hands was looked at");
        if command.done > 0 && command.is_append() {
            // The rest would be another append: others may come in between.
            self.end(&reply, Ok(command.transferred()));
            return Ok(());
        }
        let (context, len) = (self.context, command.len);
        context.admit(len)?;
        let made = self.admitted(command, reply, stat, route, set, reason);
        made.inspect_err(|_| context.dismiss(1, len))
    }

    fn admitted(
        &mut self,
        command: &Command,
        reply: Reply,
        stat: Option<&Stat>,
        route: Route,
        set: impl FnOnce(&mut FileOperation),
        reason: Reason,
    ) -> Result<(), Errno> {
        let context = self.context;
        let eventfd = self.hold_event_counter(&reply)?;
        let mut operation =
            FileOperation::new(command.clone(), context, (reply.data, reply.obj), route);
        operation.target.eventfd = eventfd.map(|held| held as Arc<dyn Descriptor>);
        operation.inode = stat.map(|stat| (stat.dev, stat.ino));
        operation.registers = stat.is_some();
        operation.admitted = true;
        operation.links = self.native.links.take();
        set(&mut operation);
        let endless = operation.is_endless();
        operation.registers &= !endless || operation.stream.is_some();
        if let Some(stat) = stat.filter(|_| route != Route::Own) {
            self.hold(&mut operation, stat)?;
        }
        let (copies, registers) = (operation.copies, operation.registers);
        let request = Request::new(operation, context.engine().kicked().clone());
        if let Some(stat) = stat {
            request.prepare(|operation, wait| take_place(operation, wait, stat))?;
        }
        if copies {
            context.copy_started();
        } else {
            context.register(&request, reply.obj, endless);
        }
        if route == Route::Own {
            self.own_used = true;
            self.own_ordered |= registers;
        } else {
            context.io().stats().add(reason, 1);
        }
        self.section.get_or_insert_with(|| Section::enter(context.engine()));
        let plug = self.plug.get_or_insert_with(|| Plug::take(context.engine(), Place::Caller));
        request.run(plug, None);
        Ok(())
    }

    /// Holds the file of a request. There is room for some hundred on the way to the engine: with
    /// more, the driver takes them in, or the workers get what makes them do so, and a moment.
    fn hold(&mut self, operation: &mut FileOperation, stat: &Stat) -> Result<(), Errno> {
        const MOMENTS: usize = 10;
        let engine = self.context.engine();
        for _ in 0..MOMENTS {
            match operation.hold(engine, stat) {
                Err(Errno::AGAIN) => {}
                held => return held,
            }
            if let Some(plug) = &mut self.plug {
                plug.flush(Some(self.context));
            }
            engine.holds().wait_for_room(|| engine.driver().into_iter().for_each(Driver::wake));
        }
        Err(Errno::AGAIN)
    }

    /// Holds the event counter that engine threads will signal; once for a submission.
    pub(crate) fn hold_event_counter(
        &mut self,
        reply: &Reply,
    ) -> Result<Option<Arc<HeldFile>>, Errno> {
        let Some(number) = reply.eventfd else { return Ok(None) };
        if let Some((known, held)) = &self.event_counter
            && *known == number
        {
            return Ok(Some(held.clone()));
        }
        let held = self.context.engine().holds().hold_afresh(number)?;
        self.event_counter = Some((number, held.clone()));
        Ok(Some(held))
    }
}

/// Who returns early, with an error or in a panic, has started what it has started.
impl Drop for Submission<'_> {
    fn drop(&mut self) {
        if self.own_queued
            && let Some(own) = self.context.own()
        {
            own.commit();
        }
        if let Some(mut plug) = self.plug.take() {
            plug.flush(Some(self.context));
            plug.run_kicked(Some(self.context));
            Plug::put_back(plug);
        }
        if self.own_used {
            self.context.own_started();
        }
        if self.own_ordered {
            self.context.own_ordered();
        }
        if self.completed {
            self.context.io().notify();
        }
        if self.inline > 0 {
            let stats = self.context.io().stats();
            stats.add(|c| &c.iterations, self.inline);
            stats.add(|c| &c.completed_inline, self.inline);
        }
        let (cached, missed) = self.user_reads;
        if let (true, Some(cache)) = (cached + missed > 0, self.context.engine().cache_in_use()) {
            cache.count_reads(cached, missed);
        }
    }
}

/// Registers a request in the order of its inode, unless the driver does.
fn take_place(
    operation: &mut FileOperation,
    wait: &Wait<'_, FileOperation>,
    stat: &Stat,
) -> Result<(), Errno> {
    if !operation.registers {
        return Ok(());
    }
    if !operation.enters_late {
        operation.take_place(wait);
        leave_own_if_blocked(operation, stat)?;
    }
    operation.promise();
    Ok(())
}

/// A request that waits in the order is kicked by whoever ends the earlier one, on a thread that
/// does not serve its context's queue and does not see the application's descriptors.
fn leave_own_if_blocked(operation: &mut FileOperation, stat: &Stat) -> Result<(), Errno> {
    if operation.route != Route::Own || !operation.is_blocked() {
        return Ok(());
    }
    let context = operation.target.context.clone();
    let engine = context.engine();
    operation.route = operation.other_route(engine);
    operation.hold(engine, stat).inspect_err(|_| operation.leave_place(engine))
}

const S_IFMT_SHIFT: u32 = 12;
const S_IFDIR: u32 = 0o04 << S_IFMT_SHIFT;
const S_IFBLK: u32 = 0o06 << S_IFMT_SHIFT;
pub(crate) const S_IFREG: u32 = 0o10 << S_IFMT_SHIFT;
