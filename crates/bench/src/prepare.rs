//! What must be there before the first run: folders, engines that work, cases that can run.

use std::collections::BTreeMap;
use std::path::PathBuf;

use tempfile::TempDir;

use crate::error::{BenchError, Context, Result};
use crate::fio::Startup;
use crate::interrupt;
use crate::job::{Case, Place};
use crate::layout;
use crate::subject::Subject;
use crate::suite::Plan;

/// Without these there is nothing to compare.
const REQUIRED: [Subject; 4] =
    [Subject::System, Subject::Nowait, Subject::PosixAio, Subject::NowaitPosix];

/// The folders of the test files.
///
/// They are private and new, so nobody else's file is ever opened or removed, and go with this
/// value. A file that is kept lies in the folder asked for, where the next measurement finds it.
pub(crate) struct Folders {
    pub(crate) disk: PathBuf,
    /// For the file that is read uncached.
    pub(crate) cold: PathBuf,
    /// `None` if there is no tmpfs.
    pub(crate) memory: Option<PathBuf>,
    _removed_on_drop: Vec<TempDir>,
}

/// Probes every subject once; one that does not work here is left out with a note.
pub(crate) fn probe_subjects(
    plan: &Plan,
    folders: &Folders,
) -> Result<(BTreeMap<Subject, Startup>, Vec<String>)> {
    let mut startups = BTreeMap::new();
    let mut notes = Vec::new();
    let mut wanted: Vec<Subject> =
        plan.cases.iter().flat_map(|(_, subjects)| subjects.iter().copied()).collect();
    wanted.sort_unstable();
    wanted.dedup();
    for subject in wanted {
        match plan.fio.probe(subject, &folders.disk) {
            Ok(startup) => {
                startups.insert(subject, startup);
            }
            Err(error) if REQUIRED.contains(&subject) => return Err(error),
            Err(error) => {
                interrupt::check()?;
                notes.push(format!("{} was left out: {error}", subject.name()));
            }
        }
    }
    Ok((startups, notes))
}

/// Returns the cases that can run here, each with the subjects that work.
pub(crate) fn runnable_cases(
    plan: &Plan,
    folders: &Folders,
    startups: &BTreeMap<Subject, Startup>,
    notes: &mut Vec<String>,
) -> Result<Vec<(&'static Case, Vec<Subject>)>> {
    let mut cases = Vec::new();
    let direct = layout::has_direct(&folders.disk);
    let on_tmpfs = layout::is_tmpfs(&plan.folder);
    for (case, subjects) in &plan.cases {
        let folder = plan.folder.display();
        if case.place == Place::Disk && case.job.direct && !direct {
            return Err(BenchError::failed(format!(
                "case {} needs O_DIRECT, which {folder} refuses; pass another --dir or --case",
                case.name
            )));
        }
        if let (Place::Tmpfs, Err(why)) = (case.place, memory_is_usable(plan, folders)) {
            notes.push(format!("case {} was left out: {why}", case.name));
            continue;
        }
        let working: Vec<Subject> =
            subjects.iter().copied().filter(|subject| startups.contains_key(subject)).collect();
        if !working.is_empty() {
            cases.push((*case, working));
        }
    }
    if on_tmpfs {
        let folder = plan.folder.display();
        notes.push(format!("{folder} lies in memory: nothing there waits for a disk"));
    }
    Ok(cases)
}

/// Fails if there is no tmpfs with room for the file of a case.
fn memory_is_usable(plan: &Plan, folders: &Folders) -> Result<()> {
    let Some(memory) = &folders.memory else {
        let asked = plan.memory_folder.display();
        return Err(BenchError::failed(format!("{asked} is no tmpfs that can be written")));
    };
    layout::check_space(&memory.join("file"), plan.cached_bytes, layout::SMALLER)
}

impl Folders {
    /// Makes the folders of a plan.
    pub(crate) fn make(plan: &Plan) -> Result<Self> {
        let asked = &plan.folder;
        std::fs::create_dir_all(asked).context(|| format!("create {}", asked.display()))?;
        let disk = tempfile::tempdir_in(asked);
        let disk = disk.context(|| format!("write in {}", asked.display()))?;
        let memory = Some(&plan.memory_folder).filter(|folder| layout::is_tmpfs(folder));
        let memory = memory.and_then(|folder| tempfile::tempdir_in(folder).ok());
        Ok(Self {
            disk: disk.path().to_owned(),
            cold: if plan.keep { asked.clone() } else { disk.path().to_owned() },
            memory: memory.as_ref().map(|folder| folder.path().to_owned()),
            _removed_on_drop: memory.into_iter().chain([disk]).collect(),
        })
    }
}
