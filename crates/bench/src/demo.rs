//! `bench demo`: the main point in one table, for somebody who has never heard of nowait.

use std::time::Duration;

use crate::args::{DemoArgs, at_least};
use crate::error::Result;
use crate::fio::Fio;
use crate::interrupt;
use crate::job::{CASES, Case};
use crate::report::{self, ReportArgs};
use crate::results::Results;
use crate::subject::Subject;
use crate::submit::SIZE_BYTES_MIN;
use crate::suite::{self, Plan};
use crate::table;

/// The cases shown: reads that wait for the disk, and the mixed job of 2012.
const SHOWN: [&str; 2] = ["a", "b"];

/// The longest run; the budget may shorten it.
const RUNTIME: Duration = Duration::from_secs(2);

/// Runs an unmodified fio with and without nowait, prints one table, and writes the report.
///
/// # Errors
/// Something is missing, a run failed, or the report cannot be written.
pub fn run_demo(args: &DemoArgs) -> Result<Results> {
    let (plan, html) = (plan(args)?, Some(args.html.clone()));
    let reports = ReportArgs { json: args.json.clone(), html };
    reports.prepare()?;
    reports.say(&introduction(&plan));
    let results = suite::measure(&plan)?;
    reports.say(&table::demo(&results));
    report::write_results(&results, &reports)?;
    interrupt::check()?;
    Ok(results)
}

fn plan(args: &DemoArgs) -> Result<Plan> {
    let pair = |case: &'static Case| (case, vec![Subject::System, Subject::Nowait]);
    let shown = CASES.iter().filter(|case| SHOWN.contains(&case.name));
    Ok(Plan {
        workload: "demo",
        cases: shown.map(pair).collect(),
        rounds: 5,
        runtime: RUNTIME,
        cold_bytes: at_least(args.size, SIZE_BYTES_MIN)?,
        cached_bytes: 0,
        fresh_bytes: 0,
        folder: args.disk.dir.clone(),
        memory_folder: args.places.tmpfs.clone(),
        drop_caches: args.disk.drops_caches(),
        keep: false,
        budget: Some(args.budget),
        fio: Fio::find(&args.places.fio, Some(args.places.preload()?))?,
    })
}

fn introduction(plan: &Plan) -> String {
    format!(
        "The same {}, its stock libaio engine, ordinary buffered files in {}:\n\
         once on the system's libaio, once with nowait preloaded; {} rounds, alternating.\n\
         The page cache is dropped before each run. This takes about a minute.\n",
        plan.fio.version,
        plan.folder.display(),
        plan.rounds
    )
}
