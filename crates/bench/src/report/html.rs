//! One page with nothing beside it: figures, targets, plots, and how they came about.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use super::plot::{self, Panel, Scale, escape};
use crate::error::{Context, Result};
use crate::metric::Metric;
use crate::results::{CaseResults, Results};
use crate::subject::Subject;
use crate::table::{change_text, figure, job_line};
use crate::units;
use crate::verdict::{self, Outcome};

const STYLE: &str = include_str!("style.css");

/// The columns of the table of a case.
const COLUMNS: [Metric; 9] = [
    Metric::SubmitUsMean,
    Metric::SubmitUsP50,
    Metric::SubmitUsP99,
    Metric::SubmitUsP999,
    Metric::SubmitUsMax,
    Metric::Iops,
    Metric::LatencyUsP99,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
];

/// The plots of a case.
const PANELS: [Panel<'_>; 4] = [
    Panel {
        title: "Time inside io_submit (logarithmic; less is better)",
        series: &[(Metric::SubmitUsMean, "mean"), (Metric::SubmitUsP999, "p99.9")],
        scale: Scale::Log,
    },
    Panel {
        title: "I/O per second (more is better)",
        series: &[(Metric::Iops, "")],
        scale: Scale::Linear,
    },
    Panel {
        title: "CPU time per I/O, whole process (less is better)",
        series: &[(Metric::CpuUsPerIo, "")],
        scale: Scale::Linear,
    },
    Panel {
        title: "Context switches per I/O (less is better)",
        series: &[(Metric::ContextSwitchesPerIo, "")],
        scale: Scale::Linear,
    },
];

const METHOD: &[&str] = &[
    "Every engine is a way to launch the same unmodified fio. In each round every engine runs \
     once, and the order is reversed from round to round; figures are medians of the rounds.",
    "“Time inside io_submit” is fio’s submission latency: from the prepared request to the return \
     of the call, one request a call. It includes about a microsecond of fio itself.",
    "A ratio is the median of the ratios within the rounds, with a 95 % bootstrap interval. A \
     target is met or missed only if the whole interval lies on one side of it; otherwise these \
     runs cannot tell, and the page says so.",
    "CPU time and context switches are those of the whole process with all its threads, less what \
     the same fio needs to start and stop. Kernel threads that write back are not in it.",
    "Files that are read were written first, with data that do not compress. All engines of a \
     round visit the same blocks, and no block twice in a run, so uncached reads stay uncached.",
];

/// Writes the report.
pub(crate) fn write_html(results: &Results, path: &Path) -> Result<()> {
    fs::write(path, page(results)).context(|| format!("write {}", path.display()))
}

fn page(results: &Results) -> String {
    let title = "Time inside io_submit, with and without nowait";
    let mut body = format!("<h1>{title}</h1>\n{}", host(results));
    body += &notes(results);
    body += &targets(results);
    for case in &results.cases {
        body += &case_section(case, results.params.rounds);
    }
    body += &engines(results);
    body += "<h2>How it was measured</h2>\n<ul>\n";
    for line in METHOD {
        let _ = writeln!(body, "<li>{}</li>", escape(line));
    }
    body += "</ul>\n";
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n{body}\
         </main>\n</body>\n</html>\n"
    )
}

fn host(results: &Results) -> String {
    let host = &results.host;
    let dropped = if results.params.caches_dropped {
        "dropped before each run"
    } else {
        "only the pages of the test file dropped"
    };
    let memory = units::bytes(host.memory_bytes as f64);
    let facts = [
        ("Measured", host.date()),
        ("Kernel", host.kernel.clone()),
        ("Processor", format!("{} × {}", host.cores, host.processor)),
        ("Governor", host.governor.clone()),
        ("Memory", memory),
        ("File system", host.filesystem.clone()),
        ("Device", host.device.clone()),
        ("fio", host.fio.clone()),
        ("Page cache", dropped.to_owned()),
    ];
    let mut html = "<dl class=\"host\">\n".to_owned();
    for (name, value) in facts {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(&value));
    }
    html + "</dl>\n"
}

fn notes(results: &Results) -> String {
    let mut html = String::new();
    for note in &results.notes {
        let _ = writeln!(html, "<p class=\"note\">{}.</p>", escape(note));
    }
    html
}

fn targets(results: &Results) -> String {
    let rows: String = results.cases.iter().map(target_rows).collect();
    if rows.is_empty() {
        return rows;
    }
    format!(
        "<h2>Targets</h2>\n<div class=\"scroll\"><table>\n<tr><th>Case</th><th>Target</th>\
         <th class=\"n\">Measured [95 %]</th><th>Verdict</th></tr>\n{rows}</table></div>\n"
    )
}

