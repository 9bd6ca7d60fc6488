//! Block status of servers, and replies that come in chunks.

mod support;

use core::time::Duration;
use nowait::Errno;
use nowait_device::nbd::chunk::{
    BLOCK_STATUS, ERROR, NONE, OFFSET_DATA as DATA, OFFSET_HOLE as HOLE,
};
use nowait_device::{BlockingTask, Extent, Medium, Patience, Tag};
use proptest::prelude::*;
use std::{
    io::{Read, Write},
    os::unix::{
        fs::FileExt,
        net::{UnixListener, UnixStream},
    },
    path::PathBuf,
    thread,
};
use support::{
    ASKED_BYTES, ASKED_FOR_STATUS_BYTES, CONTEXT, Rig, SIZE, TAG, greeting, greeting_with_status,
    heard, let_in, nbdkit, next_end, qemu, said, scripted_with, wait_until_left,
};

fn telling<T: Send + 'static>(
    then: impl FnOnce(UnixStream) -> T + Send + 'static,
) -> (tempfile::TempDir, PathBuf, thread::JoinHandle<T>) {
    scripted_with((greeting_with_status(), ASKED_FOR_STATUS_BYTES), then)
}

fn chunk(cookie: [u8; 8], is_last: bool, kind: u16, payload: &[u8]) -> Vec<u8> {
    let head = [u16::from(is_last), kind].map(u16::to_be_bytes).concat();
    let len = (payload.len() as u32).to_be_bytes();
    [&nowait_device::nbd::STRUCTURED_REPLY.to_be_bytes()[..], &head, &cookie, &len, payload]
        .concat()
}

fn data(at: u64, bytes: &[u8]) -> Vec<u8> {
    [&at.to_be_bytes()[..], bytes].concat()
}

fn status(context: u32, extents: &[(u32, u32)]) -> Vec<u8> {
    let extents = extents.iter().flat_map(|(len, flags)| [*len, *flags]);
    [context].into_iter().chain(extents).flat_map(u32::to_be_bytes).collect()
}

fn failed(error: u32) -> Vec<u8> {
    [&error.to_be_bytes()[..], &[0, 4], b"why?"].concat()
}

fn of_data(len: u64) -> Extent {
    Extent { len, hole: false }
}

fn of_zeroes(len: u64) -> Extent {
    Extent { len, hole: true }
}

