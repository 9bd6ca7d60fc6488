//! The common form of all suites: a table of cases, the preparation, and one run of a case.
//!
//! ```text
//!  MeasureArgs::measure ─► Suite::prepare             files laid out; what can be had here
//!        └► --list           └► begin ─► runs by turns ─► results        of each case
//!                                 └► describe ─► Measurement             at the end
//! ```
//!
//! A run that fails becomes a note: its subject has no figures in that case, and all else is
//! measured.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::args::{Defaults, Extent, MeasureArgs};
use crate::case::{self, Case, Subject};
use crate::error::{Failure, Result};
use crate::host::Host;
use crate::interrupt;
use crate::layout::TestFile;
use crate::measurement::{CaseResults, Measurement, Pairs};
use crate::metric::Sample;
use crate::progress::Progress;
use crate::report::print;
use crate::runner;
use crate::runs::Runs;
use crate::units;
use crate::verdict;

/// The shortest run whose figures may be published, in seconds.
const PUBLISHED_S: f64 = 5.0;

/// The preparation and the runs of the cases of a table. A `Job` is all input of a run.
pub trait Suite {
    type Job: Clone;

    /// `true`: each case is measured to its end before the next one begins.
    fn is_case_by_case(&self) -> bool {
        false
    }

    /// Prepares what all runs share, and removes what cannot run here. Fails if nothing is left.
    fn prepare(&mut self, cases: &mut Vec<Case<Self::Job>>, session: &mut Session) -> Result<()>;

    /// Prepares the runs of a case. If cases are not measured one by one, this is called only once,
    /// with the first case. If this fails, the case is not measured; if it is called only once, no
    /// case is.
    fn begin(&mut self, _case: &Case<Self::Job>, _session: &mut Session) -> Result<()> {
        Ok(())
    }

    /// A failure of wrong usage means that the subject works in no case on this machine.
    fn run(&mut self, it: Run<'_, Self::Job>, session: &mut Session) -> Result<Sample>;

    fn results(
        &mut self,
        case: &Case<Self::Job>,
        runs: Runs,
        session: &mut Session,
    ) -> CaseResults {
        CaseResults { how: session.how(), ..CaseResults::new(case, runs, Value::Null) }
    }

    fn describe(&mut self, results: &[CaseResults], session: &mut Session) -> Description;

    fn text(&self, measurement: &Measurement) -> String {
        measurement.text()
    }

    fn lost(&self, measurement: &Measurement) -> Option<String> {
        measurement.unmet()
    }
}

pub struct Run<'a, J> {
    pub case: &'a Case<J>,
    pub subject: &'a Subject<J>,
    pub round: usize,
}

impl<J> Run<'_, J> {
    /// Returns a number that all runs of a round share, and that no other round has.
    pub fn seed(&self) -> u64 {
        self.round as u64 + 1
    }
}

pub struct Description {
    pub workload: &'static str,
    pub folder: PathBuf,
    pub fio: String,
    /// Fields of the JSON besides rounds, runtime and size.
    pub params: Value,
    pub pairs: Pairs,
    pub words: (String, &'static str),
}

impl Description {
    pub fn new(workload: &'static str, folder: impl Into<PathBuf>, params: Value) -> Self {
        let (fio, pairs) = ("not used".to_owned(), Pairs::WithFirst);
        Self { workload, folder: folder.into(), fio, params, pairs, words: (String::new(), "") }
    }
}

/// A case, one of its subjects that was left out, and the reason.
pub type LeftOut<L> = (&'static str, &'static str, L);

pub struct Session {
    pub extent: Extent,
    pub progress: Progress,
    pub notes: Vec<String>,
    /// Failed runs by case and subject; later rounds do not repeat them.
    pub failed: BTreeMap<(&'static str, &'static str), String>,
    unusable: BTreeMap<&'static str, String>,
}

impl Session {
    fn new(extent: Extent) -> Self {
        let (notes, failed, unusable) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Self { extent, progress: Progress::new(), notes, failed, unusable }
    }

