//! Images on each kind of store: the subcommands of `nowait image` except `repair`, and
//! `nowait serve`.

use std::fs;

use nowait_tests::scratch::{Scratch, text};
use nowait_tests::stored::{done, image, made, qemu_io, qemu_io_with, serve_url, succeeded};
use nowait_tests::stores::Kind;

fn commands(words: &[&str]) -> Vec<String> {
    words.iter().map(|it| (*it).to_owned()).collect()
}

fn refused(endpoint: &str, words: &[&str], why: &str) {
    let output = image(endpoint, words);
    let is_said = output.stderr.lines().count() == 1 && output.stderr.contains(why);
    assert!(output.status.code() == Some(1) && is_said, "{output}");
}

fn every_verb_does_what_it_says(kind: Kind) {
    let Some((_store, endpoint)) = made(kind) else { return };
    let scratch = Scratch::new("image");
    let (source, back) = (scratch.file("source"), scratch.file("back"));
    let mut bytes: Vec<u8> = (0..6u64 << 20).map(|i| (i * 31 + (i >> 12)) as u8).collect();
    bytes[1 << 20..3 << 20].fill(0);
    fs::write(&source, &bytes).expect("a file");
    let [vm, disk, moment, other, none] =
        ["vm", "a/disk", "a/disk@monday", "a/other", "none"].map(|name| kind.url(name));
    let bucket = vm.trim_end_matches("/vm");
    refused(&endpoint, &["create", &vm, "--size", "1M"], "the image exists");
    refused(&endpoint, &["info", &none], "no such image");
    let told = done(&endpoint, &["import", &disk, text(&source)]);
    assert!(told.contains("6 MiB, of which 4 MiB were written"), "{told}");
    done(&endpoint, &["snapshot", &moment]);
    done(&endpoint, &["clone", &moment, &other]);
    done(&endpoint, &["resize", &other, "--size", "9M"]);
    done(&endpoint, &["resize", &other, "--size", "4M", "--shrink"]);
    let told = done(&endpoint, &["info", &other]);
    assert!(told.contains("4 MiB") && told.contains("a/disk@monday"), "{told}");
    let listed = done(&endpoint, &["ls", bucket, "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed).expect("JSON");
    assert_eq!((&listed[0]["name"], &listed[1]["name"]), (&"a".into(), &"vm".into()), "{listed}");
    for (url, len) in [(&moment, 6 << 20), (&other, 4 << 20)] {
        done(&endpoint, &["export", url, text(&back)]);
        assert!(fs::read(&back).expect("a copy") == bytes[..len], "{url}");
        fs::remove_file(&back).expect("a copy");
    }
    let whole = done(&endpoint, &["check", &disk]);
    assert!(whole.contains("can be read"), "{whole}");
    refused(&endpoint, &["rm", &disk, "--yes"], "is a clone of @monday");
    for url in [&other, &moment, &disk, &vm] {
        done(&endpoint, &["rm", url, "--yes"]);
    }
    let left = done(&endpoint, &["ls", bucket, "--json"]);
    assert_eq!(left.trim(), "[]");
}

fn an_image_outlives_its_servers_and_has_one_writer(kind: Kind) {
    let Some((_store, endpoint)) = made(kind) else { return };
    let [one, two, three, reading] = ["one", "two", "three", "reading"].map(Scratch::new);
    let url = kind.url("vm");
    let run = |uri: &str, words: &[&str]| succeeded(&qemu_io(uri, &commands(words)));
    let killed = serve_url(&one, &endpoint, &url, &[]);
    let writes = ["write -P 7 0 1M", "flush", "write -P 8 20M 64k", "discard 512k 64k", "flush"];
    run(&killed.uri("vm"), &writes);
    killed.kill();
    let mut replaced = serve_url(&two, &endpoint, &url, &[]);
    let reads = ["read -P 7 0 512k", "read -P 0 512k 64k", "read -P 7 576k 448k"];
    run(&replaced.uri("vm"), &reads);
    run(&replaced.uri("vm"), &["read -P 8 20M 64k", "read -P 0 1M 19M"]);
    let server = serve_url(&three, &endpoint, &url, &[]);
    let late = qemu_io(&replaced.uri("vm"), &commands(&["write -P 9 0 4k", "flush"]));
    assert!(!late.status.success(), "{late}");
    replaced.wait_until_it_says(&format!("process {}", server.pid()));
    replaced.kill();
    let moment = kind.url("vm@now");
    done(&endpoint, &["snapshot", &moment]);
    run(&server.uri("vm"), &["read -P 7 0 512k", "write -P 6 0 512k", "flush"]);
    let reader = serve_url(&reading, &endpoint, &moment, &["--read-only"]);
    let then = commands(&["read -P 7 0 512k", "read -P 8 20M 64k"]);
    succeeded(&qemu_io_with(&["-r"], &reader.uri("vm"), &then));
    reader.stop();
    run(&server.uri("vm"), &["read -P 6 0 512k"]);
    server.stop();
    let whole = done(&endpoint, &["check", &url]);
    assert!(whole.contains("can be read"), "{whole}");
}

#[test]
fn every_verb_does_what_it_says_on_moto() {
    every_verb_does_what_it_says(Kind::Moto);
}

#[test]
fn every_verb_does_what_it_says_on_versitygw() {
    every_verb_does_what_it_says(Kind::Versitygw);
}

#[test]
fn every_verb_does_what_it_says_on_azurite() {
    every_verb_does_what_it_says(Kind::Azurite);
}

#[test]
fn every_verb_does_what_it_says_on_fake_gcs_server() {
    every_verb_does_what_it_says(Kind::FakeGcs);
}

#[test]
fn an_image_outlives_its_servers_and_has_one_writer_on_moto() {
    an_image_outlives_its_servers_and_has_one_writer(Kind::Moto);
}

#[test]
fn an_image_outlives_its_servers_and_has_one_writer_on_versitygw() {
    an_image_outlives_its_servers_and_has_one_writer(Kind::Versitygw);
}

#[test]
fn an_image_outlives_its_servers_and_has_one_writer_on_azurite() {
    an_image_outlives_its_servers_and_has_one_writer(Kind::Azurite);
}

#[test]
fn an_image_outlives_its_servers_and_has_one_writer_on_fake_gcs_server() {
    an_image_outlives_its_servers_and_has_one_writer(Kind::FakeGcs);
}
