//! The verdict on a cell, and the table of all cells.

use std::fmt::Write;

use comfy_table::{Cell, Color};

use nowait_harness::measurement::{CaseResults, Measurement, Params};
use nowait_harness::metric::Metric;
use nowait_harness::stats::Ratio;
use nowait_harness::table::{figure, new_table, right};
use nowait_harness::units;

/// The limits of each ratio of nowait to the system's library.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Limits {
    pub(crate) iops_min: f64,
    /// Not judged beside busy loops, which take caches and processors away.
    pub(crate) cpu_max: Option<f64>,
}

/// The verdict on a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Ok,
    Slower,
    Dearer,
    /// Both slower and dearer.
    Both,
    NotMeasured,
}

impl Limits {
    /// Returns the limits beside so many busy loops.
    pub(crate) fn beside(busy: usize) -> Self {
        match busy {
            0 => Self { iops_min: 0.97, cpu_max: Some(1.10) },
            _ => Self { iops_min: 0.95, cpu_max: None },
        }
    }

    /// Judges the medians of the ratios of IOPS and of processor time per request.
    pub(crate) fn judge(self, iops: Option<f64>, cpu: Option<f64>) -> Verdict {
        let (Some(iops), Some(cpu)) = (iops, cpu) else { return Verdict::NotMeasured };
        match (iops < self.iops_min, self.cpu_max.is_some_and(|max| cpu > max)) {
            (false, false) => Verdict::Ok,
            (true, false) => Verdict::Slower,
            (false, true) => Verdict::Dearer,
            (true, true) => Verdict::Both,
        }
    }
}

impl Verdict {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Slower => "slower",
            Self::Dearer => "dearer",
            Self::Both => "slower, dearer",
            Self::NotMeasured => "–",
        }
    }

    fn cell(self) -> Cell {
        let cell = Cell::new(self.name());
        match self {
            Self::Ok => cell.fg(Color::Green),
            Self::NotMeasured => cell,
            _ => cell.fg(Color::Red),
        }
    }
}

fn ratio(case: &CaseResults, metric: Metric, engine: &str) -> Option<Ratio> {
    case.runs.ratio(("system", metric), (engine, metric))
}

/// Judges an engine in a cell.
fn verdict(case: &CaseResults, engine: &str, limits: Limits) -> Verdict {
    let median = |metric| ratio(case, metric, engine).map(|ratio| ratio.median);
    limits.judge(median(Metric::Iops), median(Metric::CpuUsPerIo))
}

/// Adds the verdicts of a case to what the JSON says of it.
pub(crate) fn record(case: &mut CaseResults, limits: Limits) {
    let ours = case.runs.names().filter(|name| is_ours(name));
    let judged = ours.map(|engine| (engine, verdict(case, engine, limits)));
    let judged = judged.filter(|(_, verdict)| *verdict != Verdict::NotMeasured);
    let judged: Params =
        judged.map(|(engine, verdict)| (engine.to_owned(), verdict.name().into())).collect();
    if !judged.is_empty() {
        case.params.insert("verdict".to_owned(), judged.into());
    }
}

/// Returns the engines that are compared with the system's library, in the order of the cells.
fn engines(measurement: &Measurement) -> Vec<&'static str> {
    let mut engines = Vec::new();
    for name in measurement.cases.iter().flat_map(|case| case.runs.names()) {
        if name != "system" && !engines.contains(&name) {
            engines.push(name);
        }
    }
    engines
}

/// Returns how many verdicts there are of an engine, and how many are not `ok`.
fn count(measurement: &Measurement, engine: &str, limits: Limits) -> (usize, usize) {
    let verdicts = measurement.cases.iter().map(|case| verdict(case, engine, limits));
    let judged = verdicts.filter(|verdict| *verdict != Verdict::NotMeasured);
    judged
        .fold((0, 0), |(all, lost), verdict| (all + 1, lost + usize::from(verdict != Verdict::Ok)))
}

/// Returns how many cells are lost, of all engines of ours.
pub(crate) fn lost(measurement: &Measurement, limits: Limits) -> usize {
    let ours = engines(measurement).into_iter().filter(|name| is_ours(name));
    ours.map(|engine| count(measurement, engine, limits).1).sum()
}

/// A peer is measured, and not judged.
fn is_ours(engine: &str) -> bool {
    engine.starts_with("nowait")
}

/// Prints a median with the least and the largest ratio of the rounds.
fn interval(ratio: Option<&Ratio>) -> Cell {
    let Some(ratio) = ratio else { return right("") };
    let median = units::digits(ratio.median);
    if ratio.rounds.len() < 2 {
        return right(median);
    }
    let least = ratio.rounds.iter().copied().fold(f64::INFINITY, f64::min);
    let largest = ratio.rounds.iter().copied().fold(0.0, f64::max);
    right(format!("{median} [{}–{}]", units::digits(least), units::digits(largest)))
}

