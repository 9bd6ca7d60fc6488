//! The figures as tables for a terminal.

use std::fmt::Write;

use comfy_table::{Cell, CellAlignment, Color, Table};

use crate::metric::Metric;
use crate::runs::Runs;
use crate::stats::{Ratio, Summary};
use crate::units;
use crate::verdict::{self, Judged, Outcome, ROUNDS_MIN};

pub fn figure(metric: Metric, value: f64) -> String {
    units::with_unit(metric.unit(), value)
}

/// Returns a median with its spread, such as `83.0 µs ±2 %`, or a median of zero alone.
pub fn with_spread(metric: Metric, summary: &Summary) -> String {
    let text = figure(metric, summary.median);
    let percent = 100.0 * summary.mad / summary.median;
    if percent.is_finite() {
        return format!("{text} ±{percent:.0} %");
    }
    text
}

pub fn new_table(header: &[&str]) -> Table {
    let mut table = nowait_terminal::table();
    table.set_header(header);
    table
}

pub fn right(text: impl ToString) -> Cell {
    Cell::new(text).set_alignment(CellAlignment::Right)
}

pub fn notes(notes: &[String]) -> String {
    let mut text = "Medians ± median absolute deviation; ratios are medians of the ratios within \
                    the rounds,\nwith a 95 % bootstrap interval.\n"
        .to_owned();
    for note in notes {
        let _ = writeln!(text, "Note: {note}.");
    }
    text
}

pub fn runs(what: &str, runs: &Runs, columns: &[Metric]) -> Table {
    let mut header = vec![what];
    header.extend(columns.iter().map(|metric| metric.label()));
    let mut table = new_table(&header);
    for name in runs.names() {
        let mut row = vec![Cell::new(name)];
        row.extend(columns.iter().map(|metric| match runs.summary(name, *metric) {
            Some(summary) => right(with_spread(*metric, &summary)),
            None => right("–"),
        }));
        table.add_row(row);
    }
    table
}

pub fn targets<'a>(judged: impl Iterator<Item = (&'a str, Judged)>) -> String {
    let judged: Vec<(&str, Judged)> = judged.collect();
    if judged.is_empty() {
        return String::new();
    }
    let mut table = new_table(&["case", "target", "measured", "verdict"]);
    for (case, judged) in &judged {
        let (target, measured) = (Cell::new(&judged.target), right(judged.measured()));
        table.add_row([Cell::new(case), target, measured, outcome_cell(judged.outcome)]);
    }
    let (met, all) = verdict::count(judged.into_iter().map(|(_, judged)| judged));
    format!("{table}\n\n{met} of {all} targets are met beyond the noise.\n")
}

fn outcome_cell(outcome: Outcome) -> Cell {
    let cell = Cell::new(outcome.name());
    match outcome {
        Outcome::Met => cell.fg(Color::Green),
        Outcome::Missed => cell.fg(Color::Red),
        _ => cell.fg(Color::Yellow),
    }
}

pub fn change_cell(metric: Metric, ratio: Option<&Ratio>) -> Cell {
    let Some(ratio) = ratio else { return right("–") };
    let cell = right(change_text(ratio));
    match verdict::is_better(metric, ratio) {
        None => cell,
        Some(better) => cell.fg(if better { Color::Green } else { Color::Red }),
    }
}

/// Returns a change in words: `69 × less`, `1.60 × more`, or the reason why no change can be shown.
pub fn change_text(ratio: &Ratio) -> String {
    if ratio.rounds.len() < ROUNDS_MIN {
        return "too few rounds".to_owned();
    }
    if !verdict::differs(ratio) || ratio.median <= 0.0 {
        return "no clear difference".to_owned();
    }
    let more = ratio.median > 1.0;
    let factor = if more { ratio.median } else { 1.0 / ratio.median };
    let word = if more { "more" } else { "less" };
    format!("{} × {word}", units::digits(factor))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ratio(low: f64, median: f64, high: f64) -> Ratio {
        Ratio { median, low, high, rounds: vec![low, low, median, high, high] }
    }

    #[test]
    fn no_winner_is_called_inside_the_noise() {
        let text = |low, median, high| change_text(&ratio(low, median, high));
        assert_eq!(text(0.9, 1.1, 1.3), "no clear difference");
        assert_eq!(text(1.4, 1.6, 1.7), "1.60 × more");
        assert_eq!(text(0.01, 0.02, 0.03), "50.0 × less");
    }

    #[test]
    fn few_rounds_are_not_called_noise() {
        let few = Ratio { rounds: vec![1.5, 1.6], ..ratio(1.5, 1.55, 1.6) };
        assert_eq!(change_text(&few), "too few rounds");
    }

    #[test]
    fn a_spread_is_printed_in_percent() {
        let summary = Summary { median: 80.0, min: 70.0, max: 90.0, mad: 4.0 };
        assert_eq!(with_spread(Metric::SubmitUsMean, &summary), "80.0 µs ±5 %");
        let none = Summary { median: 0.0, min: 0.0, max: 0.0, mad: 0.0 };
        assert_eq!(with_spread(Metric::ContextSwitchesPerIo, &none), "0");
    }
}
