//! Images on NBD servers: qemu-nbd and nbdkit, compared with a model in memory, and scripted
//! servers, some of which break the protocol.

mod support;

use core::time::Duration;
use nowait::{Errno, Nowait};
use nowait_device::{
    BlockingTask, Cache, Disk, Image, ImageOptions, Medium, PIECE_BYTES, Patience, Tag,
};
use nowait_sys::epoll::Epoll;
use proptest::prelude::*;
use std::{
    io::{Read, Write},
    ops::Range,
    os::unix::{fs::FileExt, net::UnixListener},
    path::{Path, PathBuf},
    thread,
};
use support::{
    Numbers, Rig, SIZE, Server, TAG, answer, cached, export, greeting, heard, nbdkit, next_end,
    open, qemu, said, scripted, wait_until_left,
};

fn agrees_with_a_model(server: &Server, seed: u64) {
    let options = support::options(&server.socket(), Patience::default());
    image_agrees_with_a_model(server, Rig::with(&options), seed);
}

/// The cache has no room for all of the image. Returns how many reads the cache answered.
fn cached_agrees_with_a_model(server: &Server, seed: u64) -> u64 {
    let options = cached(&server.socket(), Patience::default(), SIZE * 3 / 4);
    image_agrees_with_a_model(server, Rig::with(&options), seed)
}

fn image_agrees_with_a_model(server: &Server, mut rig: Rig, seed: u64) -> u64 {
    let mut numbers = Numbers(seed);
    assert_eq!(rig.image.size(), SIZE);
    let mut model = server.contents();
    let place = |range: &Range<u64>| range.start as usize..range.end as usize;
    for step in 0..400 {
        let range = numbers.range();
        let durable = numbers.below(4) == 0;
        match numbers.below(10) {
            0..4 => {
                let bytes = vec![step as u8; (range.end - range.start) as usize];
                model[place(&range)].copy_from_slice(&bytes);
                assert_eq!(rig.write(range.start, &bytes, durable), Ok(()), "seed {seed}");
            }
            4 => {
                model[place(&range)].fill(0);
                let allocated = numbers.below(2) == 0;
                let zero = BlockingTask::Zero { range, allocated, fast: false, durable };
                assert_eq!(rig.run(zero), Ok(()), "seed {seed}");
            }
            5 => {
                let discard = BlockingTask::Discard { range: range.clone(), durable };
                assert_eq!(rig.run(discard), Ok(()), "seed {seed}");
                // The contents are arbitrary now: the model takes over the bytes that a read
                // returns.
                model[place(&range)].copy_from_slice(&rig.read(range).unwrap());
            }
            6 => assert_eq!(rig.flush(), Ok(())),
            _ => {
                let read = rig.read(range.clone()).unwrap();
                assert!(read == model[place(&range)], "seed {seed}, step {step}: {range:?}");
            }
        }
    }
    assert_eq!(rig.flush(), Ok(()));
    assert!(server.contents() == model, "seed {seed}: the server's file differs");
    rig.connection().cache.hits
}

#[test]
fn an_image_on_qemus_server_is_what_was_written() {
    for seed in 0..4 {
        let Some(server) = qemu("writeback") else { return };
        agrees_with_a_model(&server, seed);
    }
}

#[test]
fn an_image_of_large_blocks_is_what_was_written() {
    for seed in 0..4 {
        let policy = ["blocksize-minimum=4096", "blocksize-error-policy=error"];
        let Some(server) = nbdkit("blocksize-policy", &policy) else { return };
        agrees_with_a_model(&server, seed);
    }
}

/// The server's blocks are smaller than the pages of the cache, as large, or larger.
#[test]
fn a_cached_image_is_what_was_written() {
    for seed in 0..4 {
        let Some(server) = qemu("writeback") else { return };
        assert!(cached_agrees_with_a_model(&server, seed) > 10);
        for bytes in [4096, 16_384] {
            let [least, usual] =
                ["minimum", "preferred"].map(|which| format!("blocksize-{which}={bytes}"));
            let policy = [&least, &usual, "blocksize-error-policy=error"];
            let Some(server) = nbdkit("blocksize-policy", &policy) else { return };
            assert!(cached_agrees_with_a_model(&server, seed) > 10, "{bytes}");
        }
    }
}

