//! The command line of `bench compare`.

use std::path::PathBuf;

use clap::Args;

use super::judge::{Comparison, some_of};
use super::show;
use crate::args::unknown;
use crate::error::{BenchError, Result};
use crate::report::{self, Document, ReportArgs, Row, distinct, to_text};

const EXAMPLES: &str = "\
Exit code: 0, or 1 if a file cannot be read or --fail-above was exceeded, 2 for wrong usage.

Examples:
  nowait bench compare before.json after.json
  nowait bench compare before.json after.json --changed --html change.html
  nowait bench compare main.json mine.json --metric iops,cpu_us_per_io --fail-above 10
  nowait bench compare a.json b.json --json | jq '.rows[] | select(.verdict == \"worse\")'";

/// Compares two saved measurements of the same workload, figure by figure.
///
/// Each ratio is the median of B divided by that of A, with a 95 % bootstrap interval; a figure is
/// better or worse only if the whole interval is. The interval does not cover changes of the whole
/// machine between the two measurements: for that, measure both in one run.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct CompareArgs {
    /// The measurement that is compared with: what --json of a benchmark has written
    #[arg(value_name = "A.json")]
    pub a: PathBuf,

    /// The measurement that is judged
    #[arg(value_name = "B.json")]
    pub b: PathBuf,

    /// Only these cases
    #[arg(long = "case", value_name = "NAME,…", value_delimiter = ',')]
    pub cases: Vec<String>,

    /// Only these engines
    #[arg(long = "engine", value_name = "NAME,…", value_delimiter = ',')]
    pub engines: Vec<String>,

    /// Only these metrics, such as iops,cpu_us_per_io
    #[arg(long = "metric", value_name = "NAME,…", value_delimiter = ',')]
    pub metrics: Vec<String>,

    /// Show only what differs beyond the noise
    #[arg(long)]
    pub changed: bool,

    /// Fail if a figure is worse by more than this, beyond the noise
    #[arg(long, value_name = "PERCENT", value_parser = parse_percent)]
    pub fail_above: Option<f64>,

    /// Reports to write
    #[command(flatten)]
    pub reports: ReportArgs,
}

/// An option, the names that it has, and the part of a row that these select.
type Selector<'a> = (&'static str, &'a [String], fn(&Row) -> &str);

/// Compares, and prints a table for each case or the JSON.
///
/// # Errors
/// A file cannot be read or is no measurement, they have nothing in common, a report cannot be
/// written, or a figure is worse by more than `--fail-above`.
pub fn run_compare(args: &CompareArgs) -> Result<()> {
    let (a, b) = (Document::read(&args.a)?, Document::read(&args.b)?);
    args.check_names(&a, &b)?;
    let mut comparison = Comparison::of(args.choose(a), args.choose(b))?;
    comparison.changed = args.changed;
    let names = [&args.a, &args.b].map(|path| path.display().to_string());
    args.reports.prepare()?;
    // An output that takes nothing keeps no file from being written.
    let printed = match args.reports.json_is_stdout() {
        true => Ok(()),
        false => report::print(&show::text(&comparison, &names)),
    };
    args.reports.write(&to_text(&show::json(&comparison, &names))?)?;
    printed?;
    args.fail_if_worse(&comparison)
}

impl CompareArgs {
    fn selectors(&self) -> [Selector<'_>; 3] {
        [
            ("case", &self.cases, |row| &row.case),
            ("engine", &self.engines, |row| &row.engine),
            ("metric", &self.metrics, |row| &row.metric),
        ]
    }

    /// Fails unless each name asked for is in one of the files; the message has those that are.
    fn check_names(&self, a: &Document, b: &Document) -> Result<()> {
        for (what, asked, name) in self.selectors() {
            let known = distinct(a.rows.iter().chain(&b.rows).map(name));
            if let Some(asked) = asked.iter().find(|asked| !known.contains(&asked.as_str())) {
                return Err(unknown(what, asked, &[some_of(&known).as_str()]));
            }
        }
        Ok(())
    }

    /// Leaves the rows that were asked for.
    fn choose(&self, mut saved: Document) -> Document {
        for (_, asked, name) in self.selectors() {
            saved.rows.retain(|row| asked.is_empty() || asked.iter().any(|it| it == name(row)));
        }
        saved
    }

    fn fail_if_worse(&self, comparison: &Comparison) -> Result<()> {
        let Some(percent) = self.fail_above else { return Ok(()) };
        let worse: Vec<String> = comparison
            .worse_than(percent)
            .map(|one| format!("{}, {}: {}", one.case, one.engine, one.label))
            .collect();
        match worse.first() {
            None => Ok(()),
            Some(first) => Err(BenchError::failed(format!(
                "{} figures are worse by more than {percent} %; the first is {first}",
                worse.len()
            ))),
        }
    }
}

