//! The plug: the bios and requests that a run of operations collects, handed over when the run
//! ends, like the kernel's block plug.

use super::{Queue, Route};
use crate::{
    Context, Engine,
    deferred::{Back, Turn},
    hold,
    request::FileOperation,
    route::token,
};
use core::{cell::Cell, ffi::c_void, mem::ManuallyDrop};
use nowait_block::{Bio, BioOp, BlockBackend, Completion};
use nowait_retry::Request;
use nowait_sys::{Errno, cred::Credentials, own_thread::AtThreadEnd, thread};
use std::{collections::VecDeque, sync::Arc};

/// The kind of thread that runs operations now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A thread of the application; also the driver, while it reaps a context's own queue.
    Caller,
    /// The engine's driver.
    Driver,
    /// A worker.
    Worker,
}

/// The bios and requests that a run has collected.
///
/// As soon as an operation's bio is in a backend, another thread may continue the operation. So
/// bios are given to their backends only after the operations that made them have returned.
pub struct Plug {
    pub(crate) engine: Arc<Engine>,
    pub(crate) place: Place,
    own_bios: VecDeque<Bio>,
    /// Bios of the page cache, which any queue may carry.
    pub(crate) cache_bios: Vec<Bio>,
    driver_bios: VecDeque<Bio>,
    worker_bios: VecDeque<Bio>,
    /// Bios for the driver's queue that this thread gives to the kernel itself, in submit.
    entering: Vec<Bio>,
    over: Vec<Completion>,
    handed_over: Vec<Arc<Request<FileOperation>>>,
    deferred: Vec<Arc<Request<FileOperation>>>,
    /// The turn of the deferred request that runs now; `None`: no deferred request runs.
    pub(crate) turn: Option<Turn>,
    back: Option<Back>,
    /// Requests whose cancellation must be checked once their bio is queued.
    cancellable: Vec<(Arc<Request<FileOperation>>, u64)>,
}

thread_local! {
    /// The plug of this thread's last run, kept for its memory. It has no destructor: see
    /// [`AtThreadEnd`].
    static SPARE: ManuallyDrop<Cell<Option<Box<Plug>>>> =
        const { ManuallyDrop::new(Cell::new(None)) };
}

static END: AtThreadEnd = AtThreadEnd::new(thread_ends);

extern "C" fn thread_ends(_: *mut c_void) {
    drop(take_spare());
}

fn take_spare() -> Option<Box<Plug>> {
    SPARE.with(|spare| spare.take())
}

impl Plug {
    /// Takes this thread's spare plug, or makes one, for a run at `place`.
    pub fn take(engine: &Arc<Engine>, place: Place) -> Box<Plug> {
        match take_spare() {
            Some(plug) if Arc::ptr_eq(&plug.engine, engine) && plug.place == place => plug,
            _ => Box::new(Plug::new(engine.clone(), place)),
        }
    }

    /// Keeps the plug for this thread's next run if it is empty; otherwise drops it.
    pub fn put_back(plug: Box<Plug>) {
        if plug.is_empty() && END.of_this_thread().is_ok() {
            SPARE.with(|spare| spare.set(Some(plug)));
        }
    }

    /// Drops this thread's spare plug if it belongs to `engine`, which the plug keeps alive.
    pub fn drop_spare(engine: &Arc<Engine>) {
        if let Some(plug) = take_spare().filter(|plug| !Arc::ptr_eq(&plug.engine, engine)) {
            Plug::put_back(plug);
        }
    }

    /// Makes an empty plug for a run at `place`.
    pub fn new(engine: Arc<Engine>, place: Place) -> Plug {
        Plug {
            engine,
            place,
            own_bios: VecDeque::new(),
            cache_bios: Vec::new(),
            driver_bios: VecDeque::new(),
            worker_bios: VecDeque::new(),
            entering: Vec::new(),
            over: Vec::new(),
            handed_over: Vec::new(),
            deferred: Vec::new(),
            turn: None,
            back: None,
            cancellable: Vec::new(),
        }
    }

    pub(crate) fn defer(&mut self, request: Arc<Request<FileOperation>>) {
        self.deferred.push(request);
    }

