//! The output of `nowait serve` and `nowait top`: on a terminal, on the status socket, and when
//! they fail.

use std::ffi::CStr;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nowait_tests::program::Program;
use nowait_tests::ready;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::subject;

const SIZE: u64 = 1 << 20;
/// A limit against hanging.
const PATIENCE: Duration = Duration::from_mins(1);

/// Asks the status socket as curl would.
fn ask(socket: &Path) -> String {
    answer(question(socket))
}

fn question(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("a connection");
    stream.write_all(b"GET /status HTTP/1.1\r\n\r\n").expect("a question");
    stream
}

fn answer(mut stream: UnixStream) -> String {
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit against hanging");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer, not the limit");
    answer
}

/// Sets a process's limit of descriptors; returns the previous one.
fn limit_descriptors(pid: i32, soft: u64) -> u64 {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: a live structure that is filled.
    let got = unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, std::ptr::null(), &raw mut before) };
    let wanted = libc::rlimit { rlim_cur: soft, rlim_max: before.rlim_max };
    // SAFETY: a live structure that is read.
    let set =
        unsafe { libc::prlimit(pid, libc::RLIMIT_NOFILE, &raw const wanted, std::ptr::null_mut()) };
    assert_eq!((got, set), (0, 0), "{}", std::io::Error::last_os_error());
    before.rlim_cur
}

#[test]
fn the_status_is_told_again_once_there_are_descriptors() {
    let scratch = Scratch::new("told");
    let (served, status) = (scratch.image("served", SIZE), scratch.file("status"));
    let address = format!("unix:{}", status.display());
    let Some(server) = Server::start(&scratch, &[text(&served), "--status", &address]) else {
        return;
    };
    // The client has received the greeting, so it has all descriptors that it needs.
    let mut client = UnixStream::connect(server.socket()).expect("a connection");
    client.read_exact(&mut [0; 16]).expect("a greeting");
    let before = limit_descriptors(server.pid(), 3);
    // No descriptor is left for this connection; for how long does not matter.
    let mut waits = question(&status);
    waits.set_read_timeout(Some(Duration::from_millis(200))).expect("a limit");
    waits.read(&mut [0; 1]).expect_err("no answer yet");
    limit_descriptors(server.pid(), before);
    assert!(answer(waits).contains("\"exports\""));
    assert!(ask(&status).contains("\"exports\""));
    server.stop();
}

#[test]
fn who_is_slow_at_the_status_socket_does_not_keep_others() {
    let scratch = Scratch::new("told");
    let (served, status) = (scratch.image("served", SIZE), scratch.file("status"));
    let address = format!("unix:{}", status.display());
    let Some(mut server) = Server::start(&scratch, &[text(&served), "--status", &address]) else {
        return;
    };
    server.wait_for(&status);
    let mut slow = UnixStream::connect(&status).expect("a connection");
    slow.write_all(b"GET ").expect("the beginning of a question");
    assert!(ask(&status).contains("\"exports\""));
    // The server has disconnected it.
    assert_eq!(slow.read(&mut [0; 16]).expect("the end"), 0);
    server.stop();
}

#[test]
fn a_server_that_top_cannot_see_says_so() {
    let scratch = Scratch::new("told");
    let (served, socket) = (scratch.image("served", SIZE), scratch.file("nbd"));
    let Some(tool) = tool() else { return };
    // Longer than the path of a socket may be.
    let long = scratch.folder(&"x".repeat(100));
    let tool = tool.env("XDG_RUNTIME_DIR", &long).args(["serve", text(&served), "--nbd"]);
    let mut server = tool.arg(format!("unix:{}", socket.display())).spawn();
    ready::wait_for_socket(&socket, &mut server);
    while !server.stderr().contains("serving served") {
        assert!(!server.ended(), "{}", server.stderr());
        std::thread::yield_now();
    }
    let said = server.stderr();
    let about: Vec<_> = said.lines().filter(|line| line.contains("`nowait top`")).collect();
    assert!(about.len() == 1 && about[0].contains("107 bytes"), "{said}");
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(server.pid(), libc::SIGTERM) }, 0);
    assert!(server.wait(PATIENCE).status.success());
}

/// Makes a terminal; returns its master, its slave and its name.
fn terminal() -> (File, OwnedFd, String) {
    let (mut master, mut slave) = (-1, -1);
    let (name, mode, size) = (std::ptr::null_mut(), std::ptr::null(), std::ptr::null());
    // SAFETY: two live integers that are filled; the rest is left out.
    let opened = unsafe { libc::openpty(&raw mut master, &raw mut slave, name, mode, size) };
    assert_eq!(opened, 0, "{}", std::io::Error::last_os_error());
    // Otherwise the servers of other tests would inherit them, and the end of the output would not
    // come.
    for fd in [master, slave] {
        // SAFETY: takes numbers.
        assert_eq!(unsafe { libc::fcntl(fd, libc::F_SETFD, libc::FD_CLOEXEC) }, 0);
    }
    let mut name = [0; 64];
    // SAFETY: a live array of that length.
    assert_eq!(unsafe { libc::ttyname_r(slave, name.as_mut_ptr(), name.len()) }, 0);
    // SAFETY: the call has ended it with a zero.
    let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_str().expect("a name").to_owned();
    // SAFETY: both are new, and have no other owner.
    unsafe { (File::from_raw_fd(master), OwnedFd::from_raw_fd(slave), name) }
}

