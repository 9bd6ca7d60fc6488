//! The NBD protocol: requests, answers and refusals.

mod support;

use nowait::Errno;
use nowait_device::{Image, Medium, Pool, Properties};
use nowait_server::nbd::{Demand, Exports, Limits, Security};
use std::sync::Arc;
use support::{
    CACHE, Client, DISC, FLUSH, Memory, PLAIN, READ, SIZE, STATUS, TRIM, WRITE, ZEROES, contexts,
    exports, go, option, request,
};

const ACK: u32 = 1;
const ERROR: u32 = 1 << 31;

fn client() -> Client {
    Client::new(Security::Plain, Limits::default())
}

fn connected() -> Client {
    Client::on("disk", true, Limits::default())
}

#[test]
fn the_greeting_offers_fixed_newstyle() {
    let mut client = client();
    assert_eq!(&client.next::<16>(), b"NBDMAGICIHAVEOPT");
    assert_eq!(client.next(), [0, 3]);
    client.say(&3u32.to_be_bytes());
    assert_eq!(client.session.demand(), Demand::Serve);
}

#[test]
fn unknown_flags_end_the_connection() {
    let mut client = client();
    client.say(&4u32.to_be_bytes());
    assert_eq!(client.session.demand(), Demand::Close);
}

#[test]
fn options_are_answered_also_byte_by_byte() {
    let mut client = client();
    client.next::<18>();
    let mut said = 3u32.to_be_bytes().to_vec();
    for bytes in [option(3, &[]), option(99, b"what"), option(6, &go("none")), option(6, &go(""))] {
        said.extend(bytes);
    }
    said.iter().for_each(|byte| client.say(&[*byte]));
    assert_eq!(client.answer(), (3, 2, b"\0\0\0\x04disk".to_vec()));
    assert_eq!(client.answer(), (3, 2, b"\0\0\0\x05fixed".to_vec()));
    assert_eq!(client.answer(), (3, ACK, vec![]));
    assert_eq!(client.answer().1, ERROR + 1);
    assert_eq!(client.answer().1, ERROR + 6);
    let (_, kind, about) = client.answer();
    assert_eq!(
        (kind, &about[..10]),
        (3, &[&[0, 0][..], &(SIZE as u64).to_be_bytes()].concat()[..])
    );
    let (_, kind, sizes) = client.answer();
    assert_eq!((kind, sizes), (3, [0u8, 3, 0, 0, 2, 0, 0, 0, 16, 0, 2, 0, 0, 0].to_vec()));
    assert_eq!(client.answer(), (6, ACK, vec![]));
    assert!(client.session.is_handshake());
}

/// The empty name selects the first of all exports. If a client may not use that export, the empty
/// name must not select another.
#[test]
fn a_client_without_access_is_refused_the_default_export() {
    let denied = || {
        let mut client = client();
        let exports = Exports::all(&exports()).filter(|image| image.name() != "disk");
        client.session.admit(exports);
        client.next::<18>();
        client.say(&3u32.to_be_bytes());
        client
    };
    let mut client = denied();
    client.say(&option(3, &[]));
    assert_eq!(client.answer(), (3, 2, b"\0\0\0\x05fixed".to_vec()));
    assert_eq!(client.answer(), (3, ACK, vec![]));
    client.say(&option(8, &[]));
    client.answer();
    for asked in [option(6, &go("")), option(7, &go("")), option(10, &contexts("", &[]))] {
        client.say(&asked);
        assert_eq!(client.answer().1, ERROR + 6);
    }
    client.say(&option(7, &go("fixed")));
    assert!(!client.session.is_handshake(), "what it may have it gets by its name");
    let mut old = denied();
    old.say(&option(1, b""));
    assert_eq!((old.session.demand(), old.heard.len()), (Demand::Close, 0));
}

