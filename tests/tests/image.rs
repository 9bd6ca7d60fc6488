//! Images on object stores: `nowait image` and `nowait serve` with store servers of other projects.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::Duration;

use nowait_tests::fuse::{Shown, missing_tools};
use nowait_tests::program::Program;
use nowait_tests::ready;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::skip;
use nowait_tests::store_proxy::{Behaviour, FAULTS, StoreProxy};
use nowait_tests::stored::{
    PATIENCE, SIZE, image, made, pattern, qemu_io, qemu_io_with, serve, serve_of, serve_url,
    serve_with, succeeded, verified,
};
use nowait_tests::stores::{Kind, Store};
use nowait_tests::subject;

fn an_image_is_made_filled_checked_and_removed(kind: Kind) {
    let Some((_store, endpoint)) = made(kind) else { return };
    let url = Store::url("vm");
    let again = image(&endpoint, &["create", &url, "--size", SIZE]);
    assert!(again.stderr.contains("the image exists"), "{again}");
    let (scratch, bucket) = (Scratch::new("image"), url.trim_end_matches("/vm"));
    let (source, back) = (scratch.file("a"), scratch.file("b"));
    let bytes: Vec<u8> = (0..64u64 << 20).map(|i| (i * 31 + (i >> 12)) as u8).collect();
    fs::write(&source, &bytes).expect("a file");
    let server = serve(&scratch, &endpoint);
    Program::new("nbdcopy").args(["--flush", text(&source), &server.uri("vm")]).succeed();
    Program::new("nbdcopy").args([&server.uri("vm"), text(&back)]).succeed();
    assert!(fs::read(&back).expect("a copy") == bytes);
    let whole = image(&endpoint, &["check", &url]);
    assert!(whole.status.success() && whole.stdout.contains("can be read"), "{whole}");
    verified_listing(&endpoint, bucket);
    server.stop();
    let wrong = image(&endpoint, &["rm", &url]);
    assert_eq!(wrong.status.code(), Some(2), "{wrong}");
    let gone = image(&endpoint, &["rm", &url, "--yes"]);
    assert!(gone.status.success(), "{gone}");
    let nothing = image(&endpoint, &["info", &url]);
    assert_eq!(nothing.status.code(), Some(1), "{nothing}");
}

fn verified_listing(endpoint: &str, bucket: &str) {
    let listed = image(endpoint, &["ls", bucket, "--json"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).expect("JSON");
    assert_eq!((&listed[0]["name"], &listed[0]["size_bytes"]), (&"vm".into(), &(64 << 20).into()));
    let info = image(endpoint, &["info", &format!("{bucket}/vm"), "--json"]);
    let info: serde_json::Value = serde_json::from_str(&info.stdout).expect("JSON");
    assert_eq!((&info["epoch"], &info["block_bytes"]), (&2.into(), &4096.into()), "one server");
}

#[test]
fn an_image_is_made_filled_checked_and_removed_on_moto() {
    an_image_is_made_filled_checked_and_removed(Kind::Moto);
}

#[test]
fn an_image_is_made_filled_checked_and_removed_on_versitygw() {
    an_image_is_made_filled_checked_and_removed(Kind::Versitygw);
}

#[test]
fn servers_that_only_read_leave_the_writer_alone() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let [writing, one, two] = ["writing", "one", "two"].map(Scratch::new);
    let server = serve(&writing, &endpoint);
    let write = |pattern: usize| [format!("write -P {pattern} 0 64k"), "flush".to_owned()];
    qemu_io(&server.uri("vm"), &write(7));
    let readers = [&one, &two].map(|it| serve_with(it, &endpoint, &["--read-only"]));
    let output = qemu_io(&server.uri("vm"), &write(8));
    succeeded(&output);
    for reader in readers {
        let output = qemu_io_with(&["-r"], &reader.uri("vm"), &["read -P 7 0 64k".to_owned()]);
        succeeded(&output);
        let refused = qemu_io(&reader.uri("vm"), &write(9));
        assert!(!refused.status.success(), "{refused}");
        reader.stop();
    }
    let output = qemu_io(&server.uri("vm"), &["read -P 8 0 64k".to_owned()]);
    succeeded(&output);
    server.stop();
}