/// Prints the table: a row a cell, a group of columns for each engine, and the counts.
pub(crate) fn table(measurement: &Measurement, limits: Limits) -> String {
    let engines = engines(measurement);
    let mut header = vec!["cell".to_owned(), "system IOPS".to_owned()];
    for engine in &engines {
        header.extend([format!("{engine}\nIOPS ×"), "CPU ×".to_owned()]);
        if is_ours(engine) {
            header.extend(["submit ×", "verdict"].map(str::to_owned));
        }
    }
    let mut table = new_table(&header.iter().map(String::as_str).collect::<Vec<_>>());
    for case in &measurement.cases {
        let iops = case.runs.summary("system", Metric::Iops);
        let iops = iops.map_or_else(String::new, |it| figure(Metric::Iops, it.median));
        let mut row = vec![Cell::new(case.case.name), right(iops)];
        for engine in &engines {
            let of = |metric| interval(ratio(case, metric, engine).as_ref());
            row.extend([of(Metric::Iops), of(Metric::CpuUsPerIo)]);
            if is_ours(engine) {
                let submit = ratio(case, Metric::SubmitUsMean, engine);
                let submit = submit.map_or_else(String::new, |ratio| units::digits(ratio.median));
                row.extend([right(submit), verdict(case, engine, limits).cell()]);
            }
        }
        table.add_row(row);
    }
    let mut text = format!("{table}\n");
    for engine in engines.iter().filter(|engine| is_ours(engine)) {
        let (all, lost) = count(measurement, engine, limits);
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{engine}: {} of {all} cells ok, {lost} lost.", all - lost);
    }
    text + &words(limits) + &notes(measurement)
}

/// Returns the table of the findings of `--verify`: a row for each cell, and the counts.
pub(crate) fn verify_table(measurement: &Measurement) -> String {
    let engines = engines(measurement);
    let mut table = new_table(&[&["cell"], engines.as_slice()].concat());
    let mut verified = 0;
    for case in &measurement.cases {
        let mut row = vec![Cell::new(case.case.name)];
        for engine in &engines {
            let errors = case.runs.summary(engine, Metric::VerifyErrors).map(|it| it.max);
            verified += usize::from(errors.is_some());
            let place = format!("case {}, {engine}: ", case.case.name);
            row.push(match errors {
                Some(_) => Cell::new("verified").fg(Color::Green),
                None if measurement.failed.iter().any(|why| why.starts_with(&place)) => {
                    Cell::new("failed").fg(Color::Red)
                }
                None => Cell::new("–"),
            });
        }
        table.add_row(row);
    }
    let failed = measurement.failed.len();
    let mut text = format!("{table}\n{verified} verified, {failed} failed.\n");
    for line in &measurement.failed {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "{line}");
    }
    text + &notes(measurement)
}

/// Says how to read the table.
fn words(limits: Limits) -> String {
    let cpu = match limits.cpu_max {
        Some(max) => format!(", dearer above {max:.2} × its processor time per request"),
        None => String::new(),
    };
    format!(
        "Ratios to the system's library: the median of the rounds [least–largest].\n\
         Slower: below {:.2} × its IOPS{cpu}.\n",
        limits.iops_min
    )
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
            (idle, Some(0.97), Some(1.10), Verdict::Ok),
            (idle, Some(4.5), Some(0.4), Verdict::Ok),
            (idle, Some(0.96), Some(1.0), Verdict::Slower),
            (idle, Some(1.0), Some(1.11), Verdict::Dearer),
            (idle, Some(0.29), Some(2.8), Verdict::Both),
            (busy, Some(0.96), Some(9.0), Verdict::Ok),
            (busy, Some(0.94), Some(0.5), Verdict::Slower),
            (idle, None, Some(1.0), Verdict::NotMeasured),
            (busy, Some(1.0), None, Verdict::NotMeasured),
        ];
        for (limits, iops, cpu, expected) in cases {
            assert_eq!(limits.judge(iops, cpu), expected, "{limits:?} {iops:?} {cpu:?}");
        }
    }

    #[test]
    fn the_table_has_a_row_a_cell_and_counts() {
        let sample = nowait_harness::testing::sample();
        let text = table(&sample, Limits::beside(0));
        assert!(text.contains("2.00 [2.00–2.00]"), "{text}");
        assert!(text.contains("nowait: 0 of 1 cells ok, 1 lost."), "twice the time: {text}");
        assert_eq!((lost(&sample, Limits::beside(0)), lost(&sample, Limits::beside(1))), (1, 0));
    }
}
