//! `nowait serve` of images on QEMU's NBD server.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::fuse::{Shown, missing_tools};
use nowait_tests::pki::Pki;
use nowait_tests::program::{Program, Running};
use nowait_tests::ready;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::skip;

const PATIENCE: Duration = Duration::from_mins(1);

struct Backing {
    process: Running,
    socket: PathBuf,
}

impl Backing {
    fn start(scratch: &Scratch, image: &Path) -> Backing {
        Backing::start_with(scratch, image, None)
    }

    /// If `pki` is given, the server accepts only clients with TLS and a certificate.
    fn start_with(scratch: &Scratch, image: &Path, pki: Option<&Pki>) -> Backing {
        Backing::start_as(scratch, image, "raw", pki)
    }

    fn start_as(scratch: &Scratch, image: &Path, format: &str, pki: Option<&Pki>) -> Backing {
        let socket = scratch.file("backing");
        let mut qemu = Program::new("qemu-nbd").args(["-f", format, "-x", "vm", "-t", "-e", "8"]);
        if let Some(pki) = pki {
            let folder = pki.folder.display();
            let object = format!("tls-creds-x509,id=tls,endpoint=server,dir={folder}");
            qemu = qemu.args(["--object", &object, "--tls-creds", "tls"]);
        }
        let qemu = qemu.args(["--cache=none", "--discard=unmap", "-k", text(&socket)]).arg(image);
        let mut process = qemu.spawn();
        ready::wait_for_socket(&socket, &mut process);
        Backing { process, socket }
    }

    fn name(&self) -> String {
        format!("nbd+unix:///vm?socket={}", self.socket.display())
    }

    fn name_by_tls(&self, folder: &Path) -> String {
        let socket = self.socket.display();
        format!("nbds+unix:///vm?socket={socket}&tls-certificates={}", folder.display())
    }

    fn stop(self) {
        self.end(libc::SIGTERM);
    }

    fn end(self, signal: i32) {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.process.pid(), signal) }, 0);
        self.process.wait(PATIENCE);
    }
}

fn plant(root: &Path) {
    for number in 0..400usize {
        let folder = root.join(format!("{}/{}", number % 17, number % 5));
        fs::create_dir_all(&folder).expect("a folder");
        let bytes: Vec<u8> = (0..number * 97).map(|i| (i * 31 + number + (i >> 9)) as u8).collect();
        fs::write(folder.join(format!("file-{number}")), bytes).expect("a file");
    }
}

#[test]
fn an_ext4_on_a_server_keeps_what_fio_and_cp_put_into_it() {
    let needed = missing_tools()
        .and_then(|()| skip::missing_program(&["qemu-nbd", "fio", "diff", "cp", "fstrim"]));
    let Some(()) = skip::unless(needed) else { return };
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("nbd");
    let disk = scratch.image("disk.img", 256 << 20);
    let backing = Backing::start(&scratch, &disk);
    let (file, arguments) = (scratch.file("disk"), [&backing.name(), "--threads", "2"]);
    let Some(mut shown) = Shown::start(&scratch, &file, &arguments) else { return };
    let device = shown.attach(&["--direct-io=on", "--sector-size=4096"]);
    Program::new("mkfs.ext4").args(["-q", &device]).succeed();
    let point = scratch.folder("mnt");
    shown.mount(&point);
    Program::new("fio")
        .args(["--name=v", "--ioengine=libaio", "--direct=1", "--rw=randwrite", "--bs=4k"])
        .args(["--iodepth=32", "--size=24m", "--fsync=64"])
        .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"])
        .arg(format!("--filename={}", point.join("fio").display()))
        .deadline(Duration::from_mins(3))
        .succeed();
    let planted = scratch.folder("tree");
    plant(&planted);
    let copied = point.join("tree");
    Program::new("cp").args(["-r", text(&planted), text(&copied)]).succeed();
    Program::new("fstrim").arg(&point).succeed();
    // Mount again, so that the data is read from the server, not from the page cache.
    shown.umount();
    shown.mount(&point);
    Program::new("diff").args(["-r", text(&planted), text(&copied)]).succeed();
    shown.stop();
    backing.stop();
    let output = Program::new("e2fsck").args(["-f", "-n", text(&disk)]).run();
    assert!(output.status.success(), "{output}");
}

#[test]
fn fio_does_not_notice_that_the_server_is_killed() {
    fio_goes_on_while_the_server_is_killed(false, &[]);
}

/// fio reads some data from the cache soon after the write. The cache is smaller than the file of
/// fio.
#[test]
fn fio_does_not_notice_that_the_server_behind_a_cache_is_killed() {
    let cache = ["--cache", "user", "--cache-size", "16M"];
    fio_goes_on_while_the_server_is_killed(false, &cache);
}

