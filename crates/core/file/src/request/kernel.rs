//! Requests on files with offsets, through the kernel: one bio after another until all is moved.

use super::{Carrier, Iteration, copy::OnDriver};
use crate::{Context, Kind, cached::kernel_writes::KeptWrite, order::FileState, route::Route};
use core::ops::ControlFlow;
use nowait_block::Lane;
use nowait_retry::Step;
use nowait_sys::{Errno, cred::Credentials, file::Stat};
use std::sync::Arc;

/// The body of such a request.
pub(crate) struct KernelBody {
    pub(crate) carrier: Carrier,
    /// With whose rights it acts, where they matter.
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// Is counted as a write past the page cache of the engine until it ends.
    pub(crate) write: Option<KeptWrite>,
    /// Runs after one another with the other writes of its inode.
    pub(crate) wants_lane: bool,
    /// Is there from its place in the order on, or because a worker submits it.
    pub(crate) lane: Option<Arc<Lane>>,
    /// A worker submits it to the own queue: it would wait there.
    pub(crate) offloads: bool,
    /// The thread that waits for it carries it out. How often its number had been closed when it
    /// was deferred.
    pub(super) deferred: Option<u32>,
    pub(super) on_driver: OnDriver,
    /// The driver has not given it its place yet.
    pub(super) enters: bool,
    /// The driver's pass in which its bio was queued: a completion in the same pass did not
    /// wait for anything.
    queued_in_pass: u64,
}

impl KernelBody {
    /// Makes a body that needs nothing but its carrier.
    pub(crate) fn new(carrier: Carrier) -> KernelBody {
        KernelBody {
            carrier,
            credentials: None,
            write: None,
            wants_lane: false,
            lane: None,
            offloads: false,
            deferred: None,
            on_driver: OnDriver::Nothing,
            enters: false,
            queued_in_pass: 0,
        }
    }

    /// Makes a body that takes this route, for the file with this `stat`.
    pub(crate) fn on(route: Route, stat: &Stat) -> KernelBody {
        KernelBody::new(Carrier::by(route, Some(FileState::of(stat))))
    }

    /// Has a worker submit it, by the own queue of `context`, where submission may wait.
    pub(crate) fn offload(&mut self, context: &Context) {
        self.carrier.route = Route::Workers;
        let dev = self.carrier.file.map_or(0, |file| file.key.0);
        self.lane = Some(context.submissions.lane(dev).clone());
        self.offloads = true;
    }

    /// Has the thread that waits for it carry it out; `fd` is the application's number.
    pub(crate) fn defer(&mut self, context: &Context, fd: i32) {
        self.deferred = Some(context.engine().closes().count(fd));
        // The driver looks after the context, and lets go of the file some time.
        self.carrier.keeps_file = true;
    }

    /// Has the driver do this, too.
    pub(crate) fn with_driver(mut self, on_driver: OnDriver) -> KernelBody {
        self.on_driver = on_driver;
        self.enters = on_driver != OnDriver::Nothing;
        self
    }

    /// Puts the bio for what is left on the plug, or the request on the driver's list.
    pub(super) fn dispatch(&mut self, it: &mut Iteration<'_, '_>) -> Step {
        if self.deferred.is_some() {
            return self.run_by_caller(it.plug.turn(), it);
        }
        let route = self.carrier.route;
        let fd = match self.carrier.begin(route, it) {
            ControlFlow::Continue(fd) => fd,
            ControlFlow::Break(step) => return step,
        };
        if self.on_driver == OnDriver::Copies && route == Route::Driver {
            return self.copy(fd, it);
        }
        if route == Route::Driver {
            self.queued_in_pass = it.plug.pass();
        }
        let mut bio = it.command.bio(fd, it.wait.token());
        bio.rw_flags = it.target.context.engine().rw_flags(it.command);
        bio.hints.credentials.clone_from(&self.credentials);
        bio.hints.lane.clone_from(&self.lane);
        bio.hints.upfront = it.command.kind == Kind::Read;
        bio.hints.joins = self.wants_lane && it.command.is_positioned();
        if self.offloads {
            bio.hints.submit_to = Some(it.target.context.submissions.clone());
        }
        self.carrier.queue(route, bio, it)
    }

    /// Continues after the end of a bio.
    pub(super) fn complete(
        &mut self,
        it: &mut Iteration<'_, '_>,
        result: Result<u32, Errno>,
    ) -> Step {
        let bytes = match (it.command.kind, result) {
            (Kind::Read | Kind::Write, Ok(bytes)) => bytes,
            (_, result) => return it.end(result),
        };
        it.command.done += u64::from(bytes);
        self.note_hint(it);
        // The rest of an append would be another append: others may have come in between.
        if bytes == 0 || it.command.is_complete() || it.command.is_append() {
            return it.transferred();
        }
        if self.carrier.held.is_none() {
            if !self.carrier.hold_late(it.command, &it.target.context) {
                return it.transferred();
            }
            self.carrier.route = it.plug.engine().route_past_own();
        }
        self.dispatch(it)
    }

    /// Remembers whether the page cache had what the driver has read.
    fn note_hint(&self, it: &Iteration<'_, '_>) {
        let is_read = it.command.kind == Kind::Read && !it.command.is_direct();
        if self.carrier.route == Route::Driver && is_read {
            let history = &it.target.context.history;
            match self.queued_in_pass == it.plug.pass() {
                true => history.hit(it.command.fd),
                false => history.waited(it.command.fd),
            }
        }
    }
}
