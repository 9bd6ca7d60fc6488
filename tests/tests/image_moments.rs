//! Snapshots of images on object stores while a server serves them, and sizes of images.

use std::fs;
use std::time::Duration;

use nowait_tests::program::Program;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::store_proxy::{Behaviour, FAULTS, StoreProxy};
use nowait_tests::stored::{done, image, made, qemu_io, qemu_io_with, serve, serve_of, succeeded};
use nowait_tests::stores::{Kind, Store};

fn write(uri: &str, pattern: usize) {
    succeeded(&qemu_io(uri, &[format!("write -P {pattern} 0 1M"), "flush".to_owned()]));
}

fn reads(options: &[&str], uri: &str, pattern: usize) {
    succeeded(&qemu_io_with(options, uri, &[format!("read -P {pattern} 0 1M")]));
}

fn a_snapshot_is_kept_served_copied_and_removed_while_the_image_is_written(kind: Kind) {
    let Some((_store, endpoint)) = made(kind) else { return };
    let [writing, one, two] = ["writing", "one", "two"].map(Scratch::new);
    let (url, monday) = (Store::url("vm"), Store::url("vm@monday"));
    let server = serve(&writing, &endpoint);
    write(&server.uri("vm"), 1);
    let told = done(&endpoint, &["snapshot", &monday]);
    assert!(told.contains("vm@monday: 64 MiB"), "{told}");
    write(&server.uri("vm"), 2);
    done(&endpoint, &["snapshot", &Store::url("vm@tuesday")]);
    write(&server.uri("vm"), 3);
    let readers = [&one, &two].map(|it| serve_of(it, &endpoint, "vm@monday", &["--read-only"]));
    for reader in &readers {
        reads(&["-r"], &reader.uri("vm"), 1);
    }
    let back = writing.file("back");
    done(&endpoint, &["export", &Store::url("vm@tuesday"), text(&back)]);
    let bytes = fs::read(&back).expect("a copy");
    assert!(bytes.len() == 64 << 20 && bytes[..1 << 20].iter().all(|byte| *byte == 2));
    let info = done(&endpoint, &["info", &url, "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info).expect("JSON");
    assert_eq!((&info["snapshots"][0]["name"], &info["epoch"]), (&"monday".into(), &2.into()));
    let whole = done(&endpoint, &["check", &url]);
    assert!(whole.contains("can be read"), "{whole}");
    for reader in readers {
        reader.stop();
    }
    let asked = image(&endpoint, &["rm", &monday]);
    assert!(
        asked.status.code() == Some(2) && asked.stderr.contains("this deletes a snapshot"),
        "{asked}"
    );
    done(&endpoint, &["rm", &monday, "--yes"]);
    let twice = image(&endpoint, &["rm", &monday, "--yes"]);
    assert!(twice.stderr.contains("no such snapshot: see nowait image info"), "{twice}");
    // `nowait image` made the snapshot without the server, which continues as before.
    reads(&[], &server.uri("vm"), 3);
    write(&server.uri("vm"), 4);
    server.stop();
}

#[test]
fn a_snapshot_is_kept_served_copied_and_removed_on_moto() {
    a_snapshot_is_kept_served_copied_and_removed_while_the_image_is_written(Kind::Moto);
}

#[test]
fn a_snapshot_is_kept_served_copied_and_removed_on_versitygw() {
    a_snapshot_is_kept_served_copied_and_removed_while_the_image_is_written(Kind::Versitygw);
}

#[test]
fn a_snapshot_is_not_served_to_writers_and_says_so_in_one_line() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    done(&endpoint, &["snapshot", &Store::url("vm@monday")]);
    for (words, why) in [
        (["import", &Store::url("vm@monday"), "/dev/null"], "leave out @monday"),
        (
            ["snapshot", &Store::url("vm@monday"), "--timeout=20"],
            "a snapshot of this name exists: choose another name",
        ),
        (["snapshot", &Store::url("vm"), "--timeout=20"], "expected @NAME"),
        (
            ["resize", &Store::url("vm"), "--size=1M"],
            "the image is larger: stop its server, then add --shrink",
        ),
        (
            ["resize", &Store::url("vm"), "--size=67108865"],
            "the size must be a multiple of the block size",
        ),
        (["resize", &Store::url("none"), "--size=65M"], "no such image"),
    ] {
        let refused = image(&endpoint, &words);
        let lines = refused.stderr.lines().count();
        assert!(!refused.status.success() && refused.stderr.contains(why), "{refused}");
        assert_eq!(lines, 1, "{refused}");
    }
}

#[test]
fn an_image_that_grew_beside_its_server_is_larger_on_the_next() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let scratch = Scratch::new("grown");
    let server = serve(&scratch, &endpoint);
    write(&server.uri("vm"), 1);
    let told = done(&endpoint, &["resize", &Store::url("vm"), "--size", "96M"]);
    assert!(told.contains("vm: 96 MiB"), "{told}");
    write(&server.uri("vm"), 2);
    server.stop();
    let server = serve(&scratch, &endpoint);
    let size = Program::new("qemu-img").args(["info", "-f", "raw"]).arg(server.uri("vm")).run();
    assert!(size.stdout.contains("96 MiB"), "{size}");
    reads(&[], &server.uri("vm"), 2);
    let behind =
        ["write -P 5 95M 1M".to_owned(), "flush".to_owned(), "read -P 5 95M 1M".to_owned()];
    succeeded(&qemu_io(&server.uri("vm"), &behind));
    server.stop();
}

