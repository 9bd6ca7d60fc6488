//! The page: `page.html`, filled in with a document or with a comparison.
//!
//! A page is made of the JSON and of nothing else: so a saved file becomes the same page.

use std::fs;
use std::path::Path;

use minijinja::value::{Serde, Value};
use minijinja::{Environment, UndefinedBehavior, context};
use serde_json::Value as Json;

use super::document::Document;
use super::family;
use super::view::{self, Scale};
use crate::error::{BenchError, Context, Result};
use crate::{host, units, verdict};

const TEMPLATE: &str = include_str!("page.html");

/// Writes the page of what has this JSON: a measurement, or a comparison of two.
///
/// # Errors
/// The JSON is neither, or the file cannot be written.
pub(super) fn write_page(json: &str, path: &Path) -> Result<()> {
    fs::write(path, page(json)?).context(|| format!("write {}", path.display()))
}

fn page(json: &str) -> Result<String> {
    let comparison: Json = serde_json::from_str(json).unwrap_or_default();
    if comparison["workload"] == "compare" {
        return render(context! { doc => Serde(comparison) });
    }
    let saved = Document::parse(json)?;
    let cases = view::cases(&saved)?;
    render(context! {
        doc => Serde(&saved),
        simulated => saved.is_simulated(),
        overview => Serde(view::overview(&cases)),
        cases => Serde(cases),
        families => Serde(family::families(&saved)?),
        rounds_min => verdict::ROUNDS_MIN,
    })
}

fn render(context: Value) -> Result<String> {
    let mut pages = Environment::new();
    // Files of older versions lack fields.
    pages.set_undefined_behavior(UndefinedBehavior::Chainable);
    let figure = |value: Option<f64>, unit: String| {
        value.map_or_else(|| "–".to_owned(), |value| units::with_unit(&unit, value))
    };
    pages.add_filter("figure", figure);
    pages.add_filter("digits", units::digits);
    pages.add_filter("factor", units::ratio);
    pages.add_filter("date", host::date);
    pages.add_filter("sentence", |words: String| sentence(&words));
    pages.add_filter("words", |field: String| words(&field));
    pages.add_filter("fact", |value: Serde<Json>, field: String| fact(&field, &value));
    pages.add_test("ours", |engine: String| view::is_ours(&engine));
    pages.add_filter("place", |value: f64, scale: Serde<Scale>| scale.place(value));
    let page = pages.render_named_str("page.html", TEMPLATE, context);
    page.map(|page| page + "\n")
        .map_err(|error| BenchError::failed(format!("cannot make the page: {error}")))
}

/// Returns the words for a field of the host or of the parameters.
fn fact(field: &str, value: &Json) -> String {
    let number = value.as_f64().unwrap_or_default();
    match value {
        Json::String(text) => text.clone(),
        Json::Bool(true) => "yes".to_owned(),
        Json::Number(_) if field.ends_with("_bytes") => units::bytes(number),
        Json::Number(_) if field.ends_with("_s") => format!("{} s", units::digits(number)),
        Json::Object(fields) => {
            let parts =
                fields.iter().map(|(name, it)| format!("{} {}", words(name), fact(name, it)));
            parts.collect::<Vec<_>>().join(", ")
        }
        other => other.to_string(),
    }
}

/// Returns the name of a field as words.
fn words(field: &str) -> String {
    field.trim_end_matches("_bytes").trim_end_matches("_s").replace('_', " ")
}

/// Begins a sentence.
fn sentence(words: &str) -> String {
    let mut letters = words.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    first.unwrap_or_default() + letters.as_str()
}

#[cfg(test)]
pub(crate) mod tests {
    use serde_json::json;