#[test]
fn broken_options_are_refused_and_the_next_one_works() {
    let mut client = client();
    client.next::<18>();
    client.say(&3u32.to_be_bytes());
    client.say(&option(7, &[0, 0, 0, 200, 1]));
    assert_eq!(client.answer().1, ERROR + 3);
    client.say(&option(10, &contexts("disk", &["base:allocation"])));
    assert_eq!(client.answer().1, ERROR + 3, "negotiate structured replies first");
    client.say(&option(8, b"x"));
    assert_eq!(client.answer().1, ERROR + 3);
    client.say(&option(3, &vec![7; 100_000]));
    assert_eq!(client.answer().1, ERROR + 9);
    client.say(&option(5, &[]));
    assert_eq!(client.answer().1, ERROR + 2, "no TLS configured");
    client.say(&option(2, &[]));
    assert_eq!(client.answer(), (2, ACK, vec![]));
    assert_eq!(client.session.demand(), Demand::Close);
}

#[test]
fn an_option_without_end_and_too_many_options_end_the_connection() {
    let mut endless = client();
    endless.say(&3u32.to_be_bytes());
    let mut header = option(3, &[]);
    header[12..].copy_from_slice(&u32::MAX.to_be_bytes());
    endless.say(&header);
    assert_eq!(endless.session.demand(), Demand::Close);
    let mut chatty = client();
    chatty.say(&3u32.to_be_bytes());
    (0..1000).for_each(|_| chatty.say(&option(3, &[])));
    assert_eq!(chatty.session.demand(), Demand::Close);
    assert!(chatty.heard.len() < 100_000);
}

#[test]
fn without_required_tls_the_server_discloses_nothing() {
    let mut client = Client::new(Security::TlsRequired, Limits::default());
    client.next::<18>();
    client.say(&3u32.to_be_bytes());
    for bytes in [option(3, &[]), option(7, &go("disk")), option(6, &go("none")), option(8, &[])] {
        client.say(&bytes);
        assert_eq!(client.answer().1, ERROR + 5);
    }
    // The session drops bytes that the client sends unencrypted after STARTTLS.
    client.say(&[option(5, &[]), option(3, &[])].concat());
    assert_eq!(client.answer(), (5, ACK, vec![]));
    assert_eq!((client.session.demand(), client.heard.len()), (Demand::StartTls, 0));
    client.session.secured();
    client.say(&option(7, &go("disk")));
    assert!(!client.session.is_handshake());
    let mut other = Client::new(Security::TlsRequired, Limits::default());
    other.say(&3u32.to_be_bytes());
    other.say(&option(1, b"disk"));
    assert_eq!(other.session.demand(), Demand::Close);
}

#[test]
fn the_answer_to_the_old_option_is_padded_unless_agreed_otherwise() {
    for (flags, padding) in [(1u32, 124), (3, 0)] {
        let mut client = client();
        client.next::<18>();
        client.say(&flags.to_be_bytes());
        client.say(&option(1, b"disk"));
        assert_eq!(client.heard.len(), 10 + padding);
        assert!(!client.session.is_handshake());
    }
    let mut client = client();
    client.say(&3u32.to_be_bytes());
    client.say(&option(1, b"none"));
    assert_eq!(client.session.demand(), Demand::Close);
}

#[test]
fn written_data_is_read_in_both_styles_of_replies() {
    for structured in [false, true] {
        let mut client = Client::on("disk", structured, Limits::default());
        for (cookie, len) in [(1, 1u32), (2, 4096), (3, 300_000), (4, 2 << 20)] {
            let data: Vec<u8> = (0..len).map(|i| (i * 7 + cookie) as u8).collect();
            let cookie = u64::from(cookie);
            client.say(&[request(WRITE, 1, cookie, 512, len), data.clone()].concat());
            assert_eq!(client.simple(), (0, cookie));
            client.say(&request(READ, 0, cookie, 512, len));
            if structured {
                let (kind, name, payload) = client.structured();
                assert_eq!((kind, name, &payload[..8]), (1, cookie, &512u64.to_be_bytes()[..]));
                assert!(payload[8..] == data);
            } else {
                assert_eq!(client.simple(), (0, cookie));
                assert!(client.heard == data);
                client.heard.clear();
            }
        }
        assert_eq!(client.memory.pool().used_bytes(), 0);
    }
}