fn parse_percent(text: &str) -> std::result::Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    let number = number.filter(|number| (0.0..=1e6).contains(number));
    number.ok_or_else(|| format!("'{text}' is no percentage; write 10"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compare::judge::tests::file;
    use crate::testing::parse;
    use serde_json::Value;
    use std::fs;

    const FAST: [f64; 5] = [200.0, 202.0, 204.0, 206.0, 208.0];
    const SLOW: [f64; 5] = [100.0, 101.0, 102.0, 103.0, 104.0];

    /// Runs a comparison; returns its JSON and its page too.
    fn compare(a: &str, b: &str, arguments: &[&str]) -> (Result<()>, Value, String) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let (json, html) = (path("c.json"), path("c.html"));
        let files = [a, b, "--json", &json, "--html", &html];
        let outcome = run_compare(&parse(&[&files[..], arguments].concat()));
        let read = |path| fs::read_to_string(path).expect("a report");
        (outcome, serde_json::from_str(&read(json)).expect("JSON"), read(html))
    }

    /// Runs the comparison of two files of these figures.
    fn run(a: &[f64], b: &[f64], arguments: &[&str]) -> (Result<()>, Value) {
        let folder = tempfile::tempdir().expect("a folder");
        let [a, b] = [("a.json", a), ("b.json", b)].map(|(name, runs)| {
            let path = folder.path().join(name).display().to_string();
            let rows = file(&[("nowait", "iops", "1/s", runs), ("peer", "iops", "1/s", &SLOW)]);
            fs::write(&path, rows.to_string()).expect("written");
            path
        });
        let (outcome, json, page) = compare(&a, &b, arguments);
        report::check(&page);
        let better = json["counts"]["better"].as_u64().expect("a number");
        assert!(page.contains(&format!("{better} better</span>")), "the first line");
        (outcome, json)
    }

    #[test]
    fn a_percentage_may_have_its_sign() {
        assert_eq!(parse_percent("12.5 %"), Ok(12.5));
        assert!(parse_percent("-1").is_err() && parse_percent("NaN").is_err());
    }

    #[test]
    fn ratio_interval_and_verdict_of_known_files() {
        let (outcome, json) = run(&SLOW, &FAST, &[]);
        assert_eq!(outcome, Ok(()));
        let row = &json["rows"][0];
        assert_eq!((&row["engine"], &row["verdict"]), (&"nowait".into(), &"better".into()));
        assert_eq!(row["ratio"], 2.0);
        let (low, high) = (row["low"].as_f64(), row["high"].as_f64());
        assert!(low.is_some_and(|low| low > 1.9) && high.is_some_and(|high| high < 2.1), "{row}");
        assert_eq!(json["rows"][1]["verdict"], "inside the noise");
        assert_eq!(json["counts"]["better"], 1);
    }

    /// The parameters of that version had other types.
    #[test]
    fn a_file_of_an_older_version_can_be_compared() {
        let older = concat!(env!("CARGO_MANIFEST_DIR"), "/testdata/older.json");
        let (outcome, json, page) = compare(older, older, &[]);
        assert_eq!(outcome, Ok(()));
        let first = (&json["of"], &json["rows"][0]["case"]);
        assert_eq!(first, (&"vector".into(), &"segments-8".into()));
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(40));
        assert!(page.contains("random chunks of 16 adjoining blocks, direct"), "the title");
    }

    #[test]
    fn a_figure_that_got_worse_fails_if_asked() {
        assert_eq!(run(&FAST, &SLOW, &[]).0, Ok(()));
        assert_eq!(run(&FAST, &SLOW, &["--fail-above", "60"]).0, Ok(()));
        assert_eq!(run(&FAST, &SLOW, &["--fail-above", "10", "--engine", "peer"]).0, Ok(()));
        let error = run(&FAST, &SLOW, &["--fail-above", "10"]).0.expect_err("worse by half");
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("1 figures are worse by more than 10 %"), "{error}");
    }

    #[test]
    fn a_name_that_is_in_neither_file_is_told_with_those_that_are() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("a.json").display().to_string();
        let rows = file(&[("nowait", "iops", "1/s", &SLOW), ("peer", "iops", "1/s", &SLOW)]);
        fs::write(&path, rows.to_string()).expect("written");
        for (option, known) in
            [("--case", "there are a"), ("--engine", "nowait, peer"), ("--metric", "iops")]
        {
            let args = parse(&[&path, &path, option, "foo"]);
            let error = run_compare(&args).expect_err("no such name");
            assert_eq!(error.exit_code(), 2);
            let text = error.to_string();
            assert!(text.contains("'foo'") && text.contains(known), "{text}");
        }
    }

    #[test]
    fn only_what_changed_is_shown_if_asked() {
        let (_, json) = run(&SLOW, &FAST, &["--changed"]);
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(1));
    }

    #[test]
    fn a_file_that_is_not_there_is_a_failure() {
        let args = parse(&["/nonexistent/a.json", "/nonexistent/b.json"]);
        let error = run_compare(&args).expect_err("not there");
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("/nonexistent/a.json"), "{error}");
    }
}