#[test]
fn an_image_comes_from_a_file_and_goes_to_a_server_and_back() {
    let Some(()) = skip::unless(skip::missing_program(&["qemu-nbd"])) else { return };
    let Some((_store, endpoint)) = made(Kind::Versitygw) else { return };
    let scratch = Scratch::new("image");
    let (source, disk) = (scratch.file("source"), scratch.file("disk"));
    let mut bytes: Vec<u8> = (0..6u64 << 20).map(|i| (i * 31 + (i >> 12)) as u8).collect();
    bytes[1 << 20..3 << 20].fill(0);
    fs::write(&source, &bytes).expect("a file");
    // The disk has other content: where the image has no data, the disk must read as zeroes
    // afterwards.
    fs::write(&disk, vec![0xff; 6 << 20]).expect("a file");
    let socket = scratch.file("socket");
    let qemu = Program::new("qemu-nbd").args(["-f", "raw", "-x", "vm", "-t", "-e", "8", "-k"]);
    let mut qemu = qemu.arg(&socket).arg(&disk).spawn();
    ready::wait_for_socket(&socket, &mut qemu);
    let server = format!("nbd+unix:///vm?socket={}", socket.display());
    let copied = |words: &[&str]| {
        let output = image(&endpoint, words);
        assert!(output.status.success(), "{output}");
        output.stdout
    };
    let (first, second) = (Store::url("first"), Store::url("second"));
    let told = copied(&["import", &first, text(&source)]);
    assert!(told.contains("6 MiB, of which 4 MiB were written"), "{told}");
    copied(&["export", &first, &server]);
    assert!(fs::read(&disk).expect("a file") == bytes);
    copied(&["import", &second, &server, "--block-size", "512"]);
    let back = scratch.file("back");
    copied(&["export", &second, text(&back)]);
    assert!(fs::read(&back).expect("a file") == bytes);
    let there = image(&endpoint, &["export", &second, text(&back)]);
    assert!(there.status.code() == Some(1) && there.stderr.lines().count() == 1, "{there}");
}

#[test]
fn an_encrypted_image_is_served_again_after_a_kill_with_its_key_only() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let (scratch, after, url) =
        (Scratch::new("image"), Scratch::new("after"), Store::url("locked"));
    let [key, wrong] = [7, 8].map(|byte| {
        let path = scratch.file(&format!("key{byte}"));
        fs::write(&path, [byte; 32]).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("a mode");
        path
    });
    let with_key = ["--key-file", text(&key)];
    let output = image(&endpoint, &[&["create", &url, "--size", SIZE][..], &with_key].concat());
    assert!(output.status.success(), "{output}");
    let server = serve_of(&scratch, &endpoint, "locked", &with_key);
    let commands = ["write -P 7 0 1M", "flush", "write -P 9 512k 1k", "flush"].map(str::to_owned);
    let output = qemu_io(&server.uri("vm"), &commands);
    succeeded(&output);
    let refused = image(&endpoint, &["check", &url, "--key-file", text(&wrong)]);
    assert!(
        refused.stderr.contains(
            "the image is encrypted with another key: give that one with \
                                     --key-file"
        ),
        "{refused}"
    );
    server.kill();
    let server = serve_of(&after, &endpoint, "locked", &with_key);
    let commands = ["read -P 7 0 512k", "read -P 9 512k 1k", "read -P 7 513k 511k"];
    let output = qemu_io(&server.uri("vm"), &commands.map(str::to_owned));
    succeeded(&output);
    server.stop();
    let whole = image(&endpoint, &[&["check", &url][..], &with_key].concat());
    assert!(whole.status.success() && whole.stdout.contains("can be read"), "{whole}");
}

