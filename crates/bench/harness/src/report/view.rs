//! A document as the template of the page asks for it: case by case, metric by metric.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::curve::Curve;
use super::document::{Document, RatioRow, Row, distinct};
use super::family;
use crate::error::Result;
use crate::metric::{Better, Metric};
use crate::{table, verdict};

/// A case and its figures.
#[derive(Debug, Serialize)]
pub(super) struct Case<'a> {
    name: &'a str,
    params: Option<&'a Value>,
    metrics: BTreeMap<&'a str, Figures<'a>>,
    ratios: Vec<&'a RatioRow>,
    curves: Vec<Curve>,
}

/// A metric of each engine of a case.
#[derive(Debug, Serialize)]
struct Figures<'a> {
    label: &'a str,
    unit: &'a str,
    better: Better,
    scale: Scale,
    rows: Vec<&'a Row>,
    medians: BTreeMap<&'a str, f64>,
}

/// The range of a strip: from zero, or logarithmic.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Scale {
    log: bool,
    least: f64,
    most: f64,
}

/// The first table of a page: a column for each of [`COLUMNS`] that any case has.
#[derive(Debug, Serialize)]
pub(super) struct Overview<'a> {
    columns: Vec<&'static str>,
    rows: Vec<Against<'a>>,
    better: usize,
    worse: usize,
    unclear: usize,
}

/// An engine of nowait against a peer.
#[derive(Debug, Serialize)]
struct Against<'a> {
    case: &'a str,
    ours: &'a str,
    peer: &'a str,
    cells: BTreeMap<&'static str, Change<'a>>,
}

/// A figure of nowait against that of the peer.
#[derive(Debug, Serialize)]
struct Change<'a> {
    unit: &'a str,
    /// Words behind a count, such as `/s`.
    counted: &'static str,
    peer: f64,
    ours: f64,
    words: String,
    /// The interval of the factor that the words name.
    low: f64,
    high: f64,
    /// `None`: these runs cannot tell.
    is_better: Option<bool>,
}

/// The columns of the first table, each with the first of its metrics that a case has.
const COLUMNS: [(&str, &[Metric]); 5] = [
    ("Throughput", &[Metric::TransactionsPerS, Metric::Iops, Metric::BytesPerS]),
    ("Time inside submit", &[Metric::SubmitUsMean, Metric::SubmitUsP50]),
    ("Longest hold-up", &[Metric::HeldUpUsMax]),
    ("Latency, 99 %", &[Metric::LatencyUsP99]),
    ("Processor time", &[Metric::CpuUsPerOperation, Metric::CpuUsPerIo]),
];

/// Peers in the order in which a case is compared with one of them.
const PEERS: [&str; 6] = ["system", "posixaio", "psync", "libaio", "qemu-native", "nbdkit"];

/// Returns `true` if figures of this name are nowait's own.
pub(super) fn is_ours(engine: &str) -> bool {
    engine.starts_with("nowait") || engine.starts_with("libaio-nowait") || engine == "vector"
}

/// Returns `true` if an engine has a call that only submits.
fn submits(engine: &str) -> bool {
    !["psync", "preadv2-nowait", "memcpy", "mmap"].contains(&engine)
}

/// Returns the cases in the order of the file.
pub(super) fn cases(saved: &Document) -> Result<Vec<Case<'_>>> {
    let case = |name| {
        Ok(Case {
            name,
            params: saved.case_params(name),
            metrics: metrics(saved, name),
            ratios: saved.ratios_of(name).collect(),
            curves: family::of_points(saved, name)?,
        })
    };
    saved.cases().into_iter().map(case).collect()
}

fn metrics<'a>(saved: &'a Document, case: &str) -> BTreeMap<&'a str, Figures<'a>> {
    let mut metrics: BTreeMap<&str, Vec<&Row>> = BTreeMap::new();
    // The time inside submit says nothing of a synchronous call, and of a server's client only
    // what the client needs.
    let is_told = |row: &&Row| {
        let is_submit = row.metric.starts_with("submit");
        row.summary.is_some() && (!is_submit || submits(&row.engine) && saved.workload != "serve")
    };
    for row in saved.rows_of(case).filter(is_told) {
        metrics.entry(&row.metric).or_default().push(row);
    }
    metrics.into_iter().map(|(metric, rows)| (metric, figures(metric, rows))).collect()
}

fn figures<'a>(metric: &str, of: Vec<&'a Row>) -> Figures<'a> {
    let log = of[0].unit == "us" && !metric.starts_with("cpu");
    let median = |row: &&'a Row| Some((row.engine.as_str(), row.summary?.median));
    Figures {
        label: of[0].label(),
        unit: &of[0].unit,
        better: of[0].better(),
        scale: Scale::over(log, &of),
        medians: of.iter().filter_map(median).collect(),
        rows: of,
    }
}

impl Scale {
    fn over(log: bool, rows: &[&Row]) -> Self {
        // The harness alone is so much faster that all others would be one heap.
        let drawn = rows.iter().filter(|row| log || row.engine != "null");
        let runs: Vec<f64> = drawn.flat_map(|row| row.runs()).collect();
        let least = runs.iter().copied().filter(|run| log && *run > 0.0).reduce(f64::min);
        let most = runs.iter().copied().reduce(f64::max);
        Self { log, least: least.unwrap_or(0.0), most: most.unwrap_or(0.0) }
    }

    /// Returns the place of a value in percent of a strip, whose edges stay free.
    pub(super) fn place(&self, value: f64) -> f64 {
        let share = match self.log {
            _ if self.most <= self.least => 0.5,
            true => (value.max(self.least) / self.least).ln() / (self.most / self.least).ln(),
            false => value / self.most,
        };
        (20.0 + 960.0 * share.clamp(0.0, 1.0)).round() / 10.0
    }
}