    /// Returns `true`, and adds a note, if runs are shorter or fewer than those that are published.
    pub fn is_quick(&mut self) -> bool {
        let short = self.extent.runtime.as_secs_f64() < PUBLISHED_S;
        let quick = short || self.extent.rounds < verdict::ROUNDS_MIN;
        self.notes.extend(quick.then(|| "quick, not to be published".to_owned()));
        quick
    }

    pub fn how(&self) -> String {
        let Extent { rounds, runtime, size_bytes } = self.extent;
        let (seconds, size) = (units::digits(runtime.as_secs_f64()), size_bytes as f64);
        format!("{rounds} rounds of {seconds} s on {}.", units::bytes(size))
    }

    pub fn lay_out(&self, file: &TestFile) -> Result<()> {
        let size_bytes = self.extent.size_bytes;
        let laid_out = |written| self.progress.laying_out(written, size_bytes);
        file.lay_out(size_bytes, 0, &|_| true, &laid_out).map(drop)
    }

    /// Leaves out subjects that lack something, cases whose subjects all do, and their targets.
    /// Returns them by case; the subject is `all` if the whole case was left out.
    pub fn leave_possible<J, L: Display>(
        &mut self,
        cases: &mut Vec<Case<J>>,
        mut lack: impl FnMut(&Case<J>, &Subject<J>) -> Option<L>,
    ) -> Vec<LeftOut<L>> {
        let mut left_out = Vec::new();
        for mut case in std::mem::take(cases) {
            let (mut subjects, mut lacks) = (Vec::new(), Vec::new());
            let found: Vec<_> = case.subjects.iter().map(|it| lack(&case, it)).collect();
            for (subject, lack) in std::mem::take(&mut case.subjects).into_iter().zip(found) {
                match lack {
                    Some(why) => lacks.push((case.name, subject.name, why)),
                    None => subjects.push(subject),
                }
            }
            if subjects.is_empty() {
                lacks.truncate(1);
                lacks.iter_mut().for_each(|it| it.1 = "all");
            } else {
                cases.push(Case { subjects, ..case }.with_possible_targets());
            }
            for (case, subject, why) in &lacks {
                let name = if *subject == "all" { case } else { subject };
                let note = format!("{name} was left out: {why}");
                self.notes.extend((!self.notes.contains(&note)).then_some(note));
            }
            left_out.append(&mut lacks);
        }
        left_out
    }

    /// After a failure, returns `None` in later rounds, too. A failure after an interruption is not
    /// kept.
    fn attempt<S: Suite>(&mut self, suite: &mut S, it: Run<'_, S::Job>) -> Option<Sample> {
        let place = (it.case.name, it.subject.name);
        if self.failed.contains_key(&place) || self.unusable.contains_key(place.1) {
            return None;
        }
        match suite.run(it, self) {
            Ok(sample) => return Some(sample),
            Err(_) if interrupt::happened() => {}
            Err(error) if error.exit_code() == 2 => {
                self.unusable.insert(place.1, error.to_string());
            }
            Err(error) => {
                self.failed.insert(place, error.to_string());
            }
        }
        None
    }

    fn measure<S: Suite>(&mut self, suite: &mut S, cases: &[Case<S::Job>]) -> Vec<CaseResults> {
        let (progress, rounds) = (self.progress.clone(), self.extent.rounds);
        let runs = runner::measure(&progress, cases, rounds, |case, subject, round| {
            self.attempt(suite, Run { case, subject, round })
        });
        let mut results = Vec::new();
        for (case, runs) in cases.iter().zip(runs) {
            let runs = runs.only(|name| !self.failed.contains_key(&(case.name, name)));
            if !runs.is_empty() {
                results.push(suite.results(case, runs, self));
            }
        }
        results
    }

