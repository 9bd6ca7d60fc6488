//! What came out, as a table and as JSON.

use std::fmt::Write as _;
use std::ops::Range;

use comfy_table::Cell;
use serde::Serialize;

use super::{CASE, MixedArgs, SERVERS};
use crate::error::Result;
use crate::host::Host;
use crate::metric::{Metric, Sample};
use crate::report::{Document, RatioRow, Row, SCHEMA};
use crate::stats;
use crate::table::{change_text, new_table, right, with_spread};
use crate::verdict;

const COLUMNS: [Metric; 3] = [Metric::Iops, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo];

/// What came out, by server.
pub(super) struct Results {
    /// One a round.
    pub(super) samples: Vec<Vec<Sample>>,
    /// How often the timer was seen.
    pub(super) ticks: Vec<u64>,
}

impl Results {
    fn of(&self, server: usize, metric: Metric) -> Vec<f64> {
        self.samples[server].iter().filter_map(|sample| sample.get(&metric).copied()).collect()
    }
}

/// Prints a table, and how the servers compare with the first.
pub(super) fn text(results: &Results) -> String {
    let mut table = new_table(&["server", "requests/s", "CPU each", "switches each", "ticks"]);
    for (index, (name, _)) in SERVERS.iter().enumerate() {
        let mut row = vec![Cell::new(name)];
        row.extend(COLUMNS.map(|metric| {
            let summary = stats::summarize(&results.of(index, metric));
            right(summary.map_or("–".to_owned(), |it| with_spread(metric, &it)))
        }));
        row.push(right(results.ticks[index]));
        table.add_row(row);
    }
    let mut text = table.to_string();
    for (index, (name, _)) in SERVERS.iter().enumerate().skip(1) {
        for metric in COLUMNS {
            let ratio = stats::ratio(&results.of(0, metric), &results.of(index, metric));
            if let Some(ratio) = ratio {
                let (label, change) = (metric.label(), change_text(&ratio));
                let ratio = verdict::ratio_text(&ratio);
                // Writing to a string cannot fail.
                let _ = write!(text, "\n{label} of {name}: {ratio} epoll's: {change}");
            }
        }
    }
    text
}

#[derive(Serialize)]
struct Params {
    rounds: u16,
    runtime_s: f64,
    size_bytes: u64,
    sockets: u16,
    threads: u16,
    /// State of the page cache before each run.
    page_cache: &'static str,
    cases: [CaseParams; 1],
}

#[derive(Serialize)]
struct CaseParams {
    case: &'static str,
    title: String,
    about: &'static str,
}

/// Writes the reports asked for.
///
/// # Errors
/// One of them cannot be written.
pub(super) fn write(args: &MixedArgs, results: &Results) -> Result<()> {
    let metrics = [&COLUMNS[..], &[Metric::RssBytesMax]].concat();
    let row = |server: usize, metric| {
        Row::of(CASE, SERVERS[server].0, metric, results.of(server, metric))
    };
    let ratio = |(server, metric): (usize, Metric)| {
        let (epoll, nowait) = (results.of(0, metric), results.of(server, metric));
        RatioRow::of(CASE, metric, (SERVERS[0].0, &epoll), (SERVERS[server].0, &nowait))
    };
    let rows = |servers: Range<usize>| {
        servers.flat_map(|server| metrics.iter().map(move |metric| (server, *metric)))
    };
    let title = format!("{} sockets, a file and a timer", args.sockets);
    let about = "A request is the number of a block, the answer is the block. Client and server \
                 are in one process, whose memory is both's; what the client uses of the processor \
                 is not counted.";
    let document = Document {
        schema: SCHEMA,
        host: &Host::describe(&args.dir, "none"),
        workload: "mixed",
        params: Params {
            rounds: args.rounds,
            runtime_s: args.runtime.as_secs_f64(),
            size_bytes: args.size,
            sockets: args.sockets,
            threads: args.threads,
            page_cache: "pages of the file dropped before each run",
            cases: [CaseParams { case: CASE, title, about }],
        },
        rows: rows(0..SERVERS.len()).filter_map(|(server, metric)| row(server, metric)).collect(),
        ratios: rows(1..SERVERS.len()).filter_map(ratio).collect(),
        verdicts: Vec::new(),
        notes: &[],
    };
    args.reports.write(&document)
}
