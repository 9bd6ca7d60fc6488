//! A figure against the block size, or against a number: a line for each series, its name at its
//! end.

use std::fmt::Write;

use super::axis::{Axis, Scale, mark_text};
use super::rows;
use crate::units;

/// Size of the drawing, and of its margins, in user units.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 250.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;
const LEFT_MIN: f64 = 28.0;

/// Names of lines keep this distance.
const LETTER_HEIGHT: f64 = 13.0;

/// A plot.
pub(in crate::report) struct Lines<'a> {
    pub(in crate::report) title: &'a str,
    pub(in crate::report) unit: &'a str,
    pub(in crate::report) scale: Scale,
    pub(in crate::report) along: Along,
    pub(in crate::report) series: Vec<Line>,
    /// What a source says of it.
    pub(in crate::report) band: Option<Band>,
}

/// What the figures are held against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::report) enum Along {
    BlockBytes,
    /// How many there are of what has this name.
    Number(&'static str),
}

/// A series.
pub(in crate::report) struct Line {
    pub(in crate::report) name: String,
    /// The classes of its colour.
    pub(in crate::report) class: String,
    /// Block size in bytes, or a number, and the figure.
    pub(in crate::report) points: Vec<(f64, f64)>,
}

/// A range of a source.
pub(in crate::report) struct Band {
    pub(in crate::report) low: f64,
    pub(in crate::report) high: f64,
}

impl Lines<'_> {
    /// Draws it; empty if there is nothing.
    pub(in crate::report) fn draw(&self) -> String {
        let of = |line: &Line| line.points.iter().map(|point| point.1).collect::<Vec<_>>();
        let mut figures: Vec<f64> = self.series.iter().flat_map(of).collect();
        figures.extend(self.band.iter().flat_map(|band| [band.low, band.high]));
        let Some(y) = Axis::over(self.scale, self.unit, &figures) else { return String::new() };
        let y = y.between(HEIGHT - BOTTOM, TOP);
        let sizes: Vec<f64> =
            self.series.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        let marks =
            y.marks.iter().map(|mark| rows::text_width(&mark_text(short(self.unit), *mark)));
        let left = marks.fold(LEFT_MIN, f64::max) + 10.0;
        let x = Sizes::over(&sizes, left, WIDTH - self.right());
        let mut svg = String::new();
        rows::open(&mut svg, self.title, &self.words(), (WIDTH, HEIGHT));
        self.draw_grid(&mut svg, &x, &y);
        if let Some(band) = &self.band {
            let (top, bottom) = (y.position(band.high), y.position(band.low));
            rows::rect(&mut svg, "band", (x.from, top - 1.0), (x.to, bottom + 1.0));
        }
        for line in &self.series {
            draw_line(&mut svg, line, &x, &y);
        }
        self.draw_names(&mut svg, &x, &y);
        svg + "</svg>\n"
    }

    /// Returns the room for the names of the lines.
    fn right(&self) -> f64 {
        let longest = self.series.iter().map(|line| rows::bold_width(&line.name));
        (longest.fold(0.0, f64::max) + 14.0).clamp(30.0, 160.0)
    }

    fn words(&self) -> String {
        let line = |line: &Line| {
            let points = line.points.iter().map(|(bytes, figure)| {
                format!("{} at {}", units::with_unit(self.unit, *figure), self.along.text(*bytes))
            });
            format!("{}: {}", line.name, points.collect::<Vec<_>>().join(", "))
        };
        self.series.iter().map(line).collect::<Vec<_>>().join("; ")
    }

    fn draw_grid(&self, svg: &mut String, x: &Sizes, y: &Axis) {
        for mark in &y.marks {
            let at = y.position(*mark);
            let one = self.unit == "× sync" && (mark - 1.0).abs() < 1e-9;
            rows::line(svg, if one { "one" } else { "grid" }, (x.from, at), (x.to, at));
            rows::text(
                svg,
                "mark end",
                x.from - 6.0,
                at + 4.0,
                &mark_text(short(self.unit), *mark),
            );
        }
        for size in &x.marks {
            let at = x.position(*size);
            rows::line(svg, "grid", (at, HEIGHT - BOTTOM), (at, HEIGHT - BOTTOM + 4.0));
            rows::text(svg, "mark", at, HEIGHT - BOTTOM + 17.0, &self.along.text(*size));
        }
        let middle = f64::midpoint(x.from, x.to);
        rows::text(svg, "mark", middle, HEIGHT - 6.0, self.along.name());
    }

    /// Writes each name at the end of its line, moved where another stands.
    fn draw_names(&self, svg: &mut String, x: &Sizes, y: &Axis) {
        let end = |line: &Line| line.points.last().map(|point| y.position(point.1));
        let mut names: Vec<(f64, &Line)> =
            self.series.iter().filter_map(|line| Some((end(line)?, line))).collect();
        names.sort_by(|a, b| a.0.total_cmp(&b.0));
        let mut free = TOP;
        for place in &mut names {
            place.0 = place.0.max(free);
            free = place.0 + LETTER_HEIGHT;
        }
        // What was moved below the axis goes up again.
        let mut limit = HEIGHT - BOTTOM;
        for place in names.iter_mut().rev() {
            place.0 = place.0.min(limit);
            limit = place.0 - LETTER_HEIGHT;
        }
        for (at, line) in names {
            let class = format!("name {}", line.class);
            rows::text(svg, &class, x.to + 8.0, at + 4.0, &line.name);
        }
    }
}

