//! Requests: what was not over inside submit holds its file, takes its place in the order, and runs
//! its first iteration.

use super::{Reason, Started, Submission};
use crate::{
    Command, SubmitMode,
    engine::section::Section,
    hold::HeldFd,
    request::{Body, FileOperation, event::EventTarget},
    route::{Place, Plug, Route},
};
use nowait_block::bio::Descriptor;
use nowait_retry::{Request, wait::Wait};
use nowait_sys::{Errno, file::Stat};
use std::sync::Arc;

impl Submission<'_> {
    pub(super) fn async_route(&self, target: &EventTarget) -> Route {
        let own = self.context.is_caller_driven()
            && target.eventfd.is_none()
            && self.context.mode != SubmitMode::Offload
            && match &self.plug {
                Some(plug) => plug.own_has_room(self.context),
                None => self.context.own_has_room(),
            };
        if own { Route::Own } else { self.context.engine().route_past_own() }
    }

    /// Makes a request and runs its first iteration. What leaves the caller's hands holds its
    /// file, which has this `stat`, and takes its place in the order.
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
            // The rest would be another append: others may come in between.
            return Ok(self.completed(Ok(command.transferred())));
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
        let context = self.context;
        let eventfd = self.hold_event_counter(&target)?.map(|held| held as Arc<dyn Descriptor>);
        let is_own = body.carrier().is_some_and(|carrier| carrier.route == Route::Own);
        if let Some(carrier) = body.carrier().filter(|_| !is_own) {
            let engine = context.engine();
            engine.with_room(|| carrier.hold(engine, command, stat))?;
        }
        let (endless, copied) = (body.is_endless(), body.is_copied());
        // Its end comes out of the own queue, and is to kick those that wait for it.
        self.own_ordered |= body.registers() && (is_own || body.is_offloaded());
        let operation = FileOperation::new(command.clone(), context, &target, eventfd, body);
        let operation = operation.with_links(self.links.take());
        let request = Request::new(operation, context.engine().kicked().clone());
        request.prepare(|operation, wait| take_place(operation, wait, stat))?;
        if copied {
            context.copy_started();
        } else {
            context.register(&request, target.obj, endless);
        }
        if is_own {
            self.own_used = true;
        } else {
            context.io().stats().add(|counters| reason.counter(counters), 1);
        }
        self.section.get_or_insert_with(|| Section::enter(context.engine()));
        let plug = self.plug.get_or_insert_with(|| Plug::take(context.engine(), Place::Caller));
        request.run(plug, None);
        Ok(Started::Queued)
    }

    /// Holds the event counter that engine threads will signal; once for a submission.
    pub(super) fn hold_event_counter(
        &mut self,
        target: &EventTarget,
    ) -> Result<Option<Arc<HeldFd>>, Errno> {
        let Some(number) = target.eventfd else { return Ok(None) };
        if let Some((known, held)) = &self.event_counter
            && *known == number
        {
            return Ok(Some(held.clone()));
        }
        let engine = self.context.engine();
        let held = engine.with_room(|| engine.holds().hold_afresh(number))?;
        self.event_counter = Some((number, held.clone()));
        Ok(Some(held))
    }
}

/// Registers a request in the order of its inode, unless the driver does.
fn take_place(
    operation: &mut FileOperation,
    wait: &Wait<'_, FileOperation>,
    stat: &Stat,
) -> Result<(), Errno> {
    if !operation.body.registers() {
        return Ok(());
    }
    if !operation.body.enters_on_driver() {
        operation.take_place(wait);
        leave_own_if_blocked(operation, stat)?;
    }
    operation.note_synchronous();
    Ok(())
}

/// A request that waits in the order is kicked by the end of the earlier one, on a thread that
/// does not serve its context's queue and does not see the application's descriptors.
fn leave_own_if_blocked(operation: &mut FileOperation, stat: &Stat) -> Result<(), Errno> {
    let (is_blocked, endless) = (operation.is_blocked(), operation.body.is_endless());
    let Some(carrier) = operation.body.carrier() else { return Ok(()) };
    if carrier.route != Route::Own || !is_blocked {
        return Ok(());
    }
    let context = operation.target.context.clone();
    let engine = context.engine();
    carrier.route = engine.route_off_own_queue(endless);
    let command = &operation.command;
    let held = engine.with_room(|| carrier.hold(engine, command, stat));
    held.inspect_err(|_| operation.leave_place(engine))
}
