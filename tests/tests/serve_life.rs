//! `nowait serve` with options for parts of a file, with `--exit-with-last-client` and
//! `--pid-file`, and with clients that disconnect in the middle of a request.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use nowait_tests::program::Program;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::skip;

const SIZE: u64 = 32 << 20;
const PATIENCE: Duration = Duration::from_mins(1);

fn writes(server: &Server, export: &str) -> bool {
    let write = ["-f", "raw", "-c", "write -P 7 0 4k"];
    Program::new("qemu-io").args(write).arg(server.uri(export)).run().status.success()
}

#[test]
fn windows_and_rights_are_those_of_each_image() {
    let needed = ["nbdinfo", "nbdcopy", "qemu-io"];
    let Some(()) = skip::unless(skip::missing_program(&needed)) else { return };
    let scratch = Scratch::new("life");
    let (disk, other) = (scratch.patterned("disk", SIZE), scratch.patterned("other,1", SIZE));
    let whole = fs::read(&disk).expect("the image");
    let parts = [
        format!("one={},length=1M", text(&disk)),
        format!("two={},offset=1M,length=2M,read-only", text(&disk)),
        format!("rest={},offset=3M", text(&disk)),
        text(&other).to_owned(),
    ];
    let arguments: Vec<&str> = parts.iter().map(String::as_str).collect();
    let Some(server) = Server::start(&scratch, &arguments) else { return };
    for (name, size) in [("one", 1 << 20), ("two", 2 << 20), ("rest", SIZE - (3 << 20))] {
        let told = Program::new("nbdinfo").args(["--size", &server.uri(name)]).succeed();
        assert_eq!(told.stdout.trim(), size.to_string(), "{name}");
    }
    let copy = scratch.file("copy");
    Program::new("nbdcopy").args([&server.uri("two"), text(&copy)]).succeed();
    assert!(fs::read(&copy).expect("the copy") == whole[1 << 20..3 << 20]);
    assert!(writes(&server, "one") && writes(&server, "rest") && writes(&server, "other,1"));
    assert!(!writes(&server, "two"), "it is read only");
    server.stop();
    let after = fs::read(&disk).expect("the image");
    assert!(after[..4096] == [7; 4096] && after[3 << 20..][..4096] == [7; 4096]);
    assert!(after[4096..3 << 20] == whole[4096..3 << 20], "nothing else has changed");
    // Two writable images overlap in the file, which the server refuses.
    let Some(tool) = tool() else { return };
    let both = [text(&disk).to_owned(), format!("part={},offset=1M", text(&disk))];
    let output = tool.arg("serve").args(&both).args(["--nbd", "unix:/x/y"]).run();
    assert!(!output.status.success(), "{output}");
}

#[test]
fn a_server_that_may_ends_with_its_last_client_by_nbd() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo"])) else { return };
    let scratch = Scratch::new("life");
    let (disk, pid_file) = (scratch.patterned("disk", SIZE), scratch.file("pid"));
    // A PID file as a killed server leaves it: the number is above the kernel's maximum for
    // processes.
    fs::write(&pid_file, "4194305\n").expect("a file");
    let ends = ["--exit-with-last-client", "--pid-file", text(&pid_file)];
    let Some(server) = Server::start(&scratch, &[&[text(&disk)][..], &ends].concat()) else {
        return;
    };
    let number = || fs::read_to_string(&pid_file).expect("the number of the process");
    while number() != format!("{}\n", server.pid()) {}
    // A client that only asks for the list of exports does not count for --exit-with-last-client.
    Program::new("nbdinfo").args(["--list", &server.uri("")]).run();
    let first = chosen(&server);
    drop(chosen(&server));
    // `first` is still connected, so the server has not ended.
    Program::new("nbdinfo").args(["--size", &server.uri("")]).succeed();
    drop(first);
    server.stop_told();
    assert!(!pid_file.exists(), "it is removed");
}

#[test]
fn a_server_that_may_ends_when_its_file_is_closed_for_good() {
    let Some(()) = skip::unless(skip::missing_root()) else { return };
    let scratch = Scratch::new("life");
    let (disk, shown) = (scratch.patterned("disk", SIZE), scratch.file("shown"));
    let Some(tool) = tool() else { return };
    let tool = tool.env("XDG_RUNTIME_DIR", scratch.path()).arg("serve").arg(&disk);
    let mut running = tool.arg("--fuse").arg(&shown).arg("--exit-with-last-client").spawn();
    while !running.stderr().contains("serving") {
        assert!(!running.ended(), "{}", running.stderr());
    }
    let (mut one, two) = (File::open(&shown).expect("shown"), File::open(&shown).expect("shown"));
    drop(two);
    one.read_exact(&mut [0; 4096]).expect("it is still there");
    drop(one);
    let output = running.wait(PATIENCE);
    assert!(output.status.success() && !shown.exists(), "{output}");
}

