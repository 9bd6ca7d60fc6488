//! Virtual machines with disks from `nowait serve` on the host, by NBD and by vhost-user-blk; and
//! virtual machines in which nowait itself runs: it serves by ublk, measures, or uses two NUMA
//! nodes.

#[path = "guest/machine.rs"]
mod machine;

use std::fs::File;
use std::path::{Path, PathBuf};

use machine::{Disk, Guest, Parts};
use nowait_tests::bare;
use nowait_tests::program::Program;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::{Server, tool};
use nowait_tests::stores::{Kind, Store};
use nowait_tests::{skip, stored, subject};

/// Size of a disk, large enough for the smallest XFS.
const SIZE: u64 = 320 << 20;

fn image(scratch: &Scratch, name: &str) -> String {
    text(&scratch.image(name, SIZE)).to_owned()
}

fn name_of(path: &str) -> &str {
    Path::new(path).file_name().and_then(|name| name.to_str()).expect("a name of text")
}

/// Starts a server of images by NBD, and also by vhost-user for images whose names begin with
/// "vhost".
fn serve(scratch: &Scratch, images: &[String]) -> Option<(Server, Vec<Disk>)> {
    let names = || images.iter().map(|path| name_of(path));
    let socket = |name: &str| scratch.file(&format!("{name}.socket"));
    let mut arguments: Vec<String> = images.to_vec();
    for name in names().filter(|name| name.starts_with("vhost")) {
        arguments.push("--vhost-user".to_owned());
        arguments.push(format!("{name}={}", socket(name).display()));
    }
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let mut server = Server::start(scratch, &arguments)?;
    names()
        .filter(|name| name.starts_with("vhost"))
        .for_each(|name| server.wait_for(&socket(name)));
    let disk = |name: &str| match name.starts_with("vhost") {
        true => Disk::VhostUser(socket(name)),
        false => Disk::Nbd(server.uri(name), name.to_owned()),
    };
    let disks = names().map(disk).collect();
    Some((server, disks))
}

fn top_counts(scratch: &Scratch, names: &[&str]) {
    let top = || tool().expect("asked before").env("XDG_RUNTIME_DIR", scratch.path()).arg("top");
    let json = top().arg("--json").succeed().stdout;
    let servers: serde_json::Value = serde_json::from_str(&json).expect("JSON");
    let screen = top().args(["--once", "--interval", "1"]).succeed().stdout;
    for name in names {
        let exports = servers[0]["exports"].as_array().expect("a list");
        let export = exports.iter().find(|export| export["name"] == *name).expect("the export");
        let kinds = export["kinds"].as_array().expect("a list");
        let written = kinds.iter().find(|kind| kind["kind"] == "write").expect("writes");
        assert!(written["bytes"].as_u64() > Some(1 << 20), "{name}\n{json}");
        assert!(screen.lines().any(|row| row.contains(name)), "{name}\n{screen}");
    }
}

/// A guest fills its disks. A second guest boots from the last disk and checks all disks. With
/// `NOWAIT_FULL=1` a third guest checks them again.
fn survives(names: &[&str]) {
    let scratch = Scratch::new("guest");
    let Some(parts) = skip::unless(Parts::collect(&scratch)) else { return };
    let images: Vec<String> = names.iter().map(|name| image(&scratch, name)).collect();
    let Some((server, disks)) = serve(&scratch, &images) else { return };
    let told = Guest::start(&parts, &scratch, "task=write", &disks).finish("write");
    for name in names {
        assert!(told.contains(&format!("{name} is filled")), "{told:?}");
    }
    top_counts(&scratch, names);
    // The same server serves the second guest; another server serves the third.
    let root = names.last().expect("a disk");
    let boot = Guest::start(&parts, &scratch, &format!("task=boot disk={root}"), &disks);
    let told = boot.finish("boot");
    assert!(told.contains(&format!("{root} is the root")), "{told:?}");
    server.stop();
    compare(&told, names, Some(root));
    if !nowait_tests::full() {
        return;
    }
    let Some((server, disks)) = serve(&scratch, &images) else { return };
    let told = Guest::start(&parts, &scratch, "task=check", &disks).finish("check");
    server.stop();
    compare(&told, names, None);
}

fn compare(told: &[String], names: &[&str], root: Option<&str>) {
    for name in names {
        let same = told.iter().any(|line| {
            line.starts_with(&format!("{name} has ")) && line.ends_with(" files as they were")
        });
        assert!(same, "{name}: {told:?}");
        let clean = told.contains(&format!("{name} is clean"));
        assert!(clean || root == Some(name), "{name}: {told:?}");
    }
}

#[test]
fn guests_find_on_their_disks_what_guests_before_them_left() {
    if nowait_tests::full() {
        survives(&["nbd-xfs", "nbd-ext4", "vhost-xfs", "vhost-ext4"]);
        survives(&["vhost-ext4", "nbd-ext4"]);
    } else {
        survives(&["nbd-xfs", "vhost-ext4"]);
    }
}

#[test]
fn a_guest_does_not_notice_that_its_server_was_killed() {
    let scratch = Scratch::new("guest");
    let Some(parts) = skip::unless(Parts::collect(&scratch)) else { return };
    let images = [image(&scratch, "vhost-raw")];
    let Some((mut server, disks)) = serve(&scratch, &images) else { return };
    let mut guest = Guest::start(&parts, &scratch, "task=endure disk=vhost-raw", &disks);
    for round in [2, 6] {
        guest.wait_for(&format!("guest: round {round}"));
        server.kill();
        let Some((next, _)) = serve(&scratch, &images) else { return };
        server = next;
    }
    guest.finish("endure");
    server.stop();
}

