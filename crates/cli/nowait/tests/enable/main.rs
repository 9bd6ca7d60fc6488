//! `nowait enable` and `nowait disable`, mostly on a system whose root is a folder of the test.

mod oracle;
mod others;
mod status;
#[path = "../support/mod.rs"]
mod support;
mod system;

use nowait_block::skip::note_skip_here;
use serde_json::Value;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;
use support::{nowait, outcome};
use system::{ETC, LIB, LIBRARY, System};

const OURS: &str = "etc/systemd/system/a.service.d/zz-nowait.conf";

fn enabled(system: &System, args: &[&str]) -> Value {
    let (code, out, err) = system.nowait(&[&["enable", "--json"], args].concat());
    assert_eq!((code, err.as_str()), (0, ""));
    serde_json::from_str(&out).unwrap()
}

#[test]
fn what_is_written_is_said_and_the_unit_s_own_file_stays() {
    let system = System::with("Environment=LD_PRELOAD=/usr/lib/libjemalloc.so");
    let before = system.read(&format!("{LIB}/a.service"));
    let (code, out, err) = system.nowait(&["enable", "a", "--backend", "threads", "--report"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let root = system.path("");
    let expected = format!(
        "a.service (/usr/lib/systemd/system/a.service)\n\
         /usr/sbin/daemon: can nowait help? perhaps: it links no libaio itself; a library that it \
         links may\n\
         kept, as the unit has it: /usr/lib/libjemalloc.so\n\n\
         written: {}{OURS}\n    \
         # Written by `nowait enable` {}; `nowait disable a.service` removes it and its \
         folder.\n    \
         [Service]\n    \
         Environment=\"LD_PRELOAD={LIBRARY}:/usr/lib/libjemalloc.so\"\n    \
         Environment=\"NOWAIT_BACKEND=threads\"\n    \
         Environment=\"NOWAIT_REPORT=1\"\n",
        root.display(),
        env!("CARGO_PKG_VERSION")
    );
    assert_eq!(out, expected);
    assert_eq!(system.read(&format!("{LIB}/a.service")), before);
    let mode = fs::metadata(system.path(OURS)).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644);
    let folder = fs::read_dir(system.path(OURS).parent().unwrap()).unwrap();
    assert_eq!(folder.count(), 1, "nothing temporary stays");
}

#[test]
fn a_dry_run_writes_nothing() {
    let system = System::with("");
    let report = enabled(&system, &["a", "--dry-run"]);
    assert_eq!(report["state"], "would be written");
    assert!(report["text"].as_str().unwrap().contains(LIBRARY));
    assert!(!system.path("etc").exists());
    assert_eq!(enabled(&system, &["a"])["state"], "written");
    let (_, out, _) = system.nowait(&["disable", "a", "--dry-run"]);
    assert!(out.starts_with("would be removed: "), "{out}");
    assert!(system.path(OURS).exists());
}

#[test]
fn a_second_call_changes_nothing_or_what_its_flags_say() {
    let system = System::with("Environment=LD_PRELOAD=/x.so");
    assert_eq!(enabled(&system, &["a"])["state"], "written");
    let first = system.read(OURS);
    assert_eq!(enabled(&system, &["a"])["state"], "unchanged");
    assert_eq!(enabled(&system, &["a", "--workers", "3"])["state"], "written");
    assert!(system.read(OURS).contains("NOWAIT_WORKERS=3"));
    assert_eq!(enabled(&system, &["a"])["state"], "written");
    assert_eq!(system.read(OURS), first);
}

#[test]
fn disable_removes_its_own_file_and_no_other() {
    let system = System::with("");
    enabled(&system, &["a"]);
    let (code, out, _) = system.nowait(&["disable", "a"]);
    assert_eq!((code, out), (0, format!("removed: {}\n", system.path(OURS).display())));
    assert!(!system.path(OURS).parent().unwrap().exists(), "the empty folder goes too");
    let (code, out, _) = system.nowait(&["disable", "a"]);
    assert_eq!((code, out), (0, format!("not there: {}\n", system.path(OURS).display())));
    enabled(&system, &["a"]);
    system.file(&format!("{ETC}/a.service.d/override.conf"), "[Service]\nUser=root\n");
    assert_eq!(system.nowait(&["disable", "a"]).0, 0);
    assert!(system.path(&format!("{ETC}/a.service.d/override.conf")).exists());
    system.file(OURS, "[Service]\n");
    for verb in ["enable", "disable"] {
        let (code, _, err) = system.nowait(&[verb, "a"]);
        assert_eq!((code, err.lines().count()), (1, 1), "{err}");
        assert!(err.contains("not written by `nowait enable`"), "{err}");
    }
    assert_eq!(system.read(OURS), "[Service]\n");
}

#[test]
fn the_drop_in_of_a_unit_that_is_gone_is_removed() {
    let system = System::with("");
    enabled(&system, &["a"]);
    fs::remove_file(system.path(&format!("{LIB}/a.service"))).unwrap();
    assert_eq!(system.nowait(&["disable", "a"]).0, 0);
    assert!(!system.path(OURS).exists());
}

#[test]
fn templates_instances_and_other_names_have_their_own_place() {
    let system = System::with("");
    let text = "[Service]\nExecStart=/usr/sbin/daemon %i\n";
    system.file(&format!("{LIB}/b@.service"), text);
    system.link(&format!("{ETC}/other.service"), "/usr/lib/systemd/system/a.service");
    for (asked, unit) in [
        ("b@", "b@.service"),
        ("b@1", "b@1.service"),
        ("b@2.service", "b@2.service"),
        ("other", "a.service"),
    ] {
        let report = enabled(&system, &[asked]);
        assert_eq!(report["unit"], unit);
        assert!(system.path(&format!("{ETC}/{unit}.d/zz-nowait.conf")).exists());
        assert_eq!(system.nowait(&["disable", asked]).0, 0);
        assert!(!system.path(&format!("{ETC}/{unit}.d")).exists());
    }
}

#[test]
fn libaio_comes_by_the_library_path_and_percents_are_kept_from_systemd() {
    let system = System::with("Environment=LD_LIBRARY_PATH=/usr/lib/nowait:/opt/%p;/x");
    system.file("opt/100%/libaio.so.1", "");
    let mut command = nowait(&["enable", "a", "--via", "libaio", "--root"]);
    command.arg(system.path("")).env("NOWAIT_LIBDIR", "/opt/100%");
    assert_eq!(outcome(&mut command).0, 0);
    let line = "Environment=\"LD_LIBRARY_PATH=/opt/100%%:/usr/lib/nowait:/opt/%p:/x\"\n";
    assert!(system.read(OURS).ends_with(line), "{}", system.read(OURS));
}

#[test]
fn a_library_of_nowait_s_that_is_there_already_is_replaced() {
    let system = System::with("Environment=\"LD_PRELOAD=/old/libnowait_preload.so /x.so\"");
    assert_eq!(enabled(&system, &["a"])["kept"], "/x.so");
}

#[test]
fn what_stands_against_it_is_refused_in_one_line() {
    let cases: &[(&str, &str)] = &[
        ("ExecStart=\nExecStart=/no/such --x", "/no/such: no such program; install it first"),
        ("ExecStart=", "no ExecStart="),
        ("ExecStart=\nExecStart=/usr/sbin/static", "statically linked"),
        ("UnsetEnvironment=A LD_PRELOAD", "takes LD_PRELOAD away"),
        ("EnvironmentFile=-/etc/default/%p", "/etc/default/a sets LD_PRELOAD"),
        ("RootDirectory=/srv/a", "RootDirectory=/srv/a of the unit hides"),
        ("RootImage=/srv/a.img", "BindReadOnlyPaths=/usr/lib/nowait shows it"),
        (
            "InaccessiblePaths=-/usr/lib/nowait\nBindReadOnlyPaths=/usr/lib/nowait",
            "InaccessiblePaths= of the unit bars /usr/lib/nowait/libnowait_preload.so; leave",
        ),
        ("TemporaryFileSystem=/usr:ro", "TemporaryFileSystem= of the unit hides"),
        ("NoExecPaths=/\nExecPaths=/usr/sbin", "; add ExecPaths=/usr/lib/nowait"),
        ("SystemCallFilter=@basic-io @file-system", "kills the service at capget"),
        ("SystemCallFilter=~@ipc", "memfd_create; allow them there, or set"),
        (
            "SystemCallFilter=@system-service\nSystemCallFilter=~@aio",
            "at io_uring; allow io_uring_",
        ),
        ("SystemCallFilter=~io_uring_setup:kill", "at io_uring; allow io_uring_setup there"),
    ];
    for (lines, expected) in cases {
        let system = System::with(lines);
        // An ELF header without segments names no loader.
        let header = [b"\x7fELF\x02\x01\x01".as_slice(), &[0; 57]].concat();
        system.program("usr/sbin/static", &header);
        system.file("etc/default/a", "# x\nLD_PRELOAD=/x.so\n");
        let (code, out, err) = system.nowait(&["enable", "a"]);
        assert_eq!((code, out.as_str(), err.lines().count()), (1, "", 1), "{lines}: {err}");
        assert!(err.contains(expected), "{lines}: {err}");
        assert!(err.starts_with("nowait: a.service: "), "{err}");
        assert!(!system.path(OURS).exists());
        if !lines.ends_with("ExecStart=") {
            let (code, out, err) = system.nowait(&["enable", "a", "--force"]);
            assert_eq!((code, err.as_str()), (0, ""), "{lines}");
            assert!(out.contains("warning: ") && out.contains(expected), "{lines}: {out}");
        }
    }
}

#[test]
fn what_only_costs_is_a_warning() {
    let cases: &[(&str, &[&str], &str)] = &[
        ("SystemCallFilter=~@aio\nSystemCallErrorNumber=EPERM", &[], "refuses io_uring: it is not"),
        ("SystemCallFilter=~io_uring_setup:ENOSYS", &[], "refuses io_uring: it is not"),
        ("TasksMax=20", &[], "TasksMax=20: nowait may start 34 threads"),
        ("LimitNPROC=8:100", &["--workers", "7"], "LimitNPROC=8:100: nowait may start 9 threads"),
        ("ProtectSystem=strict", &["--report=/var/log/r"], "nothing be written to /var/log/r"),
        ("AppArmorProfile=x", &[], "AppArmor confines the service (x): it must allow"),
    ];
    for (lines, flags, expected) in cases {
        let report = enabled(&System::with(lines), &[&["a"], *flags].concat());
        let warnings = report["warnings"].to_string();
        assert!(warnings.contains(expected), "{lines}: {warnings}");
    }
}

#[test]
fn what_does_not_matter_is_not_mentioned() {
    let cases: &[(&str, &[&str])] = &[
        ("MemoryDenyWriteExecute=yes\nProtectSystem=strict\nPrivateTmp=yes\nProtectHome=yes", &[]),
        ("SystemCallFilter=@system-service\nSystemCallErrorNumber=EPERM", &[]),
        ("SystemCallFilter=~@aio", &["--backend", "threads"]),
        ("SystemCallFilter=~@mount @clock", &[]),
        ("LimitMEMLOCK=64K", &[]),
        ("TasksMax=99%\nLimitNPROC=infinity\nLimitMEMLOCK=64K", &["--workers", "4"]),
        ("TemporaryFileSystem=/usr\nBindReadOnlyPaths=-/usr/lib", &[]),
        ("NoExecPaths=/\nExecPaths=/usr/sbin /usr/lib", &[]),
        ("ProtectSystem=strict\nLogsDirectory=a", &["--report=/var/log/a/r"]),
        ("UnsetEnvironment=\nUnsetEnvironment=LD_PRELOADED", &[]),
    ];
    for (lines, flags) in cases {
        let report = enabled(&System::with(lines), &[&["a"], *flags].concat());
        assert_eq!(report["warnings"], serde_json::json!([]), "{lines}");
    }
}

#[test]
fn a_later_drop_in_that_replaces_it_is_refused() {
    let system = System::with("");
    let later = format!("{ETC}/a.service.d/zzz.conf");
    system.file(&later, "[Service]\nEnvironment=A=1\n");
    enabled(&system, &["a"]);
    for line in ["Environment=", "Environment=A=1 'LD_PRELOAD=/x'"] {
        system.file(&later, &format!("[Service]\n{line}\n"));
        let (code, _, err) = system.nowait(&["enable", "a"]);
        assert_eq!((code, err.lines().count()), (1, 1), "{err}");
        assert!(err.contains("zzz.conf is read after zz-nowait.conf"), "{err}");
    }
}

#[test]
fn a_set_user_id_program_is_refused_unless_the_unit_gives_no_new_rights() {
    let system = System::with("User=12345");
    let daemon = system.path("usr/sbin/daemon");
    fs::set_permissions(&daemon, fs::Permissions::from_mode(0o4755)).unwrap();
    let (code, _, err) = system.nowait(&["enable", "a"]);
    assert_eq!(code, 1);
    assert!(err.contains("it is set-user-id: the loader ignores LD_PRELOAD"), "{err}");
    for lines in ["User=12345\nNoNewPrivileges=yes", "DynamicUser=yes"] {
        let text = format!("[Service]\nExecStart=/usr/sbin/daemon\n{lines}\n");
        system.file(&format!("{LIB}/a.service"), &text);
        enabled(&system, &["a"]);
    }
}

#[test]
fn a_library_that_the_user_of_the_service_cannot_reach_is_refused() {
    let system = System::with("User=daemon\nProtectHome=yes");
    system.file("etc/passwd", "root:x:0:0::/:\ndaemon:x:4711:4711::/:\n");
    let closed = system.path("usr/lib/nowait");
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700)).unwrap();
    let (code, _, err) = system.nowait(&["enable", "a"]);
    assert_eq!(code, 1);
    assert!(err.contains("cannot open /usr/lib/nowait; install"), "{err}");
    system.file("home/a/libnowait_preload.so", "");
    let mut command = nowait(&["enable", "a", "--root"]);
    command.arg(system.path("")).env("NOWAIT_LIBDIR", "/home/a");
    let (code, _, err) = outcome(&mut command);
    assert_eq!(code, 1);
    assert!(err.contains("ProtectHome=yes of the unit hides /home/a/"), "{err}");
}