#[test]
fn bytes_may_come_in_pieces_of_any_size() {
    let data: Vec<u8> = (0..600_000u32).map(|i| (i / 3) as u8).collect();
    let mut said = Vec::new();
    for (n, part) in data.chunks(100_000).enumerate() {
        said.extend(request(WRITE, 0, n as u64, n as u64 * 100_000, part.len() as u32));
        said.extend(part);
    }
    said.extend(request(FLUSH, 0, 99, 0, 0));
    for size in [1, 27, 29, 513, 65_537] {
        let mut client = connected();
        said.chunks(size).for_each(|bytes| client.say(bytes));
        for n in (0..6).chain([99]) {
            assert_eq!(client.simple(), (0, n), "in pieces of {size}");
        }
        assert!(client.memory.bytes[..data.len()] == data);
        assert_eq!(client.memory.flushes, 1);
    }
}

#[test]
fn invalid_requests_are_refused_and_the_next_one_works() {
    let mut client = connected();
    let end = SIZE as u64;
    for (bytes, error) in [
        (request(READ, 0, 5, end, 512), 22),
        (request(READ, 0, 5, u64::MAX - 10, 512), 22),
        (request(READ, 0, 5, 0, 0), 22),
        (request(READ, 0, 5, 0, u32::MAX), 22),
        (request(READ, 2, 5, 0, 512), 22),
        (request(STATUS, 0, 5, end, 1), 22),
    ] {
        client.say(&bytes);
        let (kind, cookie, payload) = client.structured();
        assert_eq!((kind, cookie, payload), (1 << 15 | 1, 5, vec![0, 0, 0, error, 0, 0]));
    }
    for (bytes, error) in [
        (request(77, 0, 5, 0, 0), 22),
        (request(FLUSH, 0, 5, 0, 7), 22),
        (request(TRIM, 0, 5, end, 512), 28),
        (request(ZEROES, 1 << 9, 5, 0, 512), 22),
    ] {
        client.say(&bytes);
        assert_eq!(client.simple(), (error, 5));
    }
    // The session skips the data of a refused write.
    let write = [request(WRITE, 0, 6, end - 100, 4096), vec![9; 4096]].concat();
    client.say(&[write, request(FLUSH, 0, 7, 0, 0)].concat());
    assert_eq!((client.simple(), client.simple()), ((28, 6), (0, 7)));
    assert!(client.memory.bytes.iter().all(|byte| *byte == 0));
}

#[test]
fn a_read_only_image_is_only_read() {
    let mut client = Client::on("fixed", false, Limits::default());
    for command in [TRIM, ZEROES] {
        client.say(&request(command, 0, 1, 0, 512));
        assert_eq!(client.simple(), (1, 1));
    }
    client.say(&[request(WRITE, 0, 2, 0, 3), b"abc".to_vec(), request(READ, 0, 3, 0, 1)].concat());
    assert_eq!((client.simple(), client.simple(), client.next()), ((1, 2), (0, 3), [0]));
}

#[test]
fn extents_zeroes_trims_and_announcements_are_blocking_tasks() {
    let mut client = connected();
    client.memory.bytes.fill(7);
    client.say(&request(STATUS, 0, 1, 0, 4096));
    let status = [1u32, 2048, 0, 2048, 3].map(u32::to_be_bytes).concat();
    assert_eq!(client.structured(), (5, 1, status));
    client.say(&request(STATUS, 1 << 3, 1, 0, 4096));
    assert_eq!(client.structured(), (5, 1, [1u32, 2048, 0].map(u32::to_be_bytes).concat()));
    for (command, flags) in [(ZEROES, 1 << 1 | 1), (TRIM, 1), (CACHE, 0)] {
        client.say(&request(command, flags, 9, u64::from(command) * 1000, 1000));
        assert_eq!(client.simple(), (0, 9));
    }
    let zero = |range: std::ops::Range<usize>| client.memory.bytes[range].iter().all(|b| *b == 0);
    assert!(zero(4000..5000) && zero(6000..7000));
    assert!(!zero(3999..4000) && !zero(5000..5001) && !zero(5999..6000) && !zero(7000..7001));
}

#[test]
fn reads_are_announced_only_where_there_is_a_cache() {
    let direct = Properties { caches: false, ..PLAIN };
    let images: Arc<[_]> = Arc::new([Arc::new(Image::new("disk", direct, 0, SIZE as u64, ()))]);
    let memory = Memory::new(64 << 20);
    let mut client = Client::of(&images, memory, Security::Plain, Limits::default());
    client.choose("disk", true);
    client.say(&request(CACHE, 0, 9, 0, 4096));
    assert_eq!(client.simple(), (22, 9));
}

