//! Figures that stand against the block size, or against the number of what grows.

use serde::Serialize;
use serde_json::Value;

use super::curve::{Curve, Dot, curves};
use super::document::{Document, Row, distinct};
use crate::error::Result;
use crate::metric::Metric;
use crate::units;

/// Curves of cases that differ in their block size, or in a number, only.
#[derive(Debug, Serialize)]
pub(super) struct Family {
    heading: String,
    curves: Vec<Curve>,
}

/// Fewer sizes are no curve.
const SIZES_MIN: usize = 3;

/// The words below an axis of block sizes.
pub(super) const BLOCK_SIZE: &str = "block size";

/// Numbers that grow: the name in the description of the work, and words.
const NUMBERS: [(&str, &str); 4] = [
    ("in_flight", "requests in flight"),
    ("files", "files"),
    ("contexts", "contexts"),
    ("threads", "threads"),
];

/// A drawn quantity: words, metric, unit, and the figure from the place and the median.
type Quantity = (&'static str, Metric, &'static str, fn(f64, f64) -> f64);

const OF_BLOCKS: [Quantity; 2] = [
    ("throughput, in MB/s", Metric::BytesPerS, "1", |_, bytes| bytes / 1e6),
    ("processor time a KiB", Metric::CpuUsPerIo, "us", |bytes, us| us * 1024.0 / bytes),
];

const OF_NUMBERS: [Quantity; 4] = [
    ("requests a second", Metric::Iops, "1/s", |_, median| median),
    ("processor time a request", Metric::CpuUsPerIo, "us", |_, median| median),
    ("memory that the engine adds, in MiB", Metric::MemoryAddedBytes, "1", |_, bytes| {
        bytes / f64::from(1 << 20)
    }),
    ("time inside submit, p99.9", Metric::SubmitUsP999, "us", |_, median| median),
];

/// Draws each family of cases.
///
/// A case names its family in the parameters: `{"case": …, "family": …, "block_bytes": …}`, or its
/// `threads` instead; or its name ends in the size, as in `random-read-64k`, and its work says the
/// same, or in the number of what grows, as in `in-flight-1000`.
pub(super) fn families(saved: &Document) -> Result<Vec<Family>> {
    let placed: Vec<_> =
        saved.cases().into_iter().filter_map(|case| Some((case, place(saved, case)?))).collect();
    let mut families = Vec::new();
    for heading in distinct(placed.iter().map(|(_, (heading, ..))| heading.as_str())) {
        let of = placed.iter().filter(|(_, place)| place.0 == heading);
        let cases: Vec<(&str, f64)> = of.clone().map(|(case, place)| (*case, place.2)).collect();
        let along = of.map(|(_, place)| place.1).next().unwrap_or(BLOCK_SIZE);
        if cases.len() >= SIZES_MIN {
            let curves = curves(&of_family(saved, along, &cases), along)?;
            families.push(Family { heading: heading.to_owned(), curves });
        }
    }
    Ok(families)
}

/// Draws the figures of a case that say where they stand.
pub(super) fn of_points<'a>(saved: &'a Document, case: &str) -> Result<Vec<Curve>> {
    let dot = |row: &'a Row| {
        let point = row.point.as_ref()?;
        let source = saved.ratios_of(case).find(|ratio| ratio.metric == row.metric);
        let words = source.and_then(|ratio| ratio.source_words.as_deref());
        let words = words.map_or(String::new(), |words| format!(" (source: {words})"));
        Some(Dot {
            title: format!("{}: {}, in {}{words}", point.quantity, point.series, row.unit),
            unit: "1",
            engine: &row.engine,
            at: point.block_bytes as f64,
            figure: row.summary?.median,
            range: source.and_then(|ratio| ratio.source_range),
        })
    };
    curves(&saved.rows_of(case).filter_map(dot).collect::<Vec<_>>(), BLOCK_SIZE)
}

