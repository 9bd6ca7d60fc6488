//! One table of all cases, at the beginning of the report.

use comfy_table::Cell;
use serde::Serialize;

use super::need::Lack;
use nowait_harness::case::itself;
use nowait_harness::measurement::CaseResults;
use nowait_harness::metric::Metric;
use nowait_harness::table::{figure, new_table, right};
use nowait_harness::units;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Skipped {
    pub(crate) case: &'static str,
    /// The name of an engine of the case, or `all`.
    pub(crate) engine: &'static str,
    #[serde(flatten)]
    pub(crate) lack: Lack,
}

/// Number of columns of a case that the table shows; the first one has its ratio, too.
const COLUMNS: usize = 4;

const HEADER: [&str; COLUMNS + 3] =
    ["case", "engine", "throughput", "× itself", "p99", "longest hold-up", "CPU per operation"];

pub(crate) fn text(cases: &[CaseResults], skipped: &[Skipped]) -> String {
    let mut table = new_table(&HEADER);
    for results in cases {
        let (runs, columns) = (&results.runs, results.case.columns);
        for (index, name) in runs.names().enumerate() {
            let case = if index == 0 { results.case.name } else { "" };
            let shown = |metric: Metric| match runs.summary(name, metric) {
                Some(summary) => right(figure(metric, summary.median) + metric.counted()),
                None => right("–"),
            };
            let ratio = runs.ratio((itself(name), columns[0]), (name, columns[0]));
            let ratio = ratio.map_or_else(|| "–".to_owned(), |it| units::digits(it.median));
            let mut row = vec![Cell::new(case), Cell::new(name), shown(columns[0]), right(ratio)];
            row.extend(columns[1..COLUMNS].iter().map(|metric| shown(*metric)));
            table.add_row(row);
        }
    }
    for Skipped { case, engine, .. } in skipped {
        table.add_row([case, engine, "skipped"]);
    }
    format!("{table}\n\n")
}

pub(crate) fn names(columns: &[Metric]) -> Vec<&'static str> {
    columns[..COLUMNS].iter().map(|metric| metric.name()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nowait_harness::case::Case;

    #[test]
    fn every_way_is_a_row_and_so_is_what_was_skipped() {
        let mut results = nowait_harness::testing::sample().cases.remove(0);
        let columns: &[Metric] =
            &[Metric::Iops, Metric::LatencyUsP99, Metric::HeldUpUsMax, Metric::CpuUsPerOperation];
        results.case = Case { columns, ..results.case };
        let skipped = Skipped {
            case: "nginx",
            engine: "all",
            lack: Lack { why: "it is not installed".to_owned(), install: String::new() },
        };
        let text = text(&[results], &[skipped]);
        for part in ["system", "1.00", "2.00", "nginx", "skipped"] {
            assert!(text.contains(part), "{part}: {text}");
        }
    }
}
