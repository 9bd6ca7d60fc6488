//! `nowait serve` of what an NBD server of another project has.

use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use nowait_tests::fuse::{Shown, missing_tools};
use nowait_tests::program::{Program, Running};
use nowait_tests::ready;
use nowait_tests::scratch::Scratch;
use nowait_tests::server::{Server, tool};
use nowait_tests::skip;

const PATIENCE: Duration = Duration::from_mins(1);

fn text(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

fn image(scratch: &Scratch, bytes: u64) -> PathBuf {
    let path = scratch.file("disk.img");
    File::create(&path).and_then(|file| file.set_len(bytes)).expect("an image");
    path
}

/// QEMU's server of an image.
struct Backing {
    process: Running,
    socket: PathBuf,
}

impl Backing {
    fn start(scratch: &Scratch, image: &Path) -> Backing {
        let socket = scratch.file("backing");
        let qemu = Program::new("qemu-nbd").args(["-f", "raw", "-x", "vm", "-t", "-e", "8"]);
        let qemu = qemu.args(["--cache=none", "--discard=unmap", "-k", text(&socket)]).arg(image);
        let mut process = qemu.spawn();
        ready::wait_for_socket(&socket, &mut process);
        Backing { process, socket }
    }

    /// What stands for the image on our command line.
    fn name(&self) -> String {
        format!("nbd+unix:///vm?socket={}", self.socket.display())
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

/// Makes some hundred files in folders.
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
    let disk = image(&scratch, 256 << 20);
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
    // Mounted anew, so that it is read from the server.
    shown.umount();
    shown.mount(&point);
    Program::new("diff").args(["-r", text(&planted), text(&copied)]).succeed();
    shown.stop();
    backing.stop();
    let output = Program::new("e2fsck").args(["-f", "-n", text(&disk)]).run();
    assert!(output.status.success(), "{output}");
}

/// It is started anew each time.
#[test]
fn fio_does_not_notice_that_the_server_is_killed() {
    let needed = skip::missing_program(&["qemu-nbd", "fio"])
        .and_then(|()| nowait_tests::fuse::missing_fuse());
    let Some(()) = skip::unless(needed) else { return };
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("nbd");
    let disk = image(&scratch, 64 << 20);
    let mut backing = Backing::start(&scratch, &disk);
    let (file, arguments) = (scratch.file("disk"), [&backing.name(), "--threads", "2"]);
    let Some(mut shown) = Shown::start(&scratch, &file, &arguments) else { return };
    let fio = Program::new("fio")
        .args(["--name=v", "--ioengine=libaio", "--direct=1", "--rw=randwrite", "--bs=4k"])
        .args(["--iodepth=32", "--fsync=256", "--size=48m"])
        .args(["--verify=crc32c", "--do_verify=1", "--verify_fatal=1"])
        .arg(format!("--filename={}", file.display()));
    let mut fio = fio.spawn();
    for round in 1..=5 {
        // The image is sparse: what was written is what it has.
        while fs::metadata(&disk).expect("the image").blocks() * 512 < round * (8 << 20) {
            assert!(!fio.ended(), "it failed, or writes too little\n{}", fio.stderr());
            std::thread::yield_now();
        }
        backing.end(libc::SIGKILL);
        backing = Backing::start(&scratch, &disk);
    }
    let output = fio.wait(Duration::from_mins(3));
    assert!(output.status.success(), "{output}");
    shown.server().wait_until_it_says("it is connected again");
    shown.stop();
    backing.stop();
}

#[test]
fn a_copy_goes_through_two_servers_and_the_status_names_the_far_one() {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-nbd", "nbdcopy"])) else { return };
    if tool().is_none() {
        return;
    }
    let scratch = Scratch::new("nbd");
    let (disk, source, back) = (image(&scratch, 16 << 20), scratch.file("a"), scratch.file("b"));
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
    server.wait_until_it_says("its size stays");
    server.stop();
    backing.stop();
}