#[test]
fn a_guest_on_an_object_store_boots_on_another_server_when_it_and_its_own_were_killed() {
    const DISK: &str = "nbd-ext4";
    let [scratch, first, second] = ["guest", "first", "second"].map(Scratch::new);
    let Some(parts) = skip::unless(Parts::collect(&scratch)) else { return };
    let Some(_) = tool() else { return };
    let Some(store) = skip::unless(Store::start(Kind::Versitygw)) else { return };
    let (endpoint, size) = (Store::endpoint(store.address()), SIZE.to_string());
    let output = stored::image(&endpoint, &["create", &Store::url("disk"), "--size", &size]);
    assert!(output.status.success(), "{output}");
    let image = format!("{DISK}={}", Store::url("disk"));
    let serve = |cache: &Scratch| {
        let cache = text(cache.path());
        let words = [image.as_str(), "--endpoint", &endpoint, "--cache-dir", cache];
        let mut server = Server::start(&scratch, &words).expect("asked before");
        server.wait_until_it_says("serving");
        let disks = [Disk::Nbd(server.uri(DISK), DISK.to_owned())];
        (server, disks)
    };
    let (server, disks) = serve(&first);
    let told = Guest::start(&parts, &scratch, "task=write", &disks).finish("write");
    assert!(told.contains(&format!("{DISK} is filled")), "{told:?}");
    let boot = format!("task=boot disk={DISK}");
    let mut guest = Guest::start(&parts, &scratch, &boot, &disks);
    guest.wait_for(&format!("guest: {DISK} is the root"));
    drop(guest);
    server.kill();
    // The second server stands for another host.
    let (server, disks) = serve(&second);
    let recover = format!("task=recover disk={DISK}");
    let told = Guest::start(&parts, &scratch, &recover, &disks).finish("recover");
    assert!(told.contains(&format!("{DISK} is recovered")), "{told:?}");
    let told = Guest::start(&parts, &scratch, &boot, &disks).finish("boot");
    assert!(told.contains(&format!("{DISK} is clean")), "{told:?}");
    compare(&told, &[DISK], Some(DISK));
    server.stop();
}

/// The share of a thread's pages that must lie on its node. Two threads may share a huge page, so
/// the test does not demand all pages.
const OWN_SHARE: f64 = 0.75;

#[test]
fn memory_lies_on_the_node_of_the_thread_that_used_it_first() {
    let scratch = Scratch::new("guest");
    let program = compiled(&scratch, "numa");
    let Some(parts) = skip::unless(Parts::with(&scratch, &program)) else { return };
    let disk = Disk::File(scratch.image("disk", 64 << 20));
    let told = Guest::with_two_nodes(&parts, &scratch, "task=numa", &[disk]).finish("numa");
    for what in ["written", "read", "mapped"] {
        for node in ["0", "1"] {
            // The guest prints lines like `read on node 0: 1024 of 1024`.
            let begin = format!("{what} on node {node}: ");
            let counts = told.iter().find_map(|line| line.strip_prefix(&begin)).expect("a line");
            let (own, all) = counts.split_once(" of ").expect("two counts");
            let [own, all] = [own, all].map(|count| count.parse::<f64>().expect("a count"));
            assert!(all > 0.0 && own >= OWN_SHARE * all, "{told:?}");
        }
    }
}

/// The measurement takes two minutes, so it runs only with `NOWAIT_FULL=1`.
#[test]
fn a_guest_without_packages_and_network_measures_itself() {
    if !nowait_tests::full() {
        return;
    }
    let scratch = Scratch::new("guest");
    let Some(parts) = skip::unless(Parts::collect(&scratch)) else { return };
    let Some(()) = skip::unless(bare::stage(&scratch.file("disk/nowait"))) else { return };
    let disk = scratch.file("image");
    let make = Program::new("mkfs.ext4").args(["-q", "-d"]).arg(scratch.file("disk"));
    make.arg(&disk).arg("1G").succeed();
    let guest = Guest::start(&parts, &scratch, "task=measure", &[Disk::File(disk)]);
    let told = guest.finish("measure");
    let files = bare::files().into_iter().map(|name| format!("measured {name}"));
    files.for_each(|line| assert!(told.contains(&line), "{line}: {told:?}"));
}

fn compiled(scratch: &Scratch, name: &str) -> PathBuf {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("c_api/{name}.c"));
    let (program, library) = (scratch.file(name), subject::built("lib/libnowait.so.0"));
    let (include, folder) = (subject::built("include"), library.with_file_name(""));
    Program::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Werror", "-O1", "-pthread", "-o"])
        .args([&program, &source, &library])
        .arg(format!("-I{}", include.display()))
        .arg(format!("-Wl,-rpath,{}", folder.display()))
        .succeed();
    program
}

#[test]
fn a_block_device_by_ublk_keeps_its_files_and_outlives_its_server() {
    let scratch = Scratch::new("guest");
    let Some(_) = tool() else { return };
    let Some(parts) = skip::unless(Parts::with_ublk(&scratch)) else { return };
    let disk = image(&scratch, "disk");
    File::options().write(true).open(&disk).and_then(|it| it.set_len(640 << 20)).expect("a size");
    let guest = Guest::start(&parts, &scratch, "task=ublk", &[Disk::File(disk.into())]);
    let told = guest.finish("ublk");
    for name in ["files", "killed"] {
        let same = |line: &String| line.starts_with(&format!("{name} has "));
        assert!(told.iter().any(same), "{name}: {told:?}");
    }
    let recovered = told.iter().filter(|line| *line == "it goes on").count();
    assert_eq!(recovered, 2, "{told:?}");
}
