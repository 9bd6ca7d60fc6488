//! The published state of an image, written by its thread.

use nowait_image_format::{Costs, Geometry};
use nowait_sys::mutex::{Condvar, Mutex};
use std::fmt;
use std::time::Instant;

/// The status of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The writer is opening the image; requests wait.
    Opening,
    /// The writer has the image.
    Serving {
        /// The epoch of the writer.
        epoch: u64,
        /// The geometry of the image.
        geometry: Geometry,
    },
    /// The image is only read, as it was when it was opened.
    Reading {
        /// The epoch of the writer that left it so.
        epoch: u64,
        /// The geometry of the image.
        geometry: Geometry,
    },
    /// Another writer has taken the image over: all requests fail.
    Fenced {
        /// The epoch of the writer that has the image now.
        epoch: u64,
        /// The host and process of the writer that has the image now.
        writer: String,
    },
    /// A description of the failure: all requests fail. If the image is only read, only the
    /// requests for missing or damaged data fail.
    Failed(String),
    /// The image was closed, or its owner has dropped it.
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

/// How many reads of data the cache answered, and how many the store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Reads answered by the cache.
    pub hits: u64,
    /// Reads sent to the store.
    pub misses: u64,
}

/// The counters of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The operations of the store.
    pub costs: Costs,
    /// The counters of the cache, if there is one.
    pub cache: CacheFigures,
    /// Operations without an answer in time, or with an error; most are repeated.
    pub failures: u64,
    /// Bytes in memory that are not durable.
    pub unflushed_bytes: u64,
    /// Objects that are known to be superfluous and not deleted yet.
    pub deletions: u64,
}

/// A handle that reads the status of an image, also where the image itself is not accessible.
#[derive(Clone, Debug)]
pub struct Watch(pub(crate) std::sync::Arc<Shared>);

impl Watch {
    /// Returns the status of the image.
    pub fn status(&self) -> Status {
        self.0.status()
    }
}

#[derive(Debug)]
struct State {
    status: Status,
    figures: Figures,
}

/// The state that the thread of an image publishes.
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

    /// Sets the status of an image whose thread has ended: failed because of `why`, or closed. An
    /// earlier failure stays.
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

    /// Waits until there is nothing to delete, the image is no longer served, or time is up.
    pub(crate) fn cleaned(&self, until: Instant) {
        let mut state = self.state.lock();
        while state.figures.deletions > 0
            && matches!(state.status, Status::Serving { .. })
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
    }

    /// Waits until the image is opened or has failed, or time is up.
    pub(crate) fn opened(&self, until: Instant) -> Status {
        let mut state = self.state.lock();
        while state.status == Status::Opening
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        state.status.clone()
    }
}
