//! The tables of the sources: their figures beside those simulated.

use std::fmt::Write;

use super::facts::capital;
use super::{figure, sizes};
use crate::report::document::{Document, RatioRow, distinct};
use crate::report::plot::{Forest, Interval, Pair, Pairs, Scale, escape};
use crate::units;

/// From here on figures of one plot are too far apart for a linear axis.
const SPAN_MAX: f64 = 30.0;

/// Prints how the changes compare, then every table.
pub(super) fn sections(saved: &Document) -> String {
    let tables = saved.cases().into_iter().map(|case| section(saved, case));
    overview(saved) + &tables.collect::<String>()
}

/// Draws every change that a source gives a figure for.
fn overview(saved: &Document) -> String {
    let judged = saved.ratios.iter().filter(|one| one.met.is_some());
    let (known, said): (Vec<&RatioRow>, Vec<_>) = judged.partition(|one| one.source.is_some());
    let count = |of: &[&RatioRow]| of.iter().filter(|one| one.met == Some(true)).count();
    let (met, kept) = (count(&known), count(&said));
    let row = |one: &&RatioRow| {
        let met = one.met == Some(true);
        let row = one.case.split(' ').next().unwrap_or_default();
        Interval {
            label: format!("{row} {}", one.metric),
            class: if met { "good" } else { "bad" },
            median: one.median,
            low: one.median,
            high: one.median,
            target: one.source,
            verdict: if met { "met".to_owned() } else { "missed".to_owned() },
        }
    };
    let forest = Forest {
        title: "How many times the figure before is the figure after; logarithmic",
        legend: "▮ the source · ● here, simulated",
        rows: known.iter().map(row).collect(),
    };
    let all = known.len();
    format!(
        "<section>\n<h2>The changes</h2>\n<p>{met} of {all} changes of the sources are met or \
         exceeded, to 2 %; {kept} of {} figures that they give as a range or in words are no worse \
         here.</p>\n{}</section>\n",
        said.len(),
        figure(&forest.draw())
    )
}

fn section(saved: &Document, case: &str) -> String {
    let mut html = format!("<section>\n<h2>{}</h2>\n", escape(case));
    let notes = saved.case_param(case, "notes").and_then(|notes| notes.as_array());
    for note in notes.into_iter().flatten().filter_map(|note| note.as_str()) {
        // Writing to a string cannot fail.
        let _ = writeln!(html, "<p>{}.</p>", escape(&capital(note)));
    }
    let placed = saved.rows_of(case).any(|row| row.point.is_some());
    html += &if placed { sizes::of_points(saved, case) } else { pairs(saved, case) };
    html + "<details><summary>Figures</summary>\n"
        + &figures(saved, case)
        + "</details>\n</section>\n"
}

/// Draws the figures, those of a unit together as long as they are not too far apart.
fn pairs(saved: &Document, case: &str) -> String {
    let mut html = String::new();
    for unit in distinct(saved.rows_of(case).map(|row| row.unit.as_str())) {
        let of_unit = saved.rows_of(case).filter(|row| row.unit == unit);
        let pair = |metric: &str| {
            let median = |engine| Some(saved.row(case, engine, metric)?.summary()?.median);
            Some(Pair {
                label: metric.to_owned(),
                source: median("source-before").zip(median("source")),
                here: (median("baseline")?, median("nowait")?),
            })
        };
        let metrics = distinct(of_unit.map(|row| row.metric.as_str()));
        let rows: Vec<Pair> = metrics.into_iter().filter_map(pair).collect();
        let title = match is_wide(&rows) {
            true => format!("Before and after, in {unit}; logarithmic"),
            false => format!("Before and after, in {unit}"),
        };
        let scale = if is_wide(&rows) { Scale::Log } else { Scale::Linear };
        html += &figure(&Pairs { title: &title, unit, scale, rows }.draw());
    }
    html
}

fn is_wide(rows: &[Pair]) -> bool {
    let all = rows.iter().flat_map(|pair| [Some(pair.here), pair.source]).flatten();
    let all: Vec<f64> = all.flat_map(|(before, after)| [before, after]).collect();
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    low > 0.0 && high / low > SPAN_MAX
}

fn figures(saved: &Document, case: &str) -> String {
    let mut html = "<div class=\"scroll\"><table>\n<tr><th>What</th><th>Unit</th>\
                    <th class=\"n\">Source</th><th class=\"n\">Baseline</th>\
                    <th class=\"n\">nowait</th><th class=\"n\">Change: source</th>\
                    <th class=\"n\">here</th><th>Met</th></tr>\n"
        .to_owned();
    for ratio in saved.ratios.iter().filter(|ratio| ratio.case == case) {
        html += &figures_row(saved, ratio);
    }
    html + "</table></div>\n"
}

fn figures_row(saved: &Document, ratio: &RatioRow) -> String {
    let row = |engine| saved.row(&ratio.case, engine, &ratio.metric);
    let median = |engine| Some(row(engine)?.summary()?.median);
    let text = |engine| median(engine).map_or("–".to_owned(), units::digits);
    let source = match (median("source-before"), median("source")) {
        (Some(before), Some(after)) => {
            format!("{} → {}", units::digits(before), units::digits(after))
        }
        _ => ratio.source_words.clone().unwrap_or_else(|| "–".to_owned()),
    };
    let change =
        ratio.source.map_or("–".to_owned(), |source| format!("{}×", units::ratio(source)));
    let met = match ratio.met {
        Some(true) => "<span class=\"badge met\">met</span>",
        Some(false) => "<span class=\"badge missed\">missed</span>",
        None => "–",
    };
    format!(
        "<tr><th scope=\"row\">{}</th><td>{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>\
         <td class=\"n\">{}</td><td class=\"n\">{change}</td><td class=\"n\">{}×</td>\
         <td>{met}</td></tr>\n",
        escape(&ratio.metric),
        escape(row("nowait").map_or("", |row| row.unit.as_str())),
        escape(&source),
        text("baseline"),
        text("nowait"),
        units::ratio(ratio.median)
    )
}
