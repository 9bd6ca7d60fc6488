//! `nowait serve` with clients of other projects.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::program::{Program, Running};
use nowait_tests::ready;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::skip;

const SIZE: u64 = 64 << 20;
/// NBD_ESHUTDOWN, the error of a request that an ending server does not carry out.
const SHUTDOWN: u32 = 108;
const CACHES: [&str; 3] = ["none", "user", "host"];

fn image(scratch: &Scratch, name: &str) -> PathBuf {
    let path = scratch.file(name);
    let file = File::create(&path).expect("an image");
    file.set_len(SIZE).expect("its size");
    for megabyte in (0..SIZE >> 20).step_by(3) {
        let bytes: Vec<u8> =
            (0..1u64 << 20).map(|i| (i * 31 + megabyte + (i >> 11)) as u8).collect();
        file.write_all_at(&bytes, megabyte << 20).expect("its data");
    }
    path
}

fn same(a: &Path, b: &Path) -> bool {
    fs::read(a).expect("an image") == fs::read(b).expect("an image")
}

#[test]
fn nbdinfo_sees_what_is_served() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo"])) else { return };
    let scratch = Scratch::new("serve");
    let (one, two) = (image(&scratch, "one"), image(&scratch, "two"));
    let second = format!("data={}", text(&two));
    let Some(server) = Server::start(&scratch, &[text(&one), &second, "--read-only"]) else {
        return;
    };
    let info = Program::new("nbdinfo").args(["--json", &server.uri("")]).succeed();
    let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
    let export = &info["exports"][0];
    assert_eq!(export["export-size"], SIZE);
    assert_eq!((&export["is_read_only"], &export["can_multi_conn"]), (&true.into(), &true.into()));
    assert_eq!(export["can_df"], true);
    let list = Program::new("nbdinfo").args(["--list", "--json", &server.uri("")]).succeed();
    let list: serde_json::Value = serde_json::from_str(&list.stdout).expect("JSON");
    let names: Vec<&str> = list["exports"]
        .as_array()
        .expect("a list")
        .iter()
        .filter_map(|e| e["export-name"].as_str())
        .collect();
    assert_eq!(names, ["one", "data"]);
    let map = Program::new("nbdinfo").args(["--map", "--json", &server.uri("data")]).succeed();
    let map: serde_json::Value = serde_json::from_str(&map.stdout).expect("JSON");
    let extents = map.as_array().expect("a list");
    let total: u64 = extents.iter().filter_map(|extent| extent["length"].as_u64()).sum();
    assert_eq!(total, SIZE);
    assert!(extents.iter().any(|extent| extent["type"] == 3), "{map}");
    let unknown = Program::new("nbdinfo").arg(server.uri("none")).run();
    assert!(!unknown.status.success());
    server.stop();
}

#[test]
fn copies_both_ways_are_the_same_with_every_cache() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdcopy", "qemu-img"])) else { return };
    for cache in CACHES {
        let scratch = Scratch::new("serve");
        let (source, served) = (image(&scratch, "source"), scratch.image("served", SIZE));
        let arguments = [text(&served), "--cache", cache, "--threads", "2"];
        let Some(server) = Server::start(&scratch, &arguments) else { return };
        let uri = server.uri("");
        Program::new("nbdcopy").args(["--flush", text(&source), &uri]).succeed();
        if cache != "user" {
            assert!(same(&source, &served), "{cache}: written");
        }
        let back = scratch.file("back");
        Program::new("nbdcopy").args([&uri, text(&back)]).succeed();
        assert!(same(&source, &back), "{cache}: read back");
        let compare = ["compare", "-f", "raw", "-F", "raw", text(&source), &uri];
        Program::new("qemu-img").args(compare).succeed();
        let other = scratch.file("other");
        Program::new("qemu-img")
            .args(["convert", "-f", "raw", "-O", "raw", &uri, text(&other)])
            .succeed();
        assert!(same(&source, &other), "{cache}: converted");
        Program::new("qemu-img").args(["convert", "-n", "-O", "raw", text(&other), &uri]).succeed();
        server.stop();
        assert!(same(&source, &served), "{cache}: at the end");
    }
}