    fn finish<S: Suite>(mut self, suite: &mut S, results: Vec<CaseResults>) -> Measurement {
        let Description { workload, folder, fio, params, pairs, words } =
            suite.describe(&results, &mut self);
        let Extent { rounds, runtime, size_bytes } = self.extent;
        let common = json!({
            "rounds": rounds,
            "runtime_s": runtime.as_secs_f64(),
            "size_bytes": size_bytes,
        });
        let mut measurement =
            Measurement::new(workload, Host::describe(&folder, &fio), common, results);
        measurement.params.extend(params.as_object().cloned().unwrap_or_default());
        if let Some(why) = interrupt::reason() {
            self.notes.push(format!("{why}: the last round is not whole"));
        }
        let unusable = self.unusable.iter();
        self.notes.extend(unusable.map(|(name, why)| format!("{name} was left out: {why}")));
        let failed = self.failed.iter();
        let failed = failed.map(|((case, name), why)| format!("case {case}, {name}: {why}"));
        measurement.failed = failed.collect();
        self.notes.extend(measurement.failed.iter().map(|why| format!("failed: {why}")));
        Measurement { pairs, words, notes: self.notes, ..measurement }
    }
}

pub fn measure<S: Suite>(
    suite: &mut S,
    mut cases: Vec<Case<S::Job>>,
    extent: Extent,
) -> Result<Measurement> {
    interrupt::install();
    let mut session = Session::new(extent);
    suite.prepare(&mut cases, &mut session)?;
    let runs = cases.iter().map(|case| case.subjects.len() * extent.rounds).sum();
    session.progress.start_runs(runs);
    let mut results = Vec::new();
    let groups = if suite.is_case_by_case() { 1 } else { cases.len().max(1) };
    for group in cases.chunks(groups) {
        if interrupt::happened() {
            break;
        }
        match suite.begin(&group[0], &mut session) {
            Ok(()) => results.extend(session.measure(suite, group)),
            Err(why) => drop(session.failed.insert((group[0].name, "all"), why.to_string())),
        }
    }
    Ok(session.finish(suite, results))
}

impl MeasureArgs {
    /// Returns `None` if `--list` was given.
    pub fn measure<S: Suite>(
        &self,
        defaults: &Defaults,
        cases: Vec<Case<S::Job>>,
        make: impl FnOnce(&[Case<S::Job>], &mut Extent) -> Result<S>,
    ) -> Result<Option<Measurement>> {
        let mut extent = self.extent(defaults)?;
        if self.list {
            print(&case::list(&cases))?;
            return Ok(None);
        }
        self.reports.prepare()?;
        interrupt::stop_after(self.budget);
        let mut suite = make(&cases, &mut extent)?;
        let measurement = measure(&mut suite, cases, extent)?;
        self.reports.say(&suite.text(&measurement));
        measurement.write(&self.reports)?;
        match suite.lost(&measurement) {
            Some(why) if self.check => Err(Failure::new(why)),
            _ => Ok(Some(measurement)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lacks_something_is_left_out_with_one_note_for_each_reason() {
        let extent = Extent { rounds: 1, runtime: std::time::Duration::ZERO, size_bytes: 0 };
        let mut session = Session::new(extent);
        let case = |name| Case { name, ..crate::testing::sample().cases.remove(0).case };
        let mut cases = vec![case("one"), case("two"), case("three")];
        let left_out = session.leave_possible(&mut cases, |case, subject| {
            assert_eq!(case.subjects.len(), 2, "the case is whole");
            let lacks = case.name == "two" || subject.name == "system";
            lacks.then_some("no disk")
        });
        let expected = [("one", "system"), ("two", "all"), ("three", "system")];
        assert_eq!(left_out, expected.map(|(case, subject)| (case, subject, "no disk")));
        assert_eq!(session.notes, ["system was left out: no disk", "two was left out: no disk"]);
        assert_eq!(cases.len(), 2);
        assert_eq!(cases[0].subjects.len(), 1);
        assert_eq!(cases[0].targets.len(), 1, "of nowait against itself");
    }
}