#[test]
fn errors_of_the_medium_are_reported_and_memory_is_returned() {
    let mut client = connected();
    for (errno, number) in [(Errno::IO, 5), (Errno::NOSPC, 28), (Errno::OPNOTSUPP, 95)] {
        client.memory.failure = Some(errno);
        client.say(&request(READ, 0, 1, 0, 600_000));
        assert_eq!(client.structured(), (1 << 15 | 1, 1, vec![0, 0, 0, number, 0, 0]));
        client.say(&[request(WRITE, 0, 2, 0, 600_000), vec![1; 600_000]].concat());
        assert_eq!(client.simple(), (u32::from(number), 2));
        client.say(&request(FLUSH, 0, 3, 0, 0));
        assert_eq!(client.simple(), (u32::from(number), 3));
    }
    assert_eq!(client.memory.pool().used_bytes(), 0);
}

#[test]
fn a_client_is_bounded_in_requests() {
    let mut client = Client::on("disk", false, Limits { requests: 4, bytes: 1 << 20 });
    client.memory.holds = true;
    let flood: Vec<u8> = (0..5000).flat_map(|n| request(READ, 0, n, 0, 512)).collect();
    client.say(&flood);
    assert_eq!((client.session.in_flight(), client.memory.ended.len()), (4, 4));
    assert_eq!(client.session.read_budget(), 0, "what it sent is enough for now");
    client.memory.holds = false;
    client.run();
    // The session has not taken all requests, and has answered all that it has taken.
    assert_eq!(client.heard.len() % (16 + 512), 0);
    assert!(client.heard.len() / (16 + 512) > 2000);
}

#[test]
fn a_client_is_bounded_in_bytes_but_a_single_large_request_is_served() {
    let mut client = Client::on("disk", false, Limits { requests: 64, bytes: 1 << 20 });
    client.memory.holds = true;
    let flood: Vec<u8> = (0..64).flat_map(|n| request(READ, 0, n, 0, 256 << 10)).collect();
    client.say(&flood);
    assert_eq!(client.memory.ended.len(), 4);
    client.memory.holds = false;
    client.run();
    assert_eq!(client.heard.len(), 64 * (16 + (256 << 10)));
    client.heard.clear();
    client.say(&request(READ, 0, 1, 0, 4 << 20));
    assert_eq!(client.heard.len(), 16 + (4 << 20));
}

#[test]
fn a_client_that_takes_no_replies_is_not_read() {
    let mut client = Client::on("disk", false, Limits { requests: 8, bytes: 64 << 10 });
    let flood: Vec<u8> = (0..100).flat_map(|n| request(READ, 0, n, 0, 16 << 10)).collect();
    client.session.receive(0, &flood, &mut client.memory, 0);
    while let Some(ended) = client.memory.pop() {
        client.session.end(ended, &mut client.memory, 1);
        client.session.retry(&mut client.memory, 1);
    }
    assert!(client.memory.pool().used_bytes() <= 64 << 10);
    // Replies with errors need no memory of the pool, but their number is bounded, too.
    let wrong: Vec<u8> = (0..2000).flat_map(|n| request(FLUSH, 0, n, 0, 1)).collect();
    let mut other = Client::on("disk", false, Limits { requests: 8, bytes: 64 << 10 });
    other.session.receive(0, &wrong, &mut other.memory, 0);
    let mut slices = [std::io::IoSlice::new(&[]); 64];
    assert!(other.session.unsent(&mut slices) < 20);
    other.run();
    assert_eq!(other.heard.len(), 2000 * 16);
}

/// Lets a client act with the medium that all clients share.
fn shared<R>(client: &mut Client, all: &mut Memory, act: impl FnOnce(&mut Client) -> R) -> R {
    core::mem::swap(&mut client.memory, all);
    let result = act(client);
    core::mem::swap(&mut client.memory, all);
    result
}

