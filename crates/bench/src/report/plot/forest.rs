//! Ratios with their intervals, around a line at one.

use super::axis::{Axis, Scale};
use super::frame::{self, Frame, Setup};
use crate::units;

/// A plot of ratios.
pub(in crate::report) struct Forest<'a> {
    pub(in crate::report) title: &'a str,
    pub(in crate::report) legend: &'a str,
    pub(in crate::report) rows: Vec<Interval>,
}

/// A ratio.
pub(in crate::report) struct Interval {
    pub(in crate::report) label: String,
    /// `good`, `bad` or `same`: the class of the colour.
    pub(in crate::report) class: &'static str,
    pub(in crate::report) median: f64,
    /// The same, when nothing is known of the noise.
    pub(in crate::report) low: f64,
    pub(in crate::report) high: f64,
    /// What it is held against, such as a source's ratio.
    pub(in crate::report) target: Option<f64>,
    /// What follows, in words behind the figure.
    pub(in crate::report) verdict: String,
}

impl Interval {
    fn text(&self) -> String {
        format!("{}× {}", units::ratio(self.median), self.verdict).trim_end().to_owned()
    }
}

impl Forest<'_> {
    /// Draws it; empty if there is nothing.
    pub(in crate::report) fn draw(&self) -> String {
        let of = |row: &Interval| [Some(row.low), Some(row.high), Some(row.median), row.target];
        let figures: Vec<f64> = self.rows.iter().flat_map(of).flatten().collect();
        let Some(axis) = Axis::over(Scale::Ratio, "1", &figures) else { return String::new() };
        let labels: Vec<String> = self.rows.iter().map(|row| row.label.clone()).collect();
        let values: Vec<String> = self.rows.iter().map(Interval::text).collect();
        let words = labels.iter().zip(&values).map(|(label, value)| format!("{label}: {value}"));
        let words = words.collect::<Vec<_>>().join("; ");
        let mut frame = Frame::new(Setup {
            title: self.title,
            words: &words,
            legend: self.legend,
            axis,
            unit: "1",
            labels: &labels,
            values: &values,
            row: 21.0,
        });
        let (one, (top, bottom)) = (frame.axis.position(1.0), frame.edges(self.rows.len()));
        frame::line(&mut frame.svg, "one", (one, top - 4.0), (one, bottom));
        for (place, row) in self.rows.iter().enumerate() {
            draw_row(&mut frame, row, place);
        }
        frame.close()
    }
}

fn draw_row(frame: &mut Frame, row: &Interval, place: usize) {
    let (class, y) = (row.class, frame.middle(place));
    let [low, high] = [row.low, row.high].map(|value| frame.axis.position(value));
    frame::line(&mut frame.svg, &format!("reach {class}"), (low, y), (high, y));
    if let Some(target) = row.target {
        let x = frame.axis.position(target);
        frame::rect(&mut frame.svg, "target", (x - 2.0, y - 8.0), (x + 2.0, y + 8.0));
    }
    let median = frame.axis.position(row.median);
    frame::dot(&mut frame.svg, &format!("full {class}"), (median, y), 4.5);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_drawn_with_its_interval_its_target_and_one() {
        let row = Interval {
            label: "IOPS".to_owned(),
            class: "good",
            median: 2.0,
            low: 1.8,
            high: 2.2,
            target: Some(1.5),
            verdict: "better".to_owned(),
        };
        let svg = Forest { title: "x", legend: "", rows: vec![row] }.draw();
        assert!(svg.contains("class=\"one\"") && svg.contains("class=\"target\""), "{svg}");
        assert!(svg.contains("2.00× better"), "{svg}");
    }
}
