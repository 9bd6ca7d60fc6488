//! The preparation of the first run: folders, engines that work, cases that can run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use tempfile::TempDir;

use super::cases::{Place, Way};
use super::suite::Plan;
use crate::case::Case;
use crate::error::{BenchError, Context, Result};
use crate::fio::{Launch, Startup};
use crate::interrupt;
use crate::layout;

/// Without these there is nothing to compare.
const REQUIRED: [Launch; 4] =
    [Launch::System, Launch::Nowait, Launch::PosixAio, Launch::NowaitPosix];

/// The folders of the test files.
///
/// They are private and new, so no other file is ever opened or removed, and go with this
/// value. A file that is kept lies in the folder asked for, where the next measurement finds it.
pub(crate) struct Folders {
    pub(crate) disk: PathBuf,
    /// For the file that is read uncached.
    pub(crate) cold: PathBuf,
    /// `None` if there is no tmpfs.
    pub(crate) memory: Option<PathBuf>,
    _removed_on_drop: Vec<TempDir>,
}

/// Probes every way to launch fio once; one that does not work here is left out with a note.
pub(crate) fn probe(
    plan: &Plan,
    cases: &[Case<Way>],
    folders: &Folders,
) -> Result<(BTreeMap<Launch, Startup>, Vec<String>)> {
    let (mut startups, mut notes) = (BTreeMap::new(), Vec::new());
    let subjects = cases.iter().flat_map(|case| &case.subjects);
    let wanted: BTreeSet<Launch> = subjects.map(|subject| subject.job.0).collect();
    for launch in wanted {
        match plan.fio.probe(launch, &folders.disk) {
            Ok(startup) => drop(startups.insert(launch, startup)),
            Err(error) if REQUIRED.contains(&launch) => return Err(error),
            Err(error) => {
                interrupt::check()?;
                notes.push(format!("{} was left out: {error}", launch.name()));
            }
        }
    }
    Ok((startups, notes))
}

/// Leaves the cases that can run here, each with the subjects that work.
pub(crate) fn leave_runnable(
    plan: &Plan,
    cases: &mut Vec<Case<Way>>,
    folders: &Folders,
    startups: &BTreeMap<Launch, Startup>,
    notes: &mut Vec<String>,
) -> Result<()> {
    let (direct, folder) = (layout::has_direct(&folders.disk), plan.folder.display());
    let job = |case: &Case<Way>| case.subjects[0].job.1;
    let needs_direct = |case: &&Case<Way>| job(case).place == Place::Disk && job(case).direct;
    if let Some(case) = cases.iter().find(needs_direct).filter(|_| !direct) {
        return Err(BenchError::failed(format!(
            "case {} needs O_DIRECT, which {folder} refuses; pass another --dir or --case",
            case.name
        )));
    }
    if let Err(why) = memory_is_usable(plan, folders) {
        let in_memory = cases.iter().filter(|case| job(case).place == Place::Tmpfs);
        notes.extend(in_memory.map(|case| format!("case {} was left out: {why}", case.name)));
        cases.retain(|case| job(case).place != Place::Tmpfs);
    }
    for case in cases.iter_mut() {
        case.subjects.retain(|subject| startups.contains_key(&subject.job.0));
    }
    cases.retain(|case| !case.subjects.is_empty());
    if layout::is_tmpfs(&plan.folder) {
        notes.push(format!("{folder} lies in memory: nothing there waits for a disk"));
    }
    Ok(())
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