    pub(crate) fn begin_turn(&mut self, turn: Turn) {
        (self.turn, self.back) = (Some(turn), None);
    }

    pub(crate) fn end_turn(&mut self) -> Option<Back> {
        self.turn = None;
        self.back
    }

    pub(crate) fn goes_back(&mut self, why: Back) {
        self.back = Some(why);
    }

    /// Returns `true` if the own queue of `context` takes another bio.
    pub fn own_has_room(&self, context: &Context) -> bool {
        context.own.has_room(self.own_bios.len() + 1)
    }

    /// Adds a bio for the own queue of the context being served.
    pub fn queue_own(&mut self, bio: Bio) {
        self.own_bios.push_back(bio);
    }

    /// Runs a request. Returns `true` if the request's bytes were added to the last bio of the page
    /// cache; the next request may then join that bio, too.
    pub fn run_joining(&mut self, request: &Arc<Request<FileOperation>>) -> bool {
        let before = self.last_of_cache();
        request.run(self, None);
        let after = self.last_of_cache();
        before.0 == after.0 && before.1 < after.1
    }

    fn last_of_cache(&self) -> (usize, usize) {
        let bytes = self.cache_bios.last().map_or(0, |bio| bio.segments.len());
        (self.cache_bios.len(), bytes)
    }

    /// Adds a bio for the driver's queue. Called by the driver only.
    pub fn queue_driver(&mut self, bio: Bio) {
        debug_assert_eq!(self.place, Place::Driver);
        self.driver_bios.push_back(bio);
    }

    /// Returns `true` if bios found no room in the driver's queue.
    pub fn is_backed_up(&self) -> bool {
        !self.driver_bios.is_empty()
    }

    /// Adds a bio for the workers.
    pub fn queue_worker(&mut self, bio: Bio) {
        self.worker_bios.push_back(bio);
    }

    /// Adds a bio for the driver's queue that this thread gives to the kernel itself. Called in
    /// submit only; the bio's file is the application's number.
    pub(crate) fn enter_driver(&mut self, bio: Bio) {
        self.entering.push(bio);
    }

    /// Makes a worker continue a request, as if the worker had carried its bio with this `result`.
    pub fn end_on_worker(&mut self, token: u64, result: Result<u32, Errno>) {
        self.over.push(Completion { token, result });
    }

    /// Hands a request to the driver, which will run it.
    pub fn hand_to_driver(&mut self, request: Arc<Request<FileOperation>>) {
        self.handed_over.push(request);
    }

    /// Remembers a request that may be cancelled before its bio is in a queue.
    pub fn watch_cancel(&mut self, request: Arc<Request<FileOperation>>, token: u64) {
        self.cancellable.push((request, token));
    }

    /// Returns `true` if nothing waits to be handed over.
    pub fn is_empty(&self) -> bool {
        self.own_bios.is_empty()
            && self.cache_bios.is_empty()
            && self.driver_bios.is_empty()
            && self.worker_bios.is_empty()
            && self.entering.is_empty()
            && self.over.is_empty()
            && self.handed_over.is_empty()
            && self.deferred.is_empty()
    }

    /// Hands everything over, except bios for which the driver's queue has no room. `served` is the
    /// context whose own queue gets the own bios.
    pub fn flush(&mut self, served: Option<&Arc<Context>>) {
        self.route_cache_bios(served);
        // The own queue is flushed before requests are handed to the driver, because refused ones
        // go there.
        if let Some(context) = served {
            self.flush_own(context);
        }
        self.flush_entering();
        if !self.handed_over.is_empty() {
            self.engine.threads.driver.hand_over(&mut self.handed_over);
        }
        self.flush_deferred();
        debug_assert!(self.own_bios.is_empty(), "only a submission makes bios for an own queue");
        if !self.driver_bios.is_empty()
            && let Some(queue) = self.engine.threads.driver.queue()
        {
            // Bios without room stay in the plug; the driver tries again after it has reaped.
            self.fill(queue.as_ref());
        }
        while !self.worker_bios.is_empty() {
            // The workers' queue has room for 2^20 bios, and the workers empty it by themselves.
            queue_until_full(self.engine.threads.workers(), &mut self.worker_bios);
        }
        if !self.over.is_empty() {
            self.engine.threads.workers().deliver(&mut self.over);
        }
        // Checked after the bios are in their queues: an earlier cancellation found them in no
        // queue.
        let looked_at = if self.driver_bios.is_empty() { self.cancellable.len() } else { 0 };
        for (request, token) in self.cancellable.drain(..looked_at) {
            if request.is_cancelled() {
                served.iter().for_each(|context| context.own.cancel_bio(token));
                self.engine.threads.cancel_bio(token);
            }
        }
    }