#[test]
fn a_clone_is_a_disk_of_its_own_and_keeps_what_it_is_of() {
    let Some((_store, endpoint)) = made(Kind::Versitygw) else { return };
    let [writing, cloned] = ["writing", "cloned"].map(Scratch::new);
    let (url, golden, clone) = (Store::url("vm"), Store::url("vm@golden"), Store::url("a/clone"));
    let server = serve(&writing, &endpoint);
    write(&server.uri("vm"), 1);
    done(&endpoint, &["snapshot", &golden]);
    write(&server.uri("vm"), 2);
    let told = done(&endpoint, &["clone", &golden, &clone]);
    assert!(told.contains("64 MiB, a clone of"), "{told}");
    let other = serve_of(&cloned, &endpoint, "a/clone", &[]);
    reads(&[], &other.uri("vm"), 1);
    let half = ["write -P 3 0 512k", "flush", "read -P 3 0 512k", "read -P 1 512k 512k"];
    succeeded(&qemu_io(&other.uri("vm"), &half.map(str::to_owned)));
    reads(&[], &server.uri("vm"), 2);
    other.kill();
    server.kill();
    let other = serve_of(&cloned, &endpoint, "a/clone", &[]);
    succeeded(&qemu_io(
        &other.uri("vm"),
        &half[2..].iter().map(|it| (*it).to_owned()).collect::<Vec<_>>(),
    ));
    other.stop();
    for url in [&url, &clone] {
        let whole = done(&endpoint, &["check", url]);
        assert!(whole.contains("can be read"), "{whole}");
    }
    let info = done(&endpoint, &["info", &clone]);
    assert!(info.contains("clone of    vm@golden"), "{info}");
    for kept in [&url, &golden] {
        let refused = image(&endpoint, &["rm", kept, "--yes"]);
        assert!(refused.stderr.contains("a/clone is a clone of @golden"), "{refused}");
    }
    for gone in [&clone, &golden, &url] {
        // The last server of `vm` was killed and has not closed the image: without `--now`, `rm`
        // would wait.
        done(&endpoint, &["rm", gone, "--yes", "--now"]);
    }
}

/// A snapshot contains the data of each flush that ended before `nowait image snapshot` began, also
/// on a store with faults.
#[test]
fn a_snapshot_through_a_store_at_its_worst_has_all_that_was_flushed() {
    let Some((store, endpoint)) = made(Kind::Moto) else { return };
    let proxy = StoreProxy::start(store.address(), 11);
    let [writing, reading] = ["writing", "reading"].map(Scratch::new);
    let through = Store::endpoint(proxy.address());
    let server = serve(&writing, &through);
    let (faults, delay) = (FAULTS.to_vec(), Duration::from_millis(2));
    proxy.behave(Behaviour { faults, per_mille: 150, delay, is_constant: false });
    let mut readers = Vec::new();
    for round in 1..6 {
        write(&server.uri("vm"), round);
        let name = Store::url(&format!("vm@{round}"));
        done(&through, &["snapshot", &name]);
        readers.push(round);
    }
    let faults: u64 = proxy.counts().faults.values().sum();
    assert!(faults > 10, "{:?}", proxy.counts());
    for round in readers {
        let reader = serve_of(&reading, &endpoint, &format!("vm@{round}"), &["--read-only"]);
        reads(&["-r"], &reader.uri("vm"), round);
        reader.stop();
    }
    server.kill();
}
