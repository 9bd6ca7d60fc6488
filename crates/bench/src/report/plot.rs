//! Small strip plots in SVG: every run a dot, the median a bar or a tick.
//!
//! Colours come from classes of the page's style sheet, so one drawing reads in light and dark.

use std::fmt::Write;

use crate::metric::Metric;
use crate::results::CaseResults;
use crate::stats;
use crate::table::figure;

/// Width of a plot and of its left and right columns, in user units.
const WIDTH: f64 = 720.0;
const LEFT: f64 = 168.0;
const RIGHT: f64 = 112.0;

/// Height of the title, of a row, and of the axis.
const TOP: f64 = 30.0;
const ROW: f64 = 24.0;
const BOTTOM: f64 = 24.0;

/// How values become positions.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Scale {
    /// From zero, so that lengths of bars may be compared.
    Linear,
    /// By powers of ten; no bars, for there is no zero.
    Log,
}

/// A plot of one or more metrics of all subjects of a case.
pub(super) struct Panel<'a> {
    pub(super) title: &'a str,
    /// Each with the words beside its rows.
    pub(super) series: &'a [(Metric, &'a str)],
    pub(super) scale: Scale,
}

/// One row of dots.
struct Strip {
    label: String,
    class: &'static str,
    runs: Vec<f64>,
    median: f64,
    text: String,
}

/// The range of an axis, with its marks.
struct Axis {
    scale: Scale,
    low: f64,
    high: f64,
    marks: Vec<f64>,
}

/// Draws a panel; empty if nothing of it was measured.
pub(super) fn draw(results: &CaseResults, panel: &Panel<'_>) -> String {
    let strips = strips(results, panel);
    let runs: Vec<f64> = strips.iter().flat_map(|strip| strip.runs.iter().copied()).collect();
    let Some(axis) = Axis::over(panel.scale, &runs) else { return String::new() };
    let height = TOP + ROW * strips.len() as f64 + BOTTOM;
    let mut svg = format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" aria-label=\"{title}\">\n\
         <text class=\"title\" x=\"0\" y=\"16\">{title}</text>\n",
        title = escape(panel.title)
    );
    draw_axis(&mut svg, &axis, panel.series[0].0, height);
    for (place, strip) in strips.iter().enumerate() {
        draw_strip(&mut svg, &axis, strip, TOP + ROW * (place as f64 + 0.5));
    }
    svg + "</svg>\n"
}

fn strips(results: &CaseResults, panel: &Panel<'_>) -> Vec<Strip> {
    let mut strips = Vec::new();
    for subject in results.subjects() {
        for (metric, words) in panel.series {
            let Some(runs) = results.figures(subject, *metric) else { continue };
            let Some(median) = stats::median(&runs) else { continue };
            strips.push(Strip {
                label: format!("{} {words}", subject.name()).trim_end().to_owned(),
                class: if subject.preloads() { "ours" } else { "theirs" },
                text: figure(*metric, median),
                runs,
                median,
            });
        }
    }
    strips
}

fn draw_axis(svg: &mut String, axis: &Axis, metric: Metric, height: f64) {
    let (top, bottom) = (TOP - 4.0, height - BOTTOM);
    for mark in &axis.marks {
        let x = axis.position(*mark);
        // Writing to a string cannot fail.
        let _ = writeln!(
            svg,
            "<line class=\"grid\" x1=\"{x:.1}\" x2=\"{x:.1}\" y1=\"{top}\" y2=\"{bottom}\"/>\
             <text class=\"mark\" x=\"{x:.1}\" y=\"{y}\">{text}</text>",
            y = bottom + 16.0,
            text = escape(&mark_text(metric, *mark))
        );
    }
}

/// Prints a mark of the axis: a figure without needless zeros.
fn mark_text(metric: Metric, value: f64) -> String {
    let text = figure(metric, value);
    let (number, unit) = text.split_once(' ').map_or((text.as_str(), ""), |(n, unit)| (n, unit));
    let number = if number.contains('.') {
        number.trim_end_matches('0').trim_end_matches('.')
    } else {
        number
    };
    format!("{number} {unit}").trim_end().to_owned()
}

