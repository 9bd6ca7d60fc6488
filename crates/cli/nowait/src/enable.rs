//! `nowait enable` and `nowait disable`: write and remove the drop-in that puts a systemd service
//! under nowait.
//!
//! ```text
//!  Plan       the unit, its user, the library, the drop-in that would be written
//!   ├─ checks    reasons against it: programs, sandbox, filters, limits
//!   ├─ drop_in   the file
//!   └─ report    the result, as text or JSON
//! ```

mod checks;
pub(crate) mod drop_in;
mod filter;
mod report;

use crate::args::{DisableArgs, EnableArgs, Options, Services, Via};
use crate::program::Setting;
use crate::systemd::{Place, Unit, UnitName};
use crate::{libraries, run};
use checks::Findings;
use drop_in::Found;
use nowait_terminal::{Failure, Result, print};
use report::{Disabled, Enabled};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

#[derive(Debug)]
struct Plan<'a> {
    options: &'a Options,
    unit: Unit,
    setting: Setting,
    /// The library's path as the service sees it.
    library: PathBuf,
    variables: Vec<(&'static str, OsString)>,
}

impl Plan<'_> {
    fn make(args: &EnableArgs) -> Result<Plan<'_>> {
        run::check(&args.options)?;
        let place = place(args.services.user, args.services.root.as_deref())?;
        let asked = UnitName::new(&args.unit).map_err(Failure::usage)?;
        let mut unit = Unit::load(&place, &asked).map_err(Failure::new)?;
        unit.sources.retain(|source| !drop_in::is_ours(source));
        let library = libraries::find_in(&place, args.options.via)?;
        if place.is_here() {
            libraries::try_load(&library)?;
            run::require(args.options.backend)?;
        }
        let setting = checks::setting(place, &unit, args.services.user);
        let variables = run::variables(&args.options);
        Ok(Plan { options: &args.options, unit, setting, library, variables })
    }

    fn place(&self) -> &Place {
        &self.setting.place
    }

    fn kept(&self) -> Option<String> {
        kept(&self.unit, self.options.via, &self.library)
    }

    fn text(&self, found: &Found) -> Result<String> {
        let via = self.options.via;
        let ours = via.value(&self.library, None);
        let mut variables = vec![(via.variable(), ours)];
        variables.extend(self.variables.iter().cloned());
        let mut texts = Vec::new();
        for (name, value) in variables {
            let value = value.to_str().map(escaped).ok_or_else(|| {
                Failure::new(format!("{}: systemd takes only UTF-8", value.display()))
            })?;
            texts.push((name, value));
        }
        if let Some(kept) = self.kept() {
            texts[0].1.extend([":", &kept]);
        }
        Ok(drop_in::text(&self.unit.name, found, &texts))
    }
}

/// Returns the value that the unit or the manager gives the variable of `via`, without nowait's
/// entries. `None`: no entry remains.
pub(crate) fn kept(unit: &Unit, via: Via, library: &Path) -> Option<String> {
    let before = unit.environment().remove(via.variable())?;
    let ours = escaped(&via.value(library, None).to_string_lossy());
    let is_ours = |entry: &&str| {
        *entry == ours || Path::new(entry).file_name() == Some(via.file_name().as_ref())
    };
    let kept = before.split(via.separators()).filter(|entry| !is_ours(entry));
    let kept: Vec<_> = kept.filter(|entry| !entry.is_empty()).collect();
    (!kept.is_empty()).then(|| kept.join(":"))
}

fn escaped(text: &str) -> String {
    text.replace('%', "%%")
}

pub(crate) fn place(user: bool, root: Option<&Path>) -> Result<Place> {
    if user {
        return Place::user(|name| std::env::var_os(name)).map_err(Failure::new);
    }
    let root = root.unwrap_or(Path::new("/"));
    if !root.is_dir() {
        return Err(Failure::new(format!("{}: no such folder", root.display())));
    }
    Ok(Place::system(root))
}

