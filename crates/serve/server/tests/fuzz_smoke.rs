//! Arbitrary input from NBD clients: garbage, and conversations with errors. The session must not
//! panic, memory and requests in flight stay bounded, and all memory is returned at the end.
//!
//! The fuzz targets (`fuzz/fuzz_targets`) run far longer. The last test repeats the inputs in their
//! corpus.

#[path = "support/strangers.rs"]
mod strangers;
mod support;

use nowait_device::Medium;
use nowait_server::nbd::{Limits, Security};
use nowait_sim::Prng;
use support::{Client, contexts, go, option, request};

const LIMITS: Limits = Limits { requests: 16, bytes: 1 << 20 };

fn talk(prng: &mut Prng, client: &mut Client, bytes: &[u8]) {
    let mut rest = bytes;
    while !rest.is_empty() {
        let most = [1, 30, 600, 70_000][prng.index(4)];
        let (front, back) = rest.split_at(rest.len().min(1 + prng.index(most)));
        client.memory.holds = prng.chance(300_000);
        client.say(front);
        assert!(client.session.in_flight() <= LIMITS.requests);
        assert!(client.memory.pool().used_bytes() <= 34 << 20);
        rest = back;
    }
    client.memory.holds = false;
    client.run();
}

fn random_bytes(prng: &mut Prng, len: usize) -> Vec<u8> {
    (0..len).map(|_| prng.below(256) as u8).collect()
}

/// Makes options, most of them valid. The last option chooses the export `disk`.
fn options(prng: &mut Prng) -> Vec<u8> {
    let mut said = 3u32.to_be_bytes().to_vec();
    for _ in 0..prng.index(8) {
        let name = ["", "disk", "fixed", "none"][prng.index(4)];
        said.extend(match prng.index(6) {
            0 => option(prng.below(14) as u32, &[]),
            1 => option(6, &go(name)),
            2 => option(8, &[]),
            3 => option(10, &contexts(name, &["base:allocation", "x:y"])),
            4 => {
                let len = prng.index(100);
                option(prng.below(14) as u32, &random_bytes(prng, len))
            }
            _ => option(9, &contexts(name, &[])),
        });
    }
    said.extend(option(7, &go("disk")));
    said
}

fn requests(prng: &mut Prng) -> Vec<u8> {
    let mut said = Vec::new();
    for cookie in 0..prng.below(40) {
        let command = prng.below(9) as u16;
        let flags = if prng.chance(800_000) { 0 } else { prng.below(64) as u16 };
        let offset = match prng.index(4) {
            0 => prng.below(1 << 63),
            _ => prng.below(support::SIZE as u64),
        };
        let len = match prng.index(6) {
            0 => prng.below(1 << 32) as u32,
            1 => prng.below(1 << 20) as u32,
            _ => prng.below(9000) as u32,
        };
        said.extend(request(command, flags, cookie, offset, len));
        if command == 1 && prng.chance(950_000) {
            said.extend(random_bytes(prng, (len as usize).min(40_000)));
        }
    }
    said
}

fn spoil(prng: &mut Prng, bytes: &mut [u8]) {
    for _ in 0..prng.index(4) {
        let at = prng.index(bytes.len());
        bytes[at] ^= 1 << prng.index(8);
    }
}

#[test]
fn garbage_does_no_harm() {
    for seed in 0..500 {
        let mut prng = Prng::new(seed);
        let security = [Security::Plain, Security::TlsRequired][prng.index(2)];
        let mut client = Client::new(security, LIMITS);
        let len = prng.index(2000);
        let bytes = random_bytes(&mut prng, len);
        talk(&mut prng, &mut client, &bytes);
        client.end_checked();
    }
}

#[test]
fn conversations_with_errors_do_no_harm() {
    for seed in 0..400 {
        let mut prng = Prng::new(seed);
        let mut client = Client::new(Security::Plain, LIMITS);
        let mut said = options(&mut prng);
        said.extend(requests(&mut prng));
        spoil(&mut prng, &mut said);
        talk(&mut prng, &mut client, &said);
        client.end_checked();
    }
}

#[test]
fn requests_with_errors_do_no_harm() {
    for seed in 0..400 {
        let mut prng = Prng::new(seed);
        let mut client = Client::on("disk", prng.chance(500_000), LIMITS);
        let said = requests(&mut prng);
        talk(&mut prng, &mut client, &said);
        client.end_checked();
    }
}

#[test]
fn the_corpus_of_the_fuzzer_does_no_harm() {
    support::replay("nbd_handshake", strangers::handshake);
    support::replay("nbd_requests", strangers::requests);
}
