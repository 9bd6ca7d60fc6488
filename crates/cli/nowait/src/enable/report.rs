//! The report about a service, as text and as JSON.

use super::checks::Judged;
use super::print as print_bytes;
use crate::args::Services;
use nowait_terminal::{Result, print_json};
use serde::Serialize;
use std::fmt::Write as _;

#[derive(Debug, Serialize)]
pub(super) struct Enabled {
    pub(super) schema: u32,
    pub(super) unit: String,
    pub(super) unit_file: String,
    pub(super) programs: Vec<Judged>,
    pub(super) warnings: Vec<String>,
    /// The service's own entries of the variable, which the drop-in keeps after nowait's.
    pub(super) kept: Option<String>,
    /// `written`, `unchanged` or `would be written`.
    pub(super) state: &'static str,
    pub(super) drop_in: String,
    pub(super) text: String,
    /// Commands that the user still has to run.
    pub(super) next: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Disabled {
    pub(super) schema: u32,
    pub(super) unit: String,
    /// `removed`, `not there` or `would be removed`.
    pub(super) state: &'static str,
    pub(super) drop_in: String,
    pub(super) next: Vec<String>,
}

pub(super) trait Said: Serialize {
    fn text(&self) -> String;
}

pub(super) fn print(services: &Services, report: &impl Said) -> Result<()> {
    match services.json {
        true => print_json(report).map(drop),
        false => print_bytes(report.text().as_bytes()).map(drop),
    }
}

impl Said for Enabled {
    fn text(&self) -> String {
        let mut text = format!("{} ({})\n", self.unit, self.unit_file);
        for Judged { path, helps, reason } in &self.programs {
            let _ = writeln!(text, "{path}: can nowait help? {}: {reason}", helps.name());
        }
        for warning in &self.warnings {
            let _ = writeln!(text, "warning: {warning}");
        }
        if let Some(kept) = &self.kept {
            let _ = writeln!(text, "kept, as the unit has it: {kept}");
        }
        let _ = writeln!(text, "\n{}: {}", self.state, self.drop_in);
        for line in self.text.lines() {
            let _ = writeln!(text, "    {line}");
        }
        text + &next(&self.next)
    }
}

impl Said for Disabled {
    fn text(&self) -> String {
        format!("{}: {}\n{}", self.state, self.drop_in, next(&self.next))
    }
}

fn next(commands: &[String]) -> String {
    let line = |command: &String| format!("    {command}\n");
    let lines: String = commands.iter().map(line).collect();
    if lines.is_empty() { lines } else { format!("\nnext:\n{lines}") }
}