#[test]
fn an_image_on_a_server_without_fua_is_what_was_written() {
    let Some(server) = nbdkit("fua", &[]) else { return };
    agrees_with_a_model(&server, 3);
}

/// Returns the writes and flushes that nbdkit received, in order; `durable` stands for a request
/// with FUA.
fn asked_of(log: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(log).unwrap();
    let asked = text.lines().filter_map(|line| line.split(" connection=1 ").nth(1));
    let asked = asked.filter(|what| what.starts_with("Write") || what.starts_with("Flush"));
    asked
        .map(|what| if what.contains("fua=1") { "durable" } else { &what[..5] }.to_owned())
        .collect()
}

#[test]
fn a_durable_write_uses_fua_or_is_followed_by_a_flush() {
    // Without `fuamode` the filter `fua` hides that the server supports FUA.
    for (mode, expected) in [(None, ["Write", "Flush"]), (Some("native"), ["durable", "Flush"])] {
        let log = tempfile::NamedTempFile::new().unwrap();
        let logged = format!("logfile={}", log.path().display());
        let fua = mode.map(|mode| format!("fuamode={mode}"));
        let words = ["-f", "-e", "vm", "--filter=log", "--filter=fua", "file", "{image}", &logged];
        let words: Vec<&str> = words.into_iter().chain(fua.as_deref()).collect();
        let Some(server) = Server::start("nbdkit", &words, SIZE) else { return };
        let mut rig = Rig::new(&server.socket());
        assert_eq!(rig.write(4096, &[1; 4096], true), Ok(()));
        if mode.is_some() {
            assert_eq!(rig.flush(), Ok(()));
        }
        assert_eq!(asked_of(log.path()), expected, "{mode:?}");
    }
}

#[test]
fn ranges_of_more_than_4_gib_are_zeroed_and_discarded_in_pieces() {
    const GIB: u64 = 1 << 30;
    let words = ["-f", "raw", "-x", "vm", "-t", "--discard=unmap", "{image}"];
    let Some(server) = Server::start("qemu-nbd", &words, 9 * GIB) else { return };
    let mut rig = Rig::new(&server.socket());
    let marks = [100, 4 * GIB - 4096, 4 * GIB + 512, 9 * GIB - 512];
    let all = 0..9 * GIB;
    let discard = BlockingTask::Discard { range: all.clone(), durable: false };
    let zero = BlockingTask::Zero { range: all, allocated: false, fast: false, durable: true };
    for task in [zero, discard] {
        for mark in marks {
            assert_eq!(rig.write(mark, &[9; 512], false), Ok(()));
        }
        assert_eq!(rig.run(task), Ok(()));
        for mark in marks {
            assert_eq!(rig.read(mark..mark + 512), Ok(vec![0; 512]), "{mark}");
        }
    }
}

#[test]
fn an_image_on_a_server_without_zeroing_is_what_was_written() {
    let Some(server) = nbdkit("nozero", &["zeromode=none"]) else { return };
    agrees_with_a_model(&server, 7);
}

#[test]
fn a_server_that_dies_fails_later_requests_and_flushes_above_all() {
    let Some(mut server) = qemu("writeback") else { return };
    let mut rig = Rig::new(&server.socket());
    assert_eq!(rig.write(0, &[1; 4096], false), Ok(()));
    server.kill();
    assert_eq!(rig.flush(), Err(Errno::IO), "the write may be lost");
    assert_eq!(rig.read(0..512), Err(Errno::IO));
    assert_eq!(rig.write(100, &[1; 10], true), Err(Errno::IO));
    assert!(rig.image.file().sync_all().is_err());
}

#[test]
fn an_export_that_is_read_only_makes_the_image_read_only() {
    let words = ["-f", "raw", "-x", "vm", "-t", "-r", "-e", "8", "{image}"];
    let Some(server) = Server::start("qemu-nbd", &words, SIZE) else { return };
    let (_, image) = open(&server.socket(), Patience::default()).unwrap();
    assert!(image.properties().read_only);
    let error = image.resize().unwrap_err().to_string();
    assert!(error.contains("stays as at the start"), "{error}");
}

