//! Requests on files with offsets, through the kernel: one bio after another until all bytes are
//! transferred.

use super::{Carrier, Iteration};
use crate::{Context, Kind, cached::kernel_writes::KeptWrite, order::FileState, route::Route};
use core::ops::ControlFlow;
use nowait_block::Lane;
use nowait_retry::{Step, stats::Server};
use nowait_sys::{Errno, cred::Credentials, file::Stat};
use std::sync::Arc;

pub(crate) struct KernelBody {
    pub(crate) carrier: Carrier,
    pub(crate) credentials: Option<Arc<Credentials>>,
    pub(crate) write: Option<KeptWrite>,
    /// `true`: the request runs one after another with the other writes of its inode.
    pub(crate) wants_lane: bool,
    pub(crate) lane: Option<Arc<Lane>>,
    /// `true`: submit gives the first bio to the driver's queue, on the application's number.
    pub(crate) enters: bool,
    /// Set if the thread that waits for the request carries it out: how often the number had been
    /// closed when the request was deferred.
    pub(super) deferred: Option<u32>,
}

impl KernelBody {
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

    pub(crate) fn on(route: Route, stat: &Stat) -> KernelBody {
        KernelBody::new(Carrier::by(route, Some(FileState::of(stat))))
    }

    pub(crate) fn defer(&mut self, context: &Context, fd: i32) {
        self.deferred = Some(context.engine().closes().count(fd));
        // The driver checks the context, and so releases the kept file in time.
        self.carrier.keeps_file = true;
    }

    pub(super) fn server(&self) -> Server {
        match self.deferred {
            Some(_) => Server::Caller,
            None => self.carrier.route.server(),
        }
    }

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

    pub(super) fn complete(
        &mut self,
        it: &mut Iteration<'_, '_>,
        result: Result<u32, Errno>,
    ) -> Step {
        let has_entered = core::mem::take(&mut self.enters);
        if has_entered && result == Err(Errno::AGAIN) {
            // The driver's queue is full. The driver itself must not carry the request, because it
            // could block while blocks are allocated.
            self.carrier.route = Route::Workers;
            return self.dispatch(it);
        }
        let bytes = match (it.command.kind, result) {
            (Kind::Read | Kind::Write, Ok(bytes)) => bytes,
            (_, result) => return it.end(result),
        };
        it.command.done += u64::from(bytes);
        // The rest of an append would be another append: other appends may have come in between.
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
