//! Every run a dot, the median a bar or a tick.

use super::axis::{Axis, Scale};
use super::frame::{self, Frame, Setup};
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
        let runs: Vec<f64> =
            self.rows.iter().flat_map(|strip| strip.runs.iter().copied()).collect();
        let Some(axis) = Axis::over(self.scale, self.unit, &runs) else { return String::new() };
        let medians: Vec<f64> =
            self.rows.iter().map(|strip| stats::median(&strip.runs).unwrap_or(f64::NAN)).collect();
        let labels: Vec<String> = self.rows.iter().map(|strip| strip.label.clone()).collect();
        let values: Vec<String> =
            medians.iter().map(|median| units::with_unit(self.unit, *median)).collect();
        let words = labels.iter().zip(&values).map(|(label, value)| format!("{label}: {value}"));
        let words = words.collect::<Vec<_>>().join("; ");
        let (title, unit) = (self.title, self.unit);
        let mut frame = Frame::new(Setup {
            title,
            words: &words,
            legend: "",
            axis,
            unit,
            labels: &labels,
            values: &values,
            row: 24.0,
        });
        for (place, (strip, median)) in self.rows.iter().zip(medians).enumerate() {
            draw_strip(&mut frame, strip, median, place);
        }
        frame.close()
    }
}

fn draw_strip(frame: &mut Frame, strip: &Strip, median: f64, place: usize) {
    let (class, y) = (class(strip.ours), frame.middle(place));
    let (left, x) = (frame.left(), frame.axis.position(median));
    if frame.axis.scale == Scale::Linear {
        frame::rect(&mut frame.svg, &format!("bar {class}"), (left, y - 6.0), (x, y + 6.0));
    }
    for run in &strip.runs {
        let at = (frame.axis.position(*run), y);
        frame::dot(&mut frame.svg, &format!("dot {class}"), at, 3.5);
    }
    frame::line(&mut frame.svg, &format!("median {class}"), (x, y - 9.0), (x, y + 9.0));
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