#[test]
fn a_pid_file_that_cannot_be_written_is_an_error_of_one_line() {
    let scratch = Scratch::new("life");
    let disk = scratch.patterned("disk", SIZE);
    let Some(tool) = tool() else { return };
    let nbd = format!("unix:{}", scratch.file("nbd").display());
    let tool = tool.args(["serve", text(&disk), "--nbd", &nbd, "--pid-file", "/nope/pid"]);
    let output = tool.env("XDG_RUNTIME_DIR", scratch.path()).run();
    assert_eq!(output.status.code(), Some(1), "{output}");
    assert_eq!(output.stderr.lines().count(), 1, "{output}");
    assert!(output.stderr.contains("--pid-file /nope/pid: No such file"), "{output}");
}

/// `--pid-file` with the name of another file does not destroy that file.
#[test]
fn a_pid_file_replaces_and_removes_nothing_that_is_not_one() {
    let scratch = Scratch::new("life");
    let disk = scratch.patterned("disk", SIZE);
    let before = fs::read(&disk).expect("the image");
    let nbd = format!("unix:{}", scratch.file("nbd").display());
    for named in [text(&disk), "/dev/null"] {
        let Some(tool) = tool() else { return };
        let tool = tool.args(["serve", text(&disk), "--nbd", &nbd, "--pid-file", named]);
        let output = tool.env("XDG_RUNTIME_DIR", scratch.path()).run();
        assert_eq!(output.status.code(), Some(1), "{output}");
        assert_eq!(output.stderr.lines().count(), 1, "{output}");
        assert!(output.stderr.contains("no process number"), "{output}");
    }
    assert!(fs::read(&disk).expect("the image") == before);
    assert!(Path::new("/dev/null").exists());
}

fn chosen(server: &Server) -> UnixStream {
    let mut stream = UnixStream::connect(server.socket()).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit against hanging");
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").expect("heard");
    stream.read_exact(&mut [0; 18 + 10]).expect("the greeting and the export");
    stream
}

fn request(command: u8, cookie: u64, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, command]);
    bytes.extend(cookie.to_be_bytes());
    bytes.extend([0; 8]);
    bytes.extend(len.to_be_bytes());
    bytes
}

/// The clients disconnect after a part of a header, after a part of the data of a write, before
/// they receive their replies, and during long writes of zeroes.
#[test]
fn clients_that_go_in_the_middle_leave_nothing_behind() {
    const READ: u8 = 0;
    const WRITE: u8 = 1;
    const ZEROES: u8 = 6;
    let Some(()) = skip::unless(skip::missing_program(&["nbdcopy"])) else { return };
    let scratch = Scratch::new("life");
    let (disk, status) = (scratch.patterned("disk", SIZE), scratch.file("status"));
    let address = format!("unix:{}", status.display());
    let arguments = [text(&disk), "--memory", "64M", "--status", &address];
    let Some(mut server) = Server::start(&scratch, &arguments) else { return };
    server.wait_for(&status);
    let descriptors = || {
        let folder = format!("/proc/{}/fd", server.pid());
        fs::read_dir(folder).expect("its descriptors").count()
    };
    let told = || {
        let mut stream = UnixStream::connect(&status).expect("a connection");
        stream.set_read_timeout(Some(PATIENCE)).expect("a limit against hanging");
        stream.write_all(b"GET /status HTTP/1.1\r\n\r\n").expect("a question");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
        let export = &json["exports"][0];
        [&json["clients"]["now"], &export["connections"], &export["in_flight"]]
            .map(|number| number.as_u64().expect("a number"))
    };
    // The first client makes the server start threads for blocking tasks. These threads then stay.
    drop(chosen(&server));
    while told() != [0; 3] {}
    let before = descriptors();
    for round in 0..40u64 {
        let mut clients: Vec<UnixStream> = (0..4).map(|_| chosen(&server)).collect();
        let half_of_a_write = [request(WRITE, round, 16 << 20), vec![1; 5 << 20]].concat();
        let said = [
            request(READ, 1, 4096)[..14].to_vec(),
            half_of_a_write,
            (0..20).flat_map(|cookie| request(READ, cookie, SIZE as u32)).collect(),
            (0..100).flat_map(|cookie| request(ZEROES, cookie, SIZE as u32)).collect(),
        ];
        for (client, said) in clients.iter_mut().zip(said) {
            client.write_all(&said).expect("sent");
        }
    }
    while told() != [0; 3] {}
    assert!(descriptors() <= before + 1, "{} descriptors, {before} before", descriptors());
    // The next client can use all of the buffer memory.
    let copy = scratch.file("copy");
    Program::new("nbdcopy").args([text(&disk), &server.uri("")]).succeed();
    Program::new("nbdcopy").args([&server.uri(""), text(&copy)]).succeed();
    server.stop();
}
