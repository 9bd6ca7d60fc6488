//! Folders and links that existed before `nowait enable`, which must not replace or remove them.

use crate::support::{nowait, outcome};
use crate::system::{ETC, LIB, System};
use crate::{OURS, enabled};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;

const FOLDER: &str = "etc/systemd/system/a.service.d";

fn refused(system: &System, verb: &str) -> String {
    let (code, out, err) = system.nowait(&[verb, "a"]);
    assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{verb}: {err}");
    err
}

#[test]
fn a_drop_in_that_is_masked_stays_masked() {
    let system = System::with("");
    system.link(OURS, "/dev/null");
    for verb in ["enable", "disable"] {
        let err = refused(&system, verb);
        assert!(err.contains("not written by `nowait enable`"), "{err}");
    }
    assert_eq!(fs::read_link(system.path(OURS)).unwrap(), Path::new("/dev/null"));
    assert!(!system.path("dev").exists(), "nothing is written where the link leads");
}

#[test]
fn a_folder_that_is_a_link_is_written_to_by_nobody() {
    for target in ["/dev/null", "/usr/lib/shared.d", "../shared.d"] {
        let system = System::with("");
        system.link(FOLDER, target);
        let err = refused(&system, "enable");
        let said = format!("a.service.d: a link to {target}, for other units too; ");
        assert!(err.contains(&said), "{err}");
        assert_eq!(fs::read_link(system.path(FOLDER)).unwrap(), Path::new(target));
        assert!(!system.path("dev").exists() && !system.path("usr/lib/shared.d").exists());
    }
}

#[test]
fn disable_leaves_the_target_of_a_link() {
    for target in ["../../../usr/lib/shared.d", "/usr/lib/shared.d"] {
        let system = System::with("");
        enabled(&system, &["a"]);
        fs::rename(system.path(FOLDER), system.path("usr/lib/shared.d")).unwrap();
        system.link(FOLDER, target);
        assert_eq!(system.nowait(&["disable", "a"]).0, 0);
        assert_eq!(fs::read_dir(system.path("usr/lib/shared.d")).unwrap().count(), 0);
    }
}

#[test]
fn what_was_written_for_another_unit_is_not_removed_through_a_link() {
    let system = System::with("");
    system.file(&format!("{LIB}/b.service"), "[Service]\nExecStart=/usr/sbin/daemon\n");
    enabled(&system, &["b"]);
    let of_b = format!("{ETC}/b.service.d/zz-nowait.conf");
    let before = system.read(&of_b);
    system.link(FOLDER, "b.service.d");
    let err = refused(&system, "disable");
    assert!(
        err.contains("to the drop-in of b.service: `nowait disable b.service` removes that"),
        "{err}"
    );
    assert_eq!(system.read(&of_b), before);
    assert_eq!(system.nowait(&["disable", "b"]).0, 0);
    assert!(!system.path(&of_b).exists());
}

#[test]
fn a_folder_that_was_there_stays_and_one_that_was_made_goes() {
    let system = System::with("");
    fs::create_dir_all(system.path(FOLDER)).unwrap();
    let text = enabled(&system, &["a"])["text"].to_string();
    assert!(text.contains("`nowait disable a.service` removes it."), "{text}");
    assert_eq!(enabled(&system, &["a"])["state"], "unchanged");
    assert_eq!(system.nowait(&["disable", "a"]).0, 0);
    assert!(system.path(FOLDER).is_dir(), "it was there before");
    fs::remove_dir(system.path(FOLDER)).unwrap();
    enabled(&system, &["a"]);
    // The second write must still record that nowait made the folder.
    assert_eq!(enabled(&system, &["a", "--workers", "3"])["state"], "written");
    assert_eq!(system.nowait(&["disable", "a"]).0, 0);
    assert!(!system.path(FOLDER).exists());
}

#[test]
fn a_pipe_in_the_place_of_the_drop_in_is_not_waited_for() {
    let system = System::with("");
    fs::create_dir_all(system.path(FOLDER)).unwrap();
    let made = std::process::Command::new("mkfifo").arg(system.path(OURS)).status().unwrap();
    assert!(made.success());
    assert!(refused(&system, "disable").contains("not written by `nowait enable`"));
}

#[test]
fn everyone_may_read_what_is_written_whatever_the_umask_is() {
    let system = System::with("");
    let mut command = nowait(&["enable", "a", "--root"]);
    command.arg(system.path("")).env("NOWAIT_LIBDIR", "/usr/lib/nowait");
    // SAFETY: between fork and exec the closure makes one system call, umask(2), which cannot fail.
    unsafe {
        command.pre_exec(|| {
            libc::umask(0o077);
            Ok(())
        });
    }
    assert_eq!(outcome(&mut command).0, 0);
    let mode = |path: &str| fs::metadata(system.path(path)).unwrap().permissions().mode() & 0o777;
    assert_eq!((mode(OURS), mode(FOLDER)), (0o644, 0o755));
    for above in ["etc", "etc/systemd", ETC] {
        assert_eq!(mode(above), 0o755, "{above}");
    }
}