pub(crate) fn enable(args: &EnableArgs) -> Result<ExitCode> {
    let plan = Plan::make(args)?;
    let mut found = Findings::collect(&plan);
    let unit = &plan.unit.name;
    if !found.refusals.is_empty() && !args.force {
        return Err(Failure::new(format!("{unit}: {}", found.refusals.join("; "))));
    }
    found.warnings.append(&mut found.refusals);
    let path = drop_in::path(plan.place(), unit);
    drop_in::refuse_link(plan.place(), &path)?;
    let before = drop_in::look(plan.place(), &path)?;
    let text = plan.text(&before)?;
    let state = match before {
        Found::Ours(before) if before == text => "unchanged",
        _ if args.services.dry_run => "would be written",
        _ => {
            drop_in::write(plan.place(), &path, &text)?;
            "written"
        }
    };
    let enabled = Enabled {
        schema: 1,
        unit: unit.to_string(),
        unit_file: plan.unit.file().display().to_string(),
        programs: found.programs,
        warnings: found.warnings,
        kept: plan.kept(),
        state,
        drop_in: plan.place().outside(&path).display().to_string(),
        text,
        next: next(&args.services, unit),
    };
    report::print(&args.services, &enabled)?;
    now(&args.services, unit, state)
}

pub(crate) fn disable(args: &DisableArgs) -> Result<ExitCode> {
    let place = place(args.services.user, args.services.root.as_deref())?;
    let asked = UnitName::new(&args.unit).map_err(Failure::usage)?;
    // The drop-in may exist although the unit no longer does.
    let unit = Unit::load(&place, &asked).map_or(asked, |unit| unit.name);
    let path = drop_in::path(&place, &unit);
    let found = drop_in::look(&place, &path)?;
    let state = match found {
        Found::Nothing | Found::Folder => "not there",
        Found::Ours(_) if args.services.dry_run => "would be removed",
        Found::Ours(_) => {
            drop_in::remove(&place, &path, &found)?;
            "removed"
        }
    };
    let next = if state == "not there" { vec![] } else { next(&args.services, &unit) };
    let drop_in = place.outside(&path).display().to_string();
    let disabled = Disabled { schema: 1, unit: unit.to_string(), state, drop_in, next };
    report::print(&args.services, &disabled)?;
    now(&args.services, &unit, state)
}

/// Returns the commands for the user; none for an image, or if `--now` runs them.
fn next(services: &Services, unit: &UnitName) -> Vec<String> {
    if services.root.is_some() || services.now {
        return Vec::new();
    }
    let systemctl = if services.user { "systemctl --user" } else { "systemctl" };
    let named = running(unit);
    let named = if unit.is_template() { format!("'{named}'") } else { named };
    vec![format!("{systemctl} daemon-reload"), format!("{systemctl} restart {named}")]
}

/// The name of a template becomes a pattern that matches its loaded instances.
fn running(unit: &UnitName) -> String {
    let name = unit.to_string();
    if unit.is_template() { name.replace("@.", "@*.") } else { name }
}

/// Reloads systemd, and restarts the service if it runs; does nothing without `--now`.
fn now(services: &Services, unit: &UnitName, state: &str) -> Result<ExitCode> {
    if !services.now {
        return Ok(ExitCode::SUCCESS);
    }
    for arguments in
        [vec!["daemon-reload".to_owned()], vec!["try-restart".to_owned(), running(unit)]]
    {
        let mut command = Command::new("systemctl");
        command.args(services.user.then_some("--user")).args(&arguments);
        let said = format!("systemctl {}", arguments.join(" "));
        let status = command.status().map_err(|error| Failure::new(format!("{said}: {error}")))?;
        if !status.success() {
            let journal = if services.user { "journalctl --user" } else { "journalctl" };
            let advice = format!("look at {journal} -u {unit}; the drop-in: {state}");
            return Err(Failure::new(format!("{said}: {status}; {advice}")));
        }
    }
    Ok(ExitCode::SUCCESS)
}
