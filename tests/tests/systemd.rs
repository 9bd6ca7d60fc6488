//! The files of `contrib/systemd`, checked by systemd's own programs.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::program::Program;
use nowait_tests::ready;
use nowait_tests::scratch::Scratch;
use nowait_tests::server::tool;
use nowait_tests::{skip, subject};

/// Highest exposure that `systemd-analyze security` may report: 1.5 of 10, in tenths.
const EXPOSURE_MAX: &str = "15";

fn contrib(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../contrib/systemd").join(name)
}

/// Writes the units of an instance named `disk`, whose commands run the built tool.
fn units(scratch: &Scratch) {
    for kind in ["service", "socket"] {
        let path = contrib(&format!("nowait-serve@.{kind}"));
        let text = fs::read_to_string(path).expect("a unit");
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
    // systemd-analyze reports settings that it does not understand, and succeeds nevertheless.
    assert!(!verified.stderr.contains("nowait-serve@disk"), "{verified}");
    let threshold = format!("--threshold={EXPOSURE_MAX}");
    analyze(&["security", "--offline=true", "--no-pager", &threshold, service]);
}

#[test]
fn the_user_and_its_folder_can_be_made() {
    let needed = ["systemd-sysusers", "systemd-tmpfiles"];
    let Some(()) = skip::unless(skip::missing_program(&needed)) else { return };
    let Some(()) = skip::unless(skip::missing_root()) else { return };
    let scratch = Scratch::new("systemd");
    scratch.folder("etc");
    let root = format!("--root={}", scratch.path().display());
    let sysusers = Program::new("systemd-sysusers").arg(&root);
    sysusers.arg(contrib("nowait.sysusers.conf")).succeed();
    let users = fs::read_to_string(scratch.file("etc/passwd")).expect("the users");
    assert!(users.contains("nowait:x:"), "{users}");
    let tmpfiles = Program::new("systemd-tmpfiles").args(["--create", &root]);
    tmpfiles.arg(contrib("nowait.tmpfiles.conf")).succeed();
    assert!(scratch.file("var/lib/nowait").is_dir());
}

#[test]
fn a_socket_of_systemd_wakes_the_server_and_outlives_it() {
    let needed = ["systemd-socket-activate", "nbdcopy"];
    let Some(()) = skip::unless(skip::missing_program(&needed)) else { return };
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("systemd");
    let (image, socket) = (scratch.file("image"), scratch.file("nbd"));
    let bytes: Vec<u8> = (0..4u32 << 20).map(|i| (i % 251) as u8).collect();
    fs::write(&image, &bytes).expect("an image");
    // systemd-socket-activate executes the server when the first client connects, with an almost
    // empty environment.
    let runtime = format!("XDG_RUNTIME_DIR={}", scratch.path().display());
    let activate = Program::new("systemd-socket-activate").args(["-E", &runtime, "-l"]);
    let activate = activate.arg(&socket).arg(subject::built("bin/nowait")).arg("serve");
    let mut server = activate.arg(&image).spawn();
    ready::wait_for_socket(&socket, &mut server);
    let (uri, copy) = (format!("nbd+unix:///?socket={}", socket.display()), scratch.file("copy"));
    Program::new("nbdcopy").arg(uri).arg(&copy).succeed();
    assert_eq!(fs::read(copy).expect("a copy"), bytes);
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(server.pid(), libc::SIGTERM) }, 0);
    let ended = server.wait(Duration::from_mins(1));
    assert!(ended.status.success(), "{ended}");
    assert!(socket.exists(), "the socket is systemd's");
}
