//! `bench compare`: two saved measurements of the same kind, figure by figure.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use comfy_table::{Cell, Color};
use serde::Serialize;
use serde_json::{Map, Value};

use crate::args::unknown;
use crate::error::{Failure, Result};
use crate::metric::Better;
use crate::report::{self, Document, ReportArgs, Row, SCHEMA, distinct, to_text};
use crate::stats::{self, Ratio};
use crate::table::{new_table, right};
use crate::units;
use crate::verdict::{ROUNDS_MIN, ratio_text};

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

/// The first three verdicts are for differences beyond the noise.
const BETTER: &str = "better";
const WORSE: &str = "worse";
/// The runs differ in a metric without a better side.
const CHANGED: &str = "changed";
const INSIDE_NOISE: &str = "inside the noise";
const TOO_FEW_ROUNDS: &str = "too few rounds";
const SAME: &str = "the same";

#[derive(Debug, Serialize)]
struct Comparison {
    schema: u32,
    workload: &'static str,
    of: String,
    a: Side,
    b: Side,
    differences: BTreeMap<&'static str, Vec<Setting>>,
    cases: Vec<Title>,
    rows: Vec<Compared>,
    /// Cases and engines, as `case, engine`, that only A has; `only_b`: that only B has.
    only_a: Vec<String>,
    only_b: Vec<String>,
    figures: usize,
    counts: BTreeMap<&'static str, usize>,
    /// Both measurements were computed in virtual time, so every difference counts.
    exact: bool,
}

#[derive(Debug, Serialize)]
struct Side {
    file: String,
    host: Map<String, Value>,
    partial: bool,
}

#[derive(Debug, Serialize)]
struct Title {
    case: String,
    title: Option<String>,
}

/// A setting that differs between the two measurements. `None`: that measurement does not have the
/// setting.
#[derive(Debug, PartialEq, Serialize)]
struct Setting {
    name: String,
    a: Option<String>,
    b: Option<String>,
}

#[derive(Debug, Serialize)]
struct Compared {
    case: String,
    engine: String,
    metric: String,
    label: String,
    unit: String,
    better: Better,
    a_median: f64,
    b_median: f64,
    a_mad: f64,
    b_mad: f64,
    /// `b` divided by `a`, with its interval; `None` if a resampled median of `a` is zero.
    ratio: Option<f64>,
    low: Option<f64>,
    high: Option<f64>,
    verdict: &'static str,
}

/// An option, the names that the user gave, and the function that returns such a name from a row.
type Selector<'a> = (&'static str, &'a [String], fn(&Row) -> &str);

pub fn run_compare(args: &CompareArgs) -> Result<()> {
    let (a, b) = (Document::read(&args.a)?, Document::read(&args.b)?);
    args.check_names(&a, &b)?;
    let names = [&args.a, &args.b].map(|path| path.display().to_string());
    let mut comparison = Comparison::of(args.choose(a), args.choose(b), names)?;
    if args.changed {
        comparison.rows.retain(|row| [BETTER, WORSE, CHANGED].contains(&row.verdict));
    }
    args.reports.prepare()?;
    // A failure of standard output does not keep the program from writing the files.
    let printed = match args.reports.json_is_stdout() {
        true => Ok(()),
        false => report::print(&comparison.text()),
    };
    args.reports.write(&to_text(&comparison)?)?;
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

    fn check_names(&self, a: &Document, b: &Document) -> Result<()> {
        for (what, asked, name) in self.selectors() {
            let known = distinct(a.rows.iter().chain(&b.rows).map(name));
            if let Some(asked) = asked.iter().find(|asked| !known.contains(&asked.as_str())) {
                return Err(unknown(what, asked, &known));
            }
        }
        Ok(())
    }

    fn choose(&self, mut saved: Document) -> Document {
        for (_, asked, name) in self.selectors() {
            saved.rows.retain(|row| asked.is_empty() || asked.iter().any(|it| it == name(row)));
        }
        saved
    }

    fn fail_if_worse(&self, comparison: &Comparison) -> Result<()> {
        let Some(percent) = self.fail_above else { return Ok(()) };
        let is_worse = |row: &&Compared| row.verdict == WORSE && row.worse_percent() > percent;
        let worse: Vec<&Compared> = comparison.rows.iter().filter(is_worse).collect();
        let Some(first) = worse.first() else { return Ok(()) };
        Err(Failure::new(format!(
            "{} figures are worse by more than {percent} %; the first is {}, {}: {}",
            worse.len(),
            first.case,
            first.engine,
            first.label
        )))
    }
}

