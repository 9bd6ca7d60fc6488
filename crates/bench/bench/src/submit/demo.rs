//! `bench demo`: the main point in one table, for a reader who has never heard of nowait.

use std::fmt::Write;
use std::time::Duration;

use comfy_table::Cell;

use super::SIZE_BYTES_MIN;
use super::args::DemoArgs;
use super::cases::{cases, subject};
use super::suite::{self, Extra, Plan};
use crate::args::{Extent, at_least};
use crate::error::Result;
use crate::fio::{Fio, Launch};
use crate::interrupt;
use crate::measurement::{CaseResults, Measurement};
use crate::metric::Metric;
use crate::report::ReportArgs;
use crate::table::{change_cell, figure, new_table, right};

/// The cases shown: reads that wait for the disk, and the mixed job of 2012.
const SHOWN: [&str; 2] = ["a", "b"];

/// The longest run; the budget may shorten it.
const RUNTIME: Duration = Duration::from_secs(2);

/// The lines of the demo, in the words of a reader who does not know the field.
const LINES: [(Metric, &str); 5] = [
    (Metric::SubmitUsMean, "stuck inside io_submit, mean"),
    (Metric::SubmitUsP999, "stuck inside io_submit, worst 1 in 1000"),
    (Metric::Iops, "requests done per second"),
    (Metric::CpuUsPerIo, "CPU time per request"),
    (Metric::ContextSwitchesPerIo, "context switches per request"),
];

/// Runs an unmodified fio with and without nowait, prints one table, and writes the report.
///
/// # Errors
/// Something is missing, a run failed, or the report cannot be written.
pub(crate) fn run_demo(args: &DemoArgs) -> Result<Measurement> {
    interrupt::install();
    let (plan, html) = (plan(args)?, Some(args.html.clone()));
    let reports = ReportArgs { json: args.json.clone(), html };
    reports.prepare()?;
    reports.say(&introduction(&plan));
    let mut shown = cases("submit");
    shown.retain(|case| SHOWN.contains(&case.name));
    for case in &mut shown {
        let job = case.subjects[0].job.1;
        case.subjects = [Launch::System, Launch::Nowait].map(|way| subject(way, job)).to_vec();
    }
    let measurement = suite::measure(&plan, shown)?;
    reports.say(&table(&measurement));
    measurement.write(&reports)?;
    Ok(measurement)
}

fn plan(args: &DemoArgs) -> Result<Plan> {
    let size_bytes = at_least(args.size, SIZE_BYTES_MIN)?;
    Ok(Plan {
        workload: "demo",
        extent: Extent { rounds: 5, runtime: RUNTIME, size_bytes },
        cached_bytes: 0,
        fresh_bytes: 0,
        folder: args.disk.dir.clone(),
        memory_folder: args.places.tmpfs.clone(),
        drop_caches: args.disk.drops_caches(),
        keep: false,
        budget: Some(args.budget),
        fio: Fio::find(&args.places.fio, Some(args.places.preload()?))?,
        extra: Extra::default(),
    })
}

fn introduction(plan: &Plan) -> String {
    format!(
        "The same {}, its stock libaio engine, ordinary buffered files in {}:\n\
         once on the system's libaio, once with nowait preloaded; {} rounds, alternating.\n\
         The page cache is dropped before each run. This takes about a minute.\n",
        plan.fio.version,
        plan.folder.display(),
        plan.extent.rounds
    )
}

/// Prints the one table of the demo.
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
