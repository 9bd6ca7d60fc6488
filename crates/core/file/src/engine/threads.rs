//! The threads of an engine: how they start and end, and how other threads wake them.

use super::{Engine, owner::Owned, section, starter::Starter};
use crate::{
    Context,
    hold::{self, BothTables},
    parts::{Executor, Workers},
    request::FileOperation,
    route::{
        Place, Plug,
        driver::{self, Driver},
    },
};
use nowait_block::backends::threads::{Deliver, OnPanic, ThreadsConfig};
use nowait_retry::RunList;
use nowait_sys::{Errno, fdtable, mutex::Mutex, own_thread};
use std::{
    sync::{Arc, OnceLock, Weak},
    thread,
};

pub(crate) struct Threads {
    workers: OnceLock<Box<dyn Workers>>,
    pub(crate) driver: Driver,
    pub(super) owned: Owned,
    /// Contexts whose callers sleep in event loops of their own.
    loops: Mutex<Vec<Weak<Context>>>,
    pub(crate) kicked: Arc<RunList<FileOperation>>,
    pub(crate) cpus: u32,
}

impl Threads {
    pub(super) fn new(engine: &Weak<Engine>, executor: Executor) -> Threads {
        let cpus = match executor {
            Executor::Threads => thread::available_parallelism().map_or(1, |n| n.get() as u32),
            Executor::Owner => 1,
        };
        Threads {
            workers: OnceLock::new(),
            driver: Driver::default(),
            owned: Owned::default(),
            loops: Mutex::default(),
            kicked: Arc::new(RunList::with_wake(section::wake(engine.clone()))),
            cpus,
        }
    }

    pub(crate) fn workers(&self) -> &dyn Workers {
        // Set before `start` returns; until then the engine has no requests.
        self.workers.get().expect("the engine has been started").as_ref()
    }

    pub(crate) fn cancel_bio(&self, token: u64) {
        self.driver.queue().iter().for_each(|queue| queue.cancel(token));
        self.driver.cancelled();
        self.workers().cancel(token);
    }

    pub(crate) fn add_loop(&self, context: &Arc<Context>) {
        let mut loops = self.loops.lock();
        loops.retain(|context| context.strong_count() > 0);
        loops.push(Arc::downgrade(context));
    }

    /// Called before a thread of the application sleeps in a call. That thread may be one that
    /// serves a context in its event loop, and may sleep until a request in that context's own
    /// queue completes.
    pub(crate) fn look_after_loops(&self) {
        let loops: Vec<_> = self.loops.lock().iter().filter_map(Weak::upgrade).collect();
        loops.iter().for_each(Context::look_after_loop);
    }
}

impl Engine {
    /// Starts the workers, and on the first worker the driver. The outer error: no worker could be
    /// started.
    pub(super) fn start_threads(
        self: &Arc<Self>,
        remote: i32,
        counter: Option<Arc<BothTables>>,
    ) -> Result<Result<(), Errno>, Errno> {
        if let Some(number) = counter.as_ref().and_then(|counter| counter.here()) {
            let _ = self.threads.driver.counter.set(number);
        }
        // Reserves stacks for the first worker, and for the driver and the second worker, which the
        // first one starts.
        own_thread::leave_stacks(3);
        let starter = Starter::default();
        let outcome = starter.outcome();
        let first = self.clone();
        let work = move || first.first_thread(remote, counter, starter);
        self.start_workers(Some(Box::new(work)))?;
        Ok(*outcome.wait())
    }

    pub(super) fn start_workers(
        self: &Arc<Self>,
        first: Option<Box<dyn FnOnce() + Send>>,
    ) -> Result<(), Errno> {
        let workers = self.parts.backends.workers(ThreadsConfig {
            max_workers: self.config.workers_max,
            deliver: deliver_to(Arc::downgrade(self)),
            first,
            each: hold::enter_engine_table,
            failed: note_failures(Arc::downgrade(self)),
            ..ThreadsConfig::default()
        })?;
        let _ = self.threads.workers.set(workers);
        Ok(())
    }

    /// Runs on the first worker: makes the engine's descriptor table, and starts the driver, which
    /// shares that table.
    fn first_thread(
        self: Arc<Self>,
        number: i32,
        counter: Option<Arc<BothTables>>,
        starter: Starter,
    ) {
        if fdtable::make_private(number).is_err() {
            self.holds.share_table();
        }
        hold::enter_engine_table();
        self.known.probe_credentials();
        driver::spawn(self, counter, starter);
    }

    /// Writes the dirty data of user files, ends the engine's threads and waits for their end. All
    /// contexts must have been destroyed.
    ///
    /// Only a thread of the application may call this: the end of the engine closes descriptors of
    /// the application's table.
    pub fn shutdown(self: &Arc<Self>) {
        self.write_back();
        self.user_files.dirty.clear();
        self.threads.driver.stop();
        self.end_owned();
        self.threads.workers().shutdown();
        self.drop_deferred();
        Plug::drop_spare(self);
    }
}

fn note_failures(engine: Weak<Engine>) -> OnPanic {
    Arc::new(move |cause| {
        let engine = engine.upgrade();
        engine.iter().for_each(|engine| engine.failures.note("as a worker", cause));
    })
}

fn deliver_to(engine: Weak<Engine>) -> Deliver {
    Deliver::Call(Arc::new(move |completions| {
        let Some(engine) = engine.upgrade() else { return };
        engine.run(Place::Worker, None, |plug| {
            completions.reverse();
            // Taken one by one, so that after a panic the later completions stay in the list.
            while let Some(completion) = completions.pop() {
                plug.complete(completion.token, completion.result);
            }
        });
        engine.holds.tidy();
    }))
}
