//! Runs `nowait-bench kv` on small files, through the program itself, with a stand-in for vLLM: the
//! real package has gigabytes.

use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

const PACKAGES: [(&str, &str); 7] = [
    ("vllm-0.33.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: vllm\nVersion: 0.33.0\n"),
    ("numpy.py", "arange = range\n"),
    ("vllm/v1/kv_offload/config.py", include_str!("kv/config.py")),
    ("vllm/v1/kv_offload/base.py", include_str!("kv/base.py")),
    ("vllm/v1/kv_offload/tiering/base.py", include_str!("kv/tiering.py")),
    ("vllm/v1/kv_offload/tiering/factory.py", include_str!("kv/factory.py")),
    ("vllm/v1/kv_offload/tiering/__init__.py", ""),
];

fn environment(folder: &Path) -> PathBuf {
    let packages = folder.join("packages");
    for (name, text) in PACKAGES {
        let path = packages.join(name);
        std::fs::create_dir_all(path.parent().expect("in a folder")).expect("a folder");
        std::fs::write(path, text).expect("a package");
    }
    let python = folder.join("bin/python3");
    std::fs::create_dir(folder.join("bin")).expect("a folder");
    let script = format!("#!/bin/sh\nPYTHONPATH={} exec python3 \"$@\"\n", packages.display());
    std::fs::write(&python, script).expect("a Python with the packages");
    std::fs::set_permissions(&python, Permissions::from_mode(0o755)).expect("executable");
    folder.to_owned()
}

fn small(python: &Path, files: &Path, arguments: &[&str]) -> (Option<Value>, Output) {
    let json = files.with_extension("json");
    let mut command = Command::new(env!("CARGO_BIN_EXE_nowait-bench"));
    command.args(["kv", "--rounds=2", "--runtime=1s", "--size=64M", "--keep-caches"]);
    command.args(arguments).arg("--python").arg(python);
    command.arg("--dir").arg(files).arg("--json").arg(&json);
    let output = command.output().expect("the program starts");
    let text = std::fs::read_to_string(&json).ok();
    (text.map(|text| serde_json::from_str(&text).expect("JSON")), output)
}

fn text_of(output: &Output) -> String {
    let [text, error] =
        [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    text + &error
}

#[test]
fn a_tier_is_measured_each_way() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let (python, files) = (environment(folder.path()), folder.path().join("files"));
    let asked = "--case=load-128k-8,store-1m-1,mixed-128k-64";
    let (document, output) = small(&python, &files, &["--engine=vllm", asked]);
    let text = text_of(&output);
    assert!(output.status.success(), "{text}");
    let document = document.expect("a report");
    let rows = document["rows"].as_array().expect("rows");
    let median = |case: &str, metric: &str| {
        let is = |row: &&Value| row["case"] == case && row["metric"] == metric;
        rows.iter().find(is).and_then(|row| row["median"].as_f64())
    };
    let figures = ["bytes_per_s", "held_up_us_p999", "late_us_max", "cpu_us_per_operation"];
    for case in ["load-128k-8", "store-1m-1", "mixed-128k-64"] {
        for metric in figures {
            assert!(median(case, metric).is_some_and(|it| it > 0.0), "{case}, {metric}: {text}");
        }
    }
    for metric in ["loaded_bytes_per_s", "stored_bytes_per_s"] {
        assert_eq!(median("load-128k-8", metric), None, "{text}");
        assert!(median("mixed-128k-64", metric).is_some_and(|it| it > 0.0), "{metric}: {text}");
    }
    assert_eq!(std::fs::read_dir(&files).expect("readable").count(), 0, "blocks are removed");
}

#[test]
fn a_tier_that_brings_other_bytes_has_no_figures() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let (python, files) = (environment(folder.path()), folder.path().join("files"));
    let factory = python.join("packages/vllm/v1/kv_offload/tiering/factory.py");
    let text = std::fs::read_to_string(&factory).expect("a tier");
    let wrong = text.replace("SKEW = 0", "SKEW = 1");
    assert_ne!(text, wrong);
    std::fs::write(&factory, wrong).expect("a tier");
    let (_, output) = small(&python, &files, &["--engine=vllm", "--case=store-1m-1"]);
    let text = text_of(&output);
    assert!(text.contains("a load brought wrong bytes"), "{text}");
}

#[test]
fn a_package_that_is_missing_comes_with_the_command_that_installs_it() {
    let folder = tempfile::tempdir_in("/var/tmp").expect("a temporary folder");
    let files = folder.path().join("files");
    let nowhere = Path::new("/nonexistent/python");
    let (_, output) = small(nowhere, &files, &["--engine=vllm,nowait", "--case=load-1m-8"]);
    let text = text_of(&output);
    assert!(text.contains("load-1m-8 was left out: vllm 0.33.0 is not in"), "{text}");
    assert!(text.contains("bin/pip install --no-deps vllm==0.33.0"), "{text}");
}
