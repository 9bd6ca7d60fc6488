//! The facts that a measurement depends on, and the verdicts on its targets.

use std::fmt::Write;

use serde_json::Value;

use crate::host;
use crate::report::document::{Document, VerdictRow};
use crate::report::plot::escape;
use crate::units;

/// The facts of a machine: field of the JSON and its name on the page.
const FACTS: [(&str, &str); 10] = [
    ("kernel", "Kernel"),
    ("processor", "Processor"),
    ("cores", "Processors"),
    ("governor", "Governor"),
    ("memory_bytes", "Memory"),
    ("filesystem", "File system"),
    ("device", "Device"),
    ("about", "Model"),
    ("fio", "fio"),
    ("state", "State at the end"),
];

/// Prints what is known of the machine, or of the model.
pub(super) fn host(saved: &Document) -> String {
    let mut html = "<dl class=\"host\">\n".to_owned();
    let mut fact = |name: &str, value: &str| {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(value));
    };
    if let Some(seconds) = saved.host.get("unix_time_s").and_then(Value::as_u64) {
        fact("Measured", &host::date(seconds));
    }
    for (field, name) in FACTS {
        let unused = |value: &&Value| *value != "not used" && *value != "none";
        if let Some(value) = saved.host.get(field).filter(unused) {
            fact(name, &value_text(field, value));
        }
    }
    for (name, value) in settings(&saved.params) {
        fact(&name, &value);
    }
    html + "</dl>\n"
}

fn value_text(field: &str, value: &Value) -> String {
    match value {
        Value::String(text) => text.clone(),
        Value::Number(number) if field.ends_with("_bytes") => {
            units::bytes(number.as_f64().unwrap_or_default())
        }
        Value::Object(fields) => {
            let part = |(name, value): (&String, &Value)| {
                let words = name.trim_end_matches("_bytes").replace('_', " ");
                format!("{words} {}", value_text(name, value))
            };
            fields.iter().map(part).collect::<Vec<_>>().join(", ")
        }
        Value::Bool(true) => "yes".to_owned(),
        other => other.to_string(),
    }
}

/// Returns the parameters of the whole measurement that are a line each.
fn settings(params: &Value) -> Vec<(String, String)> {
    let fields = params.as_object().into_iter().flatten();
    let short =
        fields.filter(|(_, value)| !value.is_object() && !value.is_array() && *value != false);
    short
        .map(|(name, value)| {
            let words = name.trim_end_matches("_bytes").replace('_', " ");
            let text = match name.as_str() {
                "runtime_s" => format!("{} s", units::digits(value.as_f64().unwrap_or_default())),
                _ => value_text(name, value),
            };
            let words = match name.as_str() {
                "runtime_s" => "Runtime".to_owned(),
                // The host has a device too.
                "device" => "Worked on".to_owned(),
                _ => capital(&words),
            };
            (words, text)
        })
        .collect()
}

/// Begins a sentence.
pub(super) fn capital(words: &str) -> String {
    let mut letters = words.chars();
    letters
        .next()
        .map_or(String::new(), |first| first.to_uppercase().to_string() + letters.as_str())
}

/// Prints what a reader must know to trust the figures.
pub(super) fn notes(saved: &Document) -> String {
    let mut html = String::new();
    if saved.partial {
        html += "<p class=\"note\">It was interrupted: cases or rounds are missing.</p>\n";
    }
    for note in &saved.notes {
        let _ = writeln!(html, "<p class=\"note\">{}.</p>", escape(&capital(note)));
    }
    html
}

/// More targets than this are folded.
const TARGETS_SHOWN: usize = 20;

/// Prints the targets whose engines were all measured, and how many of them are met.
pub(super) fn targets(saved: &Document) -> String {
    let judged = || saved.verdicts.iter().filter(|verdict| verdict.verdict != "not measured");
    let all = judged().count();
    if all == 0 {
        return String::new();
    }
    let met = judged().filter(|verdict| verdict.verdict == "met").count();
    let open = if all > TARGETS_SHOWN { "" } else { " open" };
    let rows: String = judged().map(target_row).collect();
    format!(
        "<h2>Targets</h2>\n<details{open}><summary>{met} of {all} are met beyond the noise.\
         </summary>\n<div class=\"scroll\"><table>\n<tr><th>Case</th><th>Target</th>\
         <th class=\"n\">Measured [95 %]</th><th>Verdict</th></tr>\n{rows}</table></div>\n\
         </details>\n"
    )
}

fn target_row(verdict: &VerdictRow) -> String {
    let class = match verdict.verdict.as_str() {
        "met" => "met",
        "missed" => "missed",
        _ => "unclear",
    };
    let measured = match (verdict.median, verdict.low, verdict.high) {
        (Some(median), Some(low), Some(high)) => {
            let [median, low, high] = [median, low, high].map(units::digits);
            format!("{median} × [{low} – {high}]")
        }
        _ => "–".to_owned(),
    };
    format!(
        "<tr><td>{}</td><td>{}</td><td class=\"n\">{measured}</td>\
         <td><span class=\"badge {class}\">{}</span></td></tr>\n",
        escape(&verdict.case),
        escape(&verdict.target),
        escape(&verdict.verdict)
    )
}

/// Says what the names of the engines mean, with the reports of the library.
pub(super) fn engines(saved: &Document) -> String {
    let Some(engines) = saved.params.get("engines").and_then(Value::as_object) else {
        return String::new();
    };
    let mut html = "<h2>Engines</h2>\n<dl>\n".to_owned();
    for (name, words) in engines {
        let words = escape(words.as_str().unwrap_or_default());
        let _ = writeln!(html, "<dt>{}</dt><dd>{words}", escape(name));
        let report = saved.params.get("library_reports").and_then(|reports| reports.get(name));
        if let Some(report) = report.and_then(Value::as_str) {
            let report = escape(report.trim_end());
            let _ = writeln!(html, "<details><summary>Report of the library on a probe</summary>");
            let _ = writeln!(html, "<pre>{report}</pre></details>");
        }
        html += "</dd>\n";
    }
    html + "</dl>\n"
}