#[test]
fn a_qcow2_image_lives_on_an_export() {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-img", "qemu-io"])) else { return };
    let scratch = Scratch::new("serve");
    let served = scratch.image("served", SIZE);
    let Some(server) = Server::start(&scratch, &[text(&served)]) else { return };
    let uri = server.uri("");
    let qemu_img = |arguments: &[&str]| Program::new("qemu-img").args(arguments).succeed();
    qemu_img(&["create", "-f", "qcow2", &uri, "48M"]);
    let qemu_io = |commands: &[&str]| {
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        let output =
            Program::new("qemu-io").args(["-f", "qcow2"]).args(commands).arg(&uri).succeed();
        assert!(!output.stdout.contains("failed"), "{output}");
    };
    qemu_io(&[
        "write -P 7 0 1M",
        "aio_write -P 8 1M 512k",
        "aio_flush",
        "write -z 512k 64k",
        "flush",
    ]);
    qemu_io(&["read -P 7 0 512k", "read -P 0 512k 64k", "read -P 8 1M 512k", "discard 1M 512k"]);
    assert!(qemu_img(&["check", "-f", "qcow2", &uri]).stdout.contains("No errors"));
    server.stop();
}

#[test]
fn fio_verifies_what_it_wrote() {
    let Some(()) = skip::unless(skip::missing_program(&["fio"])) else { return };
    for (cache, block) in [("none", "4k"), ("none", "4k-64k"), ("user", "4k"), ("host", "16k")] {
        let scratch = Scratch::new("serve");
        let served = scratch.image("served", SIZE);
        let Some(server) = Server::start(&scratch, &[text(&served), "--cache", cache]) else {
            return;
        };
        let size = if nowait_tests::full() { "64m" } else { "16m" };
        let sized = if block.contains('-') { "--bsrange" } else { "--bs" };
        let output = Program::new("fio")
            .args(["--name=v", "--ioengine=nbd", "--rw=randwrite", "--iodepth=32"])
            .arg(format!("--uri={}", server.uri("")))
            .arg(format!("{sized}={block}"))
            .arg(format!("--size={size}"))
            .args(["--serialize_overlap=1", "--verify=crc32c", "--do_verify=1"])
            .arg("--verify_fatal=1")
            .succeed();
        assert!(!output.stderr.contains("verify"), "{output}");
        server.stop();
    }
}

/// Returns libnbd's shell, with a PATH on which it finds only the system's Python: another Python
/// may lack libnbd's module.
fn nbdsh() -> Program {
    Program::new("nbdsh").env("PATH", "/usr/bin:/bin")
}

#[test]
fn nbdsh_finds_every_operation_and_every_refusal() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdsh"])) else { return };
    if !nbdsh().args(["-c", "pass"]).run().status.success() {
        return skip::note("nbdsh does not work");
    }
    const SCRIPT: &str = r#"
import errno, os
def refused(number, call):
    try:
        call()
    except nbd.Error as error:
        assert error.errnum == number, (error.errnum, number)
    else:
        raise AssertionError("not refused")