    /// Fails unless a page stands alone and every tag is closed.
    pub(crate) fn check(page: &str) {
        let text = page.replace("http://www.w3.org/2000/svg", "the name of a language");
        for outside in ["http:", "https:", "<script", "<link", "@import", "url(", "NaN"] {
            assert!(!text.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark") && page.ends_with("</html>\n"));
        let tags = ["table", "tbody", "tr", "td", "th", "svg", "text", "section", "details", "dl"];
        let more = ["ul", "li", "dt", "dd", "div", "figure", "p", "h2", "i", "b", "small", "span"];
        for tag in tags.into_iter().chain(more) {
            let opened = [">", " "].map(|end| page.matches(&format!("<{tag}{end}")).count());
            assert_eq!(opened[0] + opened[1], page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    fn page(json: &str) -> String {
        let page = super::page(json).expect("a page");
        check(&page);
        page
    }

    fn sample() -> String {
        page(&crate::testing::sample().json().expect("JSON"))
    }

    /// Returns the part of a page from a title to the next.
    fn panel<'a>(page: &'a str, title: &str) -> &'a str {
        let from = page.find(&format!("\">{title}\n")).expect(title);
        page[from..].split("</tbody>").next().expect(title)
    }

    #[test]
    fn the_first_screen_says_how_much_faster_and_how_surely() {
        let page = sample();
        let first = page.split("<h2>").next().expect("a beginning");
        assert!(first.contains("badge good\">2\n") && first.contains("3 worse</span>"), "{first}");
        assert!(first.contains(">2.00 × more</span><small>[2.00 – 2.00]</small>"), "{first}");
        assert!(first.contains("<small>102&#x2f;s → 204&#x2f;s</small>"), "{first}");
        assert!(first.contains("Made up &lt;for a test&gt;."), "the note, escaped");
    }

    #[test]
    fn a_target_shows_its_verdict() {
        // Twice the IOPS: 1.4 is met; half of the submit time: a tenth is missed.
        let page = sample();
        assert!(page.contains("<span class=\"badge good\">met</span>"));
        assert!(page.contains("<span class=\"badge bad\">missed</span>"));
        assert!(page.contains("2 of 3 are met beyond"), "what was not measured is not judged");
    }

    #[test]
    fn every_run_is_a_dot_and_bars_need_a_zero() {
        let page = sample();
        let marks = |title, kind| panel(&page, title).matches(&format!("\"{kind}\"")).count();
        assert_eq!(
            (marks("I&#x2f;O per second", "dot"), marks("I&#x2f;O per second", "bar")),
            (10, 2)
        );
        let submit = "Time inside submit, mean of each run";
        assert_eq!((marks(submit, "dot"), marks(submit, "bar")), (10, 0));
        assert_eq!(
            (marks("Time inside submit", "tick"), marks("Time inside submit", "ring")),
            (4, 2)
        );
    }

    #[test]
    fn the_harness_alone_does_not_flatten_the_strips() {
        let row = |engine: &str, metric: &str, unit: &str, figure: f64| {
            json!({"engine": engine, "case": "a", "metric": metric, "unit": unit,
                "runs": [figure, figure * 1.1]})
        };
        let rows: Vec<_> = [("libaio", 1e4), ("libaio-nowait", 2e4), ("null", 1e8)]
            .into_iter()
            .flat_map(|(engine, figure)| {
                let submit = row(engine, "submit_us_mean", "us", 1e9 / figure);
                [row(engine, "iops", "1/s", figure), submit]
            })
            .collect();
        let file = json!({"schema": 1, "host": {"kernel": "6"}, "workload": "aio-stress",
            "rows": rows, "params": {"cases": [{"case": "a"}]}});
        let page = page(&file.to_string());
        let linear = panel(&page, "I&#x2f;O per second");
        assert!(linear.contains("null") && linear.contains("left:98.0%"), "among the figures");
        assert_eq!(linear.matches("\"dot\"").count(), 4, "and not drawn: {linear}");
        let log = panel(&page, "Time inside submit, mean of each run");
        assert_eq!(log.matches("\"dot\"").count(), 6, "{log}");
    }

    #[test]
    fn programs_show_what_was_skipped() {
        let mut measurement = crate::testing::sample();
        measurement.workload = "programs";
        let overview = json!(["transactions_per_s", "latency_us_p99"]);
        measurement.cases[0].params.insert("overview".to_owned(), overview);
        let skipped = json!([{"case": "nginx", "engine": "all", "why": "nginx is not installed",
            "install": "apt install nginx"}]);
        measurement.params.insert("skipped".to_owned(), skipped);
        let page = page(&measurement.json().expect("JSON"));
        assert!(page.contains("<th>Throughput</th><th>Latency, 99 %</th></tr>"));
        assert!(page.contains("<code>apt install nginx</code>"));
    }

    #[test]
    fn the_source_stands_beside_what_was_simulated() {
        let row = |engine: &str, figure: f64| {
            json!({"engine": engine, "case": "M1 x", "metric": "random read", "unit": "MB/s",
                "runs": [figure]})
        };
        let figures = [("source-before", 10.08), ("source", 23.91), ("baseline", 8.0)];
        let mut rows: Vec<_> = figures.map(|(engine, figure)| row(engine, figure)).to_vec();
        rows.push(row("nowait", 30.0));
        let ratio = json!({"case": "M1 x", "metric": "random read", "a": "baseline", "b": "nowait",
            "median": 3.75, "source": 2.372, "source_range": null, "source_words": null,
            "met": true});
        let page = page(
            &json!({"schema": 1, "host": {"device": "sim:u2scsi"}, "workload": "paper",
                "rows": rows, "ratios": [ratio], "params": {"cases": [{"case": "M1 x"}]}})
            .to_string(),
        );
        assert!(page.contains("1 of 1 changes") && page.contains("10.1 → 23.9"), "{page}");
        assert!(page.contains("\"target\"") && page.contains(">met</span>"));
    }
}
