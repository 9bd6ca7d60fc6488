//! Two measurements side by side.

use std::fmt::Write;

use super::{figure, words};
use crate::compare::{Compared, Comparison, Difference, Setting};
use crate::metric::Metric;
use crate::report::document::distinct;
use crate::report::plot::{Forest, Interval, escape};
use crate::units;
use crate::verdict;

/// Returns title and body of the page.
pub(super) fn body(comparison: &Comparison, names: &[String; 2]) -> (String, String) {
    let title = format!("Compared: {}", words::title(&comparison.a.workload));
    let mut body = format!("<h1>{}</h1>\n", escape(&title));
    // Writing to a string cannot fail.
    let _ = writeln!(body, "<p>{}</p>", summary(comparison));
    let _ = writeln!(body, "<dl class=\"host\">");
    for (name, file) in [("A, compared with", &names[0]), ("B, judged", &names[1])] {
        let _ = writeln!(body, "<div><dt>{name}</dt><dd>{}</dd></div>", escape(file));
    }
    body += "</dl>\n";
    body += &settings("Hosts", &comparison.host);
    body += &settings("Parameters", &comparison.params);
    for (name, saved) in [("A", &comparison.a), ("B", &comparison.b)] {
        if saved.partial {
            let _ = writeln!(body, "<p class=\"note\">{name} was interrupted.</p>");
        }
    }
    for case in distinct(comparison.compared.iter().map(|one| one.case.as_str())) {
        body += &section(comparison, case);
    }
    for (name, only) in [("A", &comparison.only_a), ("B", &comparison.only_b)] {
        if !only.is_empty() {
            let _ = writeln!(body, "<p>Only in {name}: {}.</p>", escape(&only.join("; ")));
        }
    }
    let _ = writeln!(body, "<h2>How to read it</h2>\n<p>{}</p>", escape(method(comparison)));
    (title, body)
}

fn summary(comparison: &Comparison) -> String {
    let count = |difference| comparison.count(difference);
    format!(
        "{} figures: <span class=\"badge met\">{} better</span>, \
         <span class=\"badge missed\">{} worse</span>, {} inside the noise.",
        comparison.compared.len(),
        count(Difference::Better),
        count(Difference::Worse),
        count(Difference::InsideNoise)
    )
}

fn method(comparison: &Comparison) -> &'static str {
    if comparison.a.is_simulated() && comparison.b.is_simulated() {
        return "Ratios are B / A. Both were computed in virtual time: any difference is one.";
    }
    "Ratios are medians, B / A, with a 95 % bootstrap interval of the noise within each file. A \
     figure is better or worse only if all of the interval is, and only with five rounds on either \
     side. What changed between the two measurements for the whole machine is not in the interval: \
     to exclude that, measure both in one run."
}

fn settings(what: &str, settings: &[Setting]) -> String {
    if settings.is_empty() {
        return format!("<p>{what}: the same.</p>\n");
    }
    let mut html = format!(
        "<h2>{what} differ</h2>\n<div class=\"scroll\"><table>\n<tr><th>Setting</th><th>A</th>\
         <th>B</th></tr>\n"
    );
    for setting in settings {
        let side = |side: &Option<String>| escape(side.as_deref().unwrap_or("–"));
        let _ = writeln!(
            html,
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td></tr>",
            escape(&setting.name),
            side(&setting.a),
            side(&setting.b)
        );
    }
    html + "</table></div>\n"
}

fn section(comparison: &Comparison, case: &str) -> String {
    let title = comparison.a.case_param(case, "title").and_then(|title| title.as_str());
    let of_case: Vec<&Compared> =
        comparison.compared.iter().filter(|one| one.case == case).collect();
    let forest = Forest {
        title: "How many times the figure of A is that of B; logarithmic",
        legend: "● median, with its 95 % interval",
        rows: of_case.iter().filter(|one| is_drawn(one)).filter_map(|one| interval(one)).collect(),
    };
    let rows: String = of_case.iter().map(|one| row(one)).collect();
    format!(
        "<section>\n<h2><span class=\"name\">{}</span> {}</h2>\n{}<details><summary>Figures\
         </summary>\n<div class=\"scroll\"><table>\n<tr><th>Engine</th><th>Metric</th>\
         <th class=\"n\">A</th><th class=\"n\">B</th><th class=\"n\">B / A [95 %]</th>\
         <th>Verdict</th></tr>\n{rows}</table></div></details>\n</section>\n",
        escape(case),
        escape(title.unwrap_or_default()),
        figure(&forest.draw())
    )
}

/// What lies inside the noise is drawn only for the metrics that say most.
fn is_drawn(one: &Compared) -> bool {
    const MAIN: [Metric; 9] = [
        Metric::Iops,
        Metric::IopsPerCore,
        Metric::SubmitUsMean,
        Metric::SubmitUsP999,
        Metric::LatencyUsP50,
        Metric::LatencyUsP99,
        Metric::CpuUsPerIo,
        Metric::ContextSwitchesPerIo,
        Metric::RssBytesMax,
    ];
    let known = Metric::named(&one.metric);
    let differs = matches!(one.difference, Difference::Better | Difference::Worse);
    differs || known.is_none_or(|metric| MAIN.contains(&metric))
}

fn interval(one: &Compared) -> Option<Interval> {
    let ratio = one.ratio.as_ref()?;
    Some(Interval {
        label: format!("{}: {}", one.engine, one.label),
        class: match one.difference {
            Difference::Better => "good",
            Difference::Worse => "bad",
            _ => "theirs",
        },
        median: ratio.median,
        low: ratio.low,
        high: ratio.high,
        target: None,
        verdict: one.difference.name().to_owned(),
    })
}

fn row(one: &Compared) -> String {
    let class = match one.difference {
        Difference::Better => "met",
        Difference::Worse => "missed",
        _ => "unclear",
    };
    let side = |median| escape(&units::with_unit(&one.unit, median));
    let ratio = one.ratio.as_ref().map_or("–".to_owned(), verdict::ratio_text);
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{ratio}</td><td><span class=\"badge {class}\">{}</span></td></tr>\n",
        escape(&one.engine),
        escape(&one.label),
        side(one.a.median),
        side(one.b.median),
        one.difference.name()
    )
}
