//! `nowait status` on systems whose root is a folder of the test.

use crate::system::{ETC, LIB, LIBRARY, System};
use serde_json::{Value, json};
use std::fs;

fn status(system: &System) -> (i32, Value) {
    let (code, out, err) = system.nowait(&["status", "--json"]);
    assert_eq!(err, "");
    (code, serde_json::from_str(&out).unwrap())
}

fn problem(system: &System) -> String {
    let (code, report) = status(system);
    assert_eq!(code, 1, "{report:#}");
    report["units"][0]["problem"].as_str().unwrap().to_owned()
}

#[test]
fn enabled_units_are_listed_with_what_they_point_to() {
    let system = System::with("Environment=LD_PRELOAD=/x.so");
    system.file(&format!("{LIB}/b@.service"), "[Service]\nExecStart=/usr/sbin/daemon\n");
    system.file(&format!("{ETC}/c.service.d/zz-nowait.conf"), "[Service]\n");
    let (code, out, _) = system.nowait(&["status"]);
    assert_eq!((code, out.as_str()), (0, "no unit is enabled\n"));
    system.file(LIBRARY.trim_start_matches('/'), "nowait library\0nowait 0.7.1 library\0");
    assert_eq!(system.nowait(&["enable", "a", "--workers", "3", "--report"]).0, 0);
    assert_eq!(system.nowait(&["enable", "b@1", "--via", "libaio"]).0, 0);
    let (code, report) = status(&system);
    let unit = &report["units"][0];
    assert_eq!((code, &unit["unit"], &unit["library"]), (0, &json!("a.service"), &json!(LIBRARY)));
    assert_eq!(unit["version"], "0.7.1");
    assert_eq!(unit["variables"], json!(["NOWAIT_REPORT=1", "NOWAIT_WORKERS=3"]));
    assert_eq!(report["units"][1]["unit"], "b@1.service");
    assert_eq!(report["units"][1]["library"], "/usr/lib/nowait/libaio.so.1");
    assert_eq!(report["units"].as_array().unwrap().len(), 2, "{report:#}");
    let (_, out, _) = system.nowait(&["status"]);
    assert!(out.contains("a.service") && out.contains("0.7.1"), "{out}");
}

#[test]
fn what_is_wrong_with_an_enabled_unit_is_said() {
    let system = System::with("Environment=LD_PRELOAD=/x.so");
    assert_eq!(system.nowait(&["enable", "a"]).0, 0);
    system.file(&format!("{ETC}/a.service.d/b.conf"), "[Service]\nEnvironment=LD_PRELOAD=/y.so\n");
    assert!(problem(&system).contains("LD_PRELOAD of the unit has changed"));
    assert_eq!(system.nowait(&["enable", "a"]).0, 0);
    assert_eq!(status(&system).0, 0);
    fs::remove_file(system.path(LIBRARY.trim_start_matches('/'))).unwrap();
    assert!(problem(&system).contains("does not exist; install nowait there"));
    fs::remove_file(system.path(&format!("{LIB}/a.service"))).unwrap();
    assert!(problem(&system).contains("`nowait disable a.service`"));
    let (code, out, _) = system.nowait(&["status"]);
    assert!(code == 1 && out.contains("problem: a.service: "), "{out}");
}
