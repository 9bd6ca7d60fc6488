//! Images on object stores with a cache in memory, or in a folder, where the next server finds the
//! cached data again.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use nowait_tests::fuse::{Shown, missing_tools};
use nowait_tests::hang;
use nowait_tests::mount::{Kind, Mount};
use nowait_tests::program::Program;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::skip;
use nowait_tests::store_proxy::{Behaviour, FAULTS, StoreProxy};
use nowait_tests::stored::{
    PATIENCE, made, pattern, qemu_io_with, serve_with, succeeded, verified,
};
use nowait_tests::stores::{self, Store};

const BLOCKS: usize = 64;

struct Watched {
    server: Server,
    status: std::path::PathBuf,
}

impl Watched {
    fn start(scratch: &Scratch, endpoint: &str, words: &[&str]) -> Watched {
        let status = scratch.file("status");
        let address = format!("unix:{}", text(&status));
        let words = [words, &["--status", &address]].concat();
        Watched { server: serve_with(scratch, endpoint, &words), status }
    }

    fn write(&self) {
        let write = |at: usize| format!("write -P {} {}k 4k", pattern(at), at * 4);
        let writes = (0..BLOCKS).map(write).chain(["flush".to_owned()]);
        // With write-back qemu-io flushes only at the end, so that few segments hold all writes.
        let (together, writes) = (["-t", "writeback"], writes.collect::<Vec<_>>());
        let output = qemu_io_with(&together, &self.server.uri("vm"), &writes);
        succeeded(&output);
    }

    fn read(&self) -> (u64, u64) {
        let before = self.asked();
        verified(&self.server.uri("vm"), BLOCKS);
        let after = self.asked();
        (after.0 - before.0, after.1 - before.1)
    }

    fn asked(&self) -> (u64, u64) {
        let store = self.store();
        let number = |name: &str| store[name].as_u64().expect("a number");
        (number("cache_hits"), number("cache_misses"))
    }

    fn store(&self) -> serde_json::Value {
        let curl = Program::new("curl").args(["-sS", "--unix-socket", text(&self.status)]);
        let json = curl.arg("http://localhost/status").succeed().stdout;
        let json: serde_json::Value = serde_json::from_str(&json).expect("JSON");
        json["exports"][0]["store"].clone()
    }

    /// Returns `true` if the server bypasses its cache because the cache's disk does not answer.
    fn is_aside(&self) -> bool {
        self.store()["cache_is_aside"].as_bool().expect("yes or no")
    }
}

/// A disk for the folder of a cache: a file system on a loop device over a file that another server
/// shows by FUSE.
struct Disk {
    shown: Shown,
    point: PathBuf,
    _scratch: Scratch,
}

impl Disk {
    fn new() -> Option<Disk> {
        skip::unless(missing_tools())?;
        let scratch = Scratch::new("disk");
        let (image, point) = (scratch.file("image"), scratch.folder("mnt"));
        File::create(&image).and_then(|file| file.set_len(256 << 20)).expect("an image");
        let mut shown = Shown::start(&scratch, &scratch.file("shown"), &[text(&image)])?;
        // With direct I/O, so that the kernel caches no data of the shown file.
        let device = shown.attach(&["--direct-io=on"]);
        Program::new("mkfs.ext4").args(["-q", "-F", &device]).succeed();
        shown.mount(&point);
        Some(Disk { shown, point, _scratch: scratch })
    }

    /// Drops the cache's file from the kernel's page cache, and stops the server that shows the
    /// disk, until the result is dropped.
    fn stand_still(&mut self) -> Still {
        let file = format!("if={}", text(&self.point.join("nowait-cache")));
        Program::new("dd").args([&file, "iflag=nocache", "count=0", "status=none"]).succeed();
        self.shown.server().signal(libc::SIGSTOP);
        Still(self.shown.server().pid())
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        self.shown.give_up();
        // The mount of a killed server remains: unmount it, too.
        let _ = Command::new("umount").arg("--lazy").arg(self.shown.file()).output();
    }
}

/// Keeps a disk stopped until this value is dropped. A failing test drops this value before its
/// servers, because a process that waits for the disk cannot be killed.
struct Still(i32);

impl Drop for Still {
    fn drop(&mut self) {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        unsafe { libc::kill(self.0, libc::SIGCONT) };
    }
}

#[test]
fn the_next_server_finds_what_is_in_the_folder() {
    let Some((_store, endpoint)) = made(stores::Kind::Moto) else { return };
    let [written, read] = ["written", "read"].map(Scratch::new);
    for mode in ["none", "user", "host"] {
        let scratch = Scratch::new("cache");
        let options = |folder: &Scratch| {
            ["--cache-dir", text(folder.path()), "--cache-dir-size", "64M", "--cache", mode]
                .map(str::to_owned)
        };
        let start = |folder: &Scratch| {
            let options = options(folder);
            Watched::start(&scratch, &endpoint, &options.each_ref().map(String::as_str))
        };
        let first = start(&written);
        first.write();
        assert_eq!(first.read().1, 0, "{mode}: it was written here");
        first.server.stop();
        let second = start(&written);
        assert_eq!(second.read().1, 0, "{mode}: it is in the folder");
        second.server.stop();
        // As on another host: the folder is empty. Each miss fetches a page with many blocks.
        let other = start(&read);
        let (hits, misses) = other.read();
        assert!((1..=32).contains(&misses) && hits >= 32, "{mode}: {hits} {misses}");
        assert_eq!(other.read().1, 0, "{mode}");
        other.server.kill();
        let other = start(&read);
        other.read();
        other.server.stop();
    }
}

