//! What plots of rows have in common: title, labels on the left, an axis, values on the right.

use std::fmt::Write;

use super::axis::{Axis, mark_text};
use super::escape;

/// Width of a plot, in user units, and about that of a letter, plain and bold.
pub(super) const WIDTH: f64 = 760.0;
const LETTER: f64 = 6.6;
const LETTER_BOLD: f64 = 7.6;

/// Height of the title, of a line of a legend, and of the axis.
const TOP: f64 = 32.0;
const LEGEND: f64 = 18.0;
const BOTTOM: f64 = 24.0;

/// A drawing under way.
pub(super) struct Frame {
    pub(super) svg: String,
    pub(super) axis: Axis,
    left: f64,
    right: f64,
    top: f64,
    row: f64,
}

/// What a frame is made of.
pub(super) struct Setup<'a> {
    pub(super) title: &'a str,
    /// The figures in words.
    pub(super) words: &'a str,
    /// What the signs mean; may be empty.
    pub(super) legend: &'a str,
    pub(super) axis: Axis,
    pub(super) unit: &'a str,
    pub(super) labels: &'a [String],
    pub(super) values: &'a [String],
    /// Height of a row.
    pub(super) row: f64,
}

/// Returns about how wide a text is.
pub(super) fn text_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER
}

/// Returns about how wide a bold text is.
pub(super) fn bold_width(text: &str) -> f64 {
    text.chars().count() as f64 * LETTER_BOLD
}

fn widest(texts: &[String], width: impl Fn(&str) -> f64) -> f64 {
    texts.iter().map(|text| width(text)).fold(0.0, f64::max)
}

impl Frame {
    /// Draws title, legend, labels, values and axis.
    pub(super) fn new(setup: Setup<'_>) -> Self {
        let left = (widest(setup.labels, text_width) + 14.0).clamp(60.0, 330.0);
        // The last mark of the axis is centred on the edge.
        let right = (widest(setup.values, bold_width) + 22.0).clamp(50.0, 240.0);
        let top = if setup.legend.is_empty() { TOP } else { TOP + LEGEND };
        let rows = setup.labels.len() as f64;
        let height = top + setup.row * rows + BOTTOM;
        let mut svg = String::new();
        open(&mut svg, setup.title, setup.words, height);
        if !setup.legend.is_empty() {
            text(&mut svg, "legend", 0.0, 34.0, setup.legend);
        }
        let axis = setup.axis.between(left, WIDTH - right);
        let mut frame = Self { svg, axis, left, right, top, row: setup.row };
        frame.draw_axis(setup.unit, height);
        for (place, (label, value)) in setup.labels.iter().zip(setup.values).enumerate() {
            let base = frame.middle(place) + 4.0;
            let (label_x, value_x) = (frame.left - 10.0, WIDTH - frame.right + 16.0);
            text(&mut frame.svg, "label", label_x, base, label);
            text(&mut frame.svg, "value", value_x, base, value);
        }
        frame
    }

    /// Returns the y of the middle of a row.
    pub(super) fn middle(&self, place: usize) -> f64 {
        self.top + self.row * (place as f64 + 0.5)
    }

    /// Returns the x of the beginning of the axis.
    pub(super) fn left(&self) -> f64 {
        self.left
    }

    /// Returns the y of the first and of the last row's edge.
    pub(super) fn edges(&self, rows: usize) -> (f64, f64) {
        (self.top, self.top + self.row * rows as f64)
    }

    fn draw_axis(&mut self, unit: &str, height: f64) {
        let (top, bottom) = (self.top - 4.0, height - BOTTOM);
        for mark in self.axis.marks.clone() {
            let x = self.axis.position(mark);
            line(&mut self.svg, "grid", (x, top), (x, bottom));
            text(&mut self.svg, "mark", x, bottom + 16.0, &mark_text(unit, mark));
        }
    }

    /// Ends the drawing.
    pub(super) fn close(self) -> String {
        self.svg + "</svg>\n"
    }
}

/// Begins a drawing [`WIDTH`] wide.
pub(super) fn open(svg: &mut String, title: &str, words: &str, height: f64) {
    let (title, words) = (escape(title), escape(words));
    // Writing to a string cannot fail.
    let _ = write!(
        svg,
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}. {words}\">\n\
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