/// Adds output to `seen` until it contains `wanted` after `from`; `None`: up to the end.
fn read_on(master: &mut File, seen: &mut String, from: usize, wanted: Option<&str>) {
    let mut bytes = [0; 4096];
    while wanted.is_none_or(|wanted| !seen[from..].contains(wanted)) {
        let mut poll = libc::pollfd { fd: master.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one live pollfd.
        let ready = unsafe { libc::poll(&raw mut poll, 1, PATIENCE.as_millis() as i32) };
        assert_eq!(ready, 1, "nothing more is shown\n{seen:?}");
        // EIO: no process has the terminal any more.
        let Ok(count) = master.read(&mut bytes) else { break };
        seen.push_str(&String::from_utf8_lossy(&bytes[..count]));
    }
}

#[test]
fn the_line_on_a_terminal_gives_way_to_messages_and_ends_at_the_end() {
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("told");
    let (served, socket) = (scratch.image("served", SIZE), scratch.file("nbd"));
    let (mut master, slave, name) = terminal();
    let program = Program::new("sh").env("XDG_RUNTIME_DIR", scratch.path()).arg("-c");
    let program = program.arg("exec \"$0\" serve \"$1\" --nbd \"unix:$2\" 2> \"$3\"");
    let program = program.arg(subject::built("bin/nowait")).arg(&served).arg(&socket);
    let mut server = program.arg(name).spawn();
    ready::wait_for_socket(&socket, &mut server);
    drop(slave);
    let mut seen = String::new();
    read_on(&mut master, &mut seen, 0, Some("p99"));
    assert!(seen.contains("  read 0/s"), "{seen:?}");
    let file = File::options().write(true).open(&served).expect("the image");
    file.set_len(2 * SIZE).expect("a larger one");
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    let signal = |signal| assert_eq!(unsafe { libc::kill(server.pid(), signal) }, 0);
    signal(libc::SIGHUP);
    read_on(&mut master, &mut seen, 0, Some("bytes now, "));
    assert!(seen.contains("\r\x1b[Knowait: served has 2097152 bytes now"), "{seen:?}");
    let from = seen.len();
    read_on(&mut master, &mut seen, from, Some("p99"));
    signal(libc::SIGTERM);
    read_on(&mut master, &mut seen, 0, None);
    assert!(seen.ends_with("\r\n"), "{seen:?}");
    assert!(server.wait(PATIENCE).status.success());
}

#[test]
fn what_cannot_be_done_is_said_in_one_line_that_names_the_option() {
    let scratch = Scratch::new("told");
    let served = scratch.image("served", SIZE);
    let empty_key = scratch.image("key.pem", 0);
    let nbd = format!("unix:{}", scratch.file("nbd").display());
    let (cert, zz) = (text(&served), format!("zz={}", scratch.file("vm").display()));
    let cases: [(&[&str], i32, &str); 11] = [
        (&["--cache", "user", "--cache-size", "0"], 2, "--cache-size"),
        (&["--cache", "user", "--cache-size", "999T"], 2, "--cache-size"),
        (&["--memory", "1M"], 2, "at least 64M"),
        (&["--length", "0"], 1, "the window has 0 bytes"),
        (
            &["--tls-cert", cert, "--tls-key", text(&empty_key)],
            1,
            "key.pem: no PEM private key in the file",
        ),
        (&["--vhost-user", &zz], 1, "--vhost-user zz=…: no image has the name zz"),
        (&["--status", "tcp:0.0.0.0:0"], 1, "use tcp:127.0.0.1:PORT, or add --expose-status"),
        (&["--nbd", "tcp:localhost:0"], 1, "or --tls off"),
        (&["--tls", "require"], 1, "need --tls-cert"),
        (&["--tls", "off", "--tls-cert", cert, "--tls-key", cert], 1, "contradict"),
        (&["--insecure"], 1, "use --tls off"),
    ];
    for (arguments, code, said) in cases {
        let Some(tool) = tool() else { return };
        let tool = tool.env("XDG_RUNTIME_DIR", scratch.path());
        let output = tool.args(["serve", text(&served), "--nbd", &nbd]).args(arguments).run();
        assert_eq!(output.status.code(), Some(code), "{output}");
        assert!(output.stderr.contains(said) && output.stderr.lines().count() == 1, "{output}");
    }
}

#[test]
fn an_image_without_a_sector_is_served_with_a_warning() {
    let scratch = Scratch::new("told");
    let served = scratch.image("served", 0);
    let Some(server) = Server::start(&scratch, &[text(&served)]) else { return };
    let output = server.stop();
    assert!(output.stderr.contains("served: nothing is served"), "{output}");
}

#[test]
fn top_names_a_socket_at_which_no_server_answers() {
    let Some(top) = tool() else { return };
    for how in ["--once", "--json"] {
        let output = Program::new(subject::built("bin/nowait")).args(["top", how, "/nope"]).run();
        assert_eq!(output.status.code(), Some(1), "{output}");
        assert!(output.stderr.starts_with("nowait: /nope: No such file"), "{output}");
    }
    let scratch = Scratch::new("told");
    let left_over = scratch.file("left.sock");
    drop(std::os::unix::net::UnixListener::bind(&left_over).expect("a socket"));
    let output = top.args(["top", "--json", text(&left_over)]).run();
    assert_eq!(output.status.code(), Some(1), "{output}");
    assert!(fs::exists(&left_over).expect("the folder"), "it is not ours to remove");
}
