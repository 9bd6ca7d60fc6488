//! `nowait enable --container` prints lines that Docker, Compose and Kubernetes can read.

mod support;

use saphyr::{LoadableYamlNode, Yaml};
use std::process::Command;
use support::{libraries, nowait, outcome};
use tempfile::TempDir;

const INSIDE: &str = "/opt/nowait/libnowait_preload.so";
/// A value that each of the three would misread without quotes.
const AWKWARD: &str = "/var/log/it's \"$HOME\" $(x) \\ #1: a";

struct Lines {
    libraries: TempDir,
    out: String,
}

fn lines(args: &[&str]) -> Lines {
    let dir = tempfile::tempdir().unwrap();
    libraries(dir.path());
    let mut command = nowait(&[&["enable", "--container"], args].concat());
    let (code, out, err) = outcome(command.env("NOWAIT_LIBDIR", dir.path()));
    assert_eq!((code, err.as_str()), (0, ""));
    Lines { libraries: dir, out }
}

impl Lines {
    fn library(&self) -> String {
        self.libraries.path().join("libnowait_preload.so").display().to_string()
    }
}

fn at<'a>(yaml: &'a Yaml<'a>, path: &[&str]) -> &'a Yaml<'a> {
    path.iter().fold(yaml, |yaml, key| match key.parse::<usize>() {
        Ok(index) => &yaml.as_vec().unwrap()[index],
        Err(_) => yaml.as_mapping_get(key).unwrap_or_else(|| panic!("{key} in {yaml:?}")),
    })
}

fn text<'a>(yaml: &'a Yaml<'a>, path: &[&str]) -> &'a str {
    at(yaml, path).as_str().unwrap_or_else(|| panic!("{path:?} in {yaml:?}"))
}

#[test]
fn a_compose_file_has_mount_and_environment() {
    let lines = lines(&["compose", "--workers", "8", &format!("--report={AWKWARD}")]);
    let yaml = &Yaml::load_from_str(&lines.out).unwrap()[0];
    let service = at(yaml, &["services", "NAME"]);
    assert_eq!(text(service, &["volumes", "0", "source"]), lines.library());
    assert_eq!(text(service, &["volumes", "0", "target"]), INSIDE);
    assert_eq!(at(service, &["volumes", "0", "read_only"]).as_bool(), Some(true));
    assert_eq!(text(service, &["environment", "LD_PRELOAD"]), INSIDE);
    // YAML would read an unquoted number as a number: it must be a string.
    assert_eq!(text(service, &["environment", "NOWAIT_WORKERS"]), "8");
    let report = text(service, &["environment", "NOWAIT_REPORT"]);
    assert_eq!(report, AWKWARD.replace('$', "$$"));
}

#[test]
fn a_pod_has_a_volume_and_mounts_it() {
    let lines = lines(&["kubernetes", "--backend", "threads", &format!("--report={AWKWARD}")]);
    let yaml = &Yaml::load_from_str(&lines.out).unwrap()[0];
    let (container, volume) =
        (at(yaml, &["spec", "containers", "0"]), at(yaml, &["spec", "volumes", "0"]));
    assert_eq!(text(volume, &["name"]), text(container, &["volumeMounts", "0", "name"]));
    assert_eq!(text(volume, &["hostPath", "path"]), lines.library());
    assert_eq!(text(container, &["volumeMounts", "0", "mountPath"]), INSIDE);
    let env = at(container, &["env"]).as_vec().unwrap();
    let env: Vec<_> = env.iter().map(|it| (text(it, &["name"]), text(it, &["value"]))).collect();
    let report = AWKWARD.replace("$(", "$$(");
    let expected =
        [("LD_PRELOAD", INSIDE), ("NOWAIT_BACKEND", "threads"), ("NOWAIT_REPORT", &*report)];
    assert_eq!(env, expected);
}

#[test]
fn a_shell_passes_docker_what_is_meant() {
    let lines = lines(&["docker", &format!("--report={AWKWARD}")]);
    let (command, dockerfile) = lines.out.split_once("\n\n").unwrap();
    let script = format!("docker() {{ printf '%s\\n' \"$@\"; }}\n{command}\n");
    let (code, out, err) = outcome(Command::new("sh").arg("-c").arg(script));
    assert_eq!((code, err.as_str()), (0, ""));
    let mount = format!("type=bind,source={},target={INSIDE},readonly", lines.library());
    let (preload, report) = (format!("LD_PRELOAD={INSIDE}"), format!("NOWAIT_REPORT={AWKWARD}"));
    let expected = ["run", "--mount", &mount, "--env", &preload, "--env", &report, "IMAGE"];
    assert_eq!(out.lines().collect::<Vec<_>>(), expected);
    let expected = format!(
        "# Or in the image, by its Dockerfile; libnowait_preload.so lies beside it.\n\
         COPY libnowait_preload.so /opt/nowait/\n\
         ENV LD_PRELOAD=\"{INSIDE}\"\n\
         ENV NOWAIT_REPORT=\"/var/log/it's \\\"\\$HOME\\\" \\$(x) \\\\ #1: a\"\n"
    );
    assert_eq!(dockerfile, expected);
}

#[test]
fn without_a_kind_each_is_printed_and_json_has_them_by_name() {
    let all = lines(&[]).out;
    for heading in ["docker run", "services:", "hostPath:"] {
        assert!(all.contains(heading), "{all}");
    }
    let json: serde_json::Value = serde_json::from_str(&lines(&["--json"]).out).unwrap();
    let names: Vec<_> = json.as_object().unwrap().keys().collect();
    assert_eq!(names, ["compose", "docker", "kubernetes"]);
    let libaio = lines(&["compose", "--via", "libaio"]).out;
    assert!(libaio.contains("LD_LIBRARY_PATH: \"/opt/nowait\""), "{libaio}");
}
