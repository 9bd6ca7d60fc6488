//! Images of which the store has lost an object, and images that `nowait image rm` removes while a
//! server serves them. The store is a folder.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use nowait_tests::program::{Output, Program};
use nowait_tests::scratch::Scratch;
use nowait_tests::server::{Server, tool};
use nowait_tests::skip;
use nowait_tests::stored::{pattern, qemu_io};

const BLOCKS: usize = 60;

/// The block whose segment is lost.
const LOST: usize = 20;

struct Store {
    scratch: Scratch,
    url: String,
}

fn image(words: &[&str]) -> Output {
    tool().expect("asked before").arg("image").args(words).run()
}

fn done(words: &[&str]) -> String {
    let output = image(words);
    assert!(output.status.success(), "{output}");
    output.stdout
}

impl Store {
    fn new(name: &str) -> Option<Store> {
        skip::unless(skip::missing_program(&["qemu-io", "nbdinfo"]))?;
        tool()?;
        let scratch = Scratch::new(name);
        let url = format!("file://{}/vm", scratch.path().display());
        let store = Store { scratch, url };
        done(&["create", &store.url, "--size", "64M"]);
        Some(store)
    }

    fn serve(&self, scratch: &Scratch) -> Server {
        let mut server = Server::start(scratch, &[&format!("vm={}", self.url)]).expect("a tool");
        server.wait_until_it_says("serving vm");
        server
    }

    fn fill(server: &Server) {
        let commands = (0..BLOCKS).flat_map(|at| {
            [format!("write -P {} {}k 4k", pattern(at), at * 4), "flush".to_owned()]
        });
        let output = qemu_io(&server.uri("vm"), &commands.collect::<Vec<_>>());
        assert!(output.status.success(), "{output}");
    }

    fn segments(&self) -> Vec<PathBuf> {
        let log = fs::read_dir(self.scratch.path().join("vm/log")).expect("a log");
        let mut paths: Vec<_> = log.map(|entry| entry.expect("an entry").path()).collect();
        paths.sort();
        paths
    }

    /// Makes an image, kills its server, and removes the segment of block [`LOST`].
    fn lost(name: &str) -> Option<Store> {
        let store = Store::new(name)?;
        let serving = Scratch::new(&format!("{name}-first"));
        let server = store.serve(&serving);
        Store::fill(&server);
        server.kill();
        // The first segment is a fence, which a server writes at its start.
        fs::remove_file(&store.segments()[1 + LOST]).expect("a segment");
        Some(store)
    }
}

/// Returns for each block `Some(true)` if it has its pattern, `Some(false)` if it has only zeroes,
/// and `None` if it has other bytes or cannot be read.
fn found(server: &Server) -> Vec<Option<bool>> {
    let read = |pattern: usize, at: usize| {
        let commands = [format!("read -P {pattern} {}k 4k", at * 4)];
        let output = qemu_io(&server.uri("vm"), &commands);
        output.status.success() && !output.stdout.contains("failed")
    };
    let one = |at| match (read(pattern(at), at), read(0, at)) {
        (true, _) => Some(true),
        (_, true) => Some(false),
        _ => None,
    };
    (0..BLOCKS).map(one).collect()
}

#[test]
fn a_lost_part_of_the_log_is_never_the_end_of_it_and_can_be_cut_off() {
    let Some(store) = Store::lost("cut") else { return };
    let serving = Scratch::new("cut-served");
    let socket = format!("unix:{}", serving.file("refused").display());
    let served = format!("vm={}", store.url);
    let refused = tool().expect("asked before").args(["serve", &served, "--nbd", &socket]).run();
    assert_eq!(refused.status.code(), Some(1), "{refused}");
    assert!(refused.stderr.contains("nowait image repair"), "{refused}");
    let checked = image(&["check", &store.url]);
    assert!(checked.status.code() == Some(1) && checked.stdout.contains("is missing"), "{checked}");
    let shown = image(&["repair", &store.url]);
    let counts = format!("{LOST} segments before it, 1 lost, {} behind", BLOCKS - LOST - 1);
    assert!(shown.status.code() == Some(1) && shown.stdout.contains(&counts), "{shown}");
    let bytes = format!("  {} to {}\n", (LOST + 1) * 4096, BLOCKS * 4096 - 1);
    assert!(shown.stdout.contains(&bytes), "{shown}");
    done(&["repair", &store.url, "--cut", "--now"]);
    let server = store.serve(&serving);
    let expected: Vec<_> = (0..BLOCKS).map(|at| Some(at < LOST)).collect();
    assert_eq!(found(&server), expected);
    Store::fill(&server);
    assert_eq!(found(&server), vec![Some(true); BLOCKS]);
    server.stop();
    let checked = done(&["check", &store.url]);
    assert!(checked.contains("can be read"), "{checked}");
    let nothing = done(&["repair", &store.url]);
    assert!(nothing.contains("nothing is missing"), "{nothing}");
}

