//! The state of an image, which the image's thread publishes.

use nowait_image_format::{Costs, Geometry};
use nowait_sys::mutex::{Condvar, Mutex};
use std::fmt;
use std::time::Instant;

/// The status of an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Status {
    /// The image's thread is opening the image.
    Opening,
    /// This process is the writer of the image.
    Serving {
        /// The epoch of the writer.
        epoch: u64,
        /// The geometry of the image.
        geometry: Geometry,
    },
    /// This process only reads the image, in the state in which this process opened it.
    Reading {
        /// The epoch of the image's last writer when this process opened the image.
        epoch: u64,
        /// The geometry of the image.
        geometry: Geometry,
    },
    /// Another writer has taken the image over, so all requests fail.
    Fenced {
        /// The epoch of the writer that has the image now.
        epoch: u64,
        /// The host and process of the writer that has the image now.
        writer: String,
    },
    /// A description of the failure. All requests fail; if the image is only read, only the reads
    /// of missing or damaged data fail.
    Failed(String),
    /// A close has succeeded, or the owner has dropped the image.
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

/// How many reads of data the cache answered, and how many it did not answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheFigures {
    /// Reads that the cache answered.
    pub hits: u64,
    /// Reads for which the client asked the store.
    pub misses: u64,
}

/// The counters of an image.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// The operations on the store.
    pub costs: Costs,
    /// How the cache answered this image's reads; zeroes if there is no cache.
    pub cache: CacheFigures,
    /// Operations that failed or had no answer in time, most of which the image's thread repeats.
    /// If the image is only read: failed reads of clients.
    pub failures: u64,
    /// Bytes in segments that are not durable yet.
    pub unflushed_bytes: u64,
    /// Superfluous objects that the writer has not deleted yet.
    pub deletions: u64,
}

/// A handle that reads the status of an image without access to the image itself.
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

    /// Sets the status of an image that is no longer served: failed because of `why`, or closed for
    /// `None`. An earlier failure stays.
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

    pub(crate) fn cleaned(&self, until: Instant) {
        let mut state = self.state.lock();
        while state.figures.deletions > 0
            && matches!(state.status, Status::Serving { .. })
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
    }

    pub(crate) fn opened(&self, until: Instant) -> Status {
        let mut state = self.state.lock();
        while state.status == Status::Opening
            && !self.changed.wait_until(&mut state, until).timed_out()
        {}
        state.status.clone()
    }
}
