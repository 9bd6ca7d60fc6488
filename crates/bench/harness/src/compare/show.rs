//! The comparison as tables for a terminal, and as JSON.

use std::collections::BTreeMap;
use std::fmt::Write;

use comfy_table::{Cell, Color};
use serde_json::{Value, json};

use super::judge::{Comparison, Difference};
use super::settings::Setting;
use crate::report::{Document, SCHEMA, distinct};
use crate::table::{new_table, right};
use crate::units;
use crate::verdict;

/// Returns the differences of parameters and hosts, a table for each case, and the number of
/// verdicts of each kind.
pub(super) fn text(comparison: &Comparison, [name_a, name_b]: &[String; 2]) -> String {
    let mut text = format!("{}: A is {name_a}, B is {name_b}\n", comparison.a.workload);
    text += &settings_text("Parameters", &comparison.params);
    text += &settings_text("Hosts", &comparison.host);
    for (name, saved) in [("A", &comparison.a), ("B", &comparison.b)] {
        if saved.partial {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "{name} was interrupted: it has fewer cases or rounds.");
        }
    }
    for case in cases(comparison) {
        let title = title(&comparison.a, case);
        let title = title.map(|title| format!(" · {title}")).unwrap_or_default();
        let _ = writeln!(text, "\n{case}{title}\n{}", table(comparison, case));
    }
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !only.is_empty() {
            let _ = writeln!(text, "\nOnly in {name}: {}.", only.join("; "));
        }
    }
    let counts = Difference::ALL.map(|(one, name)| (comparison.count(one), name));
    let counts = counts.iter().filter(|(count, _)| *count > 0);
    let counts: Vec<String> = counts.map(|(count, name)| format!("{count} {name}")).collect();
    let _ = writeln!(text, "\nOf {} figures: {}.", comparison.compared.len(), counts.join(", "));
    text += match comparison.is_exact() {
        true => "Ratios are B / A. Both were computed in virtual time: any difference is one.",
        false => {
            "Ratios are medians, B / A, with a 95 % bootstrap interval of the noise within each \
             file;\nwhat changed between the two measurements for the whole machine is not in it."
        }
    };
    text
}

fn cases(comparison: &Comparison) -> Vec<&str> {
    distinct(comparison.shown().map(|one| one.case.as_str()))
}

fn title<'a>(saved: &'a Document, case: &str) -> Option<&'a str> {
    saved.case_param(case, "title")?.as_str()
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

fn table(comparison: &Comparison, case: &str) -> comfy_table::Table {
    let mut table = new_table(&["engine", "metric", "A", "B", "B / A", "verdict"]);
    for one in comparison.shown().filter(|one| one.case == case) {
        let side = |median| right(units::with_unit(&one.unit, median));
        let verdict = Cell::new(one.verdict.name());
        table.add_row([
            Cell::new(&one.engine),
            Cell::new(&one.label),
            side(one.a_median),
            side(one.b_median),
            right(one.ratio().map_or("–".to_owned(), |ratio| verdict::ratio_text(&ratio))),
            match one.verdict {
                Difference::Better => verdict.fg(Color::Green),
                Difference::Worse => verdict.fg(Color::Red),
                Difference::TooFewRounds => verdict.fg(Color::Yellow),
                _ => verdict,
            },
        ]);
    }
    table
}

/// Returns the comparison as one JSON object.
pub(super) fn json(comparison: &Comparison, names: &[String; 2]) -> Value {
    let side = |saved: &Document, file: &str| {
        let (host, partial) = (&saved.host, saved.partial);
        json!({ "file": file, "host": host, "partial": partial })
    };
    let case = |case| json!({ "case": case, "title": title(&comparison.a, case) });
    let counts = Difference::ALL.map(|(one, name)| (name, comparison.count(one)));
    json!({
        "schema": SCHEMA,
        "workload": "compare",
        // The workload of the two files.
        "of": comparison.a.workload,
        "a": side(&comparison.a, &names[0]),
        "b": side(&comparison.b, &names[1]),
        "differences": { "params": comparison.params, "host": comparison.host },
        "cases": cases(comparison).into_iter().map(case).collect::<Vec<_>>(),
        "rows": comparison.shown().collect::<Vec<_>>(),
        "only_a": comparison.only_a,
        "only_b": comparison.only_b,
        "figures": comparison.compared.len(),
        "counts": BTreeMap::from(counts),
        "exact": comparison.is_exact(),
    })
}