/// Compares nowait with a peer in each case.
pub(super) fn overview<'a>(cases: &[Case<'a>]) -> Overview<'a> {
    let against = |case: &Case<'a>| {
        let row = |(peer, ours)| {
            let cell = |(name, metrics): (&'static str, &[Metric])| {
                Some((name, metrics.iter().find_map(|metric| case.change(peer, ours, *metric))?))
            };
            let cells = COLUMNS.into_iter().filter_map(cell).collect();
            Against { case: case.name, ours, peer, cells }
        };
        pairs(&case.ratios).into_iter().map(row).collect::<Vec<_>>()
    };
    let rows: Vec<Against<'_>> = cases.iter().flat_map(against).collect();
    let names = COLUMNS.into_iter().map(|(name, _)| name);
    let columns = names.filter(|name| rows.iter().any(|row| row.cells.contains_key(name)));
    let columns = columns.collect();
    let all = rows.iter().flat_map(|row| row.cells.values());
    let count = |verdict| all.clone().filter(|cell| cell.is_better == verdict).count();
    let [better, worse, unclear] = [Some(true), Some(false), None].map(count);
    Overview { columns, rows, better, worse, unclear }
}

impl<'a> Case<'a> {
    /// Returns a figure of ours against that of a peer, unless the case names others for this.
    fn change(&self, peer: &str, ours: &str, metric: Metric) -> Option<Change<'a>> {
        let told = self.params.and_then(|params| params.get("overview")?.as_array());
        if told.is_some_and(|told| told.iter().all(|name| name != metric.name())) {
            return None;
        }
        let figures = self.metrics.get(metric.name())?;
        let is = |one: &&&RatioRow| one.metric == metric.name() && one.a == peer && one.b == ours;
        let ratio = self.ratios.iter().find(is)?.ratio()?;
        let is_better = verdict::is_better(metric, &ratio);
        let is_less = is_better.is_some() && ratio.median < 1.0;
        Some(Change {
            unit: figures.unit,
            counted: metric.counted(),
            peer: *figures.medians.get(peer)?,
            ours: *figures.medians.get(ours)?,
            words: table::change_text(&ratio),
            low: if is_less { 1.0 / ratio.high } else { ratio.low },
            high: if is_less { 1.0 / ratio.low } else { ratio.high },
            is_better,
        })
    }
}

/// Returns peers, each with the first engine of nowait that is compared with it.
///
/// The peer of an engine is the same program by itself, such as `posixaio` for `nowait-posixaio`,
/// or else the first of [`PEERS`].
fn pairs<'a>(ratios: &[&'a RatioRow]) -> Vec<(&'a str, &'a str)> {
    let mut pairs: Vec<(&str, &str)> = Vec::new();
    let judged = ratios.iter().filter(|ratio| is_ours(&ratio.b) && !is_ours(&ratio.a));
    let judged: Vec<(&str, &str)> = judged.map(|one| (one.a.as_str(), one.b.as_str())).collect();
    for ours in distinct(judged.iter().map(|(_, ours)| *ours)) {
        let peers = judged.iter().filter(|(_, of)| *of == ours).map(|(peer, _)| *peer);
        let place = |peer: &&str| match ours.ends_with(*peer) {
            true => 0,
            false => 1 + PEERS.iter().position(|known| known == peer).unwrap_or(PEERS.len()),
        };
        let peer = peers.min_by_key(place);
        let is_new = |peer: &&str| pairs.iter().all(|(known, _)| known != peer);
        pairs.extend(peer.filter(is_new).map(|peer| (peer, ours)));
    }
    pairs
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stats::Ratio;

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
    fn a_strip_begins_at_zero_or_spans_its_figures() {
        let linear = Scale { log: false, least: 0.0, most: 8.0 };
        assert_eq!([0.0, 4.0, 8.0, 9.0].map(|value| linear.place(value)), [2.0, 50.0, 98.0, 98.0]);
        let log = Scale { log: true, least: 1.0, most: 100.0 };
        assert_eq!([0.0, 1.0, 10.0, 100.0].map(|value| log.place(value)), [2.0, 2.0, 50.0, 98.0]);
        assert_eq!(Scale { log: true, least: 3.0, most: 3.0 }.place(3.0), 50.0);
    }

    #[test]
    fn a_program_is_compared_with_itself_and_others_with_the_first_known_peer() {
        let ratio = |(a, b): (&str, &str)| {
            let ratio = Ratio { median: 2.0, low: 2.0, high: 2.0, rounds: vec![2.0; 5] };
            RatioRow::of("a", Metric::Iops, (a, b), ratio)
        };
        let pairs_of = |names: &[(&str, &str)]| {
            let ratios: Vec<RatioRow> = names.iter().copied().map(ratio).collect();
            let pairs = pairs(&ratios.iter().collect::<Vec<_>>());
            pairs.iter().map(|(peer, ours)| format!("{ours}/{peer}")).collect::<Vec<_>>().join(" ")
        };
        let programs = [
            ("system", "nowait"),
            ("io_uring", "nowait"),
            ("system", "nowait-posixaio"),
            ("posixaio", "nowait-posixaio"),
            ("system", "nowait-no-uring"),
        ];
        assert_eq!(pairs_of(&programs), "nowait/system nowait-posixaio/posixaio");
        assert_eq!(pairs_of(&[("mmap", "nowait"), ("psync", "nowait")]), "nowait/psync");
        assert_eq!(pairs_of(&[("system", "io_uring"), ("nowait", "system")]), "");
    }
}
