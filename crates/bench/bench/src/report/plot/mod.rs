//! Plots in SVG, drawn for a page that brings the style sheet.
//!
//! ```text
//!  axis     positions and marks             rows     a plot of labels, marks and values
//!  strips   every run a dot                 spread   median to maximum of each engine
//!  pairs    before and after, two sources   forest   ratios with their intervals
//!  lines    a figure against the block size
//! ```
//!
//! Colours come from classes, so that one drawing reads in light and dark. Each plot says in words
//! what it shows, for readers who do not see it.

mod axis;
mod forest;
mod lines;
mod pairs;
mod rows;
mod spread;
mod strips;

pub(super) use axis::Scale;
pub(super) use forest::{Forest, Interval};
pub(super) use lines::{Along, Band, Line, Lines};
pub(super) use pairs::{Pair, Pairs};
pub(super) use spread::{Spread, SpreadRow};
pub(super) use strips::{Strip, Strips};

/// Makes text safe inside HTML and SVG.
pub(super) fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}