h.set_strict_mode(0)
h.add_meta_context("base:allocation")
h.connect_uri(os.environ["URI"])
size = h.get_size()
h.pwrite(b"x" * 4096, 4096, nbd.CMD_FLAG_FUA)
# Writes of parts of sectors: the server reads the sectors, changes and writes them.
h.pwrite(b"hello", 5000)
h.pwrite(b"y" * 3000, 8192 - 100)
assert h.pread(10, 4998) == b"xxhelloxxx"
assert h.pread(1, 4095) == b"\0" and h.pread(3000, 8192 - 100) == b"y" * 3000
assert bytes(h.pread_structured(4096, 4096, lambda *_: 0)) == h.pread(4096, 4096)
big = os.urandom(32 << 20)
h.pwrite(big, 4096 * 3)
assert h.pread(32 << 20, 4096 * 3) == big
h.zero(8192, 4096 * 3); h.zero(10000, 4096 * 7 + 100, nbd.CMD_FLAG_NO_HOLE)
assert h.pread(8192, 4096 * 3) == b"\0" * 8192
assert h.pread(10000, 4096 * 7 + 100) == b"\0" * 10000
assert h.pread(100, 4096 * 7) == big[4096 * 4:4096 * 4 + 100]
h.trim(1 << 20, 1 << 20)
h.flush()
extents = []
h.block_status(size, 0, lambda name, offset, entries, err: extents.extend(entries))
assert sum(extents[0::2]) <= size and extents
refused(errno.EINVAL, lambda: h.pread(512, size))
refused(errno.ENOSPC, lambda: h.pwrite(b"z" * 512, size))
refused(errno.EINVAL, lambda: h.pread(1 << 26, 0))
cookies = [h.aio_pread(nbd.Buffer(4096), 4096 * i) for i in range(200)]
while h.aio_in_flight():
    h.poll(-1)
    for cookie in list(cookies):
        if h.aio_command_completed(cookie):
            cookies.remove(cookie)
h.shutdown()
"#;
    for (cache, sector) in [("none", "4096"), ("host", "512"), ("user", "512")] {
        let scratch = Scratch::new("serve");
        let served = scratch.image("served", SIZE);
        let arguments = [text(&served), "--cache", cache, "--sector-size", sector];
        let Some(server) = Server::start(&scratch, &arguments) else { return };
        nbdsh().env("URI", server.uri("")).args(["-c", SCRIPT]).succeed();
        server.stop();
    }
}

#[test]
fn a_discarded_range_gives_its_space_back() {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-io"])) else { return };
    let scratch = Scratch::new("serve");
    let served = image(&scratch, "served");
    let before = fs::metadata(&served).expect("the image").blocks();
    let Some(server) = Server::start(&scratch, &[text(&served)]) else { return };
    let discard = ["-f", "raw", "-d", "unmap", "-c", "discard 0 48M", "-c", "flush"];
    Program::new("qemu-io").args(discard).arg(server.uri("")).succeed();
    let after = fs::metadata(&served).expect("the image").blocks();
    assert!(after < before / 2, "{before} blocks before, {after} after");
    server.stop();
}

#[test]
fn a_window_shows_only_its_part() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdcopy"])) else { return };
    let scratch = Scratch::new("serve");
    let served = image(&scratch, "served");
    let part = format!("{},offset=3M,length=1M,read-only", served.display());
    let Some(server) = Server::start(&scratch, &[&part]) else { return };
    let copy = scratch.file("copy");
    Program::new("nbdcopy").args([&server.uri(""), text(&copy)]).succeed();
    let whole = fs::read(&served).expect("the image");
    assert!(fs::read(&copy).expect("the copy") == whole[3 << 20..4 << 20]);
    let output = server.stop();
    assert!(output.stderr.contains("1048576 bytes"), "{output}");
    for (part, why) in [("offset=1T", "outside the file"), ("length=0", "the window has 0 bytes")] {
        let part = format!("{},{part}", served.display());
        let wrong = tool().expect("asked before").env("XDG_RUNTIME_DIR", scratch.path());
        let nbd = format!("unix:{}", scratch.file("wrong").display());
        let wrong = wrong.args(["serve", &part, "--nbd", &nbd]).run();
        assert_eq!(wrong.status.code(), Some(1), "{wrong}");
        assert!(wrong.stderr.contains(why), "{wrong}");
    }
}

