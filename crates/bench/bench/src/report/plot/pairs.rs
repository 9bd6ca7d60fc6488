//! Before and after, of a source and here: two lines a row, each from a ring to a dot.

use super::axis::Scale;
use super::rows::{Row, RowPlot, Shape};
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
        let row = |label: String, (before, after): (f64, f64), class| {
            let [from, to] = [before, after].map(units::digits);
            let ends = [(class, Shape::Ring(before)), (class, Shape::Full(after, 5.0))];
            let reach = (class, Shape::Reach(before, after));
            let marks = [reach].into_iter().chain(ends).collect();
            Row { label, value: format!("{from} → {to}"), words: None, marks }
        };
        let rows = |pair: &Pair| {
            let label = |label: &str| label.to_owned();
            let Some(source) = pair.source else {
                return vec![row(label(&pair.label), pair.here, "ours")];
            };
            let of_source = row(format!("{} · source", pair.label), source, "theirs");
            vec![of_source, row(label("here"), pair.here, "ours")]
        };
        RowPlot {
            title: self.title,
            legend: match self.rows.iter().any(|pair| pair.source.is_some()) {
                true => "○ before → ● after · grey: the source · blue: here, simulated",
                false => "○ before → ● after; the source has only how many times",
            },
            scale: self.scale,
            unit: self.unit,
            height: 20.0,
            rows: self.rows.iter().flat_map(rows).collect(),
        }
        .draw()
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
