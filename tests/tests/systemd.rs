//! The units of `contrib/systemd`, before systemd itself.

use std::fs;
use std::path::Path;

use nowait_tests::program::Program;
use nowait_tests::scratch::Scratch;
use nowait_tests::server::tool;
use nowait_tests::{skip, subject};

/// Most exposure that `systemd-analyze security` may find, in tenths of its scale of ten.
const EXPOSURE_MAX: &str = "15";

/// The units as an instance named `disk`, of the tool that was built.
fn units(scratch: &Scratch) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/systemd");
    for kind in ["service", "socket"] {
        let text =
            fs::read_to_string(folder.join(format!("nowait-serve@.{kind}"))).expect("a unit");
        let built = subject::built("bin/nowait");
        let text = text.replace("/usr/bin/nowait", built.to_str().expect("a path of text"));
        fs::write(scratch.file(&format!("nowait-serve@disk.{kind}")), text).expect("a copy");
    }
}

#[test]
fn the_units_are_understood_and_leave_little_exposed() {
    let Some(()) = skip::unless(skip::missing_program(&["systemd-analyze"])) else { return };
    let Some(_) = tool() else { return };
    let scratch = Scratch::new("systemd");
    units(&scratch);
    let analyze = |arguments: &[&str]| {
        let path = format!("{}:", scratch.path().display());
        let program = Program::new("systemd-analyze").env("SYSTEMD_UNIT_PATH", path);
        program.args(arguments).dir(scratch.path()).succeed()
    };
    let (service, socket) = ("./nowait-serve@disk.service", "./nowait-serve@disk.socket");
    let verified = analyze(&["verify", "--man=no", service, socket]);
    // What is not understood is told, and does not fail.
    assert!(!verified.stderr.contains("nowait-serve@disk"), "{verified}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    analyze(&["security", "--offline=true", "--no-pager", &threshold, service]);
}
