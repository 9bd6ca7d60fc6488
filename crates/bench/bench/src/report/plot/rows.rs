//! A plot of rows: labels on the left, marks along an axis, values on the right.

use std::fmt::Write;

use super::axis::{Axis, Scale, mark_text};
use super::escape;

/// Width of a plot, in user units, and about that of a letter, plain and bold.
const WIDTH: f64 = 760.0;
const LETTER: f64 = 6.6;
const LETTER_BOLD: f64 = 7.6;

/// Height of the title, of a line of a legend, and of the axis.
const TOP: f64 = 32.0;
const LEGEND: f64 = 18.0;
const BOTTOM: f64 = 24.0;

/// A plot.
pub(super) struct RowPlot<'a> {
    pub(super) title: &'a str,
    /// What the signs mean; may be empty.
    pub(super) legend: &'a str,
    pub(super) scale: Scale,
    pub(super) unit: &'a str,
    /// Of a row.
    pub(super) height: f64,
    pub(super) rows: Vec<Row>,
}

/// A row of it.
pub(super) struct Row {
    pub(super) label: String,
    /// The figure, behind the axis.
    pub(super) value: String,
    /// The row in words, if they are not its label and its value.
    pub(super) words: Option<String>,
    pub(super) marks: Vec<Mark>,
}

/// Something on the axis, with the class of its colour.
pub(super) type Mark = (&'static str, Shape);

/// What is drawn, and where on the axis.
#[derive(Clone, Copy)]
pub(super) enum Shape {
    /// From the beginning of the axis.
    Bar(f64),
    Reach(f64, f64),
    /// The same, and thick.
    Body(f64, f64),
    /// Across the row, so far to either side.
    Tick(f64, f64),
    /// Filled, with a radius.
    Full(f64, f64),
    /// One of many.
    Dot(f64),
    Ring(f64),
    Target(f64),
}

impl Shape {
    fn values(self) -> [f64; 2] {
        match self {
            Self::Reach(from, to) | Self::Body(from, to) => [from, to],
            Self::Bar(at)
            | Self::Tick(at, _)
            | Self::Full(at, _)
            | Self::Dot(at)
            | Self::Ring(at)
            | Self::Target(at) => [at; 2],
        }
    }
}

/// Returns about how wide a text is.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Returns about how wide a bold text is.
pub(super) fn bold_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER_BOLD
}

impl RowPlot<'_> {
    /// Draws it; empty if there is nothing.
    pub(super) fn draw(&self) -> String {
        let marks = self.rows.iter().flat_map(|row| &row.marks);
        let values: Vec<f64> = marks.flat_map(|(_, shape)| shape.values()).collect();
        let Some(axis) = Axis::over(self.scale, self.unit, &values) else { return String::new() };
        let widest = |width: fn(&str) -> f64, text: fn(&Row) -> &str| {
            self.rows.iter().map(|row| width(text(row))).fold(0.0, f64::max)
        };
        let left = (widest(text_width, |row| &row.label) + 14.0).clamp(60.0, 330.0);
        // The last mark of the axis is centred on the edge.
        let right = (widest(bold_width, |row| &row.value) + 22.0).clamp(50.0, 240.0);
        let axis = axis.between(left, WIDTH - right);
        let top = if self.legend.is_empty() { TOP } else { TOP + LEGEND };
        let bottom = top + self.height * self.rows.len() as f64;
        let mut svg = String::new();
        open(&mut svg, self.title, &self.words(), (WIDTH, bottom + BOTTOM));
        if !self.legend.is_empty() {
            text(&mut svg, "legend", 0.0, 34.0, self.legend);
        }
        for mark in &axis.marks {
            let x = axis.position(*mark);
            line(&mut svg, "grid", (x, top - 4.0), (x, bottom));
            text(&mut svg, "mark", x, bottom + 16.0, &mark_text(self.unit, *mark));
        }
        let middle = |place: usize| top + self.height * (place as f64 + 0.5);
        for (place, row) in self.rows.iter().enumerate() {
            let base = middle(place) + 4.0;
            text(&mut svg, "label", left - 10.0, base, &row.label);
            text(&mut svg, "value", WIDTH - right + 16.0, base, &row.value);
        }
        if self.scale == Scale::Ratio {
            let one = axis.position(1.0);
            line(&mut svg, "one", (one, top - 4.0), (one, bottom));
        }
        for (place, row) in self.rows.iter().enumerate() {
            for (class, shape) in &row.marks {
                draw_mark(&mut svg, &axis, (left, middle(place)), class, *shape);
            }
        }
        svg + "</svg>\n"
    }

    fn words(&self) -> String {
        let words = |row: &Row| {
            row.words.clone().unwrap_or_else(|| format!("{}: {}", row.label, row.value))
        };
        self.rows.iter().map(words).collect::<Vec<_>>().join("; ")
    }
}

fn draw_mark(svg: &mut String, axis: &Axis, (left, y): (f64, f64), class: &str, shape: Shape) {
    let [x, to] = shape.values().map(|value| axis.position(value));
    let of = |kind: &str| format!("{kind} {class}");
    match shape {
        Shape::Bar(_) => rect(svg, &of("bar"), (left, y - 6.0), (x, y + 6.0)),
        Shape::Reach(..) => line(svg, &of("reach"), (x, y), (to, y)),
        Shape::Body(..) => line(svg, &of("body"), (x, y), (to, y)),
        Shape::Tick(_, half) => line(svg, &of("median"), (x, y - half), (x, y + half)),
        Shape::Full(_, radius) => dot(svg, &of("full"), (x, y), radius),
        Shape::Dot(_) => dot(svg, &of("dot"), (x, y), 3.5),
        Shape::Ring(_) => dot(svg, &of("ring"), (x, y), 4.0),
        Shape::Target(_) => rect(svg, "target", (x - 2.0, y - 8.0), (x + 2.0, y + 8.0)),
    }
}

/// Begins a drawing of some width and height.
pub(super) fn open(svg: &mut String, title: &str, words: &str, (width, height): (f64, f64)) {
    let (title, words) = (escape(title), escape(words));
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 {width} {height}\" role=\"img\" aria-label=\"{title}. {words}\">\n\
         <text class=\"title\" x=\"0\" y=\"15\">{title}</text>\n"
    );
}

/// Writes a text; its class says where it is anchored.
pub(super) fn text(svg: &mut String, class: &str, x: f64, y: f64, text: &str) {
    let text = escape(text);
    let _ = writeln!(svg, "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>");
}

/// Draws a line.
pub(super) fn line(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x1, y1), (x2, y2)) = (from, to);
    let _ = writeln!(
        svg,
        "<line class=\"{class}\" x1=\"{x1:.1}\" x2=\"{x2:.1}\" y1=\"{y1:.1}\" y2=\"{y2:.1}\"/>"
    );
}

/// Draws a dot.
pub(super) fn dot(svg: &mut String, class: &str, (x, y): (f64, f64), radius: f64) {
    let _ = writeln!(svg, "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\"/>");
}

/// Draws a box.
pub(super) fn rect(svg: &mut String, class: &str, from: (f64, f64), to: (f64, f64)) {
    let ((x, y), (width, height)) = (from, ((to.0 - from.0).max(0.0), (to.1 - from.1).max(0.0)));
    let _ = writeln!(
        svg,
        "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
         height=\"{height:.1}\"/>"
    );
}