#[test]
fn a_thousand_half_sent_writes_hold_little_memory_and_others_are_served() {
    const CLIENTS: usize = 1000;
    const BOUND: usize = 1 << 20;
    let mut all = Memory::new(BOUND);
    let on = |structured| {
        let memory = Memory::sized(0, 0);
        let mut client = Client::of(&exports(), memory, Security::Plain, Limits::default());
        client.choose("disk", structured);
        client
    };
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| on(true)).collect();
    let data: Vec<u8> = (0..1u32 << 20).map(|at| (at >> 8) as u8).collect();
    let half = [&request(WRITE, 0, 1, 0, 1 << 20), &data[..100]].concat();
    for client in &mut clients {
        shared(client, &mut all, |client| client.say(&half));
        assert!(all.pool.used_bytes() <= BOUND + CLIENTS * 4096);
    }
    assert!(all.pool.used_bytes() > BOUND, "they hold all there is");
    for structured in [true, false] {
        let mut other = on(structured);
        let write = [request(WRITE, 0, 2, 512, 600_000), data[..600_000].to_vec()].concat();
        shared(&mut other, &mut all, |other| other.say(&write));
        assert_eq!(other.simple(), (0, 2));
        // The client sends two reads together. The second read begins after the first has ended.
        let reads = [request(READ, 0, 3, 512, 600_000), request(READ, 0, 4, 513, 100)].concat();
        shared(&mut other, &mut all, |other| other.say(&reads));
        for (cookie, at, len) in [(3, 0, 600_000), (4, 1, 100)] {
            let bytes: Vec<u8> = if structured {
                other.structured().2[8..].to_vec()
            } else {
                assert_eq!(other.simple(), (0, cookie));
                other.heard.drain(..len).collect()
            };
            assert!(bytes == data[at..at + len]);
        }
        assert!(all.pool.used_bytes() <= BOUND + CLIENTS * 4096);
    }
    for client in &mut clients {
        shared(client, &mut all, |client| client.say(&data[100..]));
        assert_eq!(client.simple(), (0, 1));
    }
    assert!(all.bytes[..data.len()] == data);
    assert_eq!(all.pool.used_bytes(), 0);
}

#[test]
fn a_read_without_memory_that_fails_is_answered_or_ends_the_connection() {
    let memory = Memory::new(0);
    let mut client = Client::of(&exports(), memory, Security::Plain, Limits::default());
    client.choose("disk", false);
    client.memory.failure = Some(Errno::IO);
    client.say(&request(READ, 0, 1, 0, 100_000));
    assert_eq!((client.simple(), client.session.in_flight()), ((5, 1), 0));
    client.memory.failure = None;
    client.memory.holds = true;
    client.say(&request(READ, 0, 2, 0, 100_000));
    let first = client.memory.ended.pop_front().unwrap();
    client.session.end(first, &mut client.memory, 1);
    client.memory.failure = Some(Errno::IO);
    client.memory.holds = false;
    client.run();
    assert_eq!((client.simple(), client.heard.len()), ((0, 2), 4096));
    assert_eq!((client.session.demand(), client.session.in_flight()), (Demand::Close, 0));
    client.end_checked();
}

#[test]
fn a_write_that_stops_half_way_holds_one_piece() {
    let mut client = connected();
    client.say(&request(WRITE, 0, 1, 0, 32 << 20));
    assert_eq!(client.session.demand(), Demand::Serve, "refused: beyond the end");
    let mut client = connected();
    client.say(&[request(WRITE, 0, 1, 0, 8 << 20), vec![1; 100]].concat());
    assert_eq!(client.memory.pool().used_bytes(), 256 << 10);
    assert!(client.session.is_mid_message());
    let Client { session, mut memory, .. } = client;
    session.abandon(&mut memory);
    assert_eq!(memory.pool().used_bytes(), 0);
}

/// A client whose data waits for memory need not act, so the server must not disconnect it.
#[test]
fn a_client_whose_data_finds_no_memory_waits_for_the_server() {
    let memory = Memory::new(300 << 10);
    let mut client = Client::of(&exports(), memory, Security::Plain, Limits::default());
    client.choose("disk", false);
    client.memory.holds = true;
    let data = vec![1; 256 << 10];
    client.say(&[request(WRITE, 0, 1, 0, 256 << 10), data.clone()].concat());
    assert!(!client.session.waits_for_memory());
    client.say(&request(WRITE, 0, 2, 0, 256 << 10));
    assert!(!client.session.waits_for_memory(), "the client does not go on");
    client.say(&data[..100]);
    assert!(client.session.waits_for_memory() && client.session.is_mid_message());
    client.memory.holds = false;
    client.run();
    assert!(!client.session.waits_for_memory());
    client.say(&data[100..]);
    assert_eq!([client.simple(), client.simple()], [(0, 1), (0, 2)]);
    client.end_checked();
}

