//! One page with nothing beside it: figures, targets, plots, and how they came about.
//!
//! ```text
//!  Document ─┬─ facts    the machine, notes, targets
//!         ├─ overview all cases as one table, where the file has one
//!         ├─ case     a case that was measured        ◄── plot
//!         ├─ sizes    cases of several block sizes    ◄── plot
//!         ├─ paper    a source's table, simulated     ◄── plot
//!         └─ words    title and method of each workload
//!  Comparison ─ compare
//! ```
//!
//! A page is made of what the JSON has, and of nothing else: so a saved file becomes the same page.

mod case;
mod compare;
mod facts;
mod overview;
mod paper;
mod sizes;
mod words;

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::document::Document;
use super::plot::escape;
use crate::compare::Comparison;
use crate::error::{Context, Result};

const STYLE: &str = include_str!("style.css");

/// Writes the page of a measurement.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_page(saved: &Document, path: &Path) -> Result<()> {
    fs::write(path, page(saved)).context(|| format!("write {}", path.display()))
}

/// Writes the page of a comparison; `names` are those of the two files.
///
/// # Errors
/// The file cannot be written.
pub(crate) fn write_comparison(
    comparison: &Comparison,
    names: &[String; 2],
    path: &Path,
) -> Result<()> {
    let (title, body) = compare::body(comparison, names);
    fs::write(path, whole(&title, &body)).context(|| format!("write {}", path.display()))
}

/// Returns the page of a measurement.
pub(super) fn page(saved: &Document) -> String {
    let title = words::title(&saved.workload);
    let mut body = format!("<h1>{}</h1>\n", escape(title));
    let _ = writeln!(body, "<p>{}</p>", escape(words::introduction(saved)));
    body += &facts::host(saved);
    body += &overview::table(saved);
    body += &facts::notes(saved);
    body += &facts::targets(saved);
    body += &sizes::sections(saved);
    body += &if saved.is_simulated() { paper::sections(saved) } else { case::sections(saved) };
    body += &facts::engines(saved);
    body += "<h2>How it was measured</h2>\n<ul>\n";
    for line in words::method(saved) {
        let _ = writeln!(body, "<li>{}</li>", escape(line));
    }
    whole(title, &(body + "</ul>\n"))
}

/// Puts a body into a page.
fn whole(title: &str, body: &str) -> String {
    let title = escape(title);
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n"
    )
}

/// Puts a drawing into the page; nothing if it is empty.
fn figure(svg: &str) -> String {
    if svg.is_empty() { String::new() } else { format!("<figure>{svg}</figure>\n") }
}

/// Tells whether figures of this name are nowait's own.
fn is_ours(engine: &str) -> bool {
    let ours = ["nowait", "libaio-nowait"];
    ours.iter().any(|ours| engine.starts_with(ours)) || engine == "vector"
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::measurement;
    use serde_json::json;

    fn sample() -> String {
        let json = measurement::sample().json().expect("JSON");
        page(&Document::parse(&json).expect("a measurement"))
    }

    /// Fails unless the page stands alone and every tag is closed.
    pub(in crate::report) fn check(page: &str) {
        for outside in ["http:", "https:", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
        let tags = ["table", "svg", "section", "details", "dl", "ul", "div", "tr", "td", "th"];
        for tag in tags.into_iter().chain(["figure", "p", "h2", "text", "li", "dt", "dd"]) {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
        assert!(!page.contains("NaN"), "no figure that is none");
    }

    #[test]
    fn the_page_stands_alone_and_its_text_is_escaped() {
        let page = sample();
        check(&page);
        assert!(page.contains("Made up &lt;for a test&gt;"));
        assert_eq!(page.matches("<svg").count(), page.matches("role=\"img\"").count());
    }

    #[test]
    fn the_harness_alone_does_not_flatten_the_plots() {
        let row = |engine: &str, metric: &str, figure: f64| {
            json!({"engine": engine, "case": "a", "metric": metric, "unit": "1/s",
                "runs": [figure, figure * 1.1]})
        };
        let rows: Vec<_> = [("libaio", 1e4), ("libaio-nowait", 2e4), ("null", 1e8)]
            .into_iter()
            .flat_map(|(engine, figure)| {
                [row(engine, "iops", figure), row(engine, "submit_us_mean", 1e9 / figure)]
            })
            .collect();
        let file = json!({"schema": 1, "host": {"kernel": "6"}, "workload": "aio-stress",
            "rows": rows, "params": {"cases": [{"case": "a"}]}});
        let page = page(&Document::parse(&file.to_string()).expect("well-formed"));
        let plots: Vec<&str> =
            page.split("</figure>").filter_map(|it| it.split("<figure>").nth(1)).collect();
        let plot = |title: &str| plots.iter().find(|it| it.contains(title)).expect(title);
        assert!(!plot("I/O per second").contains("null"), "linear");
        assert!(plot("Time inside submit").contains("null"), "logarithmic");
        assert!(page.contains("<th scope=\"row\">null</th>"), "among the figures");
    }

    #[test]
    fn engines_of_ours_are_known_by_their_names() {
        for ours in ["nowait", "nowait-user", "libaio-nowait", "libaio-nowait-direct", "vector"] {
            assert!(is_ours(ours), "{ours}");
        }
        for other in ["libaio", "preadv2-nowait", "io_uring-vector", "psync"] {
            assert!(!is_ours(other), "{other}");
        }
    }

    #[test]
    fn a_target_shows_its_verdict() {
        // Twice the IOPS: 1.4 is met; half of the submit time: a tenth is missed.
        let page = sample();
        assert!(page.contains("<span class=\"badge met\">met</span>"));
        assert!(page.contains("<span class=\"badge missed\">missed</span>"));
    }
}
