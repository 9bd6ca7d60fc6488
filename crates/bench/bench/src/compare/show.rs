//! The comparison as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{Cell, Color};
use serde_json::{Value, json};

use super::judge::{Compared, Comparison, Difference};
use super::settings::Setting;
use crate::error::Result;
use crate::report::{Document, SCHEMA, distinct, to_text};
use crate::table::{new_table, right};
use crate::units;
use crate::verdict;

/// What to show of a comparison.
pub(super) struct Shown<'a> {
    pub(super) comparison: &'a Comparison,
    /// The names of the two files.
    pub(super) names: &'a [String; 2],
    /// Only what differs beyond the noise.
    pub(super) changed: bool,
}

const ALL: [Difference; 6] = [
    Difference::Better,
    Difference::Worse,
    Difference::Changed,
    Difference::InsideNoise,
    Difference::TooFewRounds,
    Difference::Same,
];

impl Shown<'_> {
    fn rows(&self) -> impl Iterator<Item = &Compared> {
        let differs = |one: &&Compared| {
            !self.changed
                || matches!(
                    one.difference,
                    Difference::Better | Difference::Worse | Difference::Changed
                )
        };
        self.comparison.compared.iter().filter(differs)
    }
}

/// Prints what else differs, a table for each case, and how many verdicts there are of each kind.
pub(super) fn text(shown: &Shown<'_>) -> String {
    let (comparison, [name_a, name_b]) = (shown.comparison, shown.names);
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = writeln!(text, "{}: A is {name_a}, B is {name_b}", comparison.a.workload);
    for (what, settings) in [("Parameters", &comparison.params), ("Hosts", &comparison.host)] {
        text += &settings_text(what, settings);
    }
    for (name, saved) in [("A", &comparison.a), ("B", &comparison.b)] {
        if saved.partial {
            let _ = writeln!(text, "{name} was interrupted: it has fewer cases or rounds.");
        }
    }
    for case in distinct(shown.rows().map(|one| one.case.as_str())) {
        let _ = writeln!(text, "\n{case}{}\n{}", title(&comparison.a, case), table(shown, case));
    }
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !only.is_empty() {
            let _ = writeln!(text, "\nOnly in {name}: {}.", only.join("; "));
        }
    }
    let counts = ALL.map(|difference| (comparison.count(difference), difference.name()));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    let _ = writeln!(text, "\nOf {} figures: {}.", comparison.compared.len(), counts.join(", "));
    let _ = write!(text, "{}", method(comparison));
    text
}

/// Tells how to read the ratios.
pub(crate) fn method(comparison: &Comparison) -> &'static str {
    if comparison.a.is_simulated() && comparison.b.is_simulated() {
        return "Ratios are B / A. Both were computed in virtual time: any difference is one.";
    }
    "Ratios are medians, B / A, with a 95 % bootstrap interval of the noise within each file;\n\
     what changed between the two measurements for the whole machine is not in it."
}

fn title(saved: &Document, case: &str) -> String {
    let title = saved.case_param(case, "title").and_then(|title| title.as_str());
    title.map(|title| format!(" · {title}")).unwrap_or_default()
}

fn settings_text(what: &str, settings: &[Setting]) -> String {
    if settings.is_empty() {
        return format!("{what}: the same.\n");
    }
    let mut text = format!("{what} differ:\n");
    for setting in settings {
        let [a, b] = [&setting.a, &setting.b].map(|side| side.as_deref().unwrap_or("not there"));
        let _ = writeln!(text, "  {}: {a} | {b}", setting.name);
    }
    text
}

fn table(shown: &Shown<'_>, case: &str) -> comfy_table::Table {
    let mut table = new_table(&["engine", "metric", "A", "B", "B / A", "verdict"]);
    for one in shown.rows().filter(|one| one.case == case) {
        let side = |median| right(units::with_unit(&one.unit, median));
        let ratio = one.ratio.as_ref().map_or("–".to_owned(), verdict::ratio_text);
        table.add_row([
            Cell::new(&one.engine),
            Cell::new(&one.label),
            side(one.a.median),
            side(one.b.median),
            right(ratio),
            verdict_cell(one.difference),
        ]);
    }
    table
}

fn verdict_cell(difference: Difference) -> Cell {
    let cell = Cell::new(difference.name());
    match difference {
        Difference::Better => cell.fg(Color::Green),
        Difference::Worse => cell.fg(Color::Red),
        Difference::TooFewRounds => cell.fg(Color::Yellow),
        _ => cell,
    }
}

/// Returns the comparison as one JSON object.
pub(super) fn json(shown: &Shown<'_>) -> Result<String> {
    let (comparison, [name_a, name_b]) = (shown.comparison, shown.names);
    let counts: BTreeMap<&str, usize> =
        ALL.into_iter().map(|one| (one.name(), comparison.count(one))).collect();
    to_text(&json!({
        "schema": SCHEMA,
        "workload": "compare",
        // The workload of the two files.
        "of": comparison.a.workload,
        "a": json_side(&comparison.a, name_a),
        "b": json_side(&comparison.b, name_b),
        "differences": { "params": comparison.params, "host": comparison.host },
        "rows": shown.rows().map(json_row).collect::<Vec<_>>(),
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "counts": counts,
    }))
}

fn json_side(saved: &Document, file: &str) -> Value {
    json!({ "file": file, "host": saved.host, "partial": saved.partial })
}

fn json_row(one: &Compared) -> Value {
    let ratio = one.ratio.as_ref();
    json!({
        "case": one.case,
        "engine": one.engine,
        "metric": one.metric,
        "unit": one.unit,
        "better": one.better,
        "a_median": one.a.median,
        "b_median": one.b.median,
        "a_mad": one.a.mad,
        "b_mad": one.b.mad,
        "ratio": ratio.map(|ratio| ratio.median),
        "low": ratio.map(|ratio| ratio.low),
        "high": ratio.map(|ratio| ratio.high),
        "verdict": one.difference,
    })
}
