//! A case that was measured: what changes, plots, figures.

use std::fmt::Write;

use super::{figure, is_ours};
use crate::metric::Metric;
use crate::report::document::{Document, RatioRow, Row, distinct};
use crate::report::plot::{Scale, Spread, SpreadRow, Strip, Strips, escape};
use crate::stats::Ratio;
use crate::table::change_text;
use crate::units;

/// The plots of single metrics, in their order.
const PANELS: [(Metric, &str, Scale); 11] = [
    (Metric::TransactionsPerS, "Transactions per second (more is better)", Scale::Linear),
    (Metric::Iops, "I/O per second (more is better)", Scale::Linear),
    (Metric::BytesPerS, "Throughput (more is better)", Scale::Linear),
    (Metric::IopsPerCore, "I/O per second of processor time (more is better)", Scale::Linear),
    (Metric::HeldUpUsMax, "Longest hold-up of each run (less is better); logarithmic", Scale::Log),
    (Metric::CpuUsPerOperation, "Processor time per operation (less is better)", Scale::Linear),
    (Metric::CpuUsPerIo, "Processor time per I/O, whole process (less is better)", Scale::Linear),
    (Metric::ContextSwitchesPerIo, "Context switches per I/O (less is better)", Scale::Linear),
    (Metric::SubmitSleeps, "How often submit slept, in a run (less is better)", Scale::Linear),
    (Metric::RssBytesMax, "Memory of the process at its largest (less is better)", Scale::Linear),
    (
        Metric::PageCacheGrowthBytes,
        "Growth of the kernel’s page cache in a run (less is better)",
        Scale::Linear,
    ),
];

/// Prints every case.
pub(super) fn sections(saved: &Document) -> String {
    saved.cases().into_iter().map(|case| section(saved, case)).collect()
}

fn section(saved: &Document, case: &str) -> String {
    let text = |name| saved.case_param(case, name).and_then(|value| value.as_str());
    let mut html = format!(
        "<section>\n<h2><span class=\"name\">{}</span> {}</h2>\n",
        escape(case),
        escape(text("title").unwrap_or_default())
    );
    if let Some(about) = text("about") {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<p>{}</p>", escape(about));
    }
    if let Some(source) = text("source").filter(|source| !source.is_empty()) {
        let _ = writeln!(html, "<p>The source: {}.</p>", escape(source));
    }
    html += &changes(saved, case);
    html += &submit(saved, case);
    html += &figure(&spread(saved, case, "latency_us", "From submission to completion"));
    for (metric, title, scale) in PANELS {
        if metric != Metric::BytesPerS || differs_from_iops(saved, case) {
            html += &figure(&strips(saved, case, metric, title, scale));
        }
    }
    html + "<details><summary>Figures</summary>\n"
        + &figures(saved, case)
        + "</details>\n</section>\n"
}

/// Draws the time inside submit: the mean, or else the median, of every run; then percentiles.
fn submit(saved: &Document, case: &str) -> String {
    // Of a server's client it is the client's own.
    if saved.workload == "serve" {
        return String::new();
    }
    let has = |metric: Metric| saved.rows_of(case).any(|row| row.metric == metric.name());
    let (metric, title) = match has(Metric::SubmitUsMean) {
        true => (Metric::SubmitUsMean, "Time inside submit, mean of each run (less is better)"),
        false => (Metric::SubmitUsP50, "Time inside submit, median of each run (less is better)"),
    };
    let title = &format!("{title}; logarithmic");
    figure(&strips(saved, case, metric, title, Scale::Log))
        + &figure(&spread(saved, case, "submit_us", "Time inside submit, from the median up"))
}

/// Tells whether throughput says something that requests a second do not.
fn differs_from_iops(saved: &Document, case: &str) -> bool {
    let median = |engine, metric: Metric| {
        let row = saved.row(case, engine, metric.name())?;
        row.summary().map(|summary| summary.median)
    };
    let sizes = saved
        .engines(case)
        .into_iter()
        .map(|engine| Some(median(engine, Metric::BytesPerS)? / median(engine, Metric::Iops)?));
    let sizes: Vec<Option<f64>> = sizes.collect();
    let first = sizes.first().copied().flatten();
    let equal = |size: &Option<f64>| match (size, first) {
        (Some(size), Some(first)) => (size / first - 1.0).abs() < 0.02,
        _ => false,
    };
    !sizes.iter().all(equal)
}

fn strips(saved: &Document, case: &str, metric: Metric, title: &str, scale: Scale) -> String {
    let of_submit = metric.name().starts_with("submit");
    let strip = |row: &Row| Strip {
        label: row.engine.clone(),
        ours: is_ours(&row.engine),
        runs: row.runs(),
    };
    let rows = saved.rows_of(case).filter(|row| row.metric == metric.name());
    let rows = rows.filter(|row| !of_submit || submits(&row.engine));
    // The harness alone is so much faster than all engines that they would be one heap.
    let rows = rows.filter(|row| scale != Scale::Linear || row.engine != "null");
    let rows: Vec<Strip> = rows.map(strip).collect();
    // All zero: a sentence would be too much for it, and so is a plot.
    if rows.iter().flat_map(|row| &row.runs).all(|run| *run == 0.0) {
        return String::new();
    }
    Strips { title, unit: metric.unit(), scale, rows }.draw()
}

