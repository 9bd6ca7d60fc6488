//! Lines in SVG: a figure of several engines against something that grows.

use std::error::Error;
use std::ops::Range;

use plotters::coord::ranged1d::{AsRangedCoord, ValueFormatter};
use plotters::prelude::*;
use serde::Serialize;

use super::document::distinct;
use super::family::BLOCK_SIZE;
use super::view::is_ours;
use crate::error::{BenchError, Result};
use crate::units;

/// A drawing, with the names and the colours of its lines.
#[derive(Debug, Serialize)]
pub(super) struct Curve {
    pub(super) title: String,
    pub(super) lines: Vec<(String, String)>,
    pub(super) svg: String,
}

/// A figure of an engine, and the drawing that it is a point of.
pub(super) struct Dot<'a> {
    pub(super) title: String,
    pub(super) unit: &'a str,
    pub(super) engine: &'a str,
    pub(super) at: f64,
    pub(super) figure: f64,
    /// The range that a source names.
    pub(super) range: Option<(f64, f64)>,
}

struct Line {
    name: String,
    colour: RGBColor,
    points: Vec<(f64, f64)>,
}

struct Plot<'a> {
    unit: &'a str,
    along: &'a str,
    lines: Vec<Line>,
    range: Option<(f64, f64)>,
}

/// From here on figures of one plot are too far apart for an axis from zero.
const SPAN_MAX: f64 = 30.0;

/// Blue is nowait's; the others are told apart by those with and without colour vision, in light
/// and dark.
const OURS: RGBColor = RGBColor(0x1f, 0x77, 0xd0);
const OTHERS: [RGBColor; 7] = [
    RGBColor(0x80, 0x88, 0x94),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
    RGBColor(0xc7, 0x8c, 0x00),
    RGBColor(0x8c, 0x56, 0xc8),
    RGBColor(0x8c, 0x56, 0x4b),
];

/// Draws a curve of each title.
pub(super) fn curves(dots: &[Dot<'_>], along: &str) -> Result<Vec<Curve>> {
    let mut curves = Vec::new();
    for title in distinct(dots.iter().map(|dot| dot.title.as_str())) {
        let dots: Vec<&Dot<'_>> = dots.iter().filter(|dot| dot.title == title).collect();
        let plot = Plot { unit: dots[0].unit, along, lines: lines(&dots), range: dots[0].range };
        let svg =
            plot.svg().map_err(|error| BenchError::failed(format!("draw {title}: {error}")))?;
        let css = |RGBColor(red, green, blue)| format!("#{red:02x}{green:02x}{blue:02x}");
        let lines = plot.lines.iter().map(|line| (line.name.clone(), css(line.colour)));
        let (title, lines) = (title.to_owned(), lines.collect());
        curves.extend(svg.map(|svg| Curve { title, lines, svg }));
    }
    Ok(curves)
}

/// Makes a line of each engine that has two points.
fn lines(dots: &[&Dot<'_>]) -> Vec<Line> {
    let engines = distinct(dots.iter().map(|dot| dot.engine));
    let ours = engines.iter().position(|engine| is_ours(engine));
    let line = |(index, engine): (usize, &&str)| {
        let drawn = |dot: &&&Dot<'_>| dot.engine == *engine && dot.figure > 0.0;
        let mut points: Vec<(f64, f64)> =
            dots.iter().filter(drawn).map(|dot| (dot.at, dot.figure)).collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let colour = if ours == Some(index) { OURS } else { OTHERS[index % OTHERS.len()] };
        let name = engine.split('/').next().unwrap_or(engine).to_owned();
        (points.len() > 1).then_some(Line { name, colour, points })
    };
    engines.iter().enumerate().filter_map(line).collect()
}

impl Plot<'_> {
    /// Draws it; `None` of nothing.
    fn svg(&self) -> std::result::Result<Option<String>, Box<dyn Error>> {
        let points = || self.lines.iter().flat_map(|line| &line.points);
        let x = range(points().map(|point| point.0));
        let y = range(points().map(|point| point.1).chain(self.range.map(|range| range.1)));
        let Some((x, y)) = x.zip(y) else { return Ok(None) };
        let svg = match y.end < SPAN_MAX * y.start {
            true => self.draw(x, 0.0..y.end * 1.05),
            false => self.draw(x, (y.start * 0.8..y.end * 1.25).log_scale()),
        };
        svg.map(Some)
    }

    fn draw<Y>(&self, x: Range<f64>, y: Y) -> std::result::Result<String, Box<dyn Error>>
    where
        Y: AsRangedCoord<Value = f64>,
        Y::CoordDescType: ValueFormatter<f64>,
    {
        let mut places: Vec<f64> =
            self.lines.iter().flat_map(|line| line.points.iter().map(|point| point.0)).collect();
        places.sort_by(f64::total_cmp);
        places.dedup();
        let every = places.len().div_ceil(5).max(1);
        let along = if self.along == BLOCK_SIZE { units::bytes } else { units::count };
        let mut svg = String::new();
        let area = SVGBackend::with_string(&mut svg, (460, 260)).into_drawing_area();
        let mut chart = ChartBuilder::on(&area)
            .margin(10)
            .margin_right(24)
            .set_label_area_size(LabelAreaPosition::Bottom, 40)
            .set_label_area_size(LabelAreaPosition::Left, 62)
            .build_cartesian_2d(
                x.clone().log_scale().with_key_points(places.into_iter().step_by(every).collect()),
                y,
            )?;
        chart
            .configure_mesh()
            .disable_x_mesh()
            .max_light_lines(1)
            .label_style(("sans-serif", 14))
            .x_desc(self.along)
            .x_label_formatter(&|place| short(&along(*place)))
            .y_labels(5)
            .y_label_formatter(&|figure| short(&units::with_unit(self.unit, *figure)))
            .draw()?;
        if let Some((low, high)) = self.range {
            let style = OTHERS[4].mix(0.3).filled();
            chart.draw_series([Rectangle::new([(x.start, low), (x.end, high)], style)])?;
        }
        for line in &self.lines {
            let points = line.points.iter().copied();
            chart
                .draw_series(LineSeries::new(points, line.colour.stroke_width(2)).point_size(3))?;
        }
        area.present()?;
        drop((chart, area));
        Ok(svg)
    }
}

fn range(values: impl Iterator<Item = f64> + Clone) -> Option<Range<f64>> {
    Some(values.clone().reduce(f64::min)?..values.reduce(f64::max)?)
}

/// Leaves needless zeros out: `1.00 k` is `1 k`.
fn short(text: &str) -> String {
    let (number, unit) = text.split_once(' ').unwrap_or((text, ""));
    let number = match number.contains('.') {
        true => number.trim_end_matches('0').trim_end_matches('.'),
        false => number,
    };
    format!("{number} {unit}").trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_of_the_source_is_a_band_and_nothing_is_no_curve() {
        let points = vec![(4096.0, 1.0), (65536.0, 1.5)];
        let line = Line { name: "a".to_owned(), colour: OURS, points };
        let range = Some((1.2, 1.25));
        let mut plot = Plot { unit: "1", along: BLOCK_SIZE, lines: vec![line], range };
        let svg = plot.svg().expect("drawn").expect("a line");
        assert_eq!(svg.matches("#C78C00").count(), 1, "{svg}");
        plot.lines.clear();
        assert!(plot.svg().expect("drawn").is_none());
    }

    #[test]
    fn a_mark_has_no_needless_zeros() {
        assert_eq!(
            ["100 µs", "20.0 k", "0.50"].map(short),
            ["100 µs", "20 k", "0.5"].map(str::to_owned)
        );
    }
}
