//! `nowait status`: the units that `nowait enable` has changed, and the processes with a library of
//! nowait.

mod processes;

use crate::args::{StatusArgs, Via};
use crate::enable::{drop_in, kept, place};
use crate::libraries;
use crate::systemd::{Place, Source, Unit, UnitName};
use nowait_terminal::{Result, print, print_json, table};
use processes::Process;
use serde::Serialize;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Serialize)]
struct Report {
    schema: u32,
    units: Vec<EnabledUnit>,
    processes: Vec<Process>,
}

#[derive(Debug, Serialize)]
struct EnabledUnit {
    unit: String,
    drop_in: String,
    library: String,
    /// Version of the library file that is installed now.
    version: Option<String>,
    /// The variables that the drop-in sets besides LD_PRELOAD or LD_LIBRARY_PATH.
    variables: Vec<String>,
    problem: Option<String>,
}

/// The exit code is 1 if a unit has a problem.
pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode> {
    let place = place(args.user, args.root.as_deref())?;
    let processes = if place.is_here() { processes::all(Path::new("/proc")) } else { Vec::new() };
    let report = Report { schema: 1, units: units(&place), processes };
    match args.json {
        true => print_json(&report)?,
        false => print(report.text(place.is_here()).as_bytes())?,
    };
    let is_wrong = report.units.iter().any(|unit| unit.problem.is_some());
    Ok(ExitCode::from(u8::from(is_wrong)))
}

/// Returns one drop-in for each unit: the one in the folder of the highest precedence.
fn units(place: &Place) -> Vec<EnabledUnit> {
    let mut found: Vec<EnabledUnit> = Vec::new();
    for folder in place.folders() {
        let entries = std::fs::read_dir(place.follow(folder)).into_iter().flatten().flatten();
        for entry in entries {
            let name = entry.file_name();
            let unit = name.to_str().and_then(|name| name.strip_suffix(".d"));
            let Some(unit) = unit.and_then(|unit| UnitName::of_file(Path::new(unit))) else {
                continue;
            };
            let path = folder.join(&name).join(drop_in::NAME);
            let source = Source::read(place, path).ok().filter(drop_in::is_ours);
            found.extend(source.map(|source| EnabledUnit::new(place, &unit, &source)));
        }
    }
    found.sort_by(|a, b| a.unit.cmp(&b.unit));
    found.dedup_by(|a, b| a.unit == b.unit);
    found
}

impl EnabledUnit {
    fn new(place: &Place, unit: &UnitName, source: &Source) -> EnabledUnit {
        let mut variables = source.environment();
        let (via, value) = match variables.remove(Via::Preload.variable()) {
            Some(value) => (Via::Preload, value),
            None => (Via::Libaio, variables.remove(Via::Libaio.variable()).unwrap_or_default()),
        };
        let (first, rest) = value.split_once(':').unwrap_or((&value, ""));
        let first = PathBuf::from(first.replace("%%", "%"));
        let library = if via == Via::Preload { first } else { first.join(via.file_name()) };
        let file = place.follow(&library);
        let problem = match Unit::load(place, unit) {
            Err(error) => Some(format!("{error}; or `nowait disable {unit}`")),
            Ok(_) if !file.is_file() => {
                let advice = format!("install nowait there, or enable {unit} again");
                Some(format!("{} does not exist; {advice}", library.display()))
            }
            Ok(mut loaded) => {
                loaded.sources.retain(|source| !drop_in::is_ours(source));
                let changed = kept(&loaded, via, &library).as_deref().unwrap_or("") != rest;
                let advice = format!("enable {unit} again");
                changed.then(|| format!("{} of the unit has changed; {advice}", via.variable()))
            }
        };
        EnabledUnit {
            unit: unit.to_string(),
            drop_in: place.outside(&source.path).display().to_string(),
            library: library.display().to_string(),
            version: libraries::version(&file),
            variables: variables.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            problem,
        }
    }
}

impl Report {
    fn text(&self, with_processes: bool) -> String {
        let mut text = String::new();
        if self.units.is_empty() {
            text.push_str("no unit is enabled\n");
        } else {
            let mut units = table();
            units.set_header(["unit", "library", "version", "set"]);
            for unit in &self.units {
                let version = unit.version.as_deref().unwrap_or("?");
                let set = unit.variables.join("\n");
                units.add_row([&unit.unit, &unit.library, version, &set]);
            }
            text = units.trim_fmt() + "\n";
        }
        for unit in &self.units {
            if let Some(problem) = &unit.problem {
                let _ = writeln!(text, "problem: {}: {problem}", unit.unit);
            }
        }
        if with_processes {
            text.push('\n');
            text.push_str(&self.processes());
        }
        text
    }

    fn processes(&self) -> String {
        if self.processes.is_empty() {
            return "no process has a library of nowait's\n".to_owned();
        }
        let mut processes = table();
        processes.set_header(["process", "program", "unit", "backend", "version", "library"]);
        for process in &self.processes {
            processes.add_row([
                &process.pid.to_string(),
                &process.program,
                process.unit.as_deref().unwrap_or(""),
                process.backend.as_deref().unwrap_or("none yet"),
                process.version.as_deref().unwrap_or("?"),
                &process.library,
            ]);
        }
        let mut text = processes.trim_fmt() + "\n";
        for process in self.processes.iter().filter(|process| process.is_replaced) {
            let _ = writeln!(
                text,
                "note: {} ({}) has a library that was replaced since; restart it for the new one",
                process.pid, process.program
            );
        }
        text
    }
}