fn draw_strip(svg: &mut String, axis: &Axis, strip: &Strip, y: f64) {
    let class = strip.class;
    let median = axis.position(strip.median);
    let (label, text) = (escape(&strip.label), escape(&strip.text));
    let _ = writeln!(
        svg,
        "<text class=\"label\" x=\"{x}\" y=\"{base}\">{label}</text>",
        x = LEFT - 10.0,
        base = y + 4.0
    );
    if axis.scale == Scale::Linear {
        let (top, width) = (y - 6.0, (median - LEFT).max(0.0));
        let _ = writeln!(
            svg,
            "<rect class=\"bar {class}\" x=\"{LEFT}\" y=\"{top}\" width=\"{width:.1}\" \
             height=\"12\"/>"
        );
    }
    for run in &strip.runs {
        let x = axis.position(*run);
        let _ =
            writeln!(svg, "<circle class=\"dot {class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\"/>");
    }
    let (top, bottom) = (y - 9.0, y + 9.0);
    let _ = writeln!(
        svg,
        "<line class=\"median {class}\" x1=\"{median:.1}\" x2=\"{median:.1}\" y1=\"{top}\" \
         y2=\"{bottom}\"/><text class=\"value\" x=\"{x}\" y=\"{base}\">{text}</text>",
        x = WIDTH - RIGHT + 14.0,
        base = y + 4.0
    );
}

impl Axis {
    /// Chooses a range for the values; `None` if there are none that can be drawn.
    fn over(scale: Scale, values: &[f64]) -> Option<Self> {
        let drawable = |value: &f64| value.is_finite() && (scale == Scale::Linear || *value > 0.0);
        let low = values.iter().copied().filter(drawable).reduce(f64::min)?;
        let high = values.iter().copied().filter(drawable).reduce(f64::max)?;
        Some(match scale {
            Scale::Linear => Self::linear(high),
            Scale::Log => Self::log(low, high),
        })
    }

    fn linear(high: f64) -> Self {
        let high = if high > 0.0 { high } else { 1.0 };
        let magnitude = 10_f64.powf((high / 4.0).log10().floor());
        let steps = [1.0, 2.0, 2.5, 5.0, 10.0].map(|factor| factor * magnitude);
        let step = steps.into_iter().find(|step| high / step <= 5.0).unwrap_or(high);
        let marks = (0..=5).map(|n| f64::from(n) * step).filter(|mark| *mark <= high).collect();
        Self { scale: Scale::Linear, low: 0.0, high: high * 1.03, marks }
    }

    fn log(low: f64, high: f64) -> Self {
        let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
        let last = last.max(first + 1);
        let marks: Vec<f64> = (first..=last).map(|power| 10_f64.powi(power)).collect();
        Self { scale: Scale::Log, low: 10_f64.powi(first), high: 10_f64.powi(last), marks }
    }

    /// Returns the x of a value; what cannot be drawn lies on the edge.
    fn position(&self, value: f64) -> f64 {
        let share = match self.scale {
            Scale::Linear => value / self.high,
            Scale::Log => (value / self.low).log10() / (self.high / self.low).log10(),
        };
        LEFT + share.clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT)
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::sample_results;

    #[test]
    fn a_logarithmic_axis_spans_whole_decades() {
        let axis = Axis::over(Scale::Log, &[3.0, 0.0, 4200.0]).expect("two values");
        assert_eq!((axis.low, axis.high), (1.0, 10_000.0));
        assert_eq!(axis.marks.len(), 5);
        assert_eq!(axis.position(0.0), LEFT);
        assert_eq!(axis.position(10_000.0), WIDTH - RIGHT);
    }

    #[test]
    fn a_linear_axis_starts_at_zero_and_has_few_marks() {
        for high in [0.003, 1.0, 19_800.0, 1.2e6] {
            let axis = Axis::over(Scale::Linear, &[high]).expect("a value");
            assert_eq!(axis.position(0.0), LEFT);
            assert!((3..=6).contains(&axis.marks.len()), "{high}: {:?}", axis.marks);
        }
    }

    #[test]
    fn nothing_measured_draws_nothing() {
        assert!(Axis::over(Scale::Log, &[0.0]).is_none());
        assert!(Axis::over(Scale::Linear, &[]).is_none());
    }

    #[test]
    fn every_run_is_a_dot() {
        let results = sample_results();
        let series = [(Metric::Iops, "")];
        let panel = Panel { title: "a < b", series: &series, scale: Scale::Linear };
        let svg = draw(&results.cases[0], &panel);
        assert_eq!(svg.matches("<circle").count(), 10);
        assert!(svg.contains("a &lt; b"));
    }
}
