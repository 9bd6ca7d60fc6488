//! `bench demo`: the effect of nowait in one table, for a reader who does not know nowait.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::Cell;

use nowait_harness::args::{Extent, at_least};
use nowait_harness::error::Result;
use nowait_harness::measurement::{CaseResults, Measurement};
use nowait_harness::metric::Metric;
use nowait_harness::report::ReportArgs;
use nowait_harness::suite;
use nowait_harness::table::{change_cell, figure, new_table, right};

use super::SIZE_BYTES_MIN;
use super::args::DemoArgs;
use super::job::{FioCase, cases};
use super::suite::{FioSuite, Plan};

const SHOWN: [&str; 2] = ["a", "b"];

/// The longest time of a run. The budget may shorten it.
const RUNTIME: Duration = Duration::from_secs(2);

const LINES: [(Metric, &str); 5] = [
    (Metric::SubmitUsMean, "stuck inside io_submit, mean"),
    (Metric::SubmitUsP999, "stuck inside io_submit, worst 1 in 1000"),
    (Metric::Iops, "requests done per second"),
    (Metric::CpuUsPerIo, "CPU time per request"),
    (Metric::ContextSwitchesPerIo, "context switches per request"),
];

pub(crate) fn run_demo(args: &DemoArgs) -> Result<Measurement> {
    let reports = ReportArgs { json: args.json.clone(), html: Some(args.html.clone()) };
    reports.prepare()?;
    let size_bytes = at_least(args.size, SIZE_BYTES_MIN)?;
    let extent = Extent { rounds: 5, runtime: RUNTIME, size_bytes };
    let mut shown: Vec<FioCase> = cases("submit");
    shown.retain(|case| SHOWN.contains(&case.name));
    for case in &mut shown {
        case.subjects.retain(|subject| ["system", "nowait"].contains(&subject.name));
    }
    let plan = Plan {
        workload: "demo",
        cached_bytes: 0,
        fresh_bytes: 0,
        keep: false,
        budget: Some(args.budget),
        parity: None,
    };
    let mut suite = FioSuite::new(plan, &shown, &args.disk, &args.places, &extent)?;
    reports.say(&format!(
        "The same {}, its stock libaio engine, ordinary buffered files in {}:\n\
         once on the system's libaio, once with nowait preloaded; {} rounds, alternating.\n\
         The page cache is dropped before each run. This takes about a minute.\n",
        suite.fio.version,
        args.disk.dir.display(),
        extent.rounds
    ));
    let measurement = suite::measure(&mut suite, shown, extent)?;
    reports.say(&table(&measurement));
    measurement.write(&reports)?;
    Ok(measurement)
}

fn table(measurement: &Measurement) -> String {
    let mut text = String::new();
    let mut table = new_table(&["", "without nowait", "with nowait", "what changes"]);
    for case in &measurement.cases {
        table.add_row([&case.case.title]);
        for (metric, words) in LINES {
            table.add_row(row(case, metric, words));
        }
    }
    let _ = writeln!(text, "{table}");
    let _ = writeln!(text, "io_submit is the call that is meant to start requests and return.");
    for note in &measurement.notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

fn row(case: &CaseResults, metric: Metric, words: &str) -> Vec<Cell> {
    let (system, nowait) = ("system", "nowait");
    let cell = |subject| match case.runs.summary(subject, metric) {
        Some(summary) => right(figure(metric, summary.median)),
        None => right("–"),
    };
    let change = case.runs.ratio((system, metric), (nowait, metric));
    let words = Cell::new(format!("  {words}"));
    vec![words, cell(system), cell(nowait), change_cell(metric, change.as_ref())]
}
