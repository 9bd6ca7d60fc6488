//! How an image is, for all that want to know: its thread writes it down.

use nowait_image_format::{Costs, Geometry};
use nowait_sys::mutex::{Condvar, Mutex};
use std::fmt;
use std::time::Instant;

/// How an image is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// It is on its way to be this writer's; requests wait.
    Opening,
    /// It is this writer's.
    Serving {
        /// The epoch of the writer.
        epoch: u64,
        /// Its blocks.
        geometry: Geometry,
    },
    /// It is only read, as it was when it was opened.
    Reading {
        /// The epoch of the writer that had left it so.
        epoch: u64,
        /// Its blocks.
        geometry: Geometry,
    },
    /// Another writer has taken it over: all requests fail.
    Fenced {
        /// The epoch of that one.
        epoch: u64,
        /// Its host and process.
        writer: String,
    },
    /// What is wrong: all requests fail; of an image that is only read, those that need what is
    /// gone.
    Failed(String),
    /// It was closed here.
    Closed,
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Status::Opening => f.write_str("opening"),
            Status::Serving { epoch, .. } => write!(f, "serving, epoch {epoch}"),
            Status::Reading { epoch, .. } => write!(f, "read only, as of epoch {epoch}"),
            Status::Fenced { epoch, writer } => {
                write!(f, "taken over by {writer} (epoch {epoch})")
            }
            Status::Failed(why) => f.write_str(why),
            Status::Closed => f.write_str("closed"),
        }
    }
}

/// How often data were asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Reads that the cache has answered.
    pub hits: u64,
    /// Those that the store was asked for.
    pub misses: u64,
}

/// What an image has cost, and what it has to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// What was asked of the store.
    pub costs: Costs,
    /// If it has a cache.
    pub cache: CacheFigures,
    /// How many operations had no answer in time, or an error; most are tried again.
    pub failures: u64,
    /// Bytes in memory that are not durable.
    pub unflushed_bytes: u64,
    /// Objects that are to be deleted, for all that is known now.
    pub deletions: u64,
}

/// Tells how an image is, also when the image itself is out of reach.
#[derive(Clone, Debug)]
pub struct Watch(pub(crate) std::sync::Arc<Shared>);

impl Watch {
    /// Returns how the image is.
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

#[derive(Debug)]
struct State {
    status: Status,
    figures: Figures,
}

/// What the thread of an image tells.
#[derive(Debug)]
pub(crate) struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

impl Shared {
    pub(crate) fn new() -> Shared {
        let state = State { status: Status::Opening, figures: Figures::default() };
        Shared { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(crate) fn set(&self, status: Status, figures: Figures) {
        let mut state = self.state.lock();
        let is_clean = figures.deletions == 0 && state.figures.deletions > 0;
        state.figures = figures;
        if state.status != status || is_clean {
            state.status = status;
            self.changed.notify_all();
        }
    }

    /// Notes that the thread has ended, for a reason or because that was wanted. What was wrong
    /// before stays.
    pub(crate) fn end(&self, why: Option<String>) {
        let mut state = self.state.lock();
        if matches!(state.status, Status::Opening | Status::Serving { .. } | Status::Reading { .. })
        {
            state.status = why.map_or(Status::Closed, Status::Failed);
        }
        self.changed.notify_all();
    }

    pub(crate) fn status(&self) -> Status {
        self.state.lock().status.clone()
    }

    pub(crate) fn figures(&self) -> Figures {
        self.state.lock().figures
    }

    /// Waits until nothing is to be deleted, the image is not served any more, or time is up.
    pub(crate) fn cleaned(&self, until: Instant) {
        let mut state = self.state.lock();
        while state.figures.deletions > 0
            && matches!(state.status, Status::Serving { .. })
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
    }

    /// Waits until the image is not being opened any more, or time is up.
    pub(crate) fn opened(&self, until: Instant) -> Status {
        let mut state = self.state.lock();
        while state.status == Status::Opening
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        state.status.clone()
    }
}
