//! Throughput and processor time against the block size, or against the number of what grows, where
//! a file has several of them.

use std::fmt::Write;

use serde_json::Value;

use super::{figure, is_ours};
use crate::metric::Metric;
use crate::report::document::{Document, Point, Row, distinct};
use crate::report::plot::{Along, Band, Line, Lines, Scale, escape};
use crate::units;

/// Fewer sizes are no curve.
const SIZES_MIN: usize = 3;

/// A case and the bytes of its blocks, or the number of what grows.
type Sized<'a> = (&'a str, f64);

/// What grows, by its name in the description of some work, and in words.
const NUMBERS: [(&str, &str); 4] = [
    ("in_flight", "requests in flight"),
    ("files", "files"),
    ("contexts", "contexts"),
    ("threads", "threads"),
];

/// Prints every family of cases that differ in their block size, or in a number, only.
///
/// A case names its family in the parameters: `{"case": …, "family": …, "block_bytes": …}`; or its
/// name ends in the size, as in `random-read-64k`, and its work says the same. So it is with what
/// grows, as in `in-flight-1000`. Simulated figures have their place in the row itself.
pub(super) fn sections(saved: &Document) -> String {
    let mut families: Vec<(String, Along, Vec<Sized<'_>>)> = Vec::new();
    for case in saved.cases() {
        let Some((family, along, at)) = place(saved, case) else { continue };
        match families.iter_mut().find(|known| known.0 == family) {
            Some((.., cases)) => cases.push((case, at)),
            None => families.push((family, along, vec![(case, at)])),
        }
    }
    let curves = families.iter().filter(|(.., cases)| cases.len() >= SIZES_MIN);
    curves.map(|(family, along, cases)| section(saved, (family, *along), cases)).collect()
}

/// Returns the family of a case, what it is held against, and where it stands there.
fn place(saved: &Document, case: &str) -> Option<(String, Along, f64)> {
    if let Some(family) = saved.case_param(case, "family").and_then(Value::as_str) {
        let bytes = saved.case_param(case, "block_bytes")?.as_f64()?;
        return Some((family.to_owned(), Along::BlockBytes, bytes));
    }
    let (family, size) = case.rsplit_once('-')?;
    let size = units::parse_size(size).ok()?;
    let works = saved.case_param(case, "work")?.as_object()?;
    let says = |name: &str| works.values().find_map(|work| field(work, name)) == Some(size);
    let own = family.replace('-', "_");
    if let Some((_, words)) = NUMBERS.iter().find(|(name, _)| *name == own && says(name)) {
        return Some((family.replace('-', " "), Along::Number(words), size as f64));
    }
    says("block_bytes").then(|| (family.replace('-', " "), Along::BlockBytes, size as f64))
}

/// Finds a number in the description of some work, wherever it stands in it.
fn field(work: &Value, name: &str) -> Option<u64> {
    let fields = work.as_object()?;
    let own = fields.get(name).and_then(Value::as_u64);
    own.or_else(|| fields.values().find_map(|inner| field(inner, name)))
}

/// What is drawn against a number.
const OF_NUMBERS: [(&str, Metric); 4] = [
    ("requests a second", Metric::Iops),
    ("processor time a request", Metric::CpuUsPerIo),
    ("memory that the engine adds", Metric::MemoryAddedBytes),
    ("time inside submit, p99.9", Metric::SubmitUsP999),
];

/// Prints a family; engines in several modes, such as `libaio/batch`, have a plot for each mode
/// together with those that have none.
fn section(saved: &Document, (family, along): (&str, Along), cases: &[Sized<'_>]) -> String {
    let engines = distinct(cases.iter().flat_map(|(case, _)| saved.engines(case)));
    let modes = distinct(engines.iter().filter_map(|engine| Some(engine.split_once('/')?.1)));
    let modes = if modes.is_empty() { vec![""] } else { modes };
    let per_kib = |bytes: f64, figure: f64| figure * 1024.0 / bytes;
    let mut plots = String::new();
    for mode in modes {
        let own = |engine: &&str| engine.split_once('/').is_none_or(|(_, of)| of == mode);
        let engines: Vec<&str> = engines.iter().copied().filter(own).collect();
        let of = |title: &str| {
            if mode.is_empty() { title.to_owned() } else { format!("{mode}: {title}") }
        };
        let family = Family { saved, along, cases, engines: &engines };
        if along != Along::BlockBytes {
            for (title, metric) in OF_NUMBERS {
                plots += &family.lines(&of(title), metric.unit(), metric, |_, figure| figure);
            }
            continue;
        }
        let title = of("throughput, in MB/s");
        plots += &family.lines(&title, "MB/s", Metric::BytesPerS, |_, bytes| bytes / 1e6);
        let title = of("processor time a KiB");
        plots += &family.lines(&title, "us", Metric::CpuUsPerIo, per_kib);
    }
    let against = match along {
        Along::BlockBytes => format!("the block size: {}", escape(family)),
        Along::Number(words) => format!("the number of {words}"),
    };
    format!(
        "<section>\n<h2>Against {against}</h2>\n<div class=\"grid\">{plots}</div>\n\
         </section>\n"
    )
}

/// What is drawn of a family.
struct Family<'a> {
    saved: &'a Document,
    along: Along,
    cases: &'a [Sized<'a>],
    engines: &'a [&'a str],
}