#[test]
fn a_folder_with_other_bytes_in_it_is_asked_for_nothing_wrong() {
    let Some((_store, endpoint)) = made(stores::Kind::Moto) else { return };
    let [scratch, folder] = ["server", "folder"].map(Scratch::new);
    let options = ["--cache-dir", text(folder.path()), "--cache-dir-size", "64M"];
    let first = Watched::start(&scratch, &endpoint, &options);
    first.write();
    first.server.stop();
    let file = File::options().write(true).open(folder.file("nowait-cache")).expect("the cache");
    let bytes = file.metadata().expect("a file").len();
    // Changes one byte of each block except the first.
    for block in 1..bytes / 4096 {
        file.write_all_at(b"?", block * 4096 + 7).expect("a byte");
    }
    let second = Watched::start(&scratch, &endpoint, &options);
    assert!(second.read().1 > 0);
    assert_eq!(second.read().1, 0, "it is there again");
    second.server.stop();
}

#[test]
fn what_was_read_is_in_memory() {
    let Some((_store, endpoint)) = made(stores::Kind::Versitygw) else { return };
    let scratch = Scratch::new("cache");
    let first = Watched::start(&scratch, &endpoint, &[]);
    first.write();
    assert_eq!(first.asked(), (0, 0), "there is no cache");
    first.server.stop();
    let second = Watched::start(&scratch, &endpoint, &["--cache", "user", "--cache-size", "8M"]);
    let (hits, misses) = second.read();
    assert!(hits > 0 && misses > 0, "{hits} {misses}");
    assert_eq!(second.read(), (BLOCKS as u64, 0));
    second.server.stop();
}

#[test]
fn a_store_at_its_worst_leaves_nothing_wrong_in_the_folder() {
    let Some((store, _)) = made(stores::Kind::Moto) else { return };
    let folder = Scratch::new("folder");
    let options = ["--cache-dir", text(folder.path()), "--cache-dir-size", "64M"];
    let proxy = StoreProxy::start(store.address(), 11);
    let (faults, delay) = (FAULTS.to_vec(), Duration::from_millis(2));
    proxy.behave(Behaviour { faults, per_mille: 150, delay, is_constant: false });
    for round in 0..6 {
        let scratch = Scratch::new("server");
        let server = Watched::start(&scratch, &Store::endpoint(proxy.address()), &options);
        if round % 3 == 0 {
            server.write();
        }
        server.read();
        server.server.kill();
    }
    let faults: u64 = proxy.counts().faults.values().sum();
    assert!(faults > 5, "{:?}", proxy.counts());
}

#[test]
fn a_full_disk_is_said_and_ends_nothing() {
    let Some(disk) = skip::unless(Mount::new(Kind::Tmpfs)) else { return };
    let Some((_store, endpoint)) = made(stores::Kind::Moto) else { return };
    let scratch = Scratch::new("server");
    let words = ["--cache-dir", text(disk.path()), "--cache-dir-size", "64M", "--cache", "host"];
    let mut server = Watched::start(&scratch, &endpoint, &words);
    // Leaves room on the disk for some pages of the cache, but not for all.
    let mut filler = File::create(disk.file("filler")).expect("a file");
    let zeroes = vec![0; 1 << 20];
    while filler.write_all(&zeroes).is_ok() {}
    let bytes = filler.metadata().expect("a file").len();
    filler.set_len(bytes - (96 << 10)).expect("a shorter file");
    server.write();
    server.read();
    server.server.wait_until_it_says("the cache stopped growing: ");
    assert!(server.read().0 > 0, "what has come there is there");
    server.server.stop();
}

fn carried_out(server: &Server, export: &str, commands: &[&str]) {
    let commands: Vec<String> = commands.iter().map(|it| (*it).to_owned()).collect();
    let output = qemu_io_with(&["-t", "writeback"], &server.uri(export), &commands);
    succeeded(&output);
}

/// Waits until the first thread of a process has ended: other threads may still wait for a stopped
/// disk.
fn ended(pid: i32) {
    let begin = Instant::now();
    let state = || std::fs::read_to_string(format!("/proc/{pid}/stat")).expect("a child");
    while !state().contains(") Z ") {
        assert!(begin.elapsed() < PATIENCE, "{}", hang::describe(pid));
        std::thread::yield_now();
    }
}

