//! `nowait serve` and other programs that use the same image: which programs are refused, and when.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::mount::{Kind, Mount};
use nowait_tests::program::{Output, Program};
use nowait_tests::ready;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::{skip, subject};

const SIZE: u64 = 16 << 20;
const READ_ONLY: &str = "--read-only";
const FORCE: &str = "--force-share";

fn start(scratch: &Scratch, arguments: &[&str]) -> Option<Server> {
    let mut server = Server::start(scratch, arguments)?;
    server.wait_until_it_says("serving");
    Some(server)
}

/// Starts a server, waits for its end and returns its output. If the server serves its image, ends
/// the server with SIGTERM.
fn refusal(arguments: &[&str]) -> Option<Output> {
    let scratch = Scratch::new("second");
    let tool = tool()?.env("XDG_RUNTIME_DIR", scratch.path());
    let nbd = format!("unix:{}", scratch.file("nbd").display());
    let running = tool.arg("serve").args(arguments).args(["--nbd", &nbd]).spawn();
    // The first line says that the server serves, or why it does not.
    while !running.stderr().contains('\n') {
        std::thread::yield_now();
    }
    if running.stderr().contains("serving") {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(running.pid(), libc::SIGTERM) }, 0);
    }
    Some(running.wait(Duration::from_mins(1)))
}

fn is_refused(output: &Output, image: &Path) -> bool {
    let said = &output.stderr;
    let names_both = said.contains(text(image)) && said.contains(FORCE);
    assert!(output.status.success() || (names_both && said.lines().count() == 1), "{output}");
    !output.status.success()
}

#[test]
fn a_second_server_of_an_image_is_refused_unless_both_only_read() {
    let cases: [(&[&str], &[&str], bool); 6] = [
        (&[], &[], true),
        (&[], &[READ_ONLY], true),
        (&[READ_ONLY], &[], true),
        (&[READ_ONLY], &[READ_ONLY], false),
        (&[], &[READ_ONLY, FORCE], false),
        (&[READ_ONLY, FORCE], &[], false),
    ];
    for cache in ["none", "user", "host"] {
        for (first, second, refused) in cases {
            let scratch = Scratch::new("lock");
            let served = scratch.image("disk.img", SIZE);
            let with =
                |more: &[&'static str]| [&[text(&served), "--cache", cache][..], more].concat();
            let Some(server) = start(&scratch, &with(first)) else { return };
            let Some(output) = refusal(&with(second)) else { return };
            assert_eq!(is_refused(&output, &served), refused, "{cache}: {first:?}, {second:?}");
            server.stop();
            let after = refusal(&with(&[])).expect("asked before");
            assert!(!is_refused(&after, &served), "the lock goes with the server");
        }
    }
}

#[test]
fn what_may_change_cannot_be_shared_by_force() {
    let scratch = Scratch::new("lock");
    let served = scratch.image("disk.img", SIZE);
    let Some(output) = refusal(&[text(&served), FORCE]) else { return };
    assert!(is_refused(&output, &served), "{output}");
}

#[test]
fn the_lock_holds_by_every_front_after_a_hang_up_and_with_a_socket_of_systemd() {
    let scratch = Scratch::new("lock");
    let (served, socket) = (scratch.image("disk.img", SIZE), scratch.file("vm"));
    let refused = || refusal(&[text(&served)]).is_some_and(|output| is_refused(&output, &served));
    let fronts: [(&str, &str); 2] = [("--vhost-user", "vm"), ("--fuse", "shown")];
    for (front, name) in fronts {
        let Some(tool) = tool() else { return };
        let tool = tool.env("XDG_RUNTIME_DIR", scratch.path()).arg("serve").arg(&served);
        let mut running = tool.arg(front).arg(scratch.file(name)).spawn();
        while !running.stderr().contains("serving") {
            assert!(!running.ended(), "{}", running.stderr());
        }
        let pid = running.pid();
        let signal = |signal| {
            // SAFETY: takes numbers; the process is a child that has not been waited for.
            assert_eq!(unsafe { libc::kill(pid, signal) }, 0);
        };
        assert!(refused(), "{front}");
        let grown = File::options().write(true).open(&served).expect("the image");
        grown.set_len(grown.metadata().expect("its size").len() + 4096).expect("a larger one");
        signal(libc::SIGHUP);
        while !running.stderr().contains("bytes now") {
            assert!(!running.ended(), "{}", running.stderr());
        }
        assert!(refused(), "{front}, after a hang-up");
        signal(libc::SIGTERM);
        assert!(running.wait(Duration::from_mins(1)).status.success());
    }
    let _ = fs::remove_file(&socket);
    let needed = ["systemd-socket-activate", "nbdinfo"];
    let Some(()) = skip::unless(skip::missing_program(&needed)) else { return };
    let runtime = format!("XDG_RUNTIME_DIR={}", scratch.path().display());
    let activate = Program::new("systemd-socket-activate").args(["-E", &runtime, "-l"]);
    let activate = activate.arg(&socket).arg(subject::built("bin/nowait")).arg("serve");
    let mut server = activate.arg(&served).spawn();
    ready::wait_for_socket(&socket, &mut server);
    Program::new("nbdinfo").arg(format!("nbd+unix:///?socket={}", socket.display())).succeed();
    assert!(refused(), "systemd");
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(server.pid(), libc::SIGTERM) }, 0);
    assert!(server.wait(Duration::from_mins(1)).status.success());
}

