//! The functions that make contexts. They differ in the own queue, and in the threads that come for
//! the events.

use super::{Checks, Context, Looks, OwnQueue};
use crate::{
    Engine,
    deferred::{Callers, DeferredRequests},
    hints::Hints,
    limits::ContextThrottle,
    request::{direct::DirectRequests, in_flight::InFlight},
    route::own_queue::OwnPump,
};
use nowait_block::BlockBackend;
use nowait_retry::{IoContext, Sink, stats::Stats};
use nowait_sys::{Errno, uring::Issuer};
use std::sync::Arc;

/// The threads that submit to a context, by the way in which they use descriptors and take events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Submitters {
    /// A program's threads, which may close a descriptor while requests on it are in flight.
    Program,
    /// Threads that keep a descriptor open until its requests have ended. Another thread, of the
    /// library, takes the events.
    Served,
    /// One thread at a time, which keeps descriptors open and takes the events itself.
    InTurn,
}

impl Submitters {
    pub(crate) fn keep_files_open(self) -> bool {
        self != Submitters::Program
    }

    /// Returns `true` if a sync covers direct writes in flight. For programs of libaio it does not,
    /// as in the kernel: with an fsync after 32 of 16 in flight they would be 1.15 times slower.
    fn sync_covers_writes(self) -> bool {
        self != Submitters::Program
    }

    fn issuer(self) -> Issuer {
        match self {
            Submitters::Program | Submitters::Served => Issuer::Any,
            Submitters::InTurn => Issuer::InTurn,
        }
    }
}

impl Context {
    /// Makes a context for `nr` requests; `id` is shown in the ring's header.
    ///
    /// # Errors
    /// `ENOMEM`: no memory or too many mappings.
    pub fn new(engine: &Arc<Engine>, id: u32, nr: u32) -> Result<Arc<Context>, Errno> {
        Context::with_own_queue(engine, (id, nr), Submitters::Program)
    }

    /// Makes a context for submitters that keep the descriptor of each transfer open until its
    /// event has come, and for another thread, which takes the events ([`Context::serve`]). If the
    /// kernel ends such a request short or gives it up, the request goes on without a check of its
    /// file: the number still names the same file.
    ///
    /// # Errors
    /// The errors of [`Context::new`].
    pub fn over_open_files(engine: &Arc<Engine>, id: u32, nr: u32) -> Result<Arc<Context>, Errno> {
        Context::with_own_queue(engine, (id, nr), Submitters::Served)
    }

    /// Makes a context for one thread at a time, which submits and takes the events; completions do
    /// not interrupt that thread. If another thread has submitted and then only computes, its
    /// requests complete when it makes a system call, or at its processor's timer tick, if there is
    /// one.
    ///
    /// # Errors
    /// The errors of [`Context::new`].
    pub fn in_turn(engine: &Arc<Engine>, id: u32, nr: u32) -> Result<Arc<Context>, Errno> {
        Context::with_own_queue(engine, (id, nr), Submitters::InTurn)
    }

    fn with_own_queue(
        engine: &Arc<Engine>,
        (id, nr): (u32, u32),
        submitters: Submitters,
    ) -> Result<Arc<Context>, Errno> {
        engine.drop_deferred();
        let stats = Stats::new(engine.config().stats);
        let io = IoContext::new(id, super::slots(nr, engine.threads.cpus), stats)?;
        let context = Context::make(engine, io, engine.own_queue(submitters.issuer()), submitters);
        context.io.set_deferred(Box::new(Callers::of(&context)));
        if let Some(queue) = &context.own.queue {
            context.io.set_pump(Box::new(OwnPump::new(queue.clone(), &context)));
            engine.unordered.add(&context);
        }
        Ok(context)
    }

    /// Makes a context whose completions go to `sink`, on the threads of the engine: no thread
    /// waits in the context. A sync covers the writes submitted to this context before it, direct
    /// writes too.
    ///
    /// # Errors
    /// The errors of [`Context::new`].
    pub fn with_sink(engine: &Arc<Engine>, id: u32, sink: Sink) -> Result<Arc<Context>, Errno> {
        let stats = Stats::new(engine.config().stats);
        Ok(Context::make(engine, IoContext::with_sink(id, stats, sink)?, None, Submitters::Program))
    }

    fn make(
        engine: &Arc<Engine>,
        io: IoContext,
        queue: Option<Arc<dyn BlockBackend>>,
        submitters: Submitters,
    ) -> Arc<Context> {
        let slots = if io.face().is_some() { 0 } else { io.capacity() };
        let limits = engine.config().context_limits;
        let direct = DirectRequests::new(&engine.unordered, submitters.sync_covers_writes());
        Arc::new(Context {
            io,
            engine: engine.clone(),
            number: engine.known.next_context(),
            own: OwnQueue { queue, unrun: Arc::default(), direct },
            hints: Hints::new(engine.closes().clone()),
            mode: engine.config().submit,
            submitters,
            in_flight: InFlight::default(),
            deferred: DeferredRequests::default(),
            throttle: ContextThrottle::new(limits, &engine.throttle, slots),
            checks: Checks::default(),
            looks: Looks::default(),
        })
    }
}
