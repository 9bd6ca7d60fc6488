//! A context's own queue, served by whoever leads.

use crate::{
    Context, Engine,
    direct::Unfinished,
    plug::{Place, Plug},
};
use core::sync::atomic::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    fence,
};
use nowait_block::{BlockBackend, Completion};
use nowait_retry::Pump;
use nowait_sys::{Errno, aio::IoEvent, time::Deadline};
use parking_lot::Mutex;
use std::sync::{Arc, Weak};

/// What brings the completions of a queue to its context.
pub(crate) struct OwnPump {
    queue: Arc<dyn BlockBackend>,
    engine: Arc<Engine>,
    /// Is there as long as anybody may wait for what the queue brings.
    context: Weak<Context>,
    collected: Mutex<Collected>,
    /// Completions in it; those of the page cache are run a few at a time.
    unrun: Arc<AtomicUsize>,
}

impl OwnPump {
    /// Serves `queue` for `context`.
    pub(crate) fn new(queue: Arc<dyn BlockBackend>, context: &Arc<Context>) -> OwnPump {
        OwnPump {
            queue,
            engine: context.engine().clone(),
            context: Arc::downgrade(context),
            collected: Mutex::default(),
            unrun: context.unrun.clone(),
        }
    }
}

/// What came out of the queue, and what is made of it; kept for the memory.
#[derive(Default)]
struct Collected {
    completions: Vec<Completion>,
    events: Vec<IoEvent>,
    unfinished: Vec<Unfinished>,
}

/// What one run takes on of the page cache's completions, in bytes. What they bring is copied to
/// those who wait for it: the caller is to send its next requests on their way while the rest is
/// copied, so that the device has work. Reads of 64 KiB, 64 in flight: 20 k a second, and 15 k
/// with all that is there in one run.
pub(crate) const RUN_BYTES_MAX: usize = 128 << 10;

/// What a request costs besides the copy of its bytes, in bytes copied meanwhile.
pub(crate) const REQUEST_BYTES: usize = 12 << 10;

impl Pump for OwnPump {
    fn is_busy(&self) -> bool {
        self.queue.in_flight() != 0 || self.unrun.load(Relaxed) != 0
    }

    fn wait(&self, need: usize, deadline: Deadline) -> Result<(), Errno> {
        if self.unrun.load(Relaxed) != 0 {
            return self.queue.reap(&mut self.collected.lock().completions, 0, Deadline::NOW);
        }
        // The end of a bio of the page cache, or of a request that others wait for in the order,
        // may start what comes next: it must not lie in the queue until `need` have ended.
        let engine = &self.engine;
        let starts_others = engine.cache_in_use().is_some()
            || !engine.orders().is_empty()
            || !engine.turns().is_empty();
        let need = if starts_others { need.min(1) } else { need };
        self.queue.reap(&mut self.collected.lock().completions, need, deadline)
    }

    fn run(&self) {
        let mut collected = self.collected.lock();
        let Collected { completions, events, unfinished } = &mut *collected;
        if completions.is_empty() {
            return;
        }
        let Some(context) = self.context.upgrade() else { return completions.clear() };
        let bytes = context.direct.end(completions, events, unfinished);
        context.dismiss(events.len(), bytes);
        context.io().stats().add(|c| &c.iterations, events.len() as u64);
        context.io().complete_batch(events);
        events.clear();
        if completions.is_empty() && unfinished.is_empty() {
            return;
        }
        // What a request continues with goes by the driver or the workers (operation.rs); only
        // the page cache goes on in this queue.
        let mut plug = Plug::take(context.engine(), Place::Caller);
        for (request, result) in unfinished.drain(..) {
            request.into_operation(&context).run(&mut plug, Some(result));
        }
        for completion in completions.drain(..count_of_run(completions)) {
            plug.complete(completion.token, completion.result);
        }
        let unrun = completions.len();
        self.unrun.store(unrun, Relaxed);
        drop(collected);
        if unrun > 0 {
            // Out of the queue and not counted here yet, they were seen nowhere: the driver may
            // have ended its watch. And whoever leads may have what it came for.
            fence(SeqCst);
            context.look_after();
        }
        plug.flush(Some(&context));
        plug.run_kicked(Some(&context));
        Plug::put_back(plug);
    }

    fn interrupt(&self) {
        self.queue.wake();
    }
}

/// Returns how many of the completions make a run.
fn count_of_run(completions: &[Completion]) -> usize {
    let mut bytes = 0;
    let full = completions.iter().position(|completion| {
        if Plug::is_of_cache(completion.token) {
            bytes += completion.result.unwrap_or(0) as usize + REQUEST_BYTES;
        }
        bytes >= RUN_BYTES_MAX
    });
    full.map_or(completions.len(), |last| last + 1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{BackendChoice, Config};
    use nowait_block::backends::null::Null;

    fn completions(token: u64, bytes: u32) -> Vec<Completion> {
        vec![Completion { token, result: Ok(bytes) }; 100]
    }

    #[test]
    fn a_run_is_short_only_where_pages_are_copied() {
        assert_eq!(count_of_run(&completions(1, 1 << 20)), 1);
        assert_eq!(count_of_run(&completions(1, 64 << 10)), 2);
        assert_eq!(count_of_run(&completions(1, 4 << 10)), 8);
        assert_eq!(count_of_run(&completions(4, 1 << 20)), 100, "a request's own bio");
    }

    /// Between the queue and the run they are counted nowhere: a driver that looks just then ends
    /// its watch, and nobody else may come for them.
    #[test]
    fn what_a_run_leaves_is_looked_after() {
        // By hand, without a driver.
        let config = Config { backend: BackendChoice::Threads, ..Config::default() };
        let engine = Engine::start(config, "test".to_owned()).unwrap();
        let context = Context::new(&engine, 0, 1).unwrap();
        let pump = OwnPump::new(Arc::new(Null::new(1)), &context);
        pump.collected.lock().completions = completions(1, 1 << 20);
        assert!(!context.watched.load(Relaxed));
        pump.run();
        assert_eq!(context.unrun.load(Relaxed), 99);
        assert!(context.watched.load(Relaxed), "nobody comes for the rest");
        engine.shutdown();
    }
}
