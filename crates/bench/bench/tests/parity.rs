//! Runs a few cells of `nowait-bench parity` on small files, through the program itself.

use std::process::{Command, Output};

use nowait_block::skip::note_skip_here;
use serde_json::Value;

/// Returns `None` if this machine cannot run the cells.
fn small(arguments: &[&str]) -> Option<(Value, Output)> {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let files = folder.path().join("files");
    let (json, html) = (folder.path().join("r.json"), folder.path().join("r.html"));
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    // The program finds `dist` in this folder.
    command.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../../.."));
    command.args(["parity", "--rounds=1", "--runtime=100ms", "--size=16M", "--keep-caches"]);
    command.args(arguments).arg("--dir").arg(&files);
    command.arg("--json").arg(&json).arg("--html").arg(&html);
    let output = command.output().expect("the program starts");
    let text = text_of(&output);
    let missing = ["make dist", "cannot start fio", "O_DIRECT", "was left out"];
    if let Some(why) = missing.iter().find(|why| text.contains(**why)) {
        note_skip_here(&format!("{why}: {text}"));
        return None;
    }
    let document = std::fs::read_to_string(&json).map(|text| serde_json::from_str(&text));
    let document = document.unwrap_or_else(|error| panic!("{error}: {text}")).expect("JSON");
    assert!(html.exists(), "{text}");
    assert_eq!(std::fs::read_dir(&files).expect("readable").count(), 0, "test files are removed");
    let mut compare = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    let compared = compare.arg("compare").args([&json, &json]).output().expect("it starts");
    assert!(compared.status.success(), "{}", text_of(&compared));
    Some((document, output))
}

fn text_of(output: &Output) -> String {
    let [text, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    text + &error
}

fn median(document: &Value, case: &str, engine: &str, metric: &str) -> Option<f64> {
    let mut rows = document["rows"].as_array().expect("rows").iter();
    let row = rows.find(|row| {
        (&row["case"], &row["engine"], &row["metric"])
            == (&case.into(), &engine.into(), &metric.into())
    });
    row?["median"].as_f64()
}

#[test]
fn each_engine_has_figures_of_the_cells_asked_for() {
    let cells = ["read-uncached-4k-d32", "write-cached-4k-d1", "direct-mix-4k-8jobs"];
    let asked = format!("{},{},direct-mix*", cells[0], cells[1]);
    let Some((document, output)) = small(&["--busy", "1", "--case", &asked]) else { return };
    let text = text_of(&output);
    assert!(output.status.success(), "{text}");
    assert_eq!((&document["schema"], &document["workload"]), (&1.into(), &"parity".into()));
    assert_eq!(document["params"]["busy_loops"], 1);
    let cases = document["params"]["cases"].as_array().expect("cases");
    let names: Vec<&str> = cases.iter().filter_map(|case| case["case"].as_str()).collect();
    assert_eq!(names, cells, "the cells asked for, and no other");
    for case in cells {
        for engine in ["system", "nowait", "nowait-no-uring"] {
            for metric in ["iops", "submit_us_mean", "submit_us_p999", "submit_us_max"] {
                let median = median(&document, case, engine, metric);
                assert!(median.is_some_and(|it| it > 0.0), "{case}, {engine}, {metric}: {text}");
            }
            for metric in ["cpu_us_per_io", "context_switches_per_io", "disk_read_bytes_per_byte"] {
                let median = median(&document, case, engine, metric);
                assert!(median.is_some_and(|it| it >= 0.0), "{case}, {engine}, {metric}: {text}");
            }
        }
        let ratio = |metric: &str| {
            let is = |one: &&Value| {
                (&one["case"], &one["metric"], &one["b"])
                    == (&case.into(), &metric.into(), &"nowait".into())
            };
            document["ratios"].as_array().expect("ratios").iter().find(is)
        };
        assert_eq!(ratio("iops").map(|ratio| &ratio["a"]), Some(&"system".into()), "{case}");
        // A run of 100 ms may need no more processor time than the start of fio. Then the divisor
        // is zero, and there is no verdict.
        let params = cases.iter().find(|params| params["case"] == case).expect("its parameters");
        let verdict = &params["verdict"]["nowait"];
        assert_eq!(verdict.is_string(), ratio("cpu_us_per_io").is_some(), "{case}: {text}");
    }
    assert!(median(&document, cells[0], "io_uring", "iops").is_some(), "the peer");
    assert!(text.contains("nowait-no-uring") && text.contains(" cells ok"), "{text}");
}

#[test]
fn data_of_the_cells_asked_for_are_verified() {
    let asked = ["--verify", "--case", "read-uncached-8files-d32,sync-4k-d16,direct-extend-4k*"];
    let Some((document, output)) = small(&asked) else { return };
    let text = text_of(&output);
    assert!(output.status.success() && text.contains("6 verified, 0 failed."), "{text}");
    for case in ["read-uncached-8files-d32", "sync-4k-d16", "direct-extend-4k-d32"] {
        for engine in ["nowait", "nowait-no-uring"] {
            let errors = median(&document, case, engine, "verify_errors");
            assert_eq!(errors, Some(0.0), "{case}, {engine}: {text}");
        }
    }
}

#[test]
fn a_cell_that_is_none_is_wrong_usage() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    let output = command.args(["parity", "--case", "read-cashed*"]).output().expect("it starts");
    assert_eq!(output.status.code(), Some(2));
    assert!(text_of(&output).contains("read-cached-4k-d1"), "the cells that there are");
}