#[test]
fn a_hang_up_takes_the_new_size_with_every_cache_and_sessions_go_on() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo"])) else { return };
    for cache in CACHES {
        let scratch = Scratch::new("serve");
        let served = scratch.image("served", SIZE);
        let Some(mut server) = Server::start(&scratch, &[text(&served), "--cache", cache]) else {
            return;
        };
        let uri = server.uri("");
        let size = || {
            let info = Program::new("nbdinfo").args(["--size", &uri]).succeed();
            info.stdout.trim().parse::<u64>().expect("a number")
        };
        let mut client = Raw::connect(&server);
        let mut write = |blocks: std::ops::Range<u64>| {
            let bytes = blocks.clone().flat_map(Raw::write).collect::<Vec<u8>>();
            client.0.write_all(&bytes).expect("sent");
            client.0.read_exact(&mut vec![0; 16 * blocks.count()]).expect("replies");
        };
        write(0..50);
        assert_eq!(size(), SIZE);
        let file = File::options().write(true).open(&served).expect("the image");
        file.set_len(2 * SIZE).expect("grown");
        file.write_all_at(&[9; BLOCK], SIZE).expect("new data");
        server.signal(libc::SIGHUP);
        server.wait_until_it_says("bytes now");
        assert_eq!(size(), 2 * SIZE, "{cache}");
        write(50..100);
        let copy = scratch.file("copy");
        Program::new("nbdcopy").args([&uri, text(&copy)]).succeed();
        let bytes = fs::read(&copy).expect("a copy");
        assert!(bytes[SIZE as usize..][..BLOCK] == [9; BLOCK], "{cache}");
        for block in 0..100 {
            let wanted = (block as u64).to_le_bytes().repeat(BLOCK / 8);
            assert!(bytes[block * BLOCK..][..BLOCK] == wanted, "{cache}: block {block}");
        }
        drop(client);
        server.stop();
    }
}

#[test]
fn a_server_of_virtual_machines_alone_goes_on_after_a_hang_up() {
    let scratch = Scratch::new("serve");
    let Some(tool) = tool() else { return };
    let (disk, socket) = (scratch.image("disk.img", SIZE), scratch.file("vm"));
    let tool = tool.env("XDG_RUNTIME_DIR", scratch.path());
    let mut running = tool.arg("serve").arg(&disk).arg("--vhost-user").arg(&socket).spawn();
    ready::wait_for_socket(&socket, &mut running);
    File::options().write(true).open(&disk).and_then(|it| it.set_len(2 * SIZE)).expect("a size");
    let signal = |running: &Running, signal: i32| {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(running.pid(), signal) }, 0);
    };
    signal(&running, libc::SIGHUP);
    while !running.stderr().contains("bytes now") {
        assert!(!running.ended(), "the server ended\n{}", running.stderr());
        std::thread::yield_now();
    }
    UnixStream::connect(&socket).expect("it is there");
    signal(&running, libc::SIGTERM);
    let output = running.wait(Duration::from_mins(1));
    assert!(output.status.success(), "{output}");
}

#[test]
fn without_its_driver_ublk_is_refused_with_what_to_do_instead() {
    if Path::new("/dev/ublk-control").exists() {
        return skip::note("this kernel has ublk: see the guest of tests/guest.rs");
    }
    let scratch = Scratch::new("serve");
    let Some(tool) = tool() else { return };
    let output =
        tool.arg("serve").arg(scratch.image("disk.img", SIZE)).args(["--ublk", "auto"]).run();
    assert!(!output.status.success(), "{output}");
    assert!(output.stderr.contains("modprobe ublk_drv"), "{output}");
    assert_eq!(output.stderr.trim().lines().count(), 1, "{output}");
}

