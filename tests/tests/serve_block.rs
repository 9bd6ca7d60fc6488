//! `nowait serve` on a block device.

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use nowait_tests::program::Program;
use nowait_tests::scratch::Scratch;
use nowait_tests::server::{Server, tool};
use nowait_tests::skip::{self, Skip};

const SIZE: u64 = 32 << 20;

struct Loop(String);

impl Loop {
    fn new(image: &Path) -> Result<Loop, Skip> {
        skip::missing_root()?;
        let output = Program::new("losetup").args(["--find", "--show"]).arg(image).run();
        if !output.status.success() {
            return Err(Skip(format!("no loop device: {}", output.stderr.trim())));
        }
        Ok(Loop(output.stdout.trim().to_owned()))
    }
}

impl Drop for Loop {
    fn drop(&mut self) {
        // `Program` panics on some errors; a panic while another one unwinds would abort the test
        // process, so this is a `Command`.
        let _ = std::process::Command::new("losetup").arg("--detach").arg(&self.0).output();
    }
}

fn source(scratch: &Scratch) -> PathBuf {
    let path = scratch.file("source");
    let bytes: Vec<u8> = (0..SIZE).map(|i| (i * 31 + (i >> 12)) as u8).collect();
    fs::write(&path, bytes).expect("a file");
    path
}

#[test]
fn a_block_device_is_an_image_with_and_without_the_page_cache() {
    let Some(()) = skip::unless(skip::missing_program(&["nbdcopy", "nbdinfo", "qemu-io"])) else {
        return;
    };
    if tool().is_none() {
        return;
    }
    for cache in ["none", "host"] {
        let scratch = Scratch::new("block");
        let (source, below) = (source(&scratch), scratch.file("below"));
        File::create(&below).and_then(|file| file.set_len(SIZE)).expect("an image");
        let Some(device) = skip::unless(Loop::new(&below)) else { return };
        let arguments = [&format!("vm={}", device.0), "--cache", cache];
        let Some(server) = Server::start(&scratch, &arguments) else { return };
        let uri = server.uri("vm");
        let size = Program::new("nbdinfo").args(["--size", &uri]).succeed().stdout;
        assert_eq!(size.trim(), SIZE.to_string(), "{cache}");
        Program::new("nbdcopy").args(["--flush"]).arg(&source).arg(&uri).succeed();
        // The commands write a part of a sector and zeroes, and discard. A device may keep
        // discarded data.
        let changes = ["write -P 7 1000 100", "write -z 1M 64k", "discard 2M 1M", "flush"];
        let changes = changes.iter().flat_map(|change| ["-c", change]);
        Program::new("qemu-io").args(["-f", "raw"]).args(changes).arg(&uri).succeed();
        let copy = scratch.file("copy");
        Program::new("nbdcopy").arg(&uri).arg(&copy).succeed();
        server.stop();
        let mut wanted = fs::read(&source).expect("the source");
        wanted[1000..1100].fill(7);
        wanted[1 << 20..(1 << 20) + (64 << 10)].fill(0);
        let read = fs::read(&copy).expect("the copy");
        let on_device = fs::read(&device.0).expect("the device");
        for seen in [&read, &on_device] {
            assert!(seen[..2 << 20] == wanted[..2 << 20], "{cache}: before what was discarded");
            assert!(seen[3 << 20..] == wanted[3 << 20..], "{cache}: behind what was discarded");
        }
    }
}

#[test]
fn the_cache_of_ours_is_for_regular_files_and_says_so() {
    let Some(tool) = tool() else { return };
    let scratch = Scratch::new("block");
    let below = scratch.file("below");
    File::create(&below).and_then(|file| file.set_len(SIZE)).expect("an image");
    let Some(device) = skip::unless(Loop::new(&below)) else { return };
    let nbd = format!("unix:{}", scratch.file("nbd").display());
    let output = tool.args(["serve", &device.0, "--cache", "user", "--nbd", &nbd]).run();
    assert_eq!(output.status.code(), Some(1), "{output}");
    assert!(output.stderr.contains("only regular files can be cached"), "{output}");
}