impl Family<'_> {
    /// Draws a metric; `figure` makes what is drawn of the block size and the median.
    fn lines(
        &self,
        title: &str,
        unit: &str,
        metric: Metric,
        figure: impl Fn(f64, f64) -> f64,
    ) -> String {
        let ours = self.engines.iter().copied().find(|engine| is_ours(engine));
        let line = |(index, engine): (usize, &&str)| {
            let point = |(case, bytes): &Sized<'_>| {
                let summary = self.saved.row(case, engine, metric.name())?.summary()?;
                Some((*bytes, figure(*bytes, summary.median)))
            };
            let mut points: Vec<(f64, f64)> = self.cases.iter().filter_map(point).collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            // Blue is the first of ours; its relatives are distinguished like all others.
            let is_first = Some(*engine) == ours;
            let class = if is_first { "ours".to_owned() } else { format!("s{}", index % 8) };
            let name = engine.split('/').next().unwrap_or(engine).to_owned();
            (points.len() > 1).then_some(Line { name, class, points })
        };
        let series = self.engines.iter().enumerate().filter_map(line).collect();
        let (scale, along) = (Scale::Log, self.along);
        super::figure(&Lines { title, unit, scale, along, series, band: None }.draw())
    }
}

/// Draws the figures of a case that say where they stand, a plot for each series.
pub(super) fn of_points(saved: &Document, case: &str) -> String {
    let placed: Vec<(&Point, &Row)> =
        saved.rows_of(case).filter_map(|row| Some((row.point.as_ref()?, row))).collect();
    let quantities = distinct(placed.iter().map(|(point, _)| point.quantity.as_str()));
    let mut html = String::new();
    for quantity in quantities {
        let of: Vec<_> = placed.iter().filter(|(point, _)| point.quantity == quantity).collect();
        // Writing to a string cannot fail.
        let _ = write!(html, "<h3>{}</h3>\n<div class=\"grid\">", escape(quantity));
        for series in distinct(of.iter().map(|(point, _)| point.series.as_str())) {
            let rows: Vec<_> = of.iter().filter(|(point, _)| point.series == series).collect();
            html += &figure(&series_plot(saved, case, series, &rows));
        }
        html += "</div>\n";
    }
    html
}

fn series_plot(saved: &Document, case: &str, name: &str, rows: &[&&(&Point, &Row)]) -> String {
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
        Some(words) => format!("{name} (source: {words})"),
        _ => name.to_owned(),
    };
    let band = range.map(|(low, high)| Band { low, high });
    let unit = first.map_or("1", |row| row.unit.as_str());
    let (scale, along) = (Scale::Linear, Along::BlockBytes);
    Lines { title: &title, unit, scale, along, series, band }.draw()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn cases_of_several_sizes_are_a_curve_for_each_mode() {
        let sizes = [(4096, "4k"), (65536, "64k"), (1 << 20, "1m")];
        let row = |case: &str, engine: &str, metric: &str| {
            let runs = [5e6];
            json!({"case": case, "engine": engine, "metric": metric, "unit": "", "runs": runs})
        };
        let (mut rows, mut cases) = (Vec::new(), Vec::new());
        for (bytes, size) in sizes {
            let case = format!("random-read-{size}");
            for engine in ["psync", "nowait/batch", "nowait/minimum"] {
                rows.push(row(&case, engine, "bytes_per_s"));
                rows.push(row(&case, engine, "cpu_us_per_io"));
            }
            let work = json!({"psync": {"transfer": {"block_bytes": bytes}}});
            cases.push(json!({"case": case, "work": work}));
        }
        let file = json!({
            "schema": 1, "host": {"kernel": "6"}, "workload": "rawio", "rows": rows,
            "params": {"cases": cases},
        });
        let html = sections(&Document::parse(&file.to_string()).expect("well-formed"));
        assert_eq!(html.matches("<svg").count(), 4, "{html}");
        assert_eq!(html.matches("<polyline").count(), 8);
        assert!(html.contains("random read") && html.contains("minimum: processor time a KiB"));
    }
}