#[test]
fn what_was_flushed_survives_the_end_of_the_server() {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-io"])) else { return };
    for cache in CACHES {
        let scratch = Scratch::new("serve");
        let served = scratch.image("served", SIZE);
        let Some(server) = Server::start(&scratch, &[text(&served), "--cache", cache]) else {
            return;
        };
        let write =
            ["-f", "raw", "-c", "write -P 90 1M 2M", "-c", "write -f -P 91 4M 4k", "-c", "flush"];
        Program::new("qemu-io").args(write).arg(server.uri("")).succeed();
        server.kill();
        let bytes = fs::read(&served).expect("the image");
        assert!(bytes[1 << 20..3 << 20].iter().all(|byte| *byte == 90), "{cache}");
        assert!(bytes[4 << 20..][..4096].iter().all(|byte| *byte == 91), "{cache}");
        // The new server replaces the socket file that the killed server has left.
        let Some(server) = Server::start(&scratch, &[text(&served), "--cache", cache]) else {
            return;
        };
        server.stop();
    }
}

/// A client that uses no library: a library would reject wrong replies before the test sees them.
struct Raw(UnixStream);

const BLOCK: usize = 4096;

impl Raw {
    fn connect(server: &Server) -> Raw {
        Raw::connect_to(server, "")
    }

    fn connect_to(server: &Server, export: &str) -> Raw {
        let mut stream = UnixStream::connect(server.socket()).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_mins(1))).expect("a limit against hanging");
        let mut said = b"\0\0\0\x03IHAVEOPT\0\0\0\x01".to_vec();
        said.extend((export.len() as u32).to_be_bytes());
        said.extend(export.as_bytes());
        stream.write_all(&said).expect("heard");
        stream.read_exact(&mut [0; 18 + 10]).expect("the greeting and the export");
        Raw(stream)
    }

    /// Makes a request; `what` is its flags and its command.
    fn request(what: [u8; 4], cookie: u64, offset: u64, len: u32) -> Vec<u8> {
        let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
        bytes.extend(what);
        bytes.extend(cookie.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    }

    fn write(cookie: u64) -> Vec<u8> {
        let offset = cookie * BLOCK as u64;
        let mut bytes = Raw::request([0, 0, 0, 1], cookie, offset, BLOCK as u32);
        bytes.extend(cookie.to_le_bytes().repeat(BLOCK / 8));
        bytes
    }

    fn replies(mut self) -> BTreeMap<u64, u32> {
        let mut heard = Vec::new();
        self.0.read_to_end(&mut heard).expect("the end, not a reset");
        let mut replies = BTreeMap::new();
        for reply in heard.chunks(16) {
            assert_eq!(reply[..4], 0x6744_6698_u32.to_be_bytes());
            let error = u32::from_be_bytes(reply[4..8].try_into().expect("4 bytes"));
            let cookie = u64::from_be_bytes(reply[8..].try_into().expect("8 bytes"));
            assert_eq!(replies.insert(cookie, error), None, "answered twice");
        }
        replies
    }
}

/// When the server gets a signal to end, it may be carrying out some requests, and other requests
/// are still in the socket. The client may have sent only a part of the last request.
#[test]
fn every_request_that_was_sent_before_the_end_has_one_reply() {
    for cache in CACHES {
        let scratch = Scratch::new("serve");
        let served = scratch.image("served", SIZE);
        let Some(server) = Server::start(&scratch, &[text(&served), "--cache", cache]) else {
            return;
        };
        let mut client = Raw::connect(&server);
        let mut sent: u64 = 0;
        while sent < 1000 {
            client.0.write_all(&Raw::write(sent)).expect("sent");
            sent += 1;
        }
        // The stopped server reads nothing. When it continues, it finds both the signal to end and
        // further requests.
        server.signal(libc::SIGSTOP);
        client.0.set_nonblocking(true).expect("a mode");
        let rest = loop {
            let request = Raw::write(sent);
            sent += 1;
            match client.0.write(&request) {
                Ok(count) if count == request.len() => {}
                Ok(count) => break request[count..].to_vec(),
                Err(_) => break request,
            }
        };
        client.0.set_nonblocking(false).expect("a mode");
        server.signal(libc::SIGTERM);
        server.signal(libc::SIGCONT);
        let begun = rest.len() < BLOCK + 28;
        // If the rest is shorter than a request, a part of that request was sent already.
        if begun {
            client.0.write_all(&rest).expect("it is waited for");
        }
        let replies = client.replies();
        server.stop_told();
        assert!(replies.keys().copied().eq(0..sent - u64::from(!begun)), "{cache}: one each");
        let known = |error: &u32| [0, SHUTDOWN].contains(error);
        assert!(replies.values().all(known), "{cache}: {replies:?}");
        let bytes = fs::read(&served).expect("the image");
        for (cookie, error) in replies {
            let block = &bytes[cookie as usize * BLOCK..][..BLOCK];
            let written = block == cookie.to_le_bytes().repeat(BLOCK / 8);
            assert!(written || error == SHUTDOWN, "{cache}: block {cookie}");
        }
    }
}