fn parse_percent(text: &str) -> std::result::Result<f64, String> {
    let number = text.trim().trim_end_matches('%').trim_end().parse::<f64>().ok();
    let number = number.filter(|number| (0.0..=1e6).contains(number));
    number.ok_or_else(|| format!("'{text}' is no percentage; write 10"))
}

impl Compared {
    /// With `exact`, the figures were computed, not measured, so every difference counts.
    fn of(a: &Row, b: &Row, exact: bool) -> Option<Self> {
        let (runs_a, runs_b) = (a.runs(), b.runs());
        let (summary_a, summary_b) = (a.summary?, b.summary?);
        let unpaired = stats::unpaired(&runs_a, &runs_b)?;
        let (low, high) = unpaired.difference;
        let better = b.better();
        let rounds = runs_a.len().min(runs_b.len());
        let verdict = match () {
            () if low == 0.0 && high == 0.0 => SAME,
            () if rounds < ROUNDS_MIN && !exact => TOO_FEW_ROUNDS,
            () if low <= 0.0 && high >= 0.0 => INSIDE_NOISE,
            () if better == Better::Neither => CHANGED,
            () if (low > 0.0) == (better == Better::More) => BETTER,
            () => WORSE,
        };
        let ratio = unpaired.ratio.as_ref();
        Some(Self {
            case: a.case.clone(),
            engine: a.engine.clone(),
            metric: a.metric.clone(),
            label: b.label().to_owned(),
            unit: b.unit.clone(),
            better,
            a_median: summary_a.median,
            b_median: summary_b.median,
            a_mad: summary_a.mad,
            b_mad: summary_b.mad,
            ratio: ratio.map(|ratio| ratio.median),
            low: ratio.map(|ratio| ratio.low),
            high: ratio.map(|ratio| ratio.high),
            verdict,
        })
    }

    fn ratio(&self) -> Option<Ratio> {
        let (median, low, high) = (self.ratio?, self.low?, self.high?);
        Some(Ratio { median, low, high, rounds: Vec::new() })
    }

    /// Negative or zero if B's figure is better. Infinite if B's figure is larger, less is better,
    /// and there is no ratio.
    fn worse_percent(&self) -> f64 {
        let change = match self.ratio {
            Some(ratio) => ratio - 1.0,
            None if self.b_median > self.a_median => f64::INFINITY,
            None => 0.0,
        };
        match self.better {
            Better::More => -100.0 * change,
            Better::Less => 100.0 * change,
            Better::Neither => 0.0,
        }
    }
}

impl Comparison {
    fn of(a: Document, b: Document, [name_a, name_b]: [String; 2]) -> Result<Self> {
        if a.workload != b.workload {
            let message = format!("a {} and a {} cannot be compared", a.workload, b.workload);
            return Err(Failure::new(message));
        }
        let exact = a.is_simulated() && b.is_simulated();
        let pair =
            |row: &Row| Compared::of(row, b.row(&row.case, &row.engine, &row.metric)?, exact);
        let rows: Vec<Compared> = a.rows.iter().filter_map(pair).collect();
        if rows.is_empty() {
            let [a, b] = [&a, &b].map(Document::contents);
            let message = format!("they have no figure in common; A has {a}; B has {b}");
            return Err(Failure::new(message));
        }
        let mut counts = BTreeMap::new();
        rows.iter().for_each(|row| *counts.entry(row.verdict).or_default() += 1);
        let hosts = [&a, &b].map(|saved| Value::Object(saved.host.clone()));
        let title = |case: &str| Title {
            case: case.to_owned(),
            title: a.case_param(case, "title").and_then(Value::as_str).map(str::to_owned),
        };
        Ok(Self {
            schema: SCHEMA,
            workload: "compare",
            differences: BTreeMap::from([
                ("params", differences("params", &a.params, &b.params)),
                ("host", differences("host", &hosts[0], &hosts[1])),
            ]),
            cases: distinct(rows.iter().map(|row| row.case.as_str()))
                .into_iter()
                .map(title)
                .collect(),
            only_a: missing(&a, &b),
            only_b: missing(&b, &a),
            figures: rows.len(),
            rows,
            counts,
            exact,
            of: a.workload,
            a: Side { file: name_a, host: a.host, partial: a.partial },
            b: Side { file: name_b, host: b.host, partial: b.partial },
        })
    }