/// Returns the heading of the family of a case, what grows in it, and its place there.
fn place(saved: &Document, case: &str) -> Option<(String, &'static str, f64)> {
    if let Some(family) = saved.case_param(case, "family").and_then(Value::as_str) {
        if let Some(threads) = saved.case_param(case, "threads").and_then(Value::as_f64) {
            return Some((format!("the number of threads: {family}"), "threads", threads));
        }
        let bytes = saved.case_param(case, "block_bytes")?.as_f64()?;
        return Some((format!("the block size: {family}"), BLOCK_SIZE, bytes));
    }
    let (family, size) = case.rsplit_once('-')?;
    let size = units::parse_size(size).ok()?;
    let works = saved.case_param(case, "work")?.as_object()?;
    let says = |name: &str| works.values().find_map(|work| field(work, name)) == Some(size);
    let own = family.replace('-', "_");
    if let Some((_, words)) = NUMBERS.iter().find(|(name, _)| *name == own && says(name)) {
        return Some((format!("the number of {words}"), words, size as f64));
    }
    let heading = format!("the block size: {}", family.replace('-', " "));
    says("block_bytes").then_some((heading, BLOCK_SIZE, size as f64))
}

/// Finds a number in the description of some work, wherever it stands in it.
fn field(work: &Value, name: &str) -> Option<u64> {
    let fields = work.as_object()?;
    let own = fields.get(name).and_then(Value::as_u64);
    own.or_else(|| fields.values().find_map(|inner| field(inner, name)))
}

/// Returns the figures of a family; engines in several modes, such as `libaio/batch`, have a
/// drawing for each mode together with those that have none.
fn of_family<'a>(saved: &'a Document, along: &str, cases: &[(&'a str, f64)]) -> Vec<Dot<'a>> {
    let quantities: &[Quantity] = if along == BLOCK_SIZE { &OF_BLOCKS } else { &OF_NUMBERS };
    let engines = distinct(cases.iter().flat_map(|(case, _)| saved.engines(case)));
    let modes = distinct(engines.iter().filter_map(|engine| Some(engine.split_once('/')?.1)));
    let mut dots = Vec::new();
    for mode in if modes.is_empty() { vec![""] } else { modes } {
        let own = |engine: &&&str| engine.split_once('/').is_none_or(|(_, of)| of == mode);
        for (words, metric, unit, figure) in quantities {
            let words = if mode.is_empty() { String::new() } else { format!("{mode}: ") } + words;
            for engine in engines.iter().filter(own) {
                let dot = |(case, at): &(&str, f64)| {
                    let median = saved.row(case, engine, metric.name())?.summary?.median;
                    let (title, at, figure) = (words.clone(), *at, figure(*at, median));
                    Some(Dot { title, unit, engine, at, figure, range: None })
                };
                dots.extend(cases.iter().filter_map(dot));
            }
        }
    }
    dots
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Makes a measurement of three block sizes up.
    fn sizes() -> Document {
        let row = |case: &str, engine: &str, metric: &str| {
            let runs = [5e6];
            json!({"case": case, "engine": engine, "metric": metric, "unit": "", "runs": runs})
        };
        let (mut rows, mut cases) = (Vec::new(), Vec::new());
        for (bytes, size) in [(4096, "4k"), (65536, "64k"), (1 << 20, "1m")] {
            let case = format!("random-read-{size}");
            for engine in ["psync", "nowait/batch", "nowait/minimum"] {
                rows.push(row(&case, engine, "bytes_per_s"));
                rows.push(row(&case, engine, "cpu_us_per_io"));
            }
            let work = json!({"psync": {"transfer": {"block_bytes": bytes}}});
            cases.push(json!({"case": case, "work": work}));
        }
        let file = json!({"schema": 1, "host": {"kernel": "6"}, "workload": "rawio", "rows": rows,
            "params": {"cases": cases}});
        Document::parse(&file.to_string()).expect("well-formed")
    }

    #[test]
    fn cases_of_several_sizes_are_a_curve_for_each_mode() {
        let families = families(&sizes()).expect("drawn");
        assert_eq!(families.len(), 1);
        assert_eq!(families[0].heading, "the block size: random read");
        let curves = &families[0].curves;
        assert_eq!(curves.len(), 4);
        assert!(curves.iter().all(|curve| curve.lines.len() == 2), "{curves:?}");
        assert_eq!(curves[3].title, "minimum: processor time a KiB");
        assert!(curves[0].svg.contains("1 MiB") && curves[0].svg.contains("#1F77D0"), "ours");
    }
}
