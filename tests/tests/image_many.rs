//! Many images on a store in one server. The server limits the memory of all images together. While
//! the store does not answer, the server still serves an image that is a file.

use std::fs;

use nowait_tests::program::{Program, Running};
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::Server;
use nowait_tests::store_proxy::StoreProxy;
use nowait_tests::stored::{PATIENCE, image, made, pattern, qemu_io, succeeded};
use nowait_tests::stores::{Kind, Store};

const IMAGES: usize = 64;
/// Megabytes of each image. All images together are larger than the server's memory limits.
const MEGABYTES: usize = 16;
/// The server's memory limits: for writes that are not durable, and for transfers to and from the
/// store.
const WRITES: u64 = 64 << 20;
const TRANSFERS: u64 = 64 << 20;

fn name(number: usize) -> String {
    format!("vm{number}")
}

fn peak_bytes(server: &Server) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", server.pid())).expect("it runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("its memory");
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse().expect("a number");
    kib * 1024
}

fn fill(server: &Server, number: usize) -> Running {
    let write = |at: usize| format!("aio_write -P {} {at}M 1M", pattern(number));
    let commands = (0..MEGABYTES).map(write).chain(["aio_flush".to_owned(), "flush".to_owned()]);
    let words = commands.flat_map(|command| ["-c".to_owned(), command]);
    let client = Program::new("qemu-io").args(["-f", "raw", "-t", "writeback"]).args(words);
    client.arg(server.uri(&name(number))).spawn()
}

/// Returns, from the server's status, the number of images whose writes take at least half of an
/// equal share of the memory for writes.
fn holding(status: &str) -> usize {
    let told =
        Program::new("curl").args(["-sS", "--unix-socket", status, "http://localhost/status"]);
    let json: serde_json::Value = serde_json::from_str(&told.succeed().stdout).expect("JSON");
    let exports = json["exports"].as_array().expect("exports");
    let holds = |it: &&serde_json::Value| {
        it["store"]["unflushed_bytes"].as_u64() >= Some(WRITES / 2 / IMAGES as u64)
    };
    exports.iter().filter(holds).count()
}

#[test]
fn images_of_a_store_that_stands_still_take_no_more_memory_than_said_and_stop_no_other() {
    let Some((store, direct)) = made(Kind::Versitygw) else { return };
    let size = format!("{MEGABYTES}M");
    for number in 0..IMAGES {
        let made = image(&direct, &["create", &Store::url(&name(number)), "--size", &size]);
        assert!(made.status.success(), "{made}");
    }
    let (scratch, proxy) = (Scratch::new("many"), StoreProxy::start(store.address(), 1));
    let (file, status) = (scratch.file("disk"), scratch.file("status"));
    fs::write(&file, vec![0; 16 << 20]).expect("a file");
    let stored = (0..IMAGES).map(|it| format!("{}={}", name(it), Store::url(&name(it))));
    let told = format!("unix:{}", text(&status));
    let (disk, endpoint) = (format!("disk={}", text(&file)), Store::endpoint(proxy.address()));
    let (writes, transfers) = (WRITES.to_string(), TRANSFERS.to_string());
    let mut words: Vec<String> = stored.chain([disk]).collect();
    let options = ["--endpoint", &endpoint, "--status", &told, "--write-buffer", &writes];
    words.extend(options.into_iter().chain(["--memory", &transfers]).map(str::to_owned));
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    let Some(mut server) = Server::start(&scratch, &words) else { return };
    (0..IMAGES).for_each(|it| server.wait_until_it_says(&format!("serving {}", name(it))));
    let idle = peak_bytes(&server);

    proxy.stand_still();
    let clients: Vec<Running> = (0..IMAGES).map(|number| fill(&server, number)).collect();
    while holding(text(&status)) < IMAGES {}
    let other = ["write -P 9 0 16M", "flush", "read -P 9 0 16M"].map(str::to_owned);
    let output = qemu_io(&server.uri("disk"), &other);
    succeeded(&output);

    proxy.heal();
    for client in clients {
        let output = client.wait(PATIENCE);
        succeeded(&output);
    }
    // While the server stores a segment, the segment is in memory twice: as written and as stored.
    let bound = 2 * WRITES + 2 * TRANSFERS;
    let taken = peak_bytes(&server) - idle;
    assert!(taken < bound, "{taken} bytes, more than {bound}");
    for number in [0, IMAGES - 1] {
        let read = [format!("read -P {} 0 {size}", pattern(number))];
        let output = qemu_io(&server.uri(&name(number)), &read);
        succeeded(&output);
    }
    server.stop();
}