/// Draws the percentiles whose names begin with `prefix`, medians of the rounds.
fn spread(saved: &Document, case: &str, prefix: &str, title: &str) -> String {
    let row = |engine: &str| {
        let median = |name: &str| {
            let row = saved.row(case, engine, &format!("{prefix}_{name}"))?;
            row.summary().map(|summary| summary.median)
        };
        Some(SpreadRow {
            label: engine.to_owned(),
            ours: is_ours(engine),
            p50: median("p50")?,
            p90: median("p90"),
            p99: median("p99"),
            p999: median("p999"),
            max: median("max"),
        })
    };
    let of_submit = prefix.starts_with("submit");
    let engines = saved.engines(case).into_iter();
    let rows = engines.filter(|engine| !of_submit || submits(engine)).filter_map(row).collect();
    let title = &format!("{title} (less is better); logarithmic");
    Spread { title, rows }.draw()
}

/// Tells in a sentence what nowait changes, where the file has the ratios.
fn changes(saved: &Document, case: &str) -> String {
    const SHOWN: [Metric; 5] = [
        Metric::SubmitUsMean,
        Metric::SubmitUsP999,
        Metric::Iops,
        Metric::BytesPerS,
        Metric::CpuUsPerIo,
    ];
    let of_case: Vec<&RatioRow> = saved.ratios.iter().filter(|one| one.case == case).collect();
    // The first of ours against the first peer of this list, or against any.
    let peers = ["system", "posixaio", "psync", "libaio", "qemu-native", "nbdkit"];
    let place = |one: &&&RatioRow| peers.iter().position(|peer| one.a == *peer);
    let others = of_case.iter().filter(|one| is_ours(&one.b) && !is_ours(&one.a));
    let pair = others.min_by_key(|one| place(one).unwrap_or(peers.len()));
    let Some((a, b)) = pair.map(|pair| (&pair.a, &pair.b)) else { return String::new() };
    let part = |metric: Metric| {
        if (!submits(a) || saved.workload == "serve") && metric.name().starts_with("submit") {
            return None;
        }
        let same = |one: &&&RatioRow| one.a == *a && one.b == *b && one.metric == metric.name();
        let found = of_case.iter().find(same)?;
        Some(format!("{} {}", metric.label(), change_text(&ratio(found)?)))
    };
    let parts: Vec<String> = SHOWN.into_iter().filter_map(part).collect();
    if parts.is_empty() {
        return String::new();
    }
    let [a, b, parts] = [a.as_str(), b.as_str(), &parts.join("; ")].map(escape);
    format!("<p><strong>{b} against {a}:</strong> {parts}.</p>\n")
}

/// Tells whether an engine has a call that only submits.
fn submits(engine: &str) -> bool {
    !["psync", "preadv2-nowait", "memcpy", "mmap"].contains(&engine)
}

fn ratio(saved: &RatioRow) -> Option<Ratio> {
    let rounds = vec![saved.median; saved.rounds()];
    Some(Ratio { median: saved.median, low: saved.low?, high: saved.high?, rounds })
}

/// Prints a table of every metric of the case.
pub(super) fn figures(saved: &Document, case: &str) -> String {
    let metrics = distinct(saved.rows_of(case).map(|row| row.metric.as_str()));
    let label =
        |metric: &str| Metric::named(metric).map_or(metric.to_owned(), |m| m.label().into());
    let mut html = "<div class=\"scroll\"><table>\n<tr><th>Engine</th>".to_owned();
    for metric in &metrics {
        let _ = write!(html, "<th class=\"n\">{}</th>", escape(&label(metric)));
    }
    html += "</tr>\n";
    for engine in saved.engines(case) {
        let _ = write!(html, "<tr><th scope=\"row\">{}</th>", escape(engine));
        for metric in &metrics {
            html += &cell(saved.row(case, engine, metric));
        }
        html += "</tr>\n";
    }
    html + "</table></div>\n<p class=\"small\">Medians ± median absolute deviation; below, the \
            least and the most of the rounds.</p>\n"
}

fn cell(row: Option<&Row>) -> String {
    let summary = row.and_then(|row| Some((row.unit.as_str(), row.summary()?)));
    let Some((unit, summary)) = summary else { return "<td class=\"n\">–</td>".to_owned() };
    let text = |value| escape(&units::with_unit(unit, value));
    let [median, mad, min, max] = [summary.median, summary.mad, summary.min, summary.max].map(text);
    format!("<td class=\"n\">{median} ± {mad}<br><small>{min} – {max}</small></td>")
}
