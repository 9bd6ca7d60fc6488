//! Makes a request of a command that was not completed inside submit.

use super::{Reason, Started, Submission};
use crate::{
    Command, SubmitMode,
    request::{Body, FileOperation, event::EventTarget},
    route::Route,
};
use nowait_retry::{Request, wait::Wait};
use nowait_sys::{Errno, file::Stat};

impl Submission<'_> {
    pub(super) fn async_route(&self, target: &EventTarget) -> Route {
        let own = self.context.is_caller_driven()
            && target.eventfd.is_none()
            && self.context.mode != SubmitMode::Offload
            && self.batch.own_has_room(self.context);
        if own { Route::Own } else { self.context.engine().queues.route_past_own() }
    }

    /// Makes a request, which holds its file (unless it goes to the own queue) and takes its place
    /// in the order, and runs its first iteration. `stat` is the file's.
    pub(super) fn request(
        &mut self,
        command: &Command,
        target: EventTarget,
        stat: &Stat,
        body: Body,
        reason: Reason,
    ) -> Result<Started, Errno> {
        debug_assert!(!command.is_hinted(), "what leaves the submitter's hands was looked at");
        if command.done > 0 && command.is_append() {
            // The rest would be another append, and other appends may come in between.
            return Ok(self.completed(command.work(), Ok(command.transferred())));
        }
        let (context, len) = (self.context, command.len);
        context.engine().note_device(stat, command.fd);
        context.admit(len)?;
        let made = self.admitted(command, target, stat, body, reason);
        made.inspect_err(|_| context.dismiss(1, len))
    }

    fn admitted(
        &mut self,
        command: &Command,
        target: EventTarget,
        stat: &Stat,
        mut body: Body,
        reason: Reason,
    ) -> Result<Started, Errno> {
        let (context, engine) = (self.context, self.context.engine());
        let hold = |number| engine.with_room(|| engine.holds.hold_afresh(number));
        let eventfd = self.event_counter.held(target.eventfd, hold)?;
        let is_own = body.carrier().is_some_and(|carrier| carrier.route == Route::Own);
        if let Some(carrier) = body.carrier().filter(|_| !is_own) {
            engine.with_room(|| carrier.hold(engine, command, stat))?;
        }
        let endless = body.is_endless();
        // The request will end in the own queue, and must then kick the requests that wait for it.
        self.batch.own_ordered |= body.registers() && is_own;
        let operation = FileOperation::new(command.clone(), context, &target, eventfd, body);
        let operation = operation.with_links(self.links.take());
        let request = Request::new(operation, engine.threads.kicked.clone());
        request.prepare(|operation, wait| take_place(operation, wait, stat))?;
        context.register(&request, target.obj, endless);
        if is_own {
            self.batch.own_used = true;
        } else {
            context.io().stats().add(|counters| reason.counter(counters), 1);
        }
        request.run(self.batch.plug(engine), None);
        Ok(Started::Queued)
    }
}

fn take_place(
    operation: &mut FileOperation,
    wait: &Wait<'_, FileOperation>,
    stat: &Stat,
) -> Result<(), Errno> {
    if !operation.body.registers() {
        return Ok(());
    }
    operation.take_place(wait);
    if let (true, Body::Kernel(kernel)) = (operation.is_blocked(), &mut operation.body) {
        kernel.enters = false; // by its turn, the number may mean another file
    }
    leave_own_if_blocked(operation, stat)?;
    operation.note_synchronous();
    Ok(())
}

/// A request that waits in the order must leave the own queue: the thread that kicks it may neither
/// reap this queue nor have the application's descriptor table.
fn leave_own_if_blocked(operation: &mut FileOperation, stat: &Stat) -> Result<(), Errno> {
    let (is_blocked, endless) = (operation.is_blocked(), operation.body.is_endless());
    let Some(carrier) = operation.body.carrier() else { return Ok(()) };
    if carrier.route != Route::Own || !is_blocked {
        return Ok(());
    }
    let context = operation.target.context.clone();
    let engine = context.engine();
    carrier.route = engine.queues.route_off_own_queue(endless);
    let command = &operation.command;
    let held = engine.with_room(|| carrier.hold(engine, command, stat));
    held.inspect_err(|_| operation.leave_place(engine))
}
