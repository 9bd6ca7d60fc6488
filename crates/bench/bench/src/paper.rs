//! `bench paper`: the sources' experiments on models of their devices, in virtual time.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use comfy_table::Cell;
use nowait_paper::{Row, Scale, Source, Table};
use nowait_sim::Hardware;
use serde_json::{Value, json};

use crate::args::MeasureArgs;
use crate::error::{Failure, Result};
use crate::interrupt;
use crate::metric::Better;
use crate::report::{ReportArgs, SCHEMA, to_text};
use crate::table::{new_table, right};
use crate::workload::{PAPER, WorkloadArgs, run_workload};

const EXAMPLES: &str = "\
Examples:
  nowait bench paper                           every table, on one Ultra2 SCSI disk
  nowait bench paper --device sim:raid20       … on 20 logical drives of 4 disks
  nowait bench paper --seed 7 --json           another draw, as JSON on standard output
  nowait bench paper --json paper.json         the tables, and the figures in a file
  nowait bench paper --device /var/tmp         on this disk, with all peers: seven minutes
  nowait bench paper --html paper.html         … and a page with the curves

The same model and seed give the same output to the last byte.";

/// Repeats the sources' experiments in virtual time, before and after, on a model of a device.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct PaperArgs {
    /// A model: sim:u2scsi, sim:raid20, sim:hdd, sim:sata-ssd or sim:nvme; or a file, a folder, a
    /// block device, ram
    #[arg(long, value_name = "sim:MODEL|PATH", default_value = "sim:u2scsi")]
    pub device: String,

    /// Decides all that is drawn: places and kinds of requests
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub seed: u64,

    /// Smaller files and fewer requests: the shapes, in seconds
    #[arg(long)]
    pub quick: bool,

    /// On a device that exists: runs of each engine in each case [default: 5, with --quick 1];
    /// fewer than 5 give no verdict
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub rounds: Option<u16>,

    /// On a device that exists: drop only the pages of the test file before a run
    #[arg(long)]
    pub keep_caches: bool,

    /// On a device that exists: keep the laid-out file for the next measurement
    #[arg(long)]
    pub keep: bool,

    /// Reports to write
    #[command(flatten)]
    pub reports: ReportArgs,
}

/// On a device that exists, measures instead of simulating, and returns no table.
pub(crate) fn run_paper(args: &PaperArgs) -> Result<Vec<Table>> {
    if !args.device.starts_with("sim:") {
        return run_workload(&PAPER, &args.on_device()).map(|_| Vec::new());
    }
    let hardware = Hardware::named(&args.device).map_err(Failure::usage)?;
    let scale = if args.quick { Scale::SMALL } else { Scale::FULL };
    interrupt::install();
    args.reports.prepare()?;
    let bar = indicatif::ProgressBar::new_spinner();
    let tables = nowait_paper::tables(&hardware, scale, args.seed, |what| {
        bar.set_message(format!("simulating {what}"));
        bar.tick();
        !interrupt::happened()
    });
    bar.finish_and_clear();
    args.reports.say(&text(args, &hardware, &tables));
    let figures = json(args, &hardware, &tables)?;
    args.reports.write(&figures)?;
    interrupt::check()?;
    Ok(tables)
}

impl PaperArgs {
    fn on_device(&self) -> WorkloadArgs {
        let measure = MeasureArgs {
            rounds: self.rounds.or(self.quick.then_some(1)),
            quick: self.quick,
            keep: self.keep,
            reports: self.reports.clone(),
            ..MeasureArgs::default()
        };
        WorkloadArgs {
            measure,
            device: PathBuf::from(&self.device),
            overwrite: false,
            keep_caches: self.keep_caches,
        }
    }
}

fn text(args: &PaperArgs, hardware: &Hardware, tables: &[Table]) -> String {
    let mut text = String::new();
    let _ = writeln!(text, "{}: {}; seed {}", hardware.name, hardware.about, args.seed);
    let _ = writeln!(text, "Simulated in virtual time; processor times from one table of costs.");
    for table in tables {
        let _ = writeln!(text, "\n{} · {}\n{}", table.row, table.title, rows(table));
        for note in &table.notes {
            let _ = writeln!(text, "Note: {note}.");
        }
    }
    let count = |of_changes: bool| {
        let rows = tables.iter().flat_map(|table| &table.rows);
        let judged = rows.filter(|row| row.source.ratio().is_some() == of_changes);
        let judged: Vec<bool> = judged.filter_map(Row::is_met).collect();
        (judged.iter().filter(|met| **met).count(), judged.len())
    };
    let (met, all) = count(true);
    let _ = write!(text, "\n{met} of {all} changes of the sources are met or exceeded, to 2 %.");
    let (kept, said) = count(false);
    let what = "that the sources give as a range or in words are no worse here";
    let _ = write!(text, "\n{kept} of {said} figures {what}, to 2 %.");
    text
}