/// Replies that the client does not take hold the memory.
#[test]
fn a_client_that_takes_no_replies_does_not_wait_for_the_server() {
    let mut client = Client::on("disk", false, Limits { requests: 64, bytes: 256 << 10 });
    let asked = [request(READ, 0, 1, 0, 256 << 10), request(WRITE, 0, 2, 0, 4096), vec![1; 100]];
    client.session.receive(0, &asked.concat(), &mut client.memory, 0);
    while let Some(ended) = client.memory.pop() {
        client.session.end(ended, &mut client.memory, 1);
    }
    assert!(!client.session.is_sent() && client.session.is_mid_message());
    assert!(!client.session.waits_for_memory());
}

#[test]
fn a_client_continues_within_the_share_of_its_image() {
    let mut memory = Memory::new(0);
    memory.pool = Pool::new(2 << 20).shared_by(3);
    memory.pool.reserve(1, 2 << 20);
    let mut client = Client::of(&exports(), memory, Security::Plain, Limits::default());
    client.choose("disk", false);
    let data: Vec<u8> = (0..1u32 << 20).map(|at| (at >> 8) as u8).collect();
    client.memory.holds = true;
    let all = [request(WRITE, 0, 1, 0, 1 << 20), data].concat();
    let taken = client.offer(&all);
    assert_eq!(client.memory.pool.used_bytes() - (2 << 20), 256 << 10, "one piece of 341 KiB");
    client.memory.holds = false;
    client.run();
    client.say(&all[taken..]);
    assert_eq!(client.simple(), (0, 1));
}

#[test]
fn a_disconnect_waits_for_requests_in_flight() {
    let mut client = connected();
    client.memory.holds = true;
    client.say(&[request(FLUSH, 0, 1, 0, 0), request(DISC, 0, 2, 0, 0), vec![1; 99]].concat());
    assert_eq!((client.session.demand(), client.session.read_budget() > 0), (Demand::Serve, true));
    client.memory.holds = false;
    client.run();
    assert_eq!((client.simple(), client.session.demand()), ((0, 1), Demand::Close));
}

/// The error for requests that have not begun when the server ends.
const SHUTDOWN: u32 = 108;

#[test]
fn a_session_that_is_stopped_ends_when_nothing_more_arrives() {
    let mut idle = connected();
    idle.stop();
    assert_eq!(idle.session.demand(), Demand::Serve, "something may be on its way");
    idle.session.quiet();
    assert_eq!(idle.session.demand(), Demand::Close);
    let mut new = client();
    new.stop();
    assert_eq!(new.session.demand(), Demand::Close);
    // A part of a header is not a request, so the session does not wait for the rest.
    let mut part = connected();
    part.say(&request(FLUSH, 0, 1, 0, 0)[..27]);
    part.stop();
    part.session.quiet();
    assert_eq!((part.heard.len(), part.session.demand()), (0, Demand::Close));
}

#[test]
fn a_write_whose_data_arrives_while_the_server_ends_is_done() {
    let mut client = connected();
    let data: Vec<u8> = (0..600_000u32).map(|at| at as u8).collect();
    client.say(&[request(WRITE, 0, 5, 0, 600_000), data[..300_000].to_vec()].concat());
    client.stop();
    client.session.quiet();
    assert_eq!((client.heard.len(), client.session.demand()), (0, Demand::Serve));
    client.say(&[&data[300_000..], &request(FLUSH, 0, 6, 0, 0)].concat());
    // The refusal of the flush comes first, because it need not wait for the device.
    assert_eq!((client.simple(), client.simple()), ((SHUTDOWN, 6), (0, 5)));
    assert!(client.memory.bytes[..data.len()] == data && client.memory.flushes == 0);
    client.session.quiet();
    assert_eq!(client.session.demand(), Demand::Close);
    client.end_checked();
}

#[test]
fn a_write_whose_data_never_comes_gets_no_reply() {
    let mut client = connected();
    client.say(&[request(WRITE, 0, 5, 0, 600_000), vec![1; 300_000]].concat());
    client.stop();
    client.session.quiet();
    assert!(client.session.is_mid_message(), "its time is limited");
    assert_eq!(client.heard.len(), 0);
    client.end_checked();
}