#[test]
fn what_a_store_was_asked_for_is_told() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let scratch = Scratch::new("image");
    let status = scratch.file("status");
    let address = format!("unix:{}", text(&status));
    let server = serve_with(&scratch, &endpoint, &["--status", &address]);
    let get = |path: &str| {
        let url = format!("http://localhost{path}");
        Program::new("curl").args(["-sS", "--unix-socket", text(&status), &url]).succeed().stdout
    };
    let puts = || -> (u64, u64) {
        let json: serde_json::Value = serde_json::from_str(&get("/status")).expect("JSON");
        let store = &json["exports"][0]["store"];
        let number = |name: &str| store[name].as_u64().expect("a number");
        assert_eq!((&store["state"], number("failures")), (&"serving, epoch 2".into(), 0));
        (number("puts"), number("put_bytes"))
    };
    let before = puts();
    // The server stores many writes with one PUT.
    let writes = (0..64).map(|at| format!("aio_write -P 7 {}k 4k", at * 8));
    let writes: Vec<_> = writes.chain(["aio_flush".to_owned(), "flush".to_owned()]).collect();
    qemu_io(&server.uri("vm"), &writes);
    let after = puts();
    let (puts, bytes) = (after.0 - before.0, after.1 - before.1);
    assert!((1..=8).contains(&puts) && (64 * 4096..128 * 4096).contains(&bytes), "{puts} {bytes}");
    let metrics = get("/metrics");
    let line = format!("nowait_serve_store_puts_total{{export=\"vm\"}} {}", after.0);
    assert!(metrics.contains(&line), "{metrics}");
    server.stop();
}

#[test]
fn a_server_that_is_killed_has_lost_none_of_500_flushed_blocks() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let scratch = Scratch::new("image");
    let server = serve(&scratch, &endpoint);
    let write = |at: usize| format!("write -P {} {}k 4k", pattern(at), at * 4);
    let writes = (0..500).flat_map(|at| [write(at), "flush".to_owned()]);
    let output = qemu_io(&server.uri("vm"), &writes.collect::<Vec<_>>());
    succeeded(&output);
    server.kill();
    let after = Scratch::new("after");
    let server = serve(&after, &endpoint);
    verified(&server.uri("vm"), 500);
    server.stop();
}

/// Writes blocks and flushes each, while `meanwhile` runs. Then the server must return all blocks;
/// after its kill the next server must return them, too.
fn all_is_kept(
    proxy: &StoreProxy,
    (endpoint, url): (&str, &str),
    blocks: usize,
    meanwhile: impl FnOnce(),
) {
    let scratch = Scratch::new("image");
    let server = serve_url(&scratch, endpoint, url, &[]);
    let write = |at: usize| format!("write -P {} {}k 4k", pattern(at), at * 4);
    let writes = (0..blocks)
        .flat_map(|at| ["-c".to_owned(), write(at), "-c".to_owned(), "flush".to_owned()]);
    let client = Program::new("qemu-io").args(["-f", "raw"]).args(writes).arg(server.uri("vm"));
    let client = client.spawn();
    meanwhile();
    let output = client.wait(PATIENCE);
    let said = server.said();
    assert!(output.status.success() && !output.stdout.contains("failed"), "{output}\n{said}");
    proxy.behave(Behaviour::default());
    verified(&server.uri("vm"), blocks);
    server.kill();
    let after = Scratch::new("after");
    let server = serve_url(&after, endpoint, url, &[]);
    verified(&server.uri("vm"), blocks);
    server.stop();
}

#[test]
fn a_store_that_is_killed_again_and_again_delays_and_loses_nothing() {
    let Some((mut store, _)) = made(Kind::Versitygw) else { return };
    let proxy = StoreProxy::start(store.address(), 1);
    let puts = |count: u64| {
        assert!(proxy.wait_for(PATIENCE, |counts| counts.of("PUT") >= count), "no load");
    };
    let endpoint = Store::endpoint(proxy.address());
    all_is_kept(&proxy, (&endpoint, &Store::url("vm")), 200, || {
        for round in 1..=3 {
            puts(round * 40);
            store.kill();
            store.start_again();
        }
    });
}

fn a_store_at_its_worst_delays_and_loses_nothing(kind: Kind) {
    let Some((store, _)) = made(kind) else { return };
    let proxy = StoreProxy::start(store.address(), 7);
    let faults = FAULTS.to_vec();
    let delay = Duration::from_millis(2);
    proxy.behave(Behaviour { faults, per_mille: 150, delay, is_constant: false });
    let endpoint = store.endpoint_at(proxy.address());
    all_is_kept(&proxy, (&endpoint, &kind.url("vm")), 100, || ());
    let faults: u64 = proxy.counts().faults.values().sum();
    assert!(faults > 10, "{:?}", proxy.counts());
}