    /// Gives bios to the driver's queue on this thread. A bio without room ends with EAGAIN, and
    /// the workers then carry its request.
    fn flush_entering(&mut self) {
        if self.entering.is_empty() {
            return;
        }
        let queue = self.engine.threads.driver.queue();
        for bio in core::mem::take(&mut self.entering) {
            let given = match &queue {
                Some(queue) => queue.submit_now(bio, true),
                None => Err(bio),
            };
            let ended = match given {
                Ok(refused) => refused.bios,
                Err(bio) => vec![(bio.token, Err(Errno::AGAIN))],
            };
            ended.into_iter().for_each(|(token, result)| self.complete(token, result));
        }
    }

    fn flush_deferred(&mut self) {
        let mut deferred = self.deferred.drain(..).peekable();
        while let Some(request) = deferred.next() {
            let context = context_of(&request);
            let others = core::iter::from_fn(|| {
                deferred.next_if(|other| Arc::ptr_eq(&context_of(other), &context))
            });
            context.defer(core::iter::once(request).chain(others));
        }
    }

    /// Ends the requests that were cancelled while their bios still waited for room in the driver's
    /// queue. Called by the driver only.
    pub fn end_cancelled(&mut self) {
        let bios = core::mem::take(&mut self.driver_bios);
        for bio in bios {
            let token = bio.token;
            // SAFETY: what is not the cache's token is a FileOperation's (see `complete`), and
            // the bio that carries it has not been queued anywhere.
            let is_cancelled = || unsafe { Request::<FileOperation>::is_token_cancelled(token) };
            if !token::is_of_cache(token) && is_cancelled() {
                self.complete(bio.token, Err(Errno::CANCELED));
            } else {
                self.driver_bios.push_back(bio);
            }
        }
    }

    /// Gives the driver's bios to its queue, as many as there is room for; bios with other
    /// credentials go to the workers. Called by the driver only.
    fn fill(&mut self, queue: &dyn BlockBackend) {
        if self.driver_bios.iter().all(|bio| bio.hints.credentials.is_none()) {
            return queue_until_full(queue, &mut self.driver_bios);
        }
        // The kernel uses the credentials of the thread that commits.
        thread::with_steady_identity(|| {
            let own = Credentials::current().ok();
            for bio in core::mem::take(&mut self.driver_bios) {
                match bio.hints.credentials.as_deref() {
                    Some(wanted) if own.as_ref() != Some(wanted) => self.worker_bios.push_back(bio),
                    _ => self.driver_bios.push_back(bio),
                }
            }
            queue_until_full(queue, &mut self.driver_bios);
        });
    }

    fn route_cache_bios(&mut self, served: Option<&Arc<Context>>) {
        let (mut for_driver, mut own_used) = (Vec::new(), false);
        // A bio that cannot be started ends here, and its end may produce another bio.
        while !self.cache_bios.is_empty() {
            for mut bio in core::mem::take(&mut self.cache_bios) {
                let route = self.route_of_cache_bio(&bio, served);
                match (route, served) {
                    (Route::Workers, _) => self.worker_bios.push_back(bio),
                    (Route::Driver, _) if self.place != Place::Driver => for_driver.push(bio),
                    _ => match (bio.number(), served) {
                        (Err(errno), _) => self.complete_cache_bio(bio.token, Err(errno)),
                        (Ok(number), Some(context)) if route == Route::Own => {
                            bio.fd = number;
                            match context.own.queue(bio) {
                                Ok(()) => own_used = true,
                                Err(bio) => for_driver.push(bio),
                            }
                        }
                        (Ok(number), _) => {
                            bio.fd = number;
                            self.driver_bios.push_back(bio);
                        }
                    },
                }
            }
        }
        if !for_driver.is_empty() {
            self.engine.threads.driver.hand_over_bios(&mut for_driver);
        }
        if let Some(context) = served.filter(|_| own_used) {
            context.commit_own(self);
            context.own_started();
        }
    }