#[test]
fn fio_does_not_notice_that_a_server_with_tls_is_killed() {
    fio_goes_on_while_the_server_is_killed(true, &[]);
}

/// Kills the NBD server behind `nowait serve` and starts it again, five times, while fio writes and
/// verifies.
fn fio_goes_on_while_the_server_is_killed(tls: bool, cache: &[&str]) {
    let needed = skip::missing_program(&["qemu-nbd", "fio", "openssl"])
        .and_then(|()| nowait_tests::fuse::missing_fuse());
    let Some(()) = skip::unless(needed) else { return };
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("nbd");
    let disk = scratch.image("disk.img", 64 << 20);
    let pki = tls.then(|| Pki::new(&scratch));
    let start = || Backing::start_with(&scratch, &disk, pki.as_ref());
    let mut backing = start();
    let name = match &pki {
        Some(pki) => backing.name_by_tls(&pki.folder),
        None => backing.name(),
    };
    let (file, arguments) = (scratch.file("disk"), [&[&name, "--threads", "2"], cache].concat());
    let Some(mut shown) = Shown::start(&scratch, &file, &arguments) else { return };
    let fio = Program::new("fio")
        .args(["--name=v", "--ioengine=libaio", "--direct=1", "--rw=randwrite", "--bs=4k"])
        .args(["--iodepth=32", "--fsync=256", "--size=48m", "--verify_backlog=512"])
        .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"])
        .arg(format!("--filename={}", file.display()));
    let mut fio = fio.spawn();
    for round in 1..=5 {
        // The image is sparse, so the number of its blocks shows how much has been written.
        while fs::metadata(&disk).expect("the image").blocks() * 512 < round * (8 << 20) {
            assert!(!fio.ended(), "it failed, or writes too little\n{}", fio.stderr());
            std::thread::yield_now();
        }
        backing.end(libc::SIGKILL);
        backing = start();
    }
    let output = fio.wait(Duration::from_mins(3));
    assert!(output.status.success(), "{output}");
    shown.server().wait_until_it_says("connected again");
    let connection = connection(&scratch);
    let hits = connection["cache_hits"].as_u64().expect("a number");
    assert_eq!(hits > 0, !cache.is_empty(), "{connection}");
    shown.stop();
    backing.stop();
}

fn connection(scratch: &Scratch) -> serde_json::Value {
    let top = Program::new(nowait_tests::subject::built("bin/nowait"))
        .env("XDG_RUNTIME_DIR", scratch.path())
        .args(["top", "--json"])
        .succeed();
    let mut servers: serde_json::Value = serde_json::from_str(&top.stdout).expect("JSON");
    servers[0]["exports"][0]["connection"].take()
}

#[test]
fn a_copy_goes_through_two_servers_and_the_status_names_the_far_one() {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-nbd", "nbdcopy"])) else { return };
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("nbd");
    let (disk, source, back) =
        (scratch.image("disk.img", 16 << 20), scratch.file("a"), scratch.file("b"));
    let bytes: Vec<u8> = (0..16u64 << 20).map(|i| (i * 31 + (i >> 12)) as u8).collect();
    fs::write(&source, &bytes).expect("a file");
    let backing = Backing::start(&scratch, &disk);
    let Some(mut server) = Server::start(&scratch, &[&backing.name()]) else { return };
    let uri = server.uri("vm");
    Program::new("nbdcopy").args(["--flush", text(&source), &uri]).succeed();
    assert!(fs::read(&disk).expect("the image") == bytes, "what was flushed is in the file");
    Program::new("nbdcopy").args([&uri, text(&back)]).succeed();
    assert!(fs::read(&back).expect("a copy") == bytes);
    let top = Program::new(nowait_tests::subject::built("bin/nowait"))
        .env("XDG_RUNTIME_DIR", scratch.path())
        .args(["top", "--json"])
        .succeed();
    assert!(top.stdout.contains(&backing.name()), "{top}");
    server.signal(libc::SIGHUP);
    server.wait_until_it_says("stays as at the start");
    server.stop();
    backing.stop();
}

fn map(uri: &str) -> Vec<[serde_json::Value; 4]> {
    let said = Program::new("qemu-img").args(["map", "--output=json", "-f", "raw", uri]).succeed();
    let extents: Vec<serde_json::Value> = serde_json::from_str(&said.stdout).expect("JSON");
    let told = ["start", "length", "zero", "data"];
    extents.iter().map(|extent| told.map(|name| extent[name].clone())).collect()
}

