//! The distribution of times: for each engine a line from the median to the maximum.

use super::axis::Scale;
use super::rows::{Row, RowPlot, Shape};
use super::strips::class;
use crate::units;

/// A plot of percentiles.
pub(in crate::report) struct Spread<'a> {
    pub(in crate::report) title: &'a str,
    pub(in crate::report) rows: Vec<SpreadRow>,
}

/// The percentiles of an engine in microseconds, as far as they are known, the smallest first.
pub(in crate::report) struct SpreadRow {
    pub(in crate::report) label: String,
    pub(in crate::report) ours: bool,
    pub(in crate::report) p50: f64,
    pub(in crate::report) p90: Option<f64>,
    pub(in crate::report) p99: Option<f64>,
    pub(in crate::report) p999: Option<f64>,
    pub(in crate::report) max: Option<f64>,
}

impl SpreadRow {
    fn known(&self) -> impl Iterator<Item = (&'static str, f64)> {
        let p50 = Some(self.p50);
        let names = ["p50", "p90", "p99", "p99.9", "max"];
        let values = [p50, self.p90, self.p99, self.p999, self.max];
        names.into_iter().zip(values).filter_map(|(name, value)| Some((name, value?)))
    }

    fn words(&self) -> String {
        let all = self.known().map(|(name, us)| format!("{name} {}", units::time_us(us)));
        format!("{}: {}", self.label, all.collect::<Vec<_>>().join(", "))
    }

    /// Prints the first and the last percentile, as in `12 µs – 3.4 ms`.
    fn range(&self) -> String {
        let last = self.known().last().map_or(self.p50, |(_, us)| us);
        format!("{} – {}", units::time_us(self.p50), units::time_us(last))
    }

    fn drawn(&self) -> Row {
        let (class, first) = (class(self.ours), self.p50);
        let last = self.known().last().map_or(first, |(_, us)| us);
        let mut marks = vec![(class, Shape::Reach(first, last))];
        marks.extend(self.p90.map(|p90| (class, Shape::Body(first, p90))));
        marks.extend(
            [self.p99, self.p999].into_iter().flatten().map(|us| (class, Shape::Tick(us, 6.0))),
        );
        marks.extend(self.max.map(|max| (class, Shape::Ring(max))));
        marks.push((class, Shape::Full(first, 5.0)));
        let words = Some(self.words());
        Row { label: self.label.clone(), value: self.range(), words, marks }
    }
}

impl Spread<'_> {
    /// Draws it; empty if there is nothing.
    pub(in crate::report) fn draw(&self) -> String {
        RowPlot {
            title: self.title,
            legend: self.legend(),
            scale: Scale::Log,
            unit: "us",
            height: 24.0,
            rows: self.rows.iter().map(SpreadRow::drawn).collect(),
        }
        .draw()
    }

    /// Explains the signs that there are.
    fn legend(&self) -> &'static str {
        if self.rows.iter().any(|row| row.p90.is_some()) {
            return "● half of them take no longer · thick: to 90 % · \
                    ticks: 99 % and 99.9 % · ○ the longest";
        }
        "● half of them take no longer · ticks: 99 % and 99.9 % · ○ the longest"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_known_percentile_is_drawn_and_said() {
        let row = SpreadRow {
            label: "nowait".to_owned(),
            ours: true,
            p50: 2.0,
            p90: None,
            p99: Some(20.0),
            p999: Some(90.0),
            max: Some(4000.0),
        };
        let svg = Spread { title: "x", rows: vec![row] }.draw();
        assert_eq!(svg.matches("class=\"median ours\"").count(), 2);
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(
            svg.contains("nowait: p50 2.00 µs, p99 20.0 µs, p99.9 90.0 µs, max 4.00 ms"),
            "{svg}"
        );
        assert!(svg.contains("2.00 µs – 4.00 ms"));
    }
}