#[test]
fn two_images_of_one_export_may_lie_side_by_side_only() {
    let Some(server) = qemu("writeback") else { return };
    let nowait = Nowait::new().unwrap();
    let path = PathBuf::from(format!("nbd+unix:///vm?socket={}", server.socket().display()));
    let window = |offset| ImageOptions {
        path: path.clone(),
        offset,
        length: Some(8192),
        ..ImageOptions::default()
    };
    let images = Image::open_all(&nowait, &[window(0), window(8192)]).unwrap();
    assert_eq!(images.len(), 2);
    let error = Image::open_all(&nowait, &[window(0), window(4096)]).unwrap_err().to_string();
    assert!(error.contains("overlap"), "{error}");
    let read = |image| ImageOptions { read_only: true, ..image };
    Image::open_all(&nowait, &[read(window(0)), read(window(4096))]).unwrap();
}

/// Sends more bytes than a socket holds, and returns the number of requests.
fn ask_for_much(rig: &mut Rig) -> u32 {
    const COUNT: u32 = 65;
    for slot in 0..COUNT {
        let tag = Tag { slot, ..TAG };
        let chunk = rig.disk.pool().take(PIECE_BYTES);
        match slot % 4 {
            _ if slot == COUNT - 1 => {
                rig.disk.pool().give_back(chunk);
                rig.disk.flush(&rig.image, &rig.image.join(), tag);
            }
            0 => rig.disk.read(&rig.image, chunk, 0, tag),
            kind => rig.disk.write(&rig.image, chunk, 0, kind == 1, tag),
        }
    }
    COUNT
}

fn all_end(disk: &mut Disk, epoll: &Epoll, count: u32) {
    let mut slots: Vec<u32> = (0..count)
        .map(|_| {
            let ended = next_end(disk, epoll);
            assert_eq!(ended.result, Err(Errno::IO));
            ended.chunk.into_iter().for_each(|chunk| disk.pool().give_back(chunk));
            ended.tag.slot
        })
        .collect();
    slots.sort_unstable();
    assert_eq!(slots, (0..count).collect::<Vec<_>>());
    assert_eq!(disk.pool().used_bytes(), 0);
    assert!(disk.pop().is_none());
}

#[test]
fn each_request_in_flight_ends_once_when_the_server_goes() {
    // The server closes the connection after it has read `bytes`: before the first request, in the
    // middle of a request, or after some requests.
    for bytes in [0, 10, 28, 28 + 28 + 1000, 1 << 20] {
        let (_folder, socket, thread) = scripted(move |mut client| {
            client.read_exact(&mut vec![0; bytes]).unwrap();
        });
        let mut rig = Rig::new(&socket);
        let count = ask_for_much(&mut rig);
        all_end(&mut rig.disk, &rig.epoll, count);
        // No request holds a lock on a stripe any more, so a blocking task can lock one
        // exclusively.
        assert_eq!(rig.write(100, &[1; 10], false), Err(Errno::IO));
        thread.join().unwrap();
    }
}

#[test]
fn each_request_in_flight_ends_once_when_the_image_goes() {
    let (_folder, socket, thread) = scripted(|client| wait_until_left(&client));
    let mut rig = Rig::new(&socket);
    let count = ask_for_much(&mut rig);
    let Rig { mut disk, epoll, image } = rig;
    drop(image);
    all_end(&mut disk, &epoll, count);
    thread.join().unwrap();
}

/// With an `outage` of 0 the client waits for a silent server without limit, but for the answer to
/// the last flush only as long as `end` says.
#[test]
fn the_last_flush_to_a_stalled_server_ends_in_time() {
    let (_folder, socket, thread) = scripted(|client| wait_until_left(&client));
    let patience = Patience { end: Duration::from_millis(50), ..Patience::default() };
    let (_nowait, image) = open(&socket, patience).unwrap();
    let failed = image.file().sync_all().unwrap_err();
    assert!(failed.contains("timed out"), "{failed}");
    drop(image);
    thread.join().unwrap();
}

