//! Requests on files with offsets, through the kernel: one bio after another until all is moved.

use super::{Carrier, Iteration};
use crate::{Context, Kind, cached::kernel_writes::KeptWrite, order::FileState, route::Route};
use core::ops::ControlFlow;
use nowait_block::Lane;
use nowait_retry::{Step, stats::Server};
use nowait_sys::{Errno, cred::Credentials, file::Stat};
use std::sync::Arc;

/// The body of such a request.
pub(crate) struct KernelBody {
    pub(crate) carrier: Carrier,
    /// The credentials that it acts with, where they matter.
    pub(crate) credentials: Option<Arc<Credentials>>,
    /// Is counted as a write past the page cache of the engine until it ends.
    pub(crate) write: Option<KeptWrite>,
    /// Runs after one another with the other writes of its inode.
    pub(crate) wants_lane: bool,
    /// Is there from its place in the order on.
    pub(crate) lane: Option<Arc<Lane>>,
    /// The request's first bio goes to the driver's queue from submit, on the application's number.
    pub(crate) enters: bool,
    /// The thread that waits for it carries it out. How often its number had been closed when it
    /// was deferred.
    pub(super) deferred: Option<u32>,
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
            enters: false,
            deferred: None,
        }
    }

    /// Makes a body that takes this route, for the file with this `stat`.
    pub(crate) fn on(route: Route, stat: &Stat) -> KernelBody {
        KernelBody::new(Carrier::by(route, Some(FileState::of(stat))))
    }

    /// Leaves it to the thread that waits for it; `fd` is the application's number.
    pub(crate) fn defer(&mut self, context: &Context, fd: i32) {
        self.deferred = Some(context.engine().closes().count(fd));
        // The driver looks after the context, and releases the file some time.
        self.carrier.keeps_file = true;
    }

    /// Returns who carries it out.
    pub(super) fn server(&self) -> Server {
        match self.deferred {
            Some(_) => Server::Caller,
            None => self.carrier.route.server(),
        }
    }

    /// Puts the bio for what is left on the plug, or the request on the driver's list.
    pub(super) fn dispatch(&mut self, it: &mut Iteration<'_, '_>) -> Step {
        if self.deferred.is_some() {
            return self.run_by_caller(it.plug.turn, it);
        }
        let route = self.carrier.route;
        let begun = match self.enters {
            true => ControlFlow::Continue(it.command.fd),
            false => self.carrier.begin(route, it),
        };
        let fd = match begun {
            ControlFlow::Continue(fd) => fd,
            ControlFlow::Break(step) => return step,
        };
        let mut bio = it.command.bio(fd, it.wait.token());
        bio.rw_flags = it.target.context.engine().known.rw_flags(it.command);
        bio.hints.credentials.clone_from(&self.credentials);
        bio.hints.lane.clone_from(&self.lane);
        bio.hints.upfront = it.command.kind == Kind::Read;
        bio.hints.joins = self.wants_lane && it.command.is_positioned();
        if self.enters {
            it.plug.enter_driver(bio);
            return Step::Queued;
        }
        self.carrier.queue(route, bio, it)
    }

    /// Continues after the end of a bio.
    pub(super) fn complete(
        &mut self,
        it: &mut Iteration<'_, '_>,
        result: Result<u32, Errno>,
    ) -> Step {
        let has_entered = core::mem::take(&mut self.enters);
        if has_entered && result == Err(Errno::AGAIN) {
            // The driver's queue is full. The driver itself must not block until there are blocks.
            self.carrier.route = Route::Workers;
            return self.dispatch(it);
        }
        let bytes = match (it.command.kind, result) {
            (Kind::Read | Kind::Write, Ok(bytes)) => bytes,
            (_, result) => return it.end(result),
        };
        it.command.done += u64::from(bytes);
        // The rest of an append would be another append: others may have come in between.
        if bytes == 0 || it.command.is_complete() || it.command.is_append() {
            return it.transferred();
        }
        if self.carrier.held.is_none() {
            if !self.carrier.hold_late(it.command, &it.target.context) {
                return it.transferred();
            }
            self.carrier.route = it.plug.engine.queues.route_past_own();
        }
        if has_entered {
            self.carrier.route = Route::Workers;
        }
        self.dispatch(it)
    }
}