fn rows(table: &Table) -> comfy_table::Table {
    let mut text =
        new_table(&["what", "unit", "source", "baseline", "nowait", "source", "here", "met"]);
    for row in &table.rows {
        let ratio = row.source.ratio().map_or("–".to_owned(), |ratio| format!("{ratio:.3}×"));
        let met = row.is_met().map_or("–", |met| if met { "yes" } else { "no" });
        text.add_row([
            Cell::new(&row.what),
            Cell::new(row.unit),
            right(source(row.source)),
            right(figure(row.baseline)),
            right(figure(row.nowait)),
            right(ratio),
            right(format!("{:.3}×", row.ratio())),
            Cell::new(met),
        ]);
    }
    text
}

fn source(source: Source) -> String {
    match source {
        Source::Figures(before, after) => format!("{} → {}", figure(before), figure(after)),
        Source::Between(low, high) => format!("{low:.2}–{high:.2}"),
        Source::Said(words) => words.to_owned(),
        Source::Ratio(_) | Source::Silent => "–".to_owned(),
    }
}

fn figure(value: f64) -> String {
    if value >= 1_000.0 { format!("{value:.0}") } else { format!("{value:.2}") }
}

fn json(args: &PaperArgs, hardware: &Hardware, tables: &[Table]) -> Result<String> {
    let rows = || tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
    let case_params = |table| json!({ "case": case(table), "notes": table.notes });
    let cases: Vec<Value> = tables.iter().map(case_params).collect();
    to_text(&json!({
        "schema": SCHEMA,
        // The model stands for the host: the machine that simulates has no effect on the figures.
        "host": { "device": hardware.name, "about": hardware.about },
        "workload": "paper",
        "params": { "seed": args.seed, "quick": args.quick, "cases": cases },
        "partial": interrupt::happened(),
        "rows": rows().flat_map(|(table, row)| json_rows(table, row)).collect::<Vec<_>>(),
        "ratios": rows().map(|(table, row)| json_ratio(table, row)).collect::<Vec<_>>(),
    }))
}

fn case(table: &Table) -> String {
    format!("{} {}", table.row, table.title)
}

fn json_rows(table: &Table, row: &Row) -> Vec<Value> {
    let mut figures = match row.source {
        Source::Figures(before, after) => vec![("source-before", before), ("source", after)],
        Source::Ratio(_) | Source::Between(..) | Source::Said(_) | Source::Silent => Vec::new(),
    };
    figures.extend([("baseline", row.baseline), ("nowait", row.nowait)]);
    let point = row.point.as_ref().map(|point| {
        json!({
            "block_bytes": point.block_bytes,
            "plot": point.plot,
            "series": point.series,
            "quantity": point.quantity,
        })
    });
    let figure = |(engine, value): (&str, f64)| {
        let mut json = json!({
            "engine": engine,
            "case": case(table),
            "metric": row.what,
            "unit": row.unit,
            "better": if row.more_is_better { Better::More } else { Better::Less },
            "runs": [value],
            "median": value,
            "min": value,
            "max": value,
        });
        if let Some(point) = &point {
            json["point"] = point.clone();
        }
        json
    };
    figures.into_iter().map(figure).collect()
}

fn json_ratio(table: &Table, row: &Row) -> Value {
    let (range, words) = match row.source {
        Source::Between(low, high) => (Some((low, high)), Some(source(row.source))),
        Source::Said(words) => (None, Some(words.to_owned())),
        Source::Figures(..) | Source::Ratio(_) | Source::Silent => (None, None),
    };
    json!({
        "case": case(table),
        "metric": row.what,
        "a": "baseline",
        "b": "nowait",
        "median": row.ratio(),
        "source": row.source.ratio(),
        "source_range": range,
        "source_words": words,
        "met": row.is_met(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    fn args(arguments: &[&str]) -> PaperArgs {
        parse(arguments)
    }

    #[test]
    fn an_unknown_model_is_wrong_usage_and_the_known_are_named() {
        let error = run_paper(&args(&["--device", "sim:tape"])).expect_err("unknown");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("sim:raid20"), "{error}");
    }

    #[test]
    fn json_goes_to_a_file_or_to_standard_output() {
        assert_eq!(args(&["--json"]).reports.json, Some(PathBuf::from("-")));
        assert_eq!(args(&["--json", "a.json"]).reports.json, Some(PathBuf::from("a.json")));
        assert_eq!(args(&[]).reports.json, None);
    }

    #[test]
    fn the_text_and_the_json_have_every_row() {
        let (args, hardware) = (args(&[]), Hardware::named("sim:u2scsi").expect("known"));
        let row = |source| Row {
            what: "random read".to_owned(),
            unit: "MB/s",
            more_is_better: true,
            source,
            point: None,
            baseline: 10.0,
            nowait: 25.0,
        };
        let rows = vec![row(Source::Figures(10.08, 23.91)), row(Source::Said("less"))];
        let tables = [Table { row: "M1", title: "x".to_owned(), notes: Vec::new(), rows }];
        let text = text(&args, &hardware, &tables);
        assert!(text.contains("10.08 → 23.91") && text.contains("2.500×"), "{text}");
        assert!(text.contains("1 of 1 changes") && text.contains("1 of 1 figures"), "{text}");
        let json: serde_json::Value =
            serde_json::from_str(&json(&args, &hardware, &tables).expect("JSON")).expect("valid");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(6));
        assert_eq!(json["ratios"][0]["met"], true);
    }
}
