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

/// The most bytes of durable writes that one submission copies into one bio. The limit is higher
/// than for other requests, because two halves would be two bios and two flushes: it fits eight
/// writes of 64 KiB and their other costs.
const JOINED_BYTES_MAX: usize = 640 << 10;

/// The requests that a submission has started since it last handed over.
#[derive(Default)]
pub(super) struct Batch<'a> {
    plug: Option<Box<Plug>>,
    /// The section in which the plug's requests run; there is one whenever there is a plug.
    section: Option<Section<'a>>,
    /// `true`: some of the requests went into the own queue.
    pub(super) own_used: bool,
    /// `true`: one of the requests has a place in the order.
    pub(super) own_ordered: bool,
    /// Contexts in which direct requests got a place in the order meanwhile.
    ordered: Vec<Arc<Context>>,
    /// `true`: the event of a request that was completed at once is in the ring.
    pub(super) has_delivered: bool,
    /// The cost, in bytes, of the requests to user files in the plug.
    plugged_bytes: usize,
    /// `true`: the last request joined the bio of the one before, and the next one may join it,
    /// too.
    joined: bool,
}

impl<'a> Batch<'a> {
    /// Returns the plug on which requests run, and begins the section for them.
    pub(super) fn plug(&mut self, engine: &'a Arc<Engine>) -> &mut Plug {
        self.section.get_or_insert_with(|| Section::enter(engine));
        self.plug.get_or_insert_with(|| Plug::take(engine, Place::Caller))
    }

    /// Returns `true` if the next durable write may join the bio of the last one.
    pub(super) fn joins(&self) -> bool {
        self.joined && self.plugged_bytes < JOINED_BYTES_MAX
    }

    /// Runs a request to a user file; `cost` is its cost in bytes.
    pub(super) fn run_joining(
        &mut self,
        request: &Arc<Request<FileOperation>>,
        cost: usize,
        context: &'a Arc<Context>,
    ) {
        self.joined = self.plug(context.engine()).run_joining(request);
        // Flushes early, so that the device works while the next requests are made; but adjoining
        // writes stay together as one bio.
        self.plugged_bytes += cost;
        if self.plugged_bytes >= RUN_BYTES_MAX && !self.joined {
            self.plugged_bytes = 0;
            self.plug(context.engine()).flush(Some(context));
        }
    }

    pub(super) fn own_has_room(&self, context: &Context) -> bool {
        match &self.plug {
            Some(plug) => plug.own_has_room(context),
            None => context.own.has_room(1),
        }
    }

    /// Gives places in the order to the requests that `later` must not overtake, but that the
    /// kernel may carry out after it.
    pub(super) fn take_places_before(&mut self, later: (&Command, u64), context: &Arc<Context>) {
        let unordered = &context.engine().unordered;
        unordered.take_places_before(later, context, &mut self.ordered);
    }

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
