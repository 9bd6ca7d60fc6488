//! The answers of `nowait serve` on its status socket, and the messages of `nowait serve` and
//! `nowait top` when they fail.

use std::fs;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nowait_tests::program::Program;
use nowait_tests::ready;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::subject;

const SIZE: u64 = 1 << 20;
const PATIENCE: Duration = Duration::from_mins(1);

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
    // The server has sent the greeting, so it has all descriptors that this client needs.
    let mut client = UnixStream::connect(server.socket()).expect("a connection");
    client.read_exact(&mut [0; 16]).expect("a greeting");
    let before = limit_descriptors(server.pid(), 3);
    // The server has no descriptor left for this connection, so it does not answer.
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
    // The server has disconnected the slow client.
    assert_eq!(slow.read(&mut [0; 16]).expect("the end"), 0);
    server.stop();
}

#[test]
fn a_server_that_top_cannot_see_says_so() {
    let scratch = Scratch::new("told");
    let (served, socket) = (scratch.image("served", SIZE), scratch.file("nbd"));
    let Some(tool) = tool() else { return };
    // With this folder the path of a socket is longer than the kernel permits.
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

#[test]
fn what_cannot_be_done_is_said_in_one_line_that_names_the_option() {
    let scratch = Scratch::new("told");
    let served = scratch.image("served", SIZE);
    let empty_key = scratch.image("key.pem", 0);
    let nbd = format!("unix:{}", scratch.file("nbd").display());
    let (cert, zz) = (text(&served), format!("zz={}", scratch.file("vm").display()));
    let cases: [(&[&str], i32, &str); 10] = [
        (&["--cache", "user", "--cache-size", "0"], 2, "--cache-size"),
        (&["--cache", "user", "--cache-size", "999T"], 2, "--cache-size"),
        (&["--memory", "1M"], 2, "at least 64M"),
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
