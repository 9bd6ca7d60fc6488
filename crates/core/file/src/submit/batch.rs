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

/// A submission copies adjoining durable writes into one bio until their costs have reached this
/// many bytes. The limit is above that of other requests, because two bios would need two flushes.
const JOINED_BYTES_MAX: usize = 640 << 10;

#[derive(Default)]
pub(super) struct Batch<'a> {
    plug: Option<Box<Plug>>,
    /// The section in which the plug's requests run.
    section: Option<Section<'a>>,
    pub(super) own_used: bool,
    /// `true`: a request for the own queue has a place in the order.
    pub(super) own_ordered: bool,
    /// Contexts in which direct requests got a place in the order meanwhile.
    ordered: Vec<Arc<Context>>,
    pub(super) has_delivered: bool,
    /// The cost, in bytes, of the requests to user files in the plug.
    plugged_bytes: usize,
    joined: bool,
}

impl<'a> Batch<'a> {
    pub(super) fn plug(&mut self, engine: &'a Arc<Engine>) -> &mut Plug {
        self.section.get_or_insert_with(|| Section::enter(engine));
        self.plug.get_or_insert_with(|| Plug::take(engine, Place::Caller))
    }

    pub(super) fn joins(&self) -> bool {
        self.joined && self.plugged_bytes < JOINED_BYTES_MAX
    }

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