    /// Moves a bio to the driver or the workers, because a context's own queue gave up or refused
    /// the bio. A bio of the page cache starts again there; a request is completed with `result`,
    /// and then moves itself.
    pub(crate) fn carry_elsewhere(&mut self, token: u64, result: Result<u32, Errno>) {
        if !token::is_of_cache(token) {
            return self.complete(token, result);
        }
        let Some(cache) = self.engine.user_files.cache() else { return };
        let bio = cache.bio_again(token);
        match self.engine.queues.route_of_refused() {
            Route::Workers => self.worker_bios.push_back(bio),
            _ => self.engine.threads.driver.hand_over_bios(&mut vec![bio]),
        }
    }

    fn route_of_cache_bio(&self, bio: &Bio, served: Option<&Arc<Context>>) -> Route {
        let queues = &self.engine.queues;
        if queues.driver_kind() == Queue::None || bio.op != BioOp::Read && !queues.limits.writes {
            return Route::Workers;
        }
        let caller = self.place == Place::Caller && !hold::in_engine_table();
        // Native AIO blocks in submit for the last part of a file, whose writes are not whole
        // pages.
        let carries = |context: &Context| bio.op == BioOp::Read || context.own.limits().writes;
        match served {
            // A context that is being destroyed waits until its queue is empty, so the queue gets
            // no more bios.
            Some(context)
                if caller
                    && carries(context)
                    && context.is_caller_driven()
                    && context.own.has_room(1)
                    && !context.io().is_dead() =>
            {
                Route::Own
            }
            _ => Route::Driver,
        }
    }

    fn complete_cache_bio(&mut self, token: u64, result: Result<u32, Errno>) {
        if let Some(cache) = self.engine.user_files.cache() {
            let complete = || cache.complete(token, result, &mut self.cache_bios);
            self.engine.failures.caught("at the end of an I/O of the page cache", complete);
        }
    }

    /// Submission checks for room first, so this loops only if several threads submit to a full
    /// queue at once. Then each thread makes room by reaping, unless a caller is reaping already.
    fn flush_own(&mut self, context: &Arc<Context>) {
        while !self.own_bios.is_empty() {
            fill_queue(&mut self.own_bios, |bio| context.own.queue(bio));
            context.commit_own(self);
            if !self.own_bios.is_empty() {
                context.io().poll_pump();
                std::thread::yield_now();
            }
        }
    }

    /// Runs the requests that were kicked meanwhile, and those that they kick, until none is left.
    pub fn run_kicked(&mut self, served: Option<&Arc<Context>>) {
        let mut batch = Vec::new();
        loop {
            self.engine.threads.kicked.take(&mut batch, usize::MAX);
            if batch.is_empty() {
                return;
            }
            for request in batch.drain(..) {
                request.run(self, None);
            }
            self.flush(served);
        }
    }

    /// Continues the request, or the page cache's I/O, that has this `token`, with the result of
    /// its bio.
    pub fn complete(&mut self, token: u64, result: Result<u32, Errno>) {
        if token::is_of_cache(token) {
            return self.complete_cache_bio(token, result);
        }
        // SAFETY: every token given to a backend was made by `Wait::token` of a FileOperation
        // (see request.rs), and a backend reports each once.
        let request = unsafe { Request::<FileOperation>::from_token(token) };
        request.run(self, Some(result));
    }
}

/// Returns the context of a request that the calling thread may run.
fn context_of(request: &Arc<Request<FileOperation>>) -> Arc<Context> {
    request.prepare(|operation, _| operation.target.context.clone())
}

fn queue_until_full(backend: &dyn BlockBackend, bios: &mut VecDeque<Bio>) {
    fill_queue(bios, |bio| backend.queue(bio));
    backend.commit();
}

fn fill_queue(bios: &mut VecDeque<Bio>, queue: impl Fn(Bio) -> Result<(), Bio>) {
    while let Some(bio) = bios.pop_front() {
        if let Err(bio) = queue(bio) {
            bios.push_front(bio);
            break;
        }
    }
}