/// While the disk of the cache does not answer, the server reads from the store. Writes, other
/// images and the end of the server do not wait for that disk.
#[test]
fn a_disk_that_stands_still_is_left_alone() {
    let Some((_store, endpoint)) = made(stores::Kind::Moto) else { return };
    for mode in ["none", "user", "host"] {
        let Some(mut disk) = Disk::new() else { return };
        let (scratch, folder) = (Scratch::new("server"), disk.point.clone());
        let beside = scratch.file("beside");
        std::fs::write(&beside, vec![9; 8 << 20]).expect("an image");
        let cached = ["--cache-dir", text(&folder), "--cache-dir-size", "64M", "--cache", mode];
        let words = [&[text(&beside), "--cache-size", "8M"][..], &cached].concat();
        let first = Watched::start(&scratch, &endpoint, &words);
        carried_out(&first.server, "vm", &["write -P 7 0 8M", "flush"]);
        first.server.stop();
        let mut second = Watched::start(&scratch, &endpoint, &words);
        let still = disk.stand_still();
        // The server has fewer threads for the disk than this read has requests.
        carried_out(&second.server, "vm", &["read -P 7 0 8M"]);
        assert!(second.asked().1 > 0, "{mode}: by the store");
        second
            .server
            .wait_until_it_says("the disk of the cache does not answer; reads go to the store");
        assert!(second.is_aside(), "{mode}");
        carried_out(&second.server, "vm", &["write -P 8 4M 32M", "flush", "read -P 8 4M 32M"]);
        carried_out(&second.server, "beside", &["read -P 9 0 8M", "write -P 6 0 8M", "flush"]);
        second.server.signal(libc::SIGTERM);
        ended(second.server.pid());
        drop(still);
        second.server.stop_told();
    }
}

#[test]
fn a_disk_that_goes_on_has_the_cache_again() {
    let Some((_store, endpoint)) = made(stores::Kind::Moto) else { return };
    let Some(mut disk) = Disk::new() else { return };
    let (scratch, folder) = (Scratch::new("server"), disk.point.clone());
    let words = ["--cache-dir", text(&folder), "--cache-dir-size", "64M"];
    let mut server = Watched::start(&scratch, &endpoint, &words);
    server.write();
    assert_eq!(server.read().1, 0);
    let still = disk.stand_still();
    assert_eq!(server.read().0, 0);
    drop(still);
    while server.read().0 == 0 {}
    server.server.wait_until_it_says("the disk of the cache answers again");
    assert!(!server.is_aside());
    server.server.stop();
}

#[test]
fn a_disk_that_fails_is_said_and_ends_nothing() {
    let Some((_store, endpoint)) = made(stores::Kind::Moto) else { return };
    for mode in ["none", "user", "host"] {
        let Some(mut disk) = Disk::new() else { return };
        let (scratch, folder) = (Scratch::new("server"), disk.point.clone());
        let words = ["--cache-dir", text(&folder), "--cache-dir-size", "64M", "--cache", mode];
        let words = [&words[..], &["--cache-size", "8M"]].concat();
        let mut server = Watched::start(&scratch, &endpoint, &words);
        carried_out(&server.server, "vm", &["write -P 7 0 8M", "flush"]);
        // The test stops the disk's server, and kills it before it can answer.
        let still = disk.stand_still();
        disk.shown.kill();
        std::mem::forget(still);
        carried_out(&server.server, "vm", &["read -P 7 0 8M"]);
        carried_out(&server.server, "vm", &["write -P 8 4M 32M", "flush", "read -P 8 4M 32M"]);
        if mode == "none" {
            // Without a cache in memory (`none`) the reads go to the store.
            assert!(server.asked().1 > 0);
            server.server.wait_until_it_says("a page was not stored: ");
        }
        server.server.stop();
    }
}

#[test]
fn a_cache_that_cannot_be_is_said_in_one_line() {
    let Some((_store, endpoint)) = made(stores::Kind::Moto) else { return };
    let [scratch, folder] = ["server", "folder"].map(Scratch::new);
    let place = text(folder.path());
    let server = Watched::start(&scratch, &endpoint, &["--cache-dir", place]);
    let vm = Store::url("vm");
    let file = scratch.file("raw");
    File::create(&file).and_then(|file| file.set_len(1 << 20)).expect("an image");
    let cases: [(&str, &[&str], &str); 6] = [
        (
            &vm,
            &["--cache-dir", place, "--read-only"],
            "another process uses the folder: give each server its own",
        ),
        (&vm, &["--cache-dir", "/none/such"], "--cache-dir /none/such: No such file"),
        (&vm, &["--cache-dir", place, "--cache-dir-size", "1M"], "from 64M to 1T"),
        (&vm, &["--cache-dir-size", "1G"], "--cache-dir"),
        (&vm, &["--cache", "host", "--read-only"], "use --cache user or --cache-dir"),
        (text(Path::new(&file)), &["--cache-dir", place], "no image is on one"),
    ];
    for (image, words, said) in cases {
        let nbd = format!("unix:{}", text(&scratch.file("refused")));
        let tool = Store::credentials(tool().expect("asked before")).args(["serve", image]);
        let tool = tool.env("XDG_RUNTIME_DIR", scratch.path()).args(["--nbd", &nbd]);
        let output = tool.args(["--endpoint", &endpoint]).args(words).run();
        assert!(!output.status.success() && output.stderr.contains(said), "{output}");
    }
    server.server.stop();
}
