//! Every run a dot, the median a bar or a tick.

use super::axis::Scale;
use super::rows::{Row, RowPlot, Shape};
use crate::stats;
use crate::units;

/// A plot of one metric.
pub(in crate::report) struct Strips<'a> {
    pub(in crate::report) title: &'a str,
    pub(in crate::report) unit: &'a str,
    pub(in crate::report) scale: Scale,
    pub(in crate::report) rows: Vec<Strip>,
}

/// One row of dots.
pub(in crate::report) struct Strip {
    pub(in crate::report) label: String,
    pub(in crate::report) ours: bool,
    pub(in crate::report) runs: Vec<f64>,
}

impl Strips<'_> {
    /// Draws it; empty if there is nothing.
    pub(in crate::report) fn draw(&self) -> String {
        let row = |strip: &Strip| {
            let (class, median) = (class(strip.ours), stats::median(&strip.runs));
            let median = median.unwrap_or(f64::NAN);
            let bar = (self.scale == Scale::Linear).then_some((class, Shape::Bar(median)));
            let dots = strip.runs.iter().map(|run| (class, Shape::Dot(*run)));
            let marks = bar.into_iter().chain(dots).chain([(class, Shape::Tick(median, 9.0))]);
            Row {
                label: strip.label.clone(),
                value: units::with_unit(self.unit, median),
                words: None,
                marks: marks.collect(),
            }
        };
        RowPlot {
            title: self.title,
            legend: "",
            scale: self.scale,
            unit: self.unit,
            height: 24.0,
            rows: self.rows.iter().map(row).collect(),
        }
        .draw()
    }
}

/// Returns the class of nowait's own figures, or of others.
pub(super) fn class(ours: bool) -> &'static str {
    if ours { "ours" } else { "theirs" }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strips(runs: Vec<f64>, scale: Scale) -> String {
        let rows = vec![Strip { label: "a < b".to_owned(), ours: true, runs }];
        Strips { title: "x", unit: "us", scale, rows }.draw()
    }

    #[test]
    fn every_run_is_a_dot_and_text_is_escaped() {
        let svg = strips(vec![1.0, 2.0, 3.0], Scale::Linear);
        assert_eq!(svg.matches("<circle").count(), 3);
        assert_eq!(svg.matches("<rect").count(), 1);
        assert!(svg.contains("a &lt; b") && svg.contains("aria-label=\"x. a &lt; b: 2.00 µs\""));
    }

    #[test]
    fn there_are_no_bars_without_a_zero_and_no_plot_of_nothing() {
        assert!(!strips(vec![1.0, 2.0], Scale::Log).contains("<rect"));
        assert_eq!(strips(vec![], Scale::Linear), "");
    }
}