/// Without a disconnect request, the server would report a broken connection.
#[test]
fn the_client_says_goodbye_to_a_server() {
    let (_folder, socket, thread) = scripted(|mut client| {
        let mut heard = Vec::new();
        client.read_to_end(&mut heard).unwrap();
        heard
    });
    drop(open(&socket, Patience::default()).unwrap());
    let heard = thread.join().unwrap();
    let (magic, command) = (nowait_device::nbd::REQUEST.to_be_bytes(), [0, 0, 0, 2]);
    assert_eq!((heard.len(), &heard[..4], &heard[4..8]), (28, &magic[..], &command[..]));
}

/// The server reads the bytes before it carries out the write, and sends them after its answer to
/// the write.
#[test]
fn a_read_that_began_before_a_write_brings_no_old_bytes_into_the_cache() {
    let (_folder, socket, thread) = scripted(|mut client| {
        let (read, old) = heard(&mut client);
        let (write, new) = heard(&mut client);
        assert_eq!((read, write), (0, 1));
        client.write_all(&said(0, new, &[])).unwrap();
        client.write_all(&said(0, old, &[1; 4096])).unwrap();
        let (again, cookie) = heard(&mut client);
        assert_eq!(again, 0, "it is asked");
        client.write_all(&said(0, cookie, &[2; 4096])).unwrap();
        wait_until_left(&client);
    });
    let mut rig = Rig::with(&cached(&socket, Patience::default(), 1 << 20));
    let read = rig.disk.pool().take(4096);
    rig.disk.read(&rig.image, read, 0, Tag { slot: 0, ..TAG });
    // The write covers only a part of a page: a write of a whole page would itself put the page
    // into the cache.
    let mut write = rig.disk.pool().take(512);
    write.data_mut().fill(2);
    rig.disk.write(&rig.image, write, 0, false, Tag { slot: 1, ..TAG });
    for _ in 0..2 {
        // The ends come in either order: the server may answer the write while the client is still
        // sending it.
        let ended = next_end(&mut rig.disk, &rig.epoll);
        assert_eq!(ended.result, Ok(()));
        rig.disk.pool().give_back(ended.chunk.unwrap());
    }
    // The server answers the first of these two reads, and the cache the second.
    assert_eq!(rig.read(0..4096), Ok(vec![2; 4096]));
    assert_eq!(rig.read(0..4096), Ok(vec![2; 4096]));
    let cache = rig.connection().cache;
    assert_eq!((cache.hits, cache.misses), (1, 2));
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn a_write_that_fails_leaves_nothing_in_the_cache() {
    let (_folder, socket, thread) = scripted(|mut client| {
        let (read, cookie) = heard(&mut client);
        client.write_all(&said(0, cookie, &[1; 4096])).unwrap();
        let (write, cookie) = heard(&mut client);
        client.write_all(&said(28, cookie, &[])).unwrap();
        let (again, cookie) = heard(&mut client);
        assert_eq!((read, write, again), (0, 1, 0));
        client.write_all(&said(0, cookie, &[3; 4096])).unwrap();
        wait_until_left(&client);
    });
    let mut rig = Rig::with(&cached(&socket, Patience::default(), 1 << 20));
    assert_eq!(rig.read(0..4096), Ok(vec![1; 4096]));
    assert_eq!(rig.read(0..4096), Ok(vec![1; 4096]), "from the cache");
    assert_eq!(rig.write(0, &[2; 4096], false), Err(Errno::NOSPC));
    assert_eq!(rig.read(0..4096), Ok(vec![3; 4096]), "neither the old ones nor the new ones");
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn a_cached_image_fails_with_its_server() {
    let Some(mut server) = qemu("writeback") else { return };
    let mut rig = Rig::with(&cached(&server.socket(), Patience::default(), 1 << 20));
    assert_eq!(rig.write(0, &[1; 4096], false), Ok(()));
    assert_eq!(rig.read(0..4096), Ok(vec![1; 4096]));
    server.kill();
    assert_eq!(rig.flush(), Err(Errno::IO), "the write may be lost");
    assert_eq!(rig.read(0..4096), Err(Errno::IO));
}

#[test]
fn a_cache_that_would_not_be_coherent_is_refused() {
    let options = support::options(Path::new("/nowhere"), Patience::default());
    let host = ImageOptions { cache: Cache::Host, ..options.clone() };
    let user = ImageOptions { cache: Cache::User, read_only: true, force_share: true, ..options };
    for (options, expected) in
        [(host, "use --cache user"), (user, "does not see changes by others")]
    {
        let error = support::open_with(&options).map(drop).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
}

fn stranger(answers: Vec<u8>) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<()>) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = thread::spawn(move || {
        let (mut client, _) = listener.accept().unwrap();
        let _ = client.write_all(&answers);
        let _ = client.shutdown(std::net::Shutdown::Write);
        let _ = client.read_to_end(&mut Vec::new());
    });
    (folder, socket, thread)
}

#[test]
fn a_wrong_greeting_is_refused_in_one_line() {
    let blocks = |least: u32, most: u32| {
        let numbers = [least, 4096, most].map(u32::to_be_bytes).concat();
        answer(3, &[&[0, 3][..], &numbers].concat())
    };
    let ack = answer(1, &[]);
    let endless = greeting().into_iter().chain(export(SIZE, 5).repeat(100)).collect();
    let mut long = greeting();
    long.extend(nowait_device::nbd::OPTION_REPLY.to_be_bytes());
    long.extend([7, 3, u32::MAX].map(u32::to_be_bytes).concat());
    let after = |parts: &[Vec<u8>]| [greeting(), parts.concat()].concat();
    for (said, expected) in [
        (b"SSH-2.0-OpenSSH_9.2p1\r\n".to_vec(), "does not greet"),
        (Vec::new(), "failed to fill"),
        (greeting(), "failed to fill"),
        (endless, "too many answers"),
        (long, "answer is not NBD"),
        (after(&[answer(3, &[0])]), "too short"),
        (after(&[answer(1 << 31 | 6, b"no\nsuch")]), "no such export: nosuch"),
        (after(core::slice::from_ref(&ack)), "does not send the export's flags"),
        (after(&[export(u64::MAX, 5), ack.clone()]), "larger than the largest"),
        (after(&[export(SIZE, 5), blocks(3, 1 << 25), ack.clone()]), "of the NBD server: 3 bytes"),
        (
            after(&[export(SIZE, 5), blocks(1 << 20, 1 << 25), ack.clone()]),
            "unsupported block size",
        ),
        (after(&[export(SIZE, 5), blocks(1, 4096), ack.clone()]), "limits a request to 4096 bytes"),
        (after(&[export(SIZE, 1), ack]), "no flush"),
    ] {
        let (_folder, socket, thread) = stranger(said);
        let error = open(&socket, Patience::default()).map(drop).unwrap_err();
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
        thread.join().unwrap();
    }
}

#[test]
fn replies_against_the_protocol_end_all_requests() {
    let reply = |magic: u32, cookie: u64| {
        [&magic.to_be_bytes()[..], &[0; 4], &cookie.to_be_bytes()].concat()
    };
    let magic = nowait_device::nbd::SIMPLE_REPLY;
    for said in [
        reply(magic, 99),
        reply(nowait_device::nbd::STRUCTURED_REPLY, 0),
        reply(magic, 0),
        [reply(magic, 0), vec![1; 100]].concat(),
        reply(magic, 0)[..9].to_vec(),
    ] {
        let (_folder, socket, thread) = scripted(move |mut client| {
            client.read_exact(&mut [0; 28]).unwrap();
            client.write_all(&said).unwrap();
        });
        let mut rig = Rig::new(&socket);
        assert_eq!(rig.read(0..4096), Err(Errno::IO));
        assert_eq!(rig.flush(), Err(Errno::IO));
        thread.join().unwrap();
    }
}

fn sayings() -> impl Strategy<Value = Vec<u8>> {
    let number = prop_oneof![0..4_u32, any::<u32>()];
    let data = prop::collection::vec(any::<u8>(), 0..40);
    let info = (number.clone(), data.clone()).prop_map(|(kind, data)| answer(kind, &data));
    let error = (0..12_u32, data.clone()).prop_map(|(kind, data)| answer(1 << 31 | kind, &data));
    let whole = (0..2 * SIZE, any::<u16>()).prop_map(|(size, flags)| export(size, flags));
    let one = prop_oneof![2 => whole, 2 => Just(answer(1, &[])), 1 => info, 1 => error, 1 => data];
    (any::<bool>(), prop::collection::vec(one, 0..6)).prop_map(|(greets, said)| {
        let greeting = if greets { greeting() } else { Vec::new() };
        [greeting, said.concat()].concat()
    })
}

fn replies() -> impl Strategy<Value = Vec<u8>> {
    let magic = prop_oneof![12 => Just(nowait_device::nbd::SIMPLE_REPLY), 1 => any::<u32>()];
    let error = prop_oneof![4 => Just(0), 1 => 0..130_u32];
    let cookie = prop_oneof![8 => 0..6_u64, 1 => any::<u64>()];
    let data = prop_oneof![1 => Just(0_usize), 1 => Just(4096), 1 => 0..9000_usize];
    let one = (magic, error, cookie, data).prop_map(|(magic, error, cookie, data)| {
        let front = [magic.to_be_bytes(), error.to_be_bytes()].concat();
        [front, cookie.to_be_bytes().to_vec(), vec![7; data]].concat()
    });
    prop::collection::vec(one, 0..12).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn any_greeting_ends_in_success_or_one_line(said in sayings()) {
        let (_folder, socket, thread) = stranger(said);
        if let Err(error) = open(&socket, Patience::default()) {
            prop_assert!(!error.contains('\n') && !error.is_empty(), "{error}");
        }
        thread.join().unwrap();
    }

    #[test]
    fn all_requests_end_whatever_a_server_replies(said in replies(), read_first in any::<bool>()) {
        let (_folder, socket, thread) = scripted(move |mut client| {
            if read_first {
                let _ = client.read_exact(&mut [0; 28]);
            }
            let _ = client.write_all(&said);
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        });
        let mut rig = Rig::new(&socket);
        for slot in 0..4 {
            let (tag, chunk) = (Tag { slot, ..TAG }, rig.disk.pool().take(4096));
            match slot {
                0 | 1 => rig.disk.read(&rig.image, chunk, 0, tag),
                _ => rig.disk.write(&rig.image, chunk, 0, slot == 3, tag),
            }
        }
        let mut slots: Vec<u32> = (0..4).map(|_| {
            let ended = next_end(&mut rig.disk, &rig.epoll);
            ended.chunk.into_iter().for_each(|chunk| rig.disk.pool().give_back(chunk));
            ended.tag.slot
        }).collect();
        slots.sort_unstable();
        prop_assert_eq!(slots, vec![0, 1, 2, 3]);
        prop_assert!(rig.disk.pop().is_none());
        drop(rig);
        thread.join().unwrap();
    }
}

/// The server answers a request before the client has sent all of it, and then answers it again.
#[test]
fn a_request_is_answered_once() {
    let (_folder, socket, thread) = scripted(|mut client| {
        client.read_exact(&mut [0; 28]).unwrap();
        let reply = [&nowait_device::nbd::SIMPLE_REPLY.to_be_bytes()[..], &[0; 12]].concat();
        client.write_all(&reply.repeat(2)).unwrap();
        wait_until_left(&client);
    });
    let mut rig = Rig::new(&socket);
    // The write has more bytes than the socket holds.
    let chunk = rig.disk.pool().take(2 * PIECE_BYTES);
    rig.disk.write(&rig.image, chunk, 0, false, TAG);
    let ended = rig.end();
    rig.disk.pool().give_back(ended.chunk.unwrap());
    assert_eq!(rig.flush(), Err(Errno::IO));
    thread.join().unwrap();
}

#[test]
fn flushed_data_outlives_the_server() {
    let Some(mut server) = qemu("none") else { return };
    let mut rig = Rig::new(&server.socket());
    for number in 0..64u64 {
        assert_eq!(rig.write(number * 4096, &[number as u8 + 1; 4096], number % 2 == 0), Ok(()));
    }
    assert_eq!(rig.flush(), Ok(()));
    server.kill();
    let file = server.file();
    for number in 0..64u64 {
        let mut block = [0; 4096];
        file.read_exact_at(&mut block, number * 4096).unwrap();
        assert!(block.iter().all(|byte| *byte == number as u8 + 1), "block {number}");
    }
}
