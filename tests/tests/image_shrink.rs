//! `nowait image resize --shrink` makes images on object stores smaller.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use nowait_tests::scratch::{Scratch, text};
use nowait_tests::stored::{done, image, made, qemu_io, qemu_io_with, serve, serve_of, succeeded};
use nowait_tests::stores::{Kind, Store};

fn run(uri: &str, commands: &[&str]) {
    succeeded(&qemu_io(uri, &commands.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>()));
}

fn an_image_becomes_smaller_and_grows_again_with_zeroes(kind: Kind) {
    let Some((_store, endpoint)) = made(kind) else { return };
    let [writing, reading] = ["writing", "reading"].map(Scratch::new);
    let url = Store::url("vm");
    let server = serve(&writing, &endpoint);
    run(&server.uri("vm"), &["write -P 1 0 1M", "write -P 2 31M 2M", "write -P 3 63M 1M", "flush"]);
    done(&endpoint, &["snapshot", &Store::url("vm@whole")]);
    server.stop();
    let told = done(&endpoint, &["resize", &url, "--size", "32M", "--shrink"]);
    assert_eq!(told, format!("{url}: 32 MiB, before 64 MiB\n"), "its server has closed it");
    let again = done(&endpoint, &["resize", &url, "--size", "32M", "--shrink"]);
    assert!(again.contains("vm: 32 MiB, as before"), "{again}");
    let whole = done(&endpoint, &["check", &url]);
    assert!(whole.contains("can be read"), "{whole}");
    let back = writing.file("back");
    done(&endpoint, &["export", &url, text(&back)]);
    assert_eq!(fs::metadata(&back).expect("a copy").len(), 32 << 20);
    let server = serve(&writing, &endpoint);
    run(&server.uri("vm"), &["read -P 1 0 1M", "read -P 2 31M 1M", "write -P 4 1M 1M", "flush"]);
    let beyond = qemu_io(&server.uri("vm"), &["read 32M 4k".to_owned()]);
    assert!(!beyond.status.success() || beyond.stdout.contains("failed"), "{beyond}");
    server.stop();
    done(&endpoint, &["resize", &url, "--size", "64M"]);
    let server = serve(&writing, &endpoint);
    let all = ["read -P 1 0 1M", "read -P 4 1M 1M", "read -P 2 31M 1M", "read -P 0 32M 32M"];
    run(&server.uri("vm"), &all);
    server.stop();
    let reader = serve_of(&reading, &endpoint, "vm@whole", &["--read-only"]);
    let then = ["read -P 2 31M 2M", "read -P 3 63M 1M"].map(str::to_owned);
    succeeded(&qemu_io_with(&["-r"], &reader.uri("vm"), &then));
    reader.stop();
}

#[test]
fn an_image_becomes_smaller_and_grows_again_with_zeroes_on_moto() {
    an_image_becomes_smaller_and_grows_again_with_zeroes(Kind::Moto);
}

#[test]
fn an_image_becomes_smaller_and_grows_again_with_zeroes_on_versitygw() {
    an_image_becomes_smaller_and_grows_again_with_zeroes(Kind::Versitygw);
}

#[test]
fn a_server_that_still_runs_fails_and_says_who_has_the_image() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let scratch = Scratch::new("served");
    let mut server = serve(&scratch, &endpoint);
    run(&server.uri("vm"), &["write -P 1 0 1M", "flush"]);
    let told = done(&endpoint, &["resize", &Store::url("vm"), "--size", "16M", "--shrink"]);
    assert!(told.contains("whose requests fail if it still runs"), "{told}");
    let late = ["write -P 2 0 1M", "flush"].map(str::to_owned);
    let late = qemu_io(&server.uri("vm"), &late);
    assert!(!late.status.success() || late.stdout.contains("failed"), "{late}");
    server.wait_until_it_says("taken over by ");
    server.kill();
    let server = serve(&scratch, &endpoint);
    run(&server.uri("vm"), &["read -P 1 0 1M", "read -P 0 1M 15M"]);
    server.stop();
}

#[test]
fn what_is_wrong_is_said_in_one_line_and_leaves_the_image_alone() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let (scratch, url, locked) = (Scratch::new("wrong"), Store::url("vm"), Store::url("locked"));
    let key = scratch.file("key");
    fs::write(&key, [7; 32]).expect("a file");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).expect("a mode");
    let key = format!("--key-file={}", text(&key));
    done(&endpoint, &["create", &locked, "--size=64M", &key]);
    for (words, why) in [
        (&["resize", &url, "--size=96M", "--shrink"][..], "leave out --shrink"),
        (&["resize", &url, "--size=0", "--shrink"], "the image must have at least one block"),
        (
            &["resize", &url, "--size=5000", "--shrink"],
            "the size must be a multiple of the block size",
        ),
        (&["resize", &Store::url("none"), "--size=1M", "--shrink"], "no such image"),
        (&["resize", &Store::url("vm@s"), "--size=1M", "--shrink"], "leave out @s"),
        (&["resize", &url, "--size=96M", &key], "--key-file: only --shrink needs it"),
        (&["resize", &locked, "--size=1M", "--shrink"], "the image is encrypted: give --key-file"),
    ] {
        let refused = image(&endpoint, words);
        assert!(!refused.status.success() && refused.stderr.contains(why), "{refused}");
        assert_eq!(refused.stderr.lines().count(), 1, "{refused}");
    }
    for url in [&url, &locked] {
        let info = done(&endpoint, &["info", url, "--json"]);
        assert!(
            info.contains("\"size_bytes\": 67108864") && info.contains("\"epoch\": 1"),
            "{info}"
        );
    }
    done(&endpoint, &["resize", &locked, "--size=1M", "--shrink", &key]);
}
