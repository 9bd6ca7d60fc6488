//! All cases as one table, where the file says which figures of each stand in it.

use std::fmt::Write;

use serde_json::Value;

use super::is_ours;
use crate::metric::Metric;
use crate::programs::itself;
use crate::report::document::Document;
use crate::report::plot::escape;
use crate::units;

/// Prints the table, and what was skipped; nothing of a file without such figures.
pub(super) fn table(saved: &Document) -> String {
    let cases = saved.cases();
    let rows: String = cases.into_iter().filter_map(|case| rows(saved, case)).collect();
    if rows.is_empty() {
        return String::new();
    }
    format!(
        "<h2>All programs</h2>\n<div class=\"scroll\"><table>\n<tr><th>Case</th><th>Engine</th>\
         <th class=\"n\">Throughput</th><th class=\"n\">× itself</th><th class=\"n\">p99</th>\
         <th class=\"n\">Longest hold-up</th><th class=\"n\">CPU per operation</th></tr>\n\
         {rows}{}</table></div>\n<p class=\"small\">Medians of the rounds.</p>\n",
        skipped(saved)
    )
}

fn rows(saved: &Document, case: &str) -> Option<String> {
    let metrics = saved.case_param(case, "overview")?.as_array()?;
    let metrics: Vec<&str> = metrics.iter().filter_map(Value::as_str).collect();
    let first = *metrics.first()?;
    let mut html = String::new();
    for (index, engine) in saved.engines(case).into_iter().enumerate() {
        let name = if index == 0 { case } else { "" };
        let engine_name = match is_ours(engine) {
            true => format!("<b>{}</b>", escape(engine)),
            false => escape(engine),
        };
        let ratio = match itself(engine) {
            reference if reference == engine => "1.00".to_owned(),
            reference => ratio(saved, case, first, (reference, engine)),
        };
        let mut cells = vec![cell(saved, case, engine, first), ratio];
        cells.extend(metrics[1..].iter().map(|metric| cell(saved, case, engine, metric)));
        let boxed = |text: &String| format!("<td class=\"n\">{}</td>", escape(text));
        let cells: String = cells.iter().map(boxed).collect();
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<tr><td>{}</td><td>{engine_name}</td>{cells}</tr>", escape(name));
    }
    Some(html)
}

/// Prints the median of a figure; a count with what it is of, as one column has several.
fn cell(saved: &Document, case: &str, engine: &str, metric: &str) -> String {
    let row = saved.row(case, engine, metric);
    let Some((row, summary)) = row.and_then(|row| Some((row, row.summary()?))) else {
        return "–".to_owned();
    };
    let of = Metric::named(metric).map_or("", Metric::counted);
    units::with_unit(&row.unit, summary.median) + of
}

fn ratio(saved: &Document, case: &str, metric: &str, (a, b): (&str, &str)) -> String {
    let is = |one: &&crate::report::document::RatioRow| {
        one.case == case && one.metric == metric && one.a == a && one.b == b
    };
    let found = saved.ratios.iter().find(is);
    found.map_or_else(|| "–".to_owned(), |one| units::digits(one.median))
}

/// Prints a row for each case, or way of one, that was not measured.
fn skipped(saved: &Document) -> String {
    let all = saved.params.get("skipped").and_then(Value::as_array).into_iter().flatten();
    let row = |one: &Value| {
        let [case, engine, why, install] = ["case", "engine", "why", "install"]
            .map(|field| escape(one.get(field).and_then(Value::as_str).unwrap_or_default()));
        let command = match install.is_empty() {
            true => String::new(),
            false => format!("; install it by: <code>{install}</code>"),
        };
        format!(
            "<tr><td>{case}</td><td>{engine}</td><td colspan=\"5\">skipped: {why}{command}</td>\
             </tr>\n"
        )
    };
    all.map(row).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measurement;
    use crate::report::page::{page, tests::check};
    use serde_json::json;

    #[test]
    fn the_page_has_every_way_and_what_was_skipped() {
        let mut measurement = measurement::sample();
        measurement.workload = "programs";
        let overview = json!(["transactions_per_s", "latency_us_p99"]);
        measurement.cases[0].params.insert("overview".to_owned(), overview);
        let skipped = json!([{"case": "nginx", "engine": "all", "why": "nginx is not installed",
            "install": "apt install nginx"}]);
        measurement.params.insert("skipped".to_owned(), skipped);
        let json = measurement.json().expect("JSON");
        let page = page(&Document::parse(&json).expect("a measurement"));
        check(&page);
        assert!(page.contains("<b>nowait</b></td><td class=\"n\">204/s</td><td class=\"n\">2.00<"));
        assert!(page.contains("<code>apt install nginx</code>"));
    }

    #[test]
    fn other_measurements_have_no_such_table() {
        let json = measurement::sample().json().expect("JSON");
        assert_eq!(table(&Document::parse(&json).expect("a measurement")), "");
    }
}