#[test]
fn holes_on_a_server_are_seen_and_copied_as_holes() {
    let needed = skip::missing_program(&["qemu-nbd", "qemu-img", "qemu-io", "nbdcopy"]);
    let Some(()) = skip::unless(needed) else { return };
    if tool().is_none() {
        return;
    }
    for format in ["raw", "qcow2"] {
        let scratch = Scratch::new("nbd");
        let (disk, back) = (scratch.file("disk.img"), scratch.file("back"));
        Program::new("qemu-img").args(["create", "-q", "-f", format, text(&disk), "64M"]).succeed();
        let qemu_io = Program::new("qemu-io").args(["-f", format]);
        let written = ["write -P 7 0 64k", "write -P 8 20M 1M", "write -P 9 50M 128k"];
        let words = written.iter().flat_map(|command| ["-c", command]);
        qemu_io.args(words).arg(&disk).succeed();
        let backing = Backing::start_as(&scratch, &disk, format, None);
        let Some(server) = Server::start(&scratch, &[&backing.name()]) else { return };
        let uri = server.uri("vm");
        let seen = map(&uri);
        assert!(seen == map(&backing.name()) && seen.len() >= 5, "{format}: {seen:?}");
        Program::new("nbdcopy").args([&uri, text(&back)]).succeed();
        let held = fs::metadata(&back).expect("a copy").blocks() * 512;
        assert!(held < 4 << 20, "{format}: {held} bytes");
        let same = ["compare", "-q", "-f", format, "-F", "raw", text(&disk), text(&back)];
        server.stop();
        backing.stop();
        Program::new("qemu-img").args(same).succeed();
    }
}

fn refused(scratch: &Scratch, name: &str) -> String {
    refused_with(scratch, name, &[])
}

fn refused_with(scratch: &Scratch, name: &str, options: &[&str]) -> String {
    let address = format!("unix:{}", scratch.file("never").display());
    let served = Program::new(nowait_tests::subject::built("bin/nowait"))
        .args(["serve", name, "--nbd", &address])
        .args(options)
        .run();
    assert_eq!(served.status.code(), Some(1), "{served}");
    assert_eq!(served.stderr.trim_end().lines().count(), 1, "{served}");
    served.stderr
}

/// Others may change an NBD export between two starts of a server, and then a cache in a folder is
/// outdated. With `--force-share` others may change it at any time, and then any cache is outdated.
#[test]
fn caches_that_are_not_for_nbd_servers_are_refused() {
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("nbd");
    let folder = text(scratch.path());
    for (options, expected) in [
        (&["--cache-dir", folder][..], "others can change an NBD export between two starts"),
        (&["--cache", "host"], "--cache host works with files only"),
        (&["--cache", "user", "--read-only", "--force-share"], "does not see changes by others"),
    ] {
        let said = refused_with(&scratch, "vm=nbd+unix:///vm?socket=/nowhere", options);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn a_server_with_tls_is_the_one_that_is_meant_and_knows_its_client() {
    let needed = skip::missing_program(&["qemu-nbd", "nbdcopy", "openssl"]);
    let Some(()) = skip::unless(needed) else { return };
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("nbd");
    let (disk, source, back) =
        (scratch.image("disk.img", 16 << 20), scratch.file("a"), scratch.file("b"));
    let bytes: Vec<u8> = (0..16u64 << 20).map(|i| (i * 31 + (i >> 12)) as u8).collect();
    fs::write(&source, &bytes).expect("a file");
    let (pki, stranger) = (Pki::new(&scratch), Pki::new(&Scratch::new("stranger")));
    let backing = Backing::start_with(&scratch, &disk, Some(&pki));
    let name = backing.name_by_tls(&pki.folder);
    let refused = |name: &str| refused(&scratch, name);
    let plain = refused(&backing.name());
    assert!(
        plain.contains("the NBD server requires TLS: use an address that begins with nbds"),
        "{plain}"
    );
    let unknown = refused(&backing.name_by_tls(&stranger.folder));
    assert!(unknown.contains("certificate"), "of another authority: {unknown}");
    let wrong = refused(&format!("{name}&tls-hostname=elsewhere"));
    assert!(wrong.contains("elsewhere") || wrong.contains("certificate"), "{wrong}");
    let nothing = refused(&backing.name_by_tls(Path::new("/nowhere")));
    assert!(nothing.contains("/nowhere/ca-cert.pem"), "{nothing}");
    refused(&backing.name_by_tls(&pki.anonymous));
    let Some(server) = Server::start(&scratch, &[&name]) else { return };
    let uri = server.uri("vm");
    Program::new("nbdcopy").args(["--flush", text(&source), &uri]).succeed();
    assert!(fs::read(&disk).expect("the image") == bytes, "what was flushed is in the file");
    Program::new("nbdcopy").args([&uri, text(&back)]).succeed();
    assert!(fs::read(&back).expect("a copy") == bytes);
    server.stop();
    backing.stop();
}
