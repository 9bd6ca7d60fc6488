//! The verdict on a cell of parity, and the table of all cells.

use std::fmt::Write;

use comfy_table::{Cell, Color};

use nowait_harness::case::Target;
use nowait_harness::measurement::{CaseResults, Measurement, Params};
use nowait_harness::metric::Metric;
use nowait_harness::stats::Ratio;
use nowait_harness::table::{figure, new_table, right};
use nowait_harness::units;

use super::job::FioCase;

#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    pub(crate) iops_min: f64,
    /// `None` beside busy loops, which take caches and processors away: processor time is not
    /// judged then.
    pub(crate) cpu_max: Option<f64>,
}

impl Limits {
    pub(crate) fn beside(busy: usize) -> Self {
        match busy {
            0 => Self { iops_min: 0.97, cpu_max: Some(1.10) },
            _ => Self { iops_min: 0.95, cpu_max: None },
        }
    }

    pub(crate) fn targets(self, case: &FioCase) -> Vec<Target> {
        let ours = case.subjects.iter().filter(|subject| subject.job.engine.preloads());
        let of = |name| {
            let iops = Target::at_least(Metric::Iops, name, self.iops_min, "system");
            let cpu = |max| Target::at_most(Metric::CpuUsPerIo, name, max, "system");
            [Some(iops), self.cpu_max.map(cpu)].into_iter().flatten()
        };
        ours.flat_map(|subject| of(subject.name)).collect()
    }

    fn judge(self, iops: f64, cpu: f64) -> &'static str {
        match (iops < self.iops_min, self.cpu_max.is_some_and(|max| cpu > max)) {
            (false, false) => OK,
            (true, false) => "slower",
            (false, true) => "dearer",
            (true, true) => "slower, dearer",
        }
    }

    fn verdicts(self, case: &CaseResults) -> impl Iterator<Item = (&'static str, &'static str)> {
        let judge = move |engine| {
            let median = |metric| ratio(case, metric, engine).map(|ratio| ratio.median);
            let (iops, cpu) = (median(Metric::Iops)?, median(Metric::CpuUsPerIo)?);
            Some((engine, self.judge(iops, cpu)))
        };
        case.runs.names().filter(|name| is_ours(name)).filter_map(judge)
    }

    /// Returns how many verdicts are not `ok`; a cell has a verdict for each engine of nowait.
    pub(crate) fn lost(self, measurement: &Measurement) -> usize {
        let verdicts = measurement.cases.iter().flat_map(|case| self.verdicts(case));
        verdicts.filter(|(_, verdict)| *verdict != OK).count()
    }

    pub(crate) fn record(self, case: &mut CaseResults) {
        let verdicts = self.verdicts(case);
        let judged: Params =
            verdicts.map(|(engine, verdict)| (engine.to_owned(), verdict.into())).collect();
        if !judged.is_empty() {
            case.params.insert("verdict".to_owned(), judged.into());
        }
    }

    pub(crate) fn table(self, measurement: &Measurement) -> String {
        let mut table = new_table(&["cell", "IOPS", "IOPS ×", "CPU ×", "submit ×", "verdict"]);
        for case in &measurement.cases {
            table.add_row([case.case.name]);
            for engine in case.runs.names() {
                let iops = case.runs.summary(engine, Metric::Iops);
                let iops = iops.map_or_else(String::new, |it| figure(Metric::Iops, it.median));
                let of = |metric| right(interval(ratio(case, metric, engine).as_ref()));
                let submit = ratio(case, Metric::SubmitUsMean, engine);
                let submit = submit.map_or_else(String::new, |it| units::digits(it.median));
                let verdict = self.verdicts(case).find(|(name, _)| *name == engine);
                let verdict = verdict.map_or("", |(_, verdict)| verdict);
                let colour = if verdict == OK { Color::Green } else { Color::Red };
                table.add_row([
                    Cell::new(format!("  {engine}")),
                    right(iops),
                    of(Metric::Iops),
                    of(Metric::CpuUsPerIo),
                    right(submit),
                    Cell::new(verdict).fg(colour),
                ]);
            }
        }
        let all = measurement.cases.iter().map(|case| self.verdicts(case).count()).sum::<usize>();
        let lost = self.lost(measurement);
        let cpu = self.cpu_max.map_or_else(String::new, |max| {
            format!(", dearer above {max:.2} × its processor time per request")
        });
        format!(
            "{table}\n{} of {all} cells ok, {lost} lost.\n\
             Ratios to the system's library: the median of the rounds [least–largest].\n\
             Slower: below {:.2} × its IOPS{cpu}.\n{}",
            all - lost,
            self.iops_min,
            notes(measurement)
        )
    }
}

const OK: &str = "ok";

fn ratio(case: &CaseResults, metric: Metric, engine: &str) -> Option<Ratio> {
    let ratio = case.runs.ratio(("system", metric), (engine, metric));
    ratio.filter(|_| engine != "system")
}

/// Only engines of nowait are judged; others are measured.
fn is_ours(engine: &str) -> bool {
    engine.starts_with("nowait")
}

fn interval(ratio: Option<&Ratio>) -> String {
    let Some(ratio) = ratio else { return String::new() };
    let least = ratio.rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = ratio.rounds.iter().copied().fold(0.0, f64::max);
    let [median, least, largest] = [ratio.median, least, largest].map(units::digits);
    format!("{median} [{least}–{largest}]")
}

pub(crate) fn verified(measurement: &Measurement) -> String {
    let verified = measurement.cases.iter().map(|case| case.runs.names().count()).sum::<usize>();
    let failed = &measurement.failed;
    let mut text = format!("{verified} verified, {} failed.\n", failed.len());
    failed.iter().for_each(|line| _ = writeln!(text, "{line}"));
    text + &notes(measurement)
}

fn notes(measurement: &Measurement) -> String {
    measurement.notes.iter().fold(String::new(), |text, note| format!("{text}Note: {note}.\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_lost_beyond_a_limit() {
        let (idle, busy) = (Limits::beside(0), Limits::beside(2));
        let cases = [
            (idle, 0.97, 1.10, OK),
            (idle, 4.5, 0.4, OK),
            (idle, 0.96, 1.0, "slower"),
            (idle, 1.0, 1.11, "dearer"),
            (idle, 0.29, 2.8, "slower, dearer"),
            (busy, 0.96, 9.0, OK),
            (busy, 0.94, 0.5, "slower"),
        ];
        for (limits, iops, cpu, expected) in cases {
            assert_eq!(limits.judge(iops, cpu), expected, "{limits:?} {iops:?} {cpu:?}");
        }
    }

    #[test]
    fn the_table_has_a_row_an_engine_and_counts() {
        let sample = nowait_harness::testing::sample();
        let (idle, busy) = (Limits::beside(0), Limits::beside(1));
        let text = idle.table(&sample);
        assert!(text.contains("2.00 [2.00–2.00]"), "{text}");
        assert!(text.contains("0 of 1 cells ok, 1 lost."), "twice the time: {text}");
        assert_eq!((idle.lost(&sample), busy.lost(&sample)), (1, 0));
    }
}