#[test]
fn qemu_is_refused_where_a_server_is_and_the_other_way_round() {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-img", "qemu-io", "qemu-nbd"])) else {
        return;
    };
    let scratch = Scratch::new("lock");
    let served = scratch.image("disk.img", SIZE);
    let path = text(&served);
    let works = |program: &str, arguments: &[&str]| {
        Program::new(program).args(arguments).arg(path).run().status.success()
    };
    let writes = || works("qemu-io", &["-f", "raw", "-c", "write 0 4k"]);
    let reads = || works("qemu-io", &["-r", "-f", "raw", "-c", "read 0 4k"]);
    let resizes = || {
        Program::new("qemu-img").args(["resize", "-f", "raw", path, "32M"]).run().status.success()
    };
    let looks = |how: &[&str]| works("qemu-img", &[&["info"], how].concat());
    for arguments in [&[][..], &[READ_ONLY]] {
        let Some(server) = start(&scratch, &[&[path], arguments].concat()) else { return };
        assert!(!writes() && !resizes(), "{arguments:?}");
        // QEMU's tools that only read a raw image tolerate a writer.
        assert!(reads() && looks(&[]) && looks(&["-U"]), "{arguments:?}");
        server.stop();
    }
    assert!(writes() && reads() && looks(&[]) && resizes(), "nothing is left behind");
    for (arguments, refused) in [(&[][..], [true, true, false]), (&["-r"], [false; 3])] {
        let socket = scratch.file("qemu");
        let _ = fs::remove_file(&socket);
        let qemu = Program::new("qemu-nbd").args(["-t", "-f", "raw", "-k"]).arg(&socket);
        let mut qemu = qemu.args(arguments).arg(path).spawn();
        ready::wait_for_socket(&socket, &mut qemu);
        let tries: [&[&str]; 3] = [&[path], &[path, READ_ONLY], &[path, READ_ONLY, FORCE]];
        for (try_it, refused) in tries.into_iter().zip(refused) {
            let output = refusal(try_it).expect("asked before");
            assert_eq!(
                is_refused(&output, &served),
                refused,
                "{arguments:?}, {try_it:?}\n{output}"
            );
        }
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(qemu.pid(), libc::SIGTERM) }, 0);
        qemu.wait(Duration::from_mins(1));
    }
}

#[test]
fn a_device_that_is_mounted_or_served_is_refused() {
    let Some(mount) = skip::unless(Mount::new(Kind::Ext4)) else { return };
    let device = PathBuf::from(mount.device().expect("a loop device"));
    let refused = |more: &[&str]| {
        let output = refusal(&[&[text(&device)], more].concat())?;
        Some(is_refused(&output, &device))
    };
    let Some(written) = refused(&[]) else { return };
    assert!(written && refused(&[READ_ONLY]) == Some(true), "mounted");
    assert_eq!(refused(&[READ_ONLY, FORCE]), Some(false));
    // A loop device that is not mounted at first.
    let scratch = Scratch::new("lock");
    let below = scratch.image("disk.img", SIZE);
    let attach = Program::new("losetup").args(["--find", "--show"]).arg(&below).succeed();
    let device = PathBuf::from(attach.stdout.trim());
    Program::new("mkfs.ext4").args(["-q", "-F"]).arg(&device).succeed();
    let point = scratch.folder("point");
    let mounts = || {
        let mounted = Program::new("mount").arg(&device).arg(&point).run().status.success();
        if mounted {
            Program::new("umount").arg(&point).succeed();
        }
        mounted
    };
    for (first, second, refused) in
        [(&[][..], &[][..], true), (&[READ_ONLY], &[], true), (&[READ_ONLY], &[READ_ONLY], false)]
    {
        let arguments = [&[text(&device)], first].concat();
        let server = start(&scratch, &arguments).expect("asked before");
        let output = refusal(&[&[text(&device)], second].concat()).expect("asked before");
        assert_eq!(is_refused(&output, &device), refused, "{first:?}, {second:?}");
        assert_eq!(mounts(), !first.is_empty(), "a writer has it alone");
        server.stop();
    }
    assert!(mounts());
    Program::new("losetup").arg("--detach").arg(&device).succeed();
}
