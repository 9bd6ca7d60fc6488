//! Throughput and processor time against the block size, where a file has several sizes.

use std::fmt::Write;

use super::is_ours;
use crate::metric::Metric;
use crate::report::plot::{Band, Line, Lines, Scale, escape};
use crate::report::saved::{Point, Saved, SavedRow, distinct};

/// Fewer sizes are no curve.
const SIZES_MIN: usize = 3;

/// Prints every family of cases that differ in their block size only.
///
/// A case names its family in the parameters: `{"case": …, "family": …, "block_bytes": …}`.
/// Simulated figures have their place in the row itself.
pub(super) fn sections(saved: &Saved) -> String {
    let cases = saved.params.get("cases").and_then(|cases| cases.as_array());
    let families = cases.into_iter().flatten().filter_map(|case| case.get("family")?.as_str());
    distinct(families).into_iter().map(|family| section(saved, family)).collect()
}

fn section(saved: &Saved, family: &str) -> String {
    let sizes: Vec<(&str, f64)> = saved
        .cases()
        .into_iter()
        .filter(|case| saved.case_param(case, "family").and_then(|f| f.as_str()) == Some(family))
        .filter_map(|case| Some((case, saved.case_param(case, "block_bytes")?.as_f64()?)))
        .collect();
    if sizes.len() < SIZES_MIN {
        return String::new();
    }
    let per_kib = |bytes: f64, figure: f64| figure * 1024.0 / bytes;
    let plots = [
        lines(saved, &sizes, Metric::BytesPerS, "B/s", "Throughput", |_, figure| figure),
        lines(saved, &sizes, Metric::CpuUsPerIo, "us", "Processor time per KiB", per_kib),
    ];
    format!(
        "<section>\n<h2>Against the block size: {}</h2>\n<div class=\"grid\">{}</div>\n</section>\n",
        escape(family),
        plots.concat()
    )
}

fn lines(
    saved: &Saved,
    sizes: &[(&str, f64)],
    metric: Metric,
    unit: &str,
    title: &str,
    figure: impl Fn(f64, f64) -> f64,
) -> String {
    let engines = distinct(sizes.iter().flat_map(|(case, _)| saved.engines(case)));
    let line = |(index, engine): (usize, &str)| {
        let point = |(case, bytes): &(&str, f64)| {
            let summary = saved.row(case, engine, metric.name())?.summary()?;
            Some((*bytes, figure(*bytes, summary.median)))
        };
        let mut points: Vec<(f64, f64)> = sizes.iter().filter_map(point).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let class = if is_ours(engine) { "ours".to_owned() } else { format!("s{}", index % 8) };
        (points.len() > 1).then(|| Line { name: engine.to_owned(), class, points })
    };
    let series = engines.into_iter().enumerate().filter_map(line).collect();
    wrap(&Lines { title, unit, scale: Scale::Log, series, band: None }.draw())
}

fn wrap(svg: &str) -> String {
    if svg.is_empty() { String::new() } else { format!("<figure>{svg}</figure>\n") }
}

/// Draws the figures of a case that say where they stand, a plot for each series.
pub(super) fn of_points(saved: &Saved, case: &str) -> String {
    let placed: Vec<(&Point, &SavedRow)> =
        saved.rows_of(case).filter_map(|row| Some((row.point.as_ref()?, row))).collect();
    let quantities = distinct(placed.iter().map(|(point, _)| point.quantity.as_str()));
    let mut html = String::new();
    for quantity in quantities {
        let of: Vec<_> = placed.iter().filter(|(point, _)| point.quantity == quantity).collect();
        // Writing to a string cannot fail.
        let _ = write!(html, "<h3>{}</h3>\n<div class=\"grid\">", escape(quantity));
        for series in distinct(of.iter().map(|(point, _)| point.series.as_str())) {
            let rows: Vec<_> = of.iter().filter(|(point, _)| point.series == series).collect();
            html += &wrap(&series_plot(saved, case, series, &rows));
        }
        html += "</div>\n";
    }
    html
}

fn series_plot(saved: &Saved, case: &str, name: &str, rows: &[&&(&Point, &SavedRow)]) -> String {
    let engines = distinct(rows.iter().map(|(_, row)| row.engine.as_str()));
    let line = |engine: &str| {
        let of = rows.iter().filter(|(_, row)| row.engine == engine);
        let points =
            of.filter_map(|(point, row)| Some((point.block_bytes as f64, row.summary()?.median)));
        let class = if is_ours(engine) { "ours" } else { "theirs" }.to_owned();
        Line { name: engine.to_owned(), class, points: points.collect() }
    };
    let series: Vec<Line> = engines.into_iter().map(line).collect();
    let first = rows.first().map(|(_, row)| *row);
    let ratio = first.and_then(|row| {
        saved.ratios.iter().find(|ratio| ratio.case == case && ratio.metric == row.metric)
    });
    let range = ratio.and_then(|ratio| ratio.source_range);
    let words = ratio.and_then(|ratio| ratio.source_words.as_deref());
    let title = match words {
        Some(words) if words != "–" => format!("{name} (source: {words})"),
        _ => name.to_owned(),
    };
    let band = range.map(|(low, high)| Band { low, high });
    let unit = first.map_or("1", |row| row.unit.as_str());
    Lines { title: &title, unit, scale: Scale::Linear, series, band }.draw()
}