    fn text(&self) -> String {
        let mut text = format!("{}: A is {}, B is {}\n", self.of, self.a.file, self.b.file);
        for (what, settings) in &self.differences {
            let same = if settings.is_empty() { "the same" } else { "differ" };
            let _ = writeln!(text, "{what}: {same}");
            for Setting { name, a, b } in settings {
                let [a, b] = [a, b].map(|side| side.as_deref().unwrap_or("not there"));
                let _ = writeln!(text, "  {name}: {a} | {b}");
            }
        }
        for (name, side) in [("A", &self.a), ("B", &self.b)].iter().filter(|it| it.1.partial) {
            let file = &side.file;
            let _ = writeln!(text, "{name} was interrupted: {file} has fewer cases or rounds.");
        }
        for Title { case, title } in &self.cases {
            let rows: Vec<&Compared> = self.rows.iter().filter(|row| row.case == *case).collect();
            if !rows.is_empty() {
                let title = title.as_deref().unwrap_or_default();
                let _ = writeln!(text, "\n{case} · {title}\n{}", table(&rows));
            }
        }
        for (name, only) in [("A", &self.only_a), ("B", &self.only_b)] {
            if !only.is_empty() {
                let _ = writeln!(text, "\nOnly in {name}: {}.", only.join("; "));
            }
        }
        let counts = self.counts.iter().map(|(name, count)| format!("{count} {name}"));
        let counts = counts.collect::<Vec<_>>().join(", ");
        let _ = writeln!(text, "\nOf {} figures: {counts}.", self.figures);
        text + match self.exact {
            true => "Ratios are B / A. Both were computed in virtual time: any difference is one.",
            false => {
                "Ratios are medians, B / A, with a 95 % bootstrap interval of the noise within \
                 each file;\nwhat changed between the two measurements for the whole machine is \
                 not in it."
            }
        }
    }
}

fn table(rows: &[&Compared]) -> comfy_table::Table {
    let mut table = new_table(&["engine", "metric", "A", "B", "B / A", "verdict"]);
    for row in rows {
        let side = |median| right(units::with_unit(&row.unit, median));
        let verdict = Cell::new(row.verdict);
        table.add_row([
            Cell::new(&row.engine),
            Cell::new(&row.label),
            side(row.a_median),
            side(row.b_median),
            right(row.ratio().map_or("–".to_owned(), |ratio| ratio_text(&ratio))),
            match row.verdict {
                BETTER => verdict.fg(Color::Green),
                WORSE => verdict.fg(Color::Red),
                TOO_FEW_ROUNDS => verdict.fg(Color::Yellow),
                _ => verdict,
            },
        ]);
    }
    table
}

fn missing(these: &Document, others: &Document) -> Vec<String> {
    let of = |case| {
        let has = others.engines(case);
        let only = these.engines(case).into_iter().filter(move |engine| !has.contains(engine));
        only.map(move |engine| format!("{case}, {engine}"))
    };
    these.cases().into_iter().flat_map(of).collect()
}

/// Fields of the JSON that are results or times, not settings.
const NOT_SETTINGS: [&str; 5] =
    ["startup_cpu_us", "library_reports", "state", "unix_time_s", "verdict"];

fn differences(name: &str, a: &Value, b: &Value) -> Vec<Setting> {
    let mut found: BTreeMap<String, [Option<String>; 2]> = BTreeMap::new();
    for (side, value) in [a, b].into_iter().enumerate() {
        flatten(name, value, &mut |path, text| {
            found.entry(path.to_owned()).or_default()[side] = Some(text);
        });
    }
    let settings = found.into_iter().map(|(name, [a, b])| Setting { name, a, b });
    settings.filter(|setting| setting.a != setting.b).collect()
}