/// An extent that reads as zeroes counts as a hole. The server's last extent goes beyond the
/// requested range.
#[test]
fn extents_are_those_that_the_server_reports() {
    let (_folder, socket, thread) = telling(|mut client| {
        let (kind, cookie) = heard(&mut client);
        assert_eq!(kind, 7);
        let extents = [(8192, 0), (4096, 3), (4096, 2), (4096, 1), (1 << 20, 0)];
        let told = chunk(cookie, true, BLOCK_STATUS, &status(CONTEXT, &extents));
        client.write_all(&told).unwrap();
        wait_until_left(&client);
    });
    let mut rig = Rig::new(&socket);
    assert_eq!(rig.extents(0..65_536), Ok(vec![of_data(8192), of_zeroes(8192), of_data(49_152)]));
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn the_client_asks_again_for_extents_that_a_reply_leaves_out() {
    let (_folder, socket, thread) = telling(|mut client| {
        for flags in [3, 0, 3] {
            let (_, cookie) = heard(&mut client);
            let first = chunk(cookie, false, BLOCK_STATUS, &status(CONTEXT, &[(4096, flags)]));
            client.write_all(&[first, chunk(cookie, true, NONE, &[])].concat()).unwrap();
        }
        wait_until_left(&client);
    });
    let mut rig = Rig::new(&socket);
    let expected = vec![of_zeroes(4096), of_data(4096), of_zeroes(1808)];
    assert_eq!(rig.extents(2000..12_000), Ok(expected));
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn without_block_status_the_whole_range_is_data() {
    let (_folder, socket, thread) = support::scripted(|client| wait_until_left(&client));
    let mut rig = Rig::new(&socket);
    assert_eq!(rig.extents(4096..SIZE), Ok(vec![of_data(SIZE - 4096)]));
    drop(rig);
    thread.join().unwrap();
}

/// The chunks of a reply come in any order, and the reply to another request comes between them.
#[test]
fn a_read_comes_in_chunks() {
    let (_folder, socket, thread) = telling(|mut client| {
        let (_, first) = heard(&mut client);
        let (_, second) = heard(&mut client);
        let said = [
            chunk(first, false, DATA, &data(8192, &[2; 4096])),
            chunk(second, true, DATA, &data(0, &[3; 12_288])),
            chunk(first, false, HOLE, &[0_u64.to_be_bytes().to_vec(), vec![0, 0, 16, 0]].concat()),
            chunk(first, false, DATA, &data(4096, &[1; 4096])),
            chunk(first, true, NONE, &[]),
        ];
        client.write_all(&said.concat()).unwrap();
        wait_until_left(&client);
    });
    let mut rig = Rig::new(&socket);
    let expected = [[[0; 4096], [1; 4096], [2; 4096]].concat(), vec![3; 12_288]];
    for slot in 0..2 {
        let chunk = rig.disk.pool().take(12_288);
        rig.disk.read(&rig.image, chunk, 0, Tag { slot, ..TAG });
    }
    for _ in 0..2 {
        let ended = next_end(&mut rig.disk, &rig.epoll);
        let chunk = ended.chunk.unwrap();
        assert_eq!(ended.result, Ok(()));
        assert!(chunk.data() == expected[ended.tag.slot as usize]);
        rig.disk.pool().give_back(chunk);
    }
    drop(rig);
    thread.join().unwrap();
}

/// A server may leave bytes out, against the protocol. The memory of the read may hold data of
/// another client, which must not show.
#[test]
fn bytes_that_chunks_leave_out_are_zeroes() {
    let (_folder, socket, thread) = telling(|mut client| {
        let (_, write) = heard(&mut client);
        client.write_all(&said(0, write, &[])).unwrap();
        let (_, read) = heard(&mut client);
        let part = data(0, &[1; 4096]);
        let said = [chunk(read, false, DATA, &part), chunk(read, true, DATA, &part)];
        client.write_all(&said.concat()).unwrap();
        wait_until_left(&client);
    });
    let mut rig = Rig::new(&socket);
    assert_eq!(rig.write(0, &[7; 8192], false), Ok(()));
    assert_eq!(rig.read(0..8192), Ok([[1; 4096], [0; 4096]].concat()), "from the same memory");
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn a_chunk_says_why_a_request_has_failed() {
    let (_folder, socket, thread) = telling(|mut client| {
        for in_parts in [true, false, false] {
            let (_, cookie) = heard(&mut client);
            let part = chunk(cookie, !in_parts, ERROR, &failed(28));
            let last = chunk(cookie, true, NONE, &[]);
            client.write_all(&part).unwrap();
            client.write_all(if in_parts { &last } else { &[] }).unwrap();
        }
        let (_, cookie) = heard(&mut client);
        client.write_all(&chunk(cookie, true, NONE, &[])).unwrap();
        wait_until_left(&client);
    });
    let mut rig = Rig::new(&socket);
    assert_eq!(rig.read(0..4096), Err(Errno::NOSPC));
    assert_eq!(rig.write(0, &[1; 4096], false), Err(Errno::NOSPC));
    assert_eq!(rig.extents(0..4096), Err(Errno::NOSPC));
    assert_eq!(rig.write(0, &[1; 4096], false), Ok(()), "the connection is as it was");
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn chunks_against_the_protocol_end_all_requests() {
    const COOKIE: [u8; 8] = [0; 8];
    let said = |kind: u16, payload: &[u8]| chunk(COOKIE, true, kind, payload);
    let part = |kind: u16, payload: &[u8]| chunk(COOKIE, false, kind, payload);
    let told = |context: u32, extents: &[(u32, u32)]| said(BLOCK_STATUS, &status(context, extents));
    let (reads, asks) = (false, true);
    let wrong = [
        (asks, told(CONTEXT + 1, &[(4096, 0)])),
        (asks, told(CONTEXT, &[])),
        (asks, told(CONTEXT, &[(4096, 0), (0, 0)])),
        (asks, part(BLOCK_STATUS, &status(CONTEXT, &[(4096, 0)])).repeat(2)),
        (asks, said(BLOCK_STATUS, &[0; 13])),
        (asks, said(NONE, &[])),
        (asks, said(DATA, &data(0, &[1; 4096]))),
        (asks, said(0x7fff, &[])),
        (asks, support::said(0, COOKIE, &[])),
        (reads, told(CONTEXT, &[(4096, 0)])),
        (reads, part(NONE, &[])),
        (reads, said(NONE, &[0])),
        (reads, said(NONE, &[])),
        (reads, said(DATA, &data(0, &[1; 4095]))),
        (reads, said(DATA, &data(1, &[1; 4096]))),
        (reads, said(DATA, &data(u64::MAX, &[1; 4096]))),
        (reads, said(DATA, &data(0, &[1; 4097]))),
        (reads, said(DATA, &data(0, &[]))),
        (reads, said(HOLE, &[0; 12])),
        (reads, said(HOLE, &[255; 12])),
        (reads, part(ERROR, &failed(5)).repeat(100)),
        (reads, said(ERROR, &[0; 5])),
    ];
    for (asks, wrong) in wrong {
        let shown = format!("{:?}", &wrong[..wrong.len().min(60)]);
        let (_folder, socket, thread) = telling(move |mut client| {
            heard(&mut client);
            // The client may leave before the server has sent all of `wrong`.
            let _ = client.write_all(&wrong);
            wait_until_left(&client);
        });
        let mut rig = Rig::new(&socket);
        if asks {
            assert_eq!(rig.extents(0..4096), Err(Errno::IO), "{shown}");
        } else {
            assert_eq!(rig.read(0..4096), Err(Errno::IO), "{shown}");
        }
        assert_eq!(rig.flush(), Err(Errno::IO), "{shown}");
        thread.join().unwrap();
    }
}

fn chunks() -> impl Strategy<Value = Vec<u8>> {
    let kind = prop_oneof![
        4 => prop::sample::select(vec![NONE, DATA, HOLE, BLOCK_STATUS, ERROR]),
        1 => any::<u16>(),
    ];
    let cookie = prop_oneof![8 => 0..6_u64, 1 => any::<u64>()];
    let number = prop_oneof![4 => 0..9000_u32, 1 => any::<u32>()];
    let extents = prop::collection::vec((number.clone(), 0..4_u32), 0..4);
    let context = prop_oneof![4 => Just(CONTEXT), 1 => any::<u32>()];
    let payload = prop_oneof![
        Just(Vec::new()),
        Just(data(0, &[1; 4096])),
        (0..5000_u64, 0..5000_usize).prop_map(|(at, len)| data(at, &vec![2; len])),
        number.prop_map(|len| [&0_u64.to_be_bytes()[..], &len.to_be_bytes()].concat()),
        (context, extents).prop_map(|(context, extents)| status(context, &extents)),
        (0..130_u32).prop_map(failed),
        prop::collection::vec(any::<u8>(), 0..40),
    ];
    let one =
        (cookie, any::<bool>(), kind, payload).prop_map(|(cookie, is_last, kind, payload)| {
            chunk(cookie.to_be_bytes(), is_last, kind, &payload)
        });
    prop::collection::vec(one, 0..20).prop_map(|all| all.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn all_requests_end_whatever_chunks_a_server_sends(said in chunks()) {
        let (_folder, socket, thread) = telling(move |mut client| {
            (0..4).for_each(|_| _ = heard(&mut client));
            let _ = client.write_all(&said);
            let _ = client.shutdown(std::net::Shutdown::Write);
            let _ = client.read_to_end(&mut Vec::new());
        });
        let mut rig = Rig::new(&socket);
        for slot in 0..4 {
            let tag = Tag { slot, ..TAG };
            match slot {
                0 | 1 => {
                    let chunk = rig.disk.pool().take(4096);
                    rig.disk.read(&rig.image, chunk, 0, tag);
                }
                2 => {
                    let chunk = rig.disk.pool().take(4096);
                    rig.disk.write(&rig.image, chunk, 0, false, tag);
                }
                _ => {
                    let task = BlockingTask::Extents { range: 0..4096, max: 8 };
                    rig.disk.run(&rig.image, task, tag);
                }
            }
        }
        for _ in 0..4 {
            let ended = next_end(&mut rig.disk, &rig.epoll);
            let covered: u64 = ended.extents.iter().map(|extent| extent.len).sum();
            prop_assert!(covered <= 4096, "{:?}", ended.extents);
            ended.chunk.into_iter().for_each(|chunk| rig.disk.pool().give_back(chunk));
        }
        prop_assert!(rig.disk.pop().is_none());
        drop(rig);
        thread.join().unwrap();
    }
}

/// The client discards the part of a reply that came before the connection was lost.
#[test]
fn a_question_for_extents_is_repeated_on_the_next_connection() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = thread::spawn(move || {
        for is_last in [false, true] {
            let (client, _) = listener.accept().unwrap();
            let mut client = let_in(client, (greeting_with_status(), ASKED_FOR_STATUS_BYTES));
            // The server answers a write. The client repeats this write on the second connection.
            let (kind, cookie) = heard(&mut client);
            assert_eq!(kind, 1);
            client.write_all(&chunk(cookie, true, NONE, &[])).unwrap();
            // A read and a question for block status come in either order.
            for _ in 0..2 {
                let (kind, cookie) = heard(&mut client);
                let said = match kind {
                    7 => chunk(cookie, is_last, BLOCK_STATUS, &status(CONTEXT, &[(4096, 3)])),
                    _ if is_last => chunk(cookie, true, DATA, &data(0, &[2; 4096])),
                    _ => chunk(cookie, false, DATA, &data(0, &[1; 4000])),
                };
                client.write_all(&said).unwrap();
            }
            if is_last {
                wait_until_left(&client);
            }
        }
    });
    let long = Duration::from_secs(50);
    let mut rig =
        Rig::patient(&socket, Patience { outage: long, silence: long / 2, ..Patience::default() });
    assert_eq!(rig.write(8192, &[5; 4096], false), Ok(()));
    let chunk = rig.disk.pool().take(4096);
    rig.disk.read(&rig.image, chunk, 0, Tag { slot: 0, ..TAG });
    let asked = BlockingTask::Extents { range: 0..4096, max: 8 };
    rig.disk.run(&rig.image, asked, Tag { slot: 1, ..TAG });
    for _ in 0..2 {
        let ended = next_end(&mut rig.disk, &rig.epoll);
        assert_eq!(ended.result, Ok(()));
        match ended.chunk {
            Some(chunk) => {
                assert!(chunk.data() == [2; 4096]);
                rig.disk.pool().give_back(chunk);
            }
            None => assert_eq!(ended.extents, [of_zeroes(4096)]),
        }
    }
    assert_eq!((rig.connection().reconnects, rig.connection().repeated), (1, 1));
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn a_server_that_loses_block_status_is_another_one() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("socket");
    let listener = UnixListener::bind(&socket).unwrap();
    let thread = thread::spawn(move || {
        let (client, _) = listener.accept().unwrap();
        heard(&mut let_in(client, (greeting_with_status(), ASKED_FOR_STATUS_BYTES)));
        let (client, _) = listener.accept().unwrap();
        let mut client = let_in(client, (greeting(), ASKED_BYTES));
        assert_eq!(client.read(&mut [0]).unwrap(), 0);
    });
    let long = Duration::from_secs(50);
    let mut rig =
        Rig::patient(&socket, Patience { outage: long, silence: long / 2, ..Patience::default() });
    assert_eq!(rig.read(0..4096), Err(Errno::IO));
    drop(rig);
    thread.join().unwrap();
}

#[test]
fn servers_of_other_projects_report_extents() {
    let policy = ["blocksize-minimum=4096", "blocksize-error-policy=error"];
    for server in [qemu("writeback"), nbdkit("blocksize-policy", &policy)] {
        let Some(server) = server else { return };
        server.file().write_all_at(&vec![1; 1 << 16], 4 << 16).unwrap();
        let mut rig = Rig::new(&server.socket());
        let rest = SIZE - (5 << 16);
        let expected = vec![of_zeroes((4 << 16) - 1000), of_data(1 << 16), of_zeroes(rest)];
        assert_eq!(rig.extents(1000..SIZE), Ok(expected));
    }
}
