//! Requests that a submission has started and not yet handed over.

use crate::{
    Command, Context, Engine,
    engine::section::Section,
    request::FileOperation,
    route::{Place, Plug, own_queue::RUN_BYTES_MAX},
};
use core::mem::take;
use nowait_retry::Request;
use std::sync::Arc;

/// Bytes of durable writes that one submission copies into one bio: more than of others, since two
/// halves would be two bios and two flushes. Eight of 64 KiB and a bit.
const JOINED_BYTES_MAX: usize = 640 << 10;

/// The requests that a submission has started since it last handed over.
#[derive(Default)]
pub(super) struct Batch<'a> {
    plug: Option<Box<Plug>>,
    /// Since there is a plug.
    section: Option<Section<'a>>,
    /// Some of them went into the own queue.
    pub(super) own_used: bool,
    /// One of them has a place in the order.
    pub(super) own_ordered: bool,
    /// Contexts in which others have taken one.
    ordered: Vec<Arc<Context>>,
    /// The event of one that was over at once is in the ring.
    pub(super) has_delivered: bool,
    /// Bytes that the requests to user files on the plug move.
    plugged_bytes: usize,
    /// The last of them writes by the bio of the one before: a bio that is full ends that.
    joined: bool,
}

impl<'a> Batch<'a> {
    /// Returns the plug on which requests run; begins the section in which they do.
    pub(super) fn plug(&mut self, engine: &'a Arc<Engine>) -> &mut Plug {
        self.section.get_or_insert_with(|| Section::enter(engine));
        self.plug.get_or_insert_with(|| Plug::take(engine, Place::Caller))
    }

    /// Returns `true` if the next durable write may go by the bio of the last.
    pub(super) fn joins(&self) -> bool {
        self.joined && self.plugged_bytes < JOINED_BYTES_MAX
    }

    /// Runs a request to a user file, which costs so much.
    pub(super) fn run_joining(
        &mut self,
        request: &Arc<Request<FileOperation>>,
        cost: usize,
        context: &'a Arc<Context>,
    ) {
        self.joined = self.plug(context.engine()).run_joining(request);
        // The device works while the next ones are made; but those that adjoin are one bio.
        self.plugged_bytes += cost;
        if self.plugged_bytes >= RUN_BYTES_MAX && !self.joined {
            self.plugged_bytes = 0;
            self.plug(context.engine()).flush(Some(context));
        }
    }

    /// Returns `true` if the own queue of `context` takes another bio.
    pub(super) fn own_has_room(&self, context: &Context) -> bool {
        match &self.plug {
            Some(plug) => plug.own_has_room(context),
            None => context.own.has_room(1),
        }
    }

    /// Gives places in the order to the requests that `later` must not overtake, and that the
    /// kernel may carry out after it.
    pub(super) fn take_places_before(&mut self, later: (&Command, u64), context: &Arc<Context>) {
        let unordered = &context.engine().unordered;
        unordered.take_places_before(later, context, &mut self.ordered);
    }

    /// Hands all of them over.
    pub(super) fn hand_over(&mut self, context: &Arc<Context>) {
        if let Some(mut plug) = self.plug.take() {
            plug.flush(Some(context));
            plug.run_kicked(Some(context));
            Plug::put_back(plug);
        }
        if take(&mut self.own_used) {
            context.own_started();
        }
        if take(&mut self.own_ordered) {
            context.own_ordered();
        }
        self.ordered.drain(..).for_each(|context| context.own_ordered());
        if take(&mut self.has_delivered) {
            context.io().notify();
        }
    }
}