impl Along {
    /// Returns what stands below the axis.
    pub(in crate::report) fn name(self) -> &'static str {
        match self {
            Self::BlockBytes => "block size",
            Self::Number(name) => name,
        }
    }

    fn text(self, place: f64) -> String {
        match self {
            Self::BlockBytes => units::bytes(place),
            Self::Number(_) if place >= 1000.0 => format!("{} k", place / 1000.0),
            Self::Number(_) => place.to_string(),
        }
    }
}

/// Leaves a unit out that the title names, and the axis has no room for.
fn short(unit: &str) -> &str {
    if unit == "× sync" { "1" } else { unit }
}

fn draw_line(svg: &mut String, line: &Line, x: &Sizes, y: &Axis) {
    let at = |point: &(f64, f64)| (x.position(point.0), y.position(point.1));
    let points = line.points.iter().map(at).map(|(x, y)| format!("{x:.1},{y:.1}"));
    let points = points.collect::<Vec<_>>().join(" ");
    let _ = writeln!(svg, "<polyline class=\"line {}\" points=\"{points}\"/>", line.class);
    for point in &line.points {
        rows::dot(svg, &format!("full {}", line.class), at(point), 3.0);
    }
}

/// The axis of block sizes, or of numbers, by powers of two.
struct Sizes {
    marks: Vec<f64>,
    low: f64,
    high: f64,
    from: f64,
    to: f64,
}

impl Sizes {
    fn over(sizes: &[f64], from: f64, to: f64) -> Self {
        let mut all = sizes.to_vec();
        all.sort_unstable_by(f64::total_cmp);
        all.dedup();
        let (low, high) = (all.first().copied().unwrap_or(1.0), all.last().copied().unwrap_or(2.0));
        let every = all.len().div_ceil(5).max(1);
        let marks = all.iter().copied().step_by(every).collect();
        Self { marks, low, high: high.max(low * 2.0), from, to }
    }

    fn position(&self, bytes: f64) -> f64 {
        let share = (bytes / self.low).log2() / (self.high / self.low).log2();
        self.from + share * (self.to - self.from)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(name: &str, end: f64) -> Line {
        let points = vec![(4096.0, 1.0), (65536.0, end)];
        Line { name: name.to_owned(), class: "s0".to_owned(), points }
    }

    #[test]
    fn lines_have_their_names_apart_even_where_they_meet() {
        let lines = vec![line("a", 2.0), line("b", 2.0), line("c", 2.01)];
        let scale = Scale::Linear;
        let along = Along::BlockBytes;
        let unit = "× sync";
        let svg = Lines { title: "x", unit, scale, along, series: lines, band: None }.draw();
        let heights: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("class=\"name"))
            .filter_map(|line| line.split("y=\"").nth(1)?.split('"').next()?.parse().ok())
            .collect();
        assert_eq!(heights.len(), 3);
        for pair in heights.windows(2) {
            assert!((pair[1] - pair[0]).abs() >= LETTER_HEIGHT - 0.2, "{heights:?}");
        }
        assert!(svg.contains("a: 1.00 × sync at 4 KiB, 2.00 × sync at 64 KiB"), "{svg}");
    }

    #[test]
    fn a_range_of_the_source_is_a_band() {
        let band = Some(Band { low: 1.2, high: 1.25 });
        let series = vec![line("a", 1.5)];
        let svg = Lines {
            title: "x",
            unit: "",
            scale: Scale::Linear,
            along: Along::BlockBytes,
            series,
            band,
        }
        .draw();
        assert_eq!(svg.matches("class=\"band\"").count(), 1);
    }
}
