//! The work of each subject, as tables of cases define it.

use nowait_harness::cases;
use nowait_peers::job::{Act, Backend, Transfer, Warm, Work};
use nowait_peers::registry::{self, ENGINES, EngineDef};
use serde::Deserialize;
use serde_json::{Value, json};
use toml::Table;

use crate::args::unknown;
use crate::case::{Case, Subject};
use crate::error::{Failure, Result};
use crate::metric::Metric;

#[derive(Debug, Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) engine: &'static EngineDef,
    pub(crate) backend: Backend,
    pub(crate) work: Work,
    pub(crate) sync: bool,
    /// The files are in memory, even if the device is a disk.
    pub(crate) in_memory: bool,
    pub(crate) cold: bool,
    /// The sizes of the data that is read or written, and of nowait's page cache (`pool`).
    pub(crate) set: Share,
    pub(crate) pool: Share,
    pub(crate) files: usize,
}

/// A share of the size of the measurement: a numerator and a denominator.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Share(pub(crate) u64, pub(crate) u64);

impl Share {
    /// Rounds up to a multiple of 2 MiB if the denominator is not 1.
    pub(crate) fn of(self, size_bytes: u64) -> u64 {
        if self.1 == 1 {
            return size_bytes * self.0;
        }
        (size_bytes * self.0 / self.1).max(1).next_multiple_of(2 << 20)
    }
}

impl Recipe {
    /// nowait's page cache has room for the whole file, like the kernel's.
    pub(crate) fn new(engine: &'static EngineDef, work: Work) -> Self {
        let (backend, sync, cold, files) = (Backend::Auto, false, true, 1);
        let (set, pool) = (Share(1, 1), Share(9, 8));
        let in_memory = false;
        Self { engine, backend, work, sync, in_memory, cold, set, pool, files }
    }

    /// Returns how many bytes the work needs in the file that it works on or, if not `worked_on`,
    /// in another file, whose pages fill nowait's page cache before the run.
    pub(crate) fn needs(&self, worked_on: bool, size_bytes: u64) -> u64 {
        match self.work {
            _ if worked_on => self.set.of(size_bytes),
            Work::Transfer(Transfer { warm: Warm::Nothing, .. }) => self.pool.of(size_bytes),
            _ => 0,
        }
    }

    pub(crate) fn params(&self) -> Value {
        let in_flight = match self.work {
            Work::Transfer(transfer) => Some(transfer.threads * transfer.depth),
            Work::Act(_) => None,
        };
        json!({ "files": self.files, "in_flight": in_flight, "work": self.work })
    }

    pub(crate) fn subject(self) -> Subject<Self> {
        Subject { name: self.engine.name, engine: (self.engine.name, self.engine.about), job: self }
    }
}

/// The fields of a case, with those of an engine in place of fields of the same names.
#[derive(Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Fields {
    /// The name of an engine in the registry; `None` if the subject has that name.
    opens: Option<String>,
    backend: Backend,
    sync: bool,
    cold: bool,
    set: Share,
    pool: Share,
    transfer: Transfer,
    act: Option<Act>,
}

impl Default for Fields {
    fn default() -> Self {
        Self {
            opens: None,
            backend: Backend::Auto,
            sync: false,
            cold: true,
            set: Share(1, 1),
            pool: Share(9, 8),
            transfer: Transfer::SINGLE,
            act: None,
        }
    }
}

/// An engine without a description in the table has the description of the registry.
pub(crate) fn table(text: &str) -> Result<Vec<Case<Recipe>>> {
    cases::table(text).iter().map(|case| case.try_map(subject)).collect()
}

fn subject(of: &Subject<cases::Job<Table, Table>>) -> Result<Subject<Recipe>> {
    let fields = cases::merged(of.job.work.clone(), &of.job.engine).try_into();
    let it: Fields = fields.map_err(|why| Failure::new(format!("{}: {why}", of.name)))?;
    let refill = it.transfer.refill.min(it.transfer.depth);
    let transfer = Transfer { refill, ..it.transfer };
    let work = it.act.map_or(Work::Transfer(transfer), Work::Act);
    let opened = engine(it.opens.as_deref().unwrap_or(of.name))?;
    let about = if of.engine.1.is_empty() { opened.about } else { of.engine.1 };
    let Fields { backend, sync, cold, set, pool, .. } = it;
    let recipe = Recipe::new(opened, work);
    let job = Recipe { backend, sync, cold, set, pool, ..recipe };
    Ok(Subject { name: of.name, engine: (of.name, about), job })
}

pub(crate) fn case(
    name: &'static str,
    title: impl Into<String>,
    columns: &'static [Metric],
    subjects: Vec<Subject<Recipe>>,
) -> Case<Recipe> {
    let (title, about, source, targets) = (title.into(), "", String::new(), Vec::new());
    Case { name, title, about, source, columns, subjects, targets }
}

pub(crate) fn engine(name: &str) -> Result<&'static EngineDef> {
    let known = || ENGINES.iter().map(|engine| engine.name).collect::<Vec<_>>();
    registry::find(name).ok_or_else(|| unknown("engine", name, &known()))
}

pub(crate) fn engines(asked: &[String], default: &[&str]) -> Result<Vec<&'static EngineDef>> {
    match asked {
        [] => default.iter().map(|name| engine(name)).collect(),
        asked => asked.iter().map(|name| engine(name)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tables_are_well_formed() {
        for (text, cases) in [
            (include_str!("cached.toml"), 13),
            (include_str!("limits.toml"), 8),
            (include_str!("vector.toml"), 4),
            (include_str!("aio-stress.toml"), 6),
            (include_str!("randrw.toml"), 2),
        ] {
            let table = table(text).expect("known engines and fields");
            crate::testing::check(&table);
            assert_eq!(table.len(), cases);
        }
    }

    #[test]
    fn an_engine_goes_before_its_case() {
        let cases = table(include_str!("cached.toml")).expect("known");
        let case = cases.iter().find(|case| case.name == "g-write").expect("there");
        let numbers = |name: &str| {
            let subject = case.subjects.iter().find(|subject| subject.name == name);
            match subject.expect("there").job.work {
                Work::Transfer(it) => (it.block_bytes, it.depth, it.refill, it.batch),
                Work::Act(_) => unreachable!("all are transfers"),
            }
        };
        assert_eq!(numbers("nowait"), (64 << 10, 32, 32, 32));
        assert_eq!(numbers("direct-1m"), (1 << 20, 8, 8, 8));
    }
}
