//! Ratios with their intervals, around a line at one.

use super::axis::Scale;
use super::rows::{Row, RowPlot, Shape};
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
        let row = |it: &Interval| {
            let reach = (it.class, Shape::Reach(it.low, it.high));
            let target = it.target.map(|target| ("", Shape::Target(target)));
            let median = (it.class, Shape::Full(it.median, 4.5));
            Row {
                label: it.label.clone(),
                value: it.text(),
                words: None,
                marks: [Some(reach), target, Some(median)].into_iter().flatten().collect(),
            }
        };
        RowPlot {
            title: self.title,
            legend: self.legend,
            scale: Scale::Ratio,
            unit: "1",
            height: 21.0,
            rows: self.rows.iter().map(row).collect(),
        }
        .draw()
    }
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