/// Several clients request zeroes in an image whose file system has no fast way to zero a range, so
/// that the requests would take minutes. The server ends nevertheless, after it has written its
/// cached data of another image to the file of that image.
#[test]
fn zeroes_without_end_do_not_keep_the_server_from_its_end_and_other_images_from_their_disk() {
    const BLOCKS: u64 = 100;
    let scratch = Scratch::new("serve");
    let memory = tempfile::tempdir_in("/dev/shm").expect("a folder in memory");
    let (zeroed, other) = (memory.path().join("zeroed"), scratch.image("other", SIZE));
    File::create(&zeroed).and_then(|file| file.set_len(4 * SIZE)).expect("an image");
    let arguments = [text(&zeroed), text(&other), "--cache", "user"];
    let Some(server) = Server::start(&scratch, &arguments) else { return };
    let mut writer = Raw::connect_to(&server, "other");
    (0..BLOCKS).for_each(|block| writer.0.write_all(&Raw::write(block)).expect("sent"));
    writer.0.read_exact(&mut [0; BLOCKS as usize * 16]).expect("all are written, none is durable");
    let clients: Vec<Raw> = (0..8)
        .map(|_| {
            let mut client = Raw::connect(&server);
            for cookie in 0..200 {
                // Each request writes zeroes to the whole image, and must make no holes.
                let request = Raw::request([0, 2, 0, 6], cookie, 0, 4 * SIZE as u32);
                client.0.write_all(&request).expect("sent");
            }
            client
        })
        .collect();
    server.stop();
    for client in clients {
        let replies = client.replies();
        assert!(replies.keys().copied().eq(0..200), "each has a reply");
        assert!(replies.values().all(|error| [0, SHUTDOWN].contains(error)), "{replies:?}");
    }
    let bytes = fs::read(&other).expect("the image");
    for block in 0..BLOCKS as usize {
        let wanted = (block as u64).to_le_bytes().repeat(BLOCK / 8);
        assert!(bytes[block * BLOCK..][..BLOCK] == wanted, "block {block} was not synced");
    }
}

#[test]
fn a_thousand_clients_half_of_them_silent_do_not_keep_others_waiting() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdcopy"])) else { return };
    let scratch = Scratch::new("serve");
    let served = image(&scratch, "served");
    let Some(server) = Server::start(&scratch, &[text(&served)]) else { return };
    let clients: Vec<UnixStream> = (0..1000)
        .map(|number| {
            let mut stream = UnixStream::connect(server.socket()).expect("a connection");
            if number % 2 == 0 {
                let mut greeting = [0; 18];
                stream.read_exact(&mut greeting).expect("the greeting");
                assert_eq!(&greeting[..8], b"NBDMAGIC");
            }
            stream
        })
        .collect();
    let copy = scratch.file("copy");
    Program::new("nbdcopy").args([&server.uri(""), text(&copy)]).succeed();
    assert!(same(&served, &copy));
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("its status");
    let resident = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("its memory");
    let kib: u64 = resident.trim().trim_end_matches(" kB").parse().expect("a number");
    assert!(kib < 300 << 10, "{kib} KiB are resident");
    drop(clients);
    server.stop();
}

