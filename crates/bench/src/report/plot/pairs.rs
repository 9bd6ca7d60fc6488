//! Before and after, of a source and here: two lines a row, each from a ring to a dot.

use super::axis::{Axis, Scale};
use super::frame::{self, Frame, Setup};
use crate::units;

/// A plot of figures in one unit.
pub(in crate::report) struct Pairs<'a> {
    pub(in crate::report) title: &'a str,
    pub(in crate::report) unit: &'a str,
    pub(in crate::report) scale: Scale,
    pub(in crate::report) rows: Vec<Pair>,
}

/// Before and after.
pub(in crate::report) struct Pair {
    pub(in crate::report) label: String,
    /// The source's; `None`: it says something else.
    pub(in crate::report) source: Option<(f64, f64)>,
    pub(in crate::report) here: (f64, f64),
}

impl Pairs<'_> {
    /// Draws it; empty if there is nothing.
    pub(in crate::report) fn draw(&self) -> String {
        let both = |pair: &Pair| [pair.source, Some(pair.here)];
        let figures = self.rows.iter().flat_map(both).flatten();
        let figures: Vec<f64> = figures.flat_map(|(before, after)| [before, after]).collect();
        let Some(axis) = Axis::over(self.scale, self.unit, &figures) else { return String::new() };
        let (mut labels, mut values, mut lines) = (Vec::new(), Vec::new(), Vec::new());
        for pair in &self.rows {
            if let Some(source) = pair.source {
                lines.push((source, "theirs"));
                labels.push(format!("{} · source", pair.label));
            }
            lines.push((pair.here, "ours"));
            labels.push(if pair.source.is_some() { "here".to_owned() } else { pair.label.clone() });
        }
        for ((before, after), _) in &lines {
            let [before, after] = [*before, *after].map(units::digits);
            values.push(format!("{before} → {after}"));
        }
        let words = labels.iter().zip(&values).map(|(label, value)| format!("{label}: {value}"));
        let words = words.collect::<Vec<_>>().join("; ");
        let mut frame = Frame::new(Setup {
            title: self.title,
            words: &words,
            legend: match self.rows.iter().any(|pair| pair.source.is_some()) {
                true => "○ before → ● after · grey: the source · blue: here, simulated",
                false => "○ before → ● after; the source has only how many times",
            },
            axis,
            unit: self.unit,
            labels: &labels,
            values: &values,
            row: 20.0,
        });
        for (place, ((before, after), class)) in lines.into_iter().enumerate() {
            let y = frame.middle(place);
            let [from, to] = [before, after].map(|value| frame.axis.position(value));
            frame::line(&mut frame.svg, &format!("reach {class}"), (from, y), (to, y));
            frame::dot(&mut frame.svg, &format!("ring {class}"), (from, y), 4.0);
            frame::dot(&mut frame.svg, &format!("full {class}"), (to, y), 5.0);
        }
        frame.close()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_source_stands_beside_what_was_measured() {
        let pair = |source| Pair { label: "random read".to_owned(), source, here: (13.6, 27.9) };
        let rows = vec![pair(Some((10.08, 23.91))), pair(None)];
        let svg = Pairs { title: "x", unit: "MB/s", scale: Scale::Linear, rows }.draw();
        assert_eq!(svg.matches("<circle").count(), 6);
        assert!(svg.contains("random read · source: 10.1 → 23.9; here: 13.6 → 27.9"), "{svg}");
    }
}