#[test]
fn the_programs_of_a_shell_s_line_are_looked_at() {
    let line = "ExecStart=\nExecStart=/bin/sh -c \"x=`/usr/sbin/daemon` \\\n  exec /no/such -x\"";
    let system = System::with(line);
    system.program("bin/sh", &fs::read("/bin/sh").unwrap());
    let report = enabled(&system, &["a"]);
    let paths: Vec<_> =
        report["programs"].as_array().unwrap().iter().map(|it| &it["path"]).collect();
    assert_eq!(paths, ["/bin/sh", "/usr/sbin/daemon"]);
}

#[test]
fn without_a_root_systemctl_is_named_and_called_only_with_now() {
    let system = System::with("");
    let home = system.path("home");
    let folder = home.join(".config/systemd/user");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("a.service"), "[Service]\nExecStart=/bin/true\n").unwrap();
    support::libraries(&home);
    let stub = "#!/bin/sh\necho \"$@\" >>\"$SAID\"\n[ \"$FAIL\" != \"$2\" ]\n";
    system.program("bin/systemctl", stub.as_bytes());
    let said = system.path("said");
    let run = |args: &[&str], fail: &str| {
        let mut command = nowait(args);
        command.env_remove("XDG_CONFIG_HOME").env("HOME", &home).env("NOWAIT_LIBDIR", &home);
        command.env("PATH", system.path("bin")).env("SAID", &said).env("FAIL", fail);
        outcome(&mut command)
    };
    let (code, out, err) = run(&["enable", "a", "--user"], "");
    assert_eq!((code, err.as_str()), (0, ""));
    let next =
        "next:\n    systemctl --user daemon-reload\n    systemctl --user restart a.service\n";
    assert!(out.ends_with(next), "{out}");
    assert!(!said.exists());
    assert!(folder.join("a.service.d/zz-nowait.conf").exists());
    let (code, out, _) = run(&["enable", "a", "--user", "--now"], "");
    assert!(code == 0 && !out.contains("next:"), "{out}");
    let calls = "--user daemon-reload\n--user try-restart a.service\n";
    assert_eq!(fs::read_to_string(&said).unwrap(), calls);
    let (code, _, err) = run(&["enable", "a", "--user", "--now"], "try-restart");
    assert!(code == 1 && err.ends_with("; the drop-in: unchanged\n"), "{err}");
    let (code, _, err) = run(&["disable", "a", "--user", "--now"], "try-restart");
    assert_eq!((code, err.lines().count()), (1, 1), "{err}");
    assert!(err.contains("systemctl try-restart a.service: exit status: 1"), "{err}");
    assert!(err.ends_with("journalctl --user -u a.service; the drop-in: removed\n"), "{err}");
    assert!(!folder.join("a.service.d").exists());
}