/// Prints the targets of a case whose engines were all measured.
fn target_rows(case: &CaseResults) -> String {
    let mut html = String::new();
    for verdict in case.verdicts().iter().filter(|v| v.outcome != Outcome::NotMeasured) {
        let class = match verdict.outcome {
            Outcome::Met => "met",
            Outcome::Missed => "missed",
            _ => "unclear",
        };
        let _ = writeln!(
            html,
            "<tr><td>{}</td><td>{}</td><td class=\"n\">{}</td>\
             <td><span class=\"badge {class}\">{}</span></td></tr>",
            case.case.name,
            escape(&verdict.target()),
            verdict.measured(),
            verdict.outcome.name()
        );
    }
    html
}

fn case_section(results: &CaseResults, rounds: usize) -> String {
    let case = results.case;
    let mut html = format!(
        "<section>\n<h2><span class=\"name\">{}</span> {}</h2>\n<p>{}</p>\n",
        case.name,
        escape(case.title),
        escape(&job_line(results, rounds))
    );
    html += &changes(results);
    for panel in &PANELS {
        let _ = writeln!(html, "<figure>{}</figure>", plot::draw(results, panel));
    }
    html + "<details><summary>Figures</summary>\n" + &figures(results) + "</details>\n</section>\n"
}

/// Tells in a sentence what nowait changes.
fn changes(results: &CaseResults) -> String {
    let metrics = [Metric::SubmitUsMean, Metric::SubmitUsP999, Metric::Iops, Metric::CpuUsPerIo];
    let posix = results.subjects().any(|subject| subject == Subject::PosixAio);
    let (before, after) = match posix {
        true => (Subject::PosixAio, Subject::NowaitPosix),
        false => (Subject::System, Subject::Nowait),
    };
    let part = |metric: Metric| {
        let ratio = results.ratio(metric, before, after)?;
        Some(format!("{}: {}", metric.label(), change_text(&ratio)))
    };
    let parts: Vec<String> = metrics.into_iter().filter_map(part).collect();
    if parts.is_empty() {
        return String::new();
    }
    format!("<p><strong>With nowait:</strong> {}.</p>\n", escape(&parts.join("; ")))
}

fn figures(results: &CaseResults) -> String {
    let mut html = "<div class=\"scroll\"><table>\n<tr><th>Engine</th>".to_owned();
    for metric in COLUMNS {
        let _ = write!(html, "<th class=\"n\">{}</th>", metric.label());
    }
    html += "</tr>\n";
    for subject in results.subjects() {
        let _ = write!(html, "<tr><td>{}</td>", subject.name());
        for metric in COLUMNS {
            let _ = write!(html, "{}", figure_cell(results, subject, metric));
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n"
}

fn figure_cell(results: &CaseResults, subject: Subject, metric: Metric) -> String {
    let Some(summary) = results.summary(subject, metric) else {
        return "<td class=\"n\">–</td>".to_owned();
    };
    let [median, min, max] = [summary.median, summary.min, summary.max];
    let [median, min, max] = [median, min, max].map(|value| figure(metric, value));
    format!(
        "<td class=\"n\" title=\"{min} to {max}\">{median}<br><small>{min} – {max}</small></td>"
    )
}

fn engines(results: &Results) -> String {
    let mut subjects: Vec<Subject> = results.cases.iter().flat_map(CaseResults::subjects).collect();
    subjects.sort_unstable();
    subjects.dedup();
    let mut html = "<h2>Engines</h2>\n<dl>\n".to_owned();
    for subject in subjects {
        let words = escape(subject.describe());
        let _ = writeln!(html, "<dt>{}</dt><dd>{words}", subject.name());
        if let Some(report) = results.params.library_reports.get(&subject) {
            let report = escape(report.trim_end());
            let _ = writeln!(html, "<details><summary>Report of the library on a probe</summary>");
            let _ = writeln!(html, "<pre>{report}</pre></details>");
        }
        html += "</dd>\n";
    }
    let rounds = verdict::ROUNDS_MIN;
    let _ = writeln!(html, "</dl>\n<p>No verdict is given on fewer than {rounds} rounds.</p>");
    html
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample_results;

    #[test]
    fn the_page_stands_alone() {
        let page = page(&sample_results());
        for outside in ["http:", "https:", "<script", "<link", "@import", "url("] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert!(page.contains("prefers-color-scheme: dark"));
    }

    #[test]
    fn text_is_escaped_and_every_tag_is_closed() {
        let page = page(&sample_results());
        assert!(page.contains("made up &lt;for a test&gt;"));
        for tag in ["table", "svg", "section", "details", "dl", "ul", "div", "tr", "td", "th"] {
            let opened = page.matches(&format!("<{tag}>")).count()
                + page.matches(&format!("<{tag} ")).count();
            assert_eq!(opened, page.matches(&format!("</{tag}>")).count(), "{tag}");
        }
    }

    #[test]
    fn a_target_shows_its_verdict() {
        // Twice the IOPS: 1.4 is met; half of the submit time: a tenth is missed.
        let page = page(&sample_results());
        assert!(page.contains("<span class=\"badge met\">met</span>"));
        assert!(page.contains("<span class=\"badge missed\">missed</span>"));
    }
}