#[test]
fn half_open_connections_are_closed_in_time() {
    let scratch = Scratch::new("serve");
    let served = scratch.image("served", SIZE);
    let Some(server) = Server::start(&scratch, &[text(&served)]) else { return };
    let mut silent = UnixStream::connect(server.socket()).expect("a connection");
    silent.set_read_timeout(Some(Duration::from_mins(1))).expect("a limit against hanging");
    let mut heard = Vec::new();
    silent.read_to_end(&mut heard).expect("the end, not the limit");
    assert_eq!(heard.len(), 18);
    server.stop();
}

#[test]
fn counters_are_told_in_json_and_for_prometheus() {
    let Some(()) = skip::unless(skip::missing_program(&["curl", "qemu-io"])) else { return };
    let scratch = Scratch::new("serve");
    let served = image(&scratch, "served");
    let status = scratch.file("status");
    let address = format!("unix:{}", status.display());
    let Some(server) = Server::start(&scratch, &[text(&served), "--status", &address]) else {
        return;
    };
    Program::new("qemu-io").args(["-f", "raw", "-c", "read 0 1M"]).arg(server.uri("")).succeed();
    let get = |path: &str| {
        let url = format!("http://localhost{path}");
        Program::new("curl").args(["-sS", "--unix-socket", text(&status), &url]).succeed().stdout
    };
    let json: serde_json::Value = serde_json::from_str(&get("/status")).expect("JSON");
    assert_eq!((&json["schema"], &json["exports"][0]["size"]), (&1.into(), &SIZE.into()));
    let metrics = get("/metrics");
    assert!(
        metrics.contains("nowait_serve_requests_total{export=\"served\",kind=\"read\"}"),
        "{metrics}"
    );
    let top = tool().expect("asked before").env("XDG_RUNTIME_DIR", scratch.path());
    let top = top.args(["top", "--json"]).succeed();
    let all: serde_json::Value = serde_json::from_str(&top.stdout).expect("JSON");
    assert_eq!(all[0]["pid"], server.pid());
    server.stop();
}

#[test]
fn who_may_not_have_an_export_does_not_learn_of_it() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdinfo"])) else { return };
    let scratch = Scratch::new("serve");
    let (one, two) = (image(&scratch, "one"), image(&scratch, "two"));
    // SAFETY: geteuid takes no arguments and cannot fail.
    let user = unsafe { libc::geteuid() };
    let (mine, others) = (format!("uid:{user}"), format!("two=uid:{}", user + 1));
    let arguments = [text(&one), text(&two), "--allow", &others];
    let Some(server) = Server::start(&scratch, &arguments) else { return };
    let list = Program::new("nbdinfo").args(["--list", "--json", &server.uri("")]).succeed();
    assert!(list.stdout.contains("\"one\"") && !list.stdout.contains("\"two\""), "{list}");
    let refused = Program::new("nbdinfo").arg(server.uri("two")).run();
    assert!(!refused.status.success(), "{refused}");
    server.stop();
    // The empty name means the first image. A client that may not use the first image does not get
    // the second one instead.
    let first = [text(&two), text(&one), "--allow", &others];
    let Some(server) = Server::start(&scratch, &first) else { return };
    let refused = Program::new("nbdinfo").arg(server.uri("")).run();
    assert!(!refused.status.success(), "{refused}");
    Program::new("nbdinfo").arg(server.uri("one")).succeed();
    server.stop();
    let arguments = [&arguments[..], &["--allow", &mine]].concat();
    let Some(server) = Server::start(&scratch, &arguments) else { return };
    Program::new("nbdinfo").arg(server.uri("two")).succeed();
    server.stop();
    let wrong = tool().expect("asked before");
    let wrong = wrong.args(["serve", text(&one), "--nbd", "unix:/x/y", "--allow", "tls:a"]).run();
    assert_eq!(wrong.status.code(), Some(1), "{wrong}");
}