#[test]
fn wrong_usage_is_one_line_and_exit_code_2() {
    let cases: &[&[&str]] = &[
        &["enable"],
        &["enable", "a.timer"],
        &["enable", "/usr/lib/systemd/system/a.service"],
        &["enable", "a", "--now", "--dry-run"],
        &["enable", "a", "--now", "--root", "/"],
        &["enable", "a", "--user", "--root", "/"],
        &["enable", "a", "--cache", "user"],
        &["enable", "a", "--submit", "inline"],
        &["disable", "a", "--force"],
    ];
    for case in cases {
        let (code, out, err) = outcome(&mut nowait(case));
        assert_eq!((code, out.as_str(), err.lines().count()), (2, "", 1), "{case:?}: {err}");
    }
}

#[test]
fn systemd_finds_nothing_wrong_with_a_distribution_s_unit_that_is_enabled() {
    let real = "/usr/lib/systemd/system/mariadb.service";
    let analyze = Command::new("systemd-analyze").arg("--version").output();
    let Some(text) = analyze.ok().and_then(|_| fs::read_to_string(real).ok()) else {
        return note_skip_here("needs systemd-analyze and mariadb-server");
    };
    let system = System::new();
    system.file(&format!("{LIB}/mariadb.service"), &text);
    for program in ["bin/sh", "usr/sbin/mariadbd", "usr/bin/galera_recovery"] {
        system.program(program, &fs::read(format!("/{program}")).unwrap());
    }
    system.file("etc/passwd", "mysql:x:107:112::/:\n");
    let report = enabled(&system, &["mariadb", "--backend", "auto", "--workers", "8"]);
    let judged = report["programs"].as_array().unwrap();
    assert!(judged.iter().any(|it| it["path"] == "/usr/sbin/mariadbd"), "{report:#}");
    let mut verify = Command::new("systemd-analyze");
    verify.args(["verify", "--man=no", "mariadb.service"]);
    let folders = format!("{}:{}:", system.path(ETC).display(), system.path(LIB).display());
    let (code, out, err) = outcome(verify.env("SYSTEMD_UNIT_PATH", folders));
    let about_ours = format!("{out}{err}").lines().filter(|it| it.contains("nowait")).count();
    assert_eq!((code, about_ours), (0, 0), "{out}{err}");
}