#[test]
fn moto_at_its_worst_delays_and_loses_nothing() {
    a_store_at_its_worst_delays_and_loses_nothing(Kind::Moto);
}

#[test]
fn azurite_at_its_worst_delays_and_loses_nothing() {
    a_store_at_its_worst_delays_and_loses_nothing(Kind::Azurite);
}

#[test]
fn fake_gcs_server_at_its_worst_delays_and_loses_nothing() {
    a_store_at_its_worst_delays_and_loses_nothing(Kind::FakeGcs);
}

#[test]
fn a_server_whose_image_another_one_has_taken_fails_and_says_which() {
    let Some((_store, endpoint)) = made(Kind::Moto) else { return };
    let (first, second) = (Scratch::new("first"), Scratch::new("second"));
    let mut replaced = serve(&first, &endpoint);
    let server = serve(&second, &endpoint);
    let first_write = ["write -P 7 0 4k".to_owned(), "flush".to_owned()];
    let output = qemu_io(&replaced.uri("vm"), &first_write);
    assert!(!output.status.success(), "{output}");
    replaced.wait_until_it_says(&format!("process {}", server.pid()));
    let output = qemu_io(&server.uri("vm"), &["read -P 0 0 4k".to_owned()]);
    succeeded(&output);
    server.stop();
    replaced.kill();
}

#[test]
fn an_ext4_on_a_store_is_whole_on_the_next_server() {
    let needed = missing_tools().and_then(|()| skip::missing_program(&["diff", "cp"]));
    let Some(()) = skip::unless(needed) else { return };
    let Some((_store, endpoint)) = made(Kind::Versitygw) else { return };
    let scratch = Scratch::new("image");
    let planted = scratch.folder("tree");
    for number in 0..200usize {
        let bytes: Vec<u8> = (0..number * 97).map(|i| (i * 31 + number + (i >> 9)) as u8).collect();
        fs::write(planted.join(format!("file-{number}")), bytes).expect("a file");
    }
    let (file, point) = (scratch.file("disk"), scratch.folder("mnt"));
    let name = format!("vm={}", Store::url("vm"));
    let arguments = [name.as_str(), "--endpoint", &endpoint];
    for round in 0..2 {
        let Some(mut shown) = Shown::start(&scratch, &file, &arguments) else { return };
        let device = shown.attach(&["--direct-io=on", "--sector-size=4096"]);
        if round == 0 {
            Program::new("mkfs.ext4").args(["-q", &device]).succeed();
        } else {
            let output = Program::new("e2fsck").args(["-f", "-n", &device]).run();
            assert!(output.status.success(), "{output}");
        }
        shown.mount(&point);
        let copied = point.join("tree");
        if round == 0 {
            Program::new("cp").args(["-r", text(&planted), text(&copied)]).succeed();
        }
        Program::new("diff").args(["-r", text(&planted), text(&copied)]).succeed();
        shown.umount();
        shown.stop();
    }
}

#[test]
fn the_benchmark_finds_all_flushed_blocks_after_it_has_killed_the_server() {
    let Some(()) = skip::unless(skip::missing_program(&["fio", "nbdsh"])) else { return };
    let Some(program) = skip::unless(Kind::Versitygw.program()) else { return };
    let scratch = Scratch::new("bench");
    let json = scratch.file("report.json");
    let tool = Program::new(subject::built("bin/nowait")).args(["bench", "remote", "--store"]);
    let tool = tool.arg(&program).args(["--case", "killed", "--engine", "nowait", "--delay", "0"]);
    let tool = tool.args(["--size", "8M", "--rounds", "1", "--dir", text(scratch.path())]);
    let output = tool.arg("--json").arg(&json).deadline(PATIENCE).succeed();
    let document = fs::read_to_string(&json).expect("a report");
    let document: serde_json::Value = serde_json::from_str(&document).expect("JSON");
    let rows = document["rows"].as_array().expect("rows");
    let lost = rows.iter().find(|row| row["metric"] == "blocks_lost").expect("a figure");
    assert_eq!(
        (lost["engine"].as_str(), lost["max"].as_f64()),
        (Some("nowait"), Some(0.0)),
        "{output}"
    );
}