#[test]
fn a_lost_part_of_the_log_can_be_left_out() {
    let Some(store) = Store::lost("skip") else { return };
    done(&["repair", &store.url, "--skip", "--now"]);
    let serving = Scratch::new("skip-served");
    let server = store.serve(&serving);
    let expected: Vec<_> = (0..BLOCKS).map(|at| Some(at != LOST)).collect();
    assert_eq!(found(&server), expected);
    let map = Program::new("nbdinfo").args(["--map", "--json", &server.uri("vm")]).succeed();
    let map: serde_json::Value = serde_json::from_str(&map.stdout).expect("JSON");
    let end = LOST * 4096;
    assert_eq!((&map[0]["length"], &map[0]["type"]), (&end.into(), &0.into()), "{map}");
    assert_eq!((&map[1]["length"], &map[1]["type"]), (&4096.into(), &3.into()), "{map}");
    server.stop();
}

#[test]
fn a_lost_block_of_an_image_that_is_served_is_an_error_and_the_others_are_read() {
    let Some(store) = Store::new("block") else { return };
    let serving = Scratch::new("block-served");
    let mut server = store.serve(&serving);
    Store::fill(&server);
    fs::remove_file(&store.segments()[1 + LOST]).expect("a segment");
    let expected: Vec<_> = (0..BLOCKS).map(|at| (at != LOST).then_some(true)).collect();
    assert_eq!(found(&server), expected);
    server.wait_until_it_says("is missing: its blocks cannot be read");
    server.stop();
}

#[test]
fn an_image_that_is_removed_below_its_server_harms_no_later_one() {
    let Some(store) = Store::new("removed") else { return };
    let [first, second] = ["removed-first", "removed-second"].map(Scratch::new);
    let old = store.serve(&first);
    Store::fill(&old);
    let removed = image(&["rm", &store.url, "--yes", "--now"]);
    assert!(removed.status.success(), "{removed}");
    done(&["create", &store.url, "--size", "64M"]);
    let new = store.serve(&second);
    Store::fill(&new);
    // The old server may not have noticed the removal. The objects that it stores do not belong to
    // the new image.
    let written = ["write -P 99 0 1M", "flush"].map(str::to_owned);
    qemu_io(&old.uri("vm"), &written);
    assert_eq!(found(&new), vec![Some(true); BLOCKS]);
    new.stop();
    let checked = done(&["check", &store.url]);
    assert!(checked.contains("can be read"), "{checked}");
    old.kill();
}

#[test]
fn an_image_that_was_closed_is_removed_at_once_and_for_another_is_waited() {
    let Some(store) = Store::new("closed") else { return };
    let serving = Scratch::new("closed-served");
    let server = store.serve(&serving);
    server.stop();
    let info = done(&["info", &store.url]);
    assert!(info.contains("closed"), "{info}");
    let began = Instant::now();
    let removed = image(&["rm", &store.url, "--yes"]);
    assert!(removed.status.success() && removed.stderr.is_empty(), "{removed}");
    assert!(began.elapsed() < Duration::from_secs(20));
    done(&["create", &store.url, "--size", "64M"]);
    store.serve(&serving).kill();
    let waiting = tool().expect("asked before").args(["image", "rm", &store.url, "--yes"]).spawn();
    while !waiting.stderr().contains("has not closed the image: waiting 60 s") {
        assert!(began.elapsed() < Duration::from_mins(1), "{}", waiting.stderr());
        std::thread::yield_now();
    }
    assert!(store.scratch.path().join("vm/head").exists(), "it is there while it is waited for");
    drop(waiting);
    // The `rm` that was killed has replaced the server as writer, and has not closed the image
    // either.
    done(&["rm", &store.url, "--yes", "--now"]);
    assert!(!store.scratch.path().join("vm/head").exists());
}

#[test]
fn a_start_that_fails_leaves_its_images_closed() {
    let Some(store) = Store::new("start") else { return };
    let serving = Scratch::new("start-served");
    let socket = format!("unix:{}", serving.file("socket").display());
    let (served, nowhere) = (format!("vm={}", store.url), serving.file("none/pid"));
    let words = ["serve", &served, "--nbd", &socket, "--pid-file"];
    let failed = tool().expect("asked before").args(words).arg(nowhere).run();
    assert_eq!(failed.status.code(), Some(1), "{failed}");
    let info = done(&["info", &store.url]);
    assert!(info.contains("(epoch 2): closed"), "{info}");
}