#[test]
fn requests_that_arrive_before_the_end_are_answered_once() {
    for structured in [false, true] {
        let limits = Limits { requests: 4, bytes: 1 << 20 };
        let mut client = Client::on("disk", structured, limits);
        client.memory.holds = true;
        let write = |n| [request(WRITE, 0, n, 512 * n, 512), vec![n as u8 + 1; 512]].concat();
        let said: Vec<u8> = (0..10).flat_map(write).chain(request(FLUSH, 0, 10, 0, 0)).collect();
        client.say(&said);
        assert_eq!(client.session.in_flight(), 4, "the others are carried");
        client.stop();
        client.session.quiet();
        assert_eq!(client.session.demand(), Demand::Serve);
        client.memory.holds = false;
        client.run();
        client.session.quiet();
        assert_eq!(client.session.demand(), Demand::Close);
        let mut replies: Vec<_> = (0..11).map(|_| client.simple()).collect();
        assert_eq!(client.heard.len(), 0, "one each");
        replies.sort_unstable_by_key(|(_, cookie)| *cookie);
        let expected = (0..11).map(|n| (if n < 4 { 0 } else { SHUTDOWN }, n));
        assert!(replies.iter().copied().eq(expected), "{replies:?}");
        assert!(client.memory.bytes[4 * 512..].iter().all(|byte| *byte == 0));
        client.end_checked();
    }
}

/// A client that has not sent all of its request does not expect a reply yet.
#[test]
fn a_refused_write_is_answered_behind_its_data() {
    let mut client = Client::on("fixed", false, Limits::default());
    client.say(&[request(WRITE, 0, 1, 0, 100_000), vec![1; 99_999]].concat());
    assert_eq!(client.heard.len(), 0);
    client.say(&[1]);
    assert_eq!(client.simple(), (1, 1));
}

#[test]
fn a_wrong_magic_number_ends_the_connection() {
    let mut client = connected();
    client.say(&[request(READ, 0, 1, 0, 512), b"GET / HTTP/1.1\r\n\r\n".to_vec()].concat());
    assert_eq!(client.session.demand(), Demand::Close);
}

#[test]
fn extended_headers_have_long_lengths() {
    let mut client = client();
    client.say(&3u32.to_be_bytes());
    client.say(&option(11, &[]));
    client.say(&option(10, &contexts("disk", &["base:allocation"])));
    client.say(&option(7, &go("disk")));
    client.heard.clear();
    let extended = |command: u16, flags: u16, offset: u64, len: u64| {
        let mut bytes = 0x21e4_1c71_u32.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(command.to_be_bytes());
        bytes.extend(5u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend(len.to_be_bytes());
        bytes
    };
    let reply = |kind: u16, offset: u64, payload: &[u8]| {
        let mut bytes = 0x6e8a_278c_u32.to_be_bytes().to_vec();
        bytes.extend(1u16.to_be_bytes());
        bytes.extend(kind.to_be_bytes());
        bytes.extend(5u64.to_be_bytes());
        bytes.extend(offset.to_be_bytes());
        bytes.extend((payload.len() as u64).to_be_bytes());
        bytes.extend(payload);
        bytes
    };
    client.say(&[extended(WRITE, 1 << 5, 512, 3), b"abc".to_vec()].concat());
    client.say(&extended(READ, 0, 512, 3));
    client.say(&extended(ZEROES, 0, 0, SIZE as u64));
    client.say(&extended(TRIM, 0, 0, 1 << 40));
    client.say(&extended(STATUS, 1 << 3, 0, 4096));
    let status = [&1u32.to_be_bytes()[..], &1u32.to_be_bytes(), &2048u64.to_be_bytes(), &[0; 8]];
    let expected = [
        reply(0, 512, &[]),
        reply(1, 512, b"\0\0\0\0\0\0\x02\0abc"),
        reply(0, 0, &[]),
        reply(1 << 15 | 1, 0, &[0, 0, 0, 28, 0, 0]),
        reply(6, 0, &status.concat()),
    ];
    assert_eq!(client.heard, expected.concat());
}