/// Skips nulls and the fields of [`NOT_SETTINGS`].
fn flatten(path: &str, value: &Value, note: &mut impl FnMut(&str, String)) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields.iter().filter(|it| !NOT_SETTINGS.contains(&it.0.as_str())) {
                flatten(&format!("{path}.{name}"), value, note);
            }
        }
        // Name a case by its name, not its index: an additional case does not shift the others.
        Value::Array(entries) => {
            for (index, entry) in entries.iter().enumerate() {
                let name = entry.get("case").and_then(Value::as_str).map(str::to_owned);
                let name = name.unwrap_or_else(|| index.to_string());
                flatten(&format!("{path}.{name}"), entry, note);
            }
        }
        Value::Null => {}
        Value::String(text) => note(path, text.clone()),
        other => note(path, other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;
    use serde_json::json;
    use std::fs;

    const LOW: [f64; 5] = [100.0, 101.0, 102.0, 103.0, 104.0];
    const HIGH: [f64; 5] = [200.0, 202.0, 204.0, 206.0, 208.0];

    /// Makes an invented measurement of one case from rows `(engine, metric, unit, runs)`.
    fn file(rows: &[(&str, &str, &str, &[f64])]) -> Value {
        let row = |it: &(&str, &str, &str, &[f64])| {
            let &(engine, metric, unit, runs) = it;
            json!({"engine": engine, "case": "a", "metric": metric, "unit": unit, "runs": runs})
        };
        let rows: Vec<Value> = rows.iter().map(row).collect();
        json!({
            "schema": 1, "workload": "submit", "rows": rows, "params": {"rounds": 5},
            "host": {"kernel": "6.1", "cores": 2},
        })
    }

    fn of(a: &Value, b: &Value) -> Result<Comparison> {
        let saved = |value: &Value| Document::parse(&value.to_string()).expect("well-formed");
        Comparison::of(saved(a), saved(b), ["a".to_owned(), "b".to_owned()])
    }

    fn judge(metric: &str, unit: &str, a: &[f64], b: &[f64]) -> Compared {
        let [a, b] = [a, b].map(|runs| file(&[("nowait", metric, unit, runs)]));
        of(&a, &b).expect("comparable").rows.remove(0)
    }

    fn run(a: &Value, b: &Value, arguments: &[&str]) -> (Result<()>, Value) {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name).display().to_string();
        for (name, file) in [("a", a), ("b", b)] {
            fs::write(path(name), file.to_string()).expect("written");
        }
        let (a, b, json) = (path("a"), path("b"), path("json"));
        let files = [a.as_str(), &b, "--json", &json];
        let outcome = run_compare(&parse(&[&files[..], arguments].concat()));
        let json = fs::read_to_string(json).unwrap_or_default();
        (outcome, serde_json::from_str(&json).unwrap_or_default())
    }

    #[test]
    fn a_percentage_may_have_its_sign() {
        assert_eq!(parse_percent("12.5 %"), Ok(12.5));
        assert!(parse_percent("-1").is_err() && parse_percent("NaN").is_err());
    }

    #[test]
    fn a_verdict_follows_the_direction_of_the_metric_beyond_the_noise() {
        let near = [99.0, 104.0, 102.5, 101.0, 105.0];
        type Claim<'a> = (&'a str, &'a str, &'a [f64], &'a [f64], &'a str);
        let table: [Claim<'_>; 9] = [
            ("iops", "1/s", &LOW, &HIGH, BETTER),
            ("iops", "1/s", &HIGH, &LOW, WORSE),
            ("cpu_us_per_io", "us", &LOW, &HIGH, WORSE),
            ("other_busy_cores", "cores", &LOW, &HIGH, CHANGED),
            ("random read", "MB/s", &LOW, &HIGH, BETTER),
            ("iops", "1/s", &LOW, &near, INSIDE_NOISE),
            ("iops", "1/s", &LOW, &LOW, INSIDE_NOISE),
            ("iops", "1/s", &[7.0; 5], &[7.0; 5], SAME),
            ("iops", "1/s", &LOW[..4], &HIGH, TOO_FEW_ROUNDS),
        ];
        for (metric, unit, a, b, verdict) in table {
            assert_eq!(judge(metric, unit, a, b).verdict, verdict, "{metric}: {a:?} {b:?}");
        }
    }

    #[test]
    fn percent_of_worse_is_of_the_figure_before() {
        let worse = |metric, a, b| judge(metric, "", &[a; 5], &[b; 5]).worse_percent();
        assert_eq!(worse("iops", 200.0, 100.0), 50.0);
        assert_eq!(worse("cpu_us_per_io", 2.0, 3.0), 50.0);
        assert_eq!(worse("cpu_us_per_io", 2.0, 1.0), -50.0);
        let slept = judge("submit_sleeps", "1", &[0.0; 5], &[3.0; 5]);
        assert_eq!((slept.verdict, slept.ratio), (WORSE, None));
        assert_eq!(slept.worse_percent(), f64::INFINITY);
    }

    #[test]
    fn a_simulation_needs_no_rounds() {
        let file = |figure: f64| {
            let mut file = file(&[("nowait", "random read", "MB/s", &[figure])]);
            file["host"] = json!({"device": "sim:u2scsi"});
            file
        };
        let verdict = |a, b| of(&file(a), &file(b)).expect("comparable").rows[0].verdict;
        assert_eq!((verdict(10.0, 11.0), verdict(10.0, 10.0)), (BETTER, SAME));
    }

    #[test]
    fn what_only_one_has_is_named_and_nothing_in_common_is_an_error() {
        let a = file(&[("nowait", "iops", "1/s", &LOW), ("old", "iops", "1/s", &LOW)]);
        let b = file(&[("nowait", "iops", "1/s", &LOW), ("new", "iops", "1/s", &LOW)]);
        let both = of(&a, &b).expect("comparable");
        assert_eq!((both.only_a, both.only_b), (vec!["a, old".into()], vec!["a, new".into()]));
        let error = of(&a, &file(&[("x", "iops", "1/s", &LOW)])).expect_err("nothing in common");
        let text = error.to_string();
        assert!(text.contains("A has case a · engine nowait, old · metric iops"), "{text}");
        let mut served = a.clone();
        served["workload"] = json!("serve");
        let error = of(&a, &served).expect_err("two workloads");
        assert!(error.to_string().contains("a submit and a serve"), "{error}");
    }

    #[test]
    fn settings_that_differ_are_named_by_their_path_and_results_are_none() {
        let a = json!({"rounds": 5, "cases": [{"case": "a", "depth": 32}, {"case": "b"}]});
        let b = json!({"cases": [{"case": "b"}, {"case": "a", "depth": 64}], "state": 1});
        let setting = |name: &str, a: &str, b: Option<&str>| Setting {
            name: name.to_owned(),
            a: Some(a.to_owned()),
            b: b.map(str::to_owned),
        };
        let depth = setting("params.cases.a.depth", "32", Some("64"));
        assert_eq!(differences("params", &a, &b), [depth, setting("params.rounds", "5", None)]);
    }

    #[test]
    fn a_figure_that_got_worse_fails_if_asked() {
        let [slow, fast] = [LOW, HIGH]
            .map(|runs| file(&[("nowait", "iops", "1/s", &runs), ("peer", "iops", "1/s", &LOW)]));
        let (outcome, json) = run(&slow, &fast, &[]);
        assert_eq!((outcome, &json["counts"]["better"]), (Ok(()), &1.into()));
        assert_eq!(
            (&json["rows"][0]["ratio"], &json["rows"][1]["verdict"]),
            (&2.0.into(), &INSIDE_NOISE.into())
        );
        let (_, json) = run(&slow, &fast, &["--changed"]);
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(1));
        assert_eq!(run(&fast, &slow, &["--fail-above", "60"]).0, Ok(()));
        assert_eq!(run(&fast, &slow, &["--fail-above", "10", "--engine", "peer"]).0, Ok(()));
        let error = run(&fast, &slow, &["--fail-above", "10"]).0.expect_err("worse by half");
        assert_eq!(error.exit_code(), 1);
        assert!(error.to_string().contains("1 figures are worse by more than 10 %"), "{error}");
        for (option, known) in [("--case", "there are a"), ("--engine", "nowait, peer")] {
            let error = run(&fast, &slow, &[option, "foo"]).0.expect_err("no such name");
            assert!(error.exit_code() == 2 && error.to_string().contains(known), "{error}");
        }
    }

    /// Files of older versions have parameters of other types.
    #[test]
    fn a_file_of_an_older_version_can_be_compared() {
        let older = include_str!("../testdata/older.json");
        let older = serde_json::from_str(older).expect("JSON");
        let (outcome, json) = run(&older, &older, &[]);
        assert_eq!(outcome, Ok(()));
        let title = &json["cases"][0]["title"];
        assert_eq!(title, "random chunks of 8 adjoining blocks, direct");
        assert_eq!(json["rows"].as_array().map(Vec::len), Some(40));
    }
}
