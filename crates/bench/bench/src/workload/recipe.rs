//! The parts of the tables of cases.

use nowait_peers::job::{Backend, Transfer, Visits, Warm, Work};
use nowait_peers::registry::{self, ENGINES, EngineDef};

use serde_json::{Value, json};

use crate::args::unknown;
use crate::case::{Case, Subject};
use crate::error::Result;
use crate::metric::Metric;

/// The work of a subject, on any device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) engine: &'static EngineDef,
    pub(crate) backend: Backend,
    pub(crate) work: Work,
    /// `O_DSYNC`.
    pub(crate) sync: bool,
    /// The words for cases that differ in the block size only: a curve of the page.
    pub(crate) family: Option<&'static str>,
    /// The case's files lie in memory, whatever the device is.
    pub(crate) in_memory: bool,
    /// Runs begin with empty caches.
    pub(crate) cold: bool,
    /// The bytes that are read or written, and nowait's page cache.
    pub(crate) set: Share,
    pub(crate) pool: Share,
    /// The bytes lie in so many files.
    pub(crate) files: usize,
}

/// A size as a share of that of the measurement.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Share(pub(crate) u64, pub(crate) u64);

impl Share {
    /// Returns the size; a part is a multiple of 2 MiB, and at least that.
    pub(crate) fn of(self, size_bytes: u64) -> u64 {
        if self.1 == 1 {
            return size_bytes * self.0;
        }
        (size_bytes * self.0 / self.1).max(1).next_multiple_of(2 << 20)
    }
}

impl Recipe {
    /// Does `work` with all of the file, cold; our cache has room for all of it, as the kernel's.
    pub(crate) fn new(engine: &'static EngineDef, work: Work) -> Self {
        let (backend, sync, cold, files) = (Backend::Auto, false, true, 1);
        let (set, pool) = (Share(1, 1), Share(9, 8));
        let (family, in_memory) = (None, false);
        Self { engine, backend, work, sync, family, in_memory, cold, set, pool, files }
    }

    /// Returns how many bytes it needs of the file that it works on, or else of the file whose
    /// pages fill our cache.
    pub(crate) fn needs(&self, worked_on: bool, size_bytes: u64) -> u64 {
        match self.work {
            _ if worked_on => self.set.of(size_bytes),
            Work::Transfer(Transfer { warm: Warm::Nothing, .. }) => self.pool.of(size_bytes),
            _ => 0,
        }
    }

    /// Describes it in reports.
    pub(crate) fn params(&self) -> Value {
        let in_flight = match self.work {
            Work::Transfer(transfer) => Some(transfer.threads * transfer.depth),
            Work::Act(_) => None,
        };
        json!({ "files": self.files, "in_flight": in_flight, "work": self.work })
    }

    /// Makes the subject that bears the name of its engine.
    pub(crate) fn subject(self) -> Subject<Self> {
        Subject { name: self.engine.name, engine: (self.engine.name, self.engine.about), job: self }
    }
}

/// Many requests of one thread, from one order, in whole batches or not.
pub(crate) const fn in_flight(transfer: Transfer, depth: usize, batches: bool) -> Transfer {
    let refill = if batches { depth } else { 1 };
    Transfer { depth, refill, batch: depth, visits: Visits::Own, ..transfer }
}

/// Makes a case without targets.
pub(crate) fn case(
    name: &'static str,
    title: impl Into<String>,
    columns: &'static [Metric],
    subjects: Vec<Subject<Recipe>>,
) -> Case<Recipe> {
    let (title, about, source, targets) = (title.into(), "", String::new(), Vec::new());
    Case { name, title, about, source, columns, subjects, targets }
}

/// Finds an engine by its name.
pub(crate) fn engine(name: &str) -> Result<&'static EngineDef> {
    let known = || ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>();
    registry::find(name).ok_or_else(|| unknown("engine", name, &known()))
}

/// Returns the engines asked for, or those of `default`.
pub(crate) fn engines(asked: &[String], default: &[&str]) -> Result<Vec<&'static EngineDef>> {
    match asked {
        [] => default.iter().map(|name| engine(name)).collect(),
        asked => asked.iter().map(|name| engine(name)).collect(),
    }
}
