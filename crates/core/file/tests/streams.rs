//! Requests on pipes, sockets, terminals and eventfds, and polls, on every backend.

mod common;
#[path = "common/descriptors.rs"]
mod descriptors;

use common::*;
use descriptors::{counter, terminal, timer_of_a_millisecond};
use nowait_file::{
    Command, Context, Engine, Kind,
    command::Flags,
    submit::{EventTarget, Submission},
};
use nowait_retry::Sink;
use nowait_sys::{
    Errno,
    aio::IoEvent,
    eventfd,
    file::{self, O_DIRECT, O_NONBLOCK},
};
use std::{
    fs::{File, OpenOptions},
    io::{Read, Write},
    net::{TcpListener, TcpStream, UdpSocket},
    os::{
        fd::{AsFd, AsRawFd, FromRawFd, OwnedFd},
        unix::fs::OpenOptionsExt,
        unix::net::{UnixDatagram, UnixStream},
    },
    sync::{Arc, mpsc},
};

const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;

fn pairs(folder: &std::path::Path) -> Vec<(&'static str, OwnedFd, OwnedFd)> {
    let (reader, writer) = std::io::pipe().unwrap();
    let fifo = folder.join("fifo");
    let made = std::process::Command::new("mkfifo").arg(&fifo).status().unwrap();
    assert!(made.success());
    let both = OpenOptions::new().read(true).write(true).open(&fifo).unwrap();
    let fifo_reader = File::open(&fifo).unwrap();
    let (one, other) = UnixStream::pair().unwrap();
    let (from, to) = UnixDatagram::pair().unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (server, _) = listener.accept().unwrap();
    let datagrams = UdpSocket::bind("127.0.0.1:0").unwrap();
    let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
    sender.connect(datagrams.local_addr().unwrap()).unwrap();
    let (terminal, master) = terminal();
    vec![
        ("pipe", reader.into(), writer.into()),
        ("fifo", fifo_reader.into(), both.into()),
        ("unix", one.into(), other.into()),
        ("unix datagrams", from.into(), to.into()),
        ("tcp", server.into(), client.into()),
        ("udp", datagrams.into(), sender.into()),
        ("terminal", terminal, master),
    ]
}

fn text(memory: *mut [u8], len: i64) -> &'static [u8] {
    &bytes(memory)[..len as usize]
}

fn write_all(file: &OwnedFd, data: &[u8]) {
    File::from(file.try_clone().unwrap()).write_all(data).unwrap();
}

#[test]
fn a_read_waits_for_data_and_is_short_as_read_is() {
    on_every_backend(|engine| {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        for (kind, reader, writer) in pairs(folder.path()) {
            for round in 0..5 {
                let memory = leaked(100, 0);
                submit(&context, round, command(Kind::Read, &reader, memory, 0)).unwrap();
                assert!(!has_event(&context), "{kind}: nothing is there yet");
                let mode = file::status_flags(reader.as_raw_fd()).unwrap();
                assert_eq!(mode & O_NONBLOCK, 0, "{kind}: not while the request is armed either");
                write_all(&writer, b"short\n");
                assert_eq!(reap(&context, 1), [(round, 6)], "{kind}");
                assert_eq!(text(memory, 6), b"short\n", "{kind}");
                write_all(&writer, b"there\n");
                submit(&context, round, command(Kind::Read, &reader, memory, 0)).unwrap();
                assert_eq!(reap(&context, 1), [(round, 6)], "{kind}");
            }
            let mode = file::status_flags(reader.as_raw_fd()).unwrap();
            assert_eq!(mode & O_NONBLOCK, 0, "{kind}: the descriptor's mode is the program's");
        }
        context.destroy().unwrap();
    });
}

#[test]
fn nothing_is_read_and_written_at_once() {
    on_every_backend(|engine| {
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        for (kind, reader, writer) in pairs(folder.path()) {
            if kind == "terminal" {
                continue; // its driver is asked only when it is ready
            }
            for (name, request, end) in [(0, Kind::Read, &reader), (1, Kind::Write, &writer)] {
                submit(&context, name, command(request, end, leaked(0, 0), 0)).unwrap();
                assert_eq!(reap(&context, 1), [(name, 0)], "{kind}");
            }
        }
        context.destroy().unwrap();
    });
}

#[test]
fn reads_of_one_stream_take_their_turns() {
    on_every_backend(|engine| {
        const READS: u64 = 50;
        let context = Context::new(engine, 0, 128).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (one, mut other) = UnixStream::pair().unwrap();
        for (end, source) in [
            (reader.as_fd(), &mut writer as &mut dyn Write),
            (one.as_fd(), &mut other as &mut dyn Write),
        ] {
            let memory: Vec<_> = (0..READS).map(|_| leaked(1, 0xff)).collect();
            for (name, memory) in memory.iter().enumerate() {
                submit(&context, name as u64, command(Kind::Read, &end, *memory, 0)).unwrap();
            }
            for byte in 0..READS {
                source.write_all(&[byte as u8]).unwrap();
                if byte.is_multiple_of(7) {
                    std::thread::yield_now();
                }
            }
            let events = reap(&context, READS as usize);
            assert!(events.iter().all(|(_, res)| *res == 1));
            for (name, memory) in memory.iter().enumerate() {
                assert_eq!(bytes(*memory), [name as u8]);
            }
        }
        context.destroy().unwrap();
    });
}

/// If each request waited for all before it, there would be about fifty million waits.
#[test]
fn ten_thousand_reads_of_one_pipe_take_their_turns_and_may_be_cancelled_between() {
    const READS: u64 = 10_000;
    on_every_backend(|engine| {
        let (reader, mut writer) = std::io::pipe().unwrap();
        let context = Context::new(engine, 0, READS as u32).unwrap();
        let memories: Vec<_> = (0..READS).map(|_| leaked(2, 0)).collect();
        for (name, memory) in memories.iter().enumerate() {
            submit(&context, name as u64, command(Kind::Read, &reader, *memory, 0)).unwrap();
        }
        let cancelled = |name: u64| name == 0 || name % 4 == 3;
        (0..READS).rev().filter(|name| cancelled(*name)).for_each(|name| {
            context.cancel(name).unwrap();
        });
        let gone = (0..READS).filter(|name| cancelled(*name)).count();
        let events = reap(&context, gone);
        assert!(
            events.iter().all(|(name, res)| cancelled(*name) && *res == failed(Errno::CANCELED))
        );
        let left: Vec<u64> = (0..READS).filter(|name| !cancelled(*name)).collect();
        for number in 0..left.len() as u16 {
            writer.write_all(&number.to_ne_bytes()).unwrap();
            if number % 1000 == 999 {
                reap(&context, 1000); // a pipe takes 64 KiB
            }
        }
        reap(&context, left.len() % 1000);
        for (number, name) in left.iter().enumerate() {
            assert_eq!(bytes(memories[*name as usize]), (number as u16).to_ne_bytes(), "{name}");
        }
        context.destroy().unwrap();
    });
}

/// Writes behave as write(2) on a blocking descriptor.
#[test]
fn writes_go_on_until_all_is_written_in_order() {
    on_every_backend(|engine| {
        const WRITES: usize = 4;
        const BYTES: usize = 300_000;
        let folder = tempfile::tempdir().unwrap();
        let context = Context::new(engine, 0, 16).unwrap();
        for (kind, reader, writer) in pairs(folder.path()) {
            if kind.contains("datagrams") || kind == "udp" || kind == "terminal" {
                continue; // messages; and a terminal takes no lines that long
            }
            for name in 0..WRITES {
                let memory = leaked(BYTES, name as u8);
                submit(&context, name as u64, command(Kind::Write, &writer, memory, 0)).unwrap();
            }
            let mut seen = vec![0; WRITES * BYTES];
            File::from(reader).read_exact(&mut seen).unwrap();
            let expected: Vec<_> = (0..WRITES).map(|name| (name as u64, BYTES as i64)).collect();
            assert_eq!(reap(&context, WRITES), expected, "{kind}");
            let in_order = seen.chunks(BYTES).enumerate();
            assert!(in_order.into_iter().all(|(n, c)| c.iter().all(|b| *b == n as u8)), "{kind}");
        }
        context.destroy().unwrap();
    });
}

#[test]
fn counters_and_timers_take_and_give_their_numbers() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let counter = counter();
        let borrowed = counter.as_fd();
        let (number, seen) = (leaked(8, 0), leaked(8, 0));
        submit(&context, 1, command(Kind::Read, &borrowed, seen, 0)).unwrap();
        assert!(!has_event(&context), "it is 0");
        number_in(number, 7);
        submit(&context, 2, command(Kind::Write, &borrowed, number, 0)).unwrap();
        assert_eq!(reap(&context, 2), [(1, 8), (2, 8)]);
        assert_eq!(bytes(seen), 7u64.to_ne_bytes());
        // The eventfd is full, so a write waits for a reader. The writes are submitted one after
        // the other, because two in flight would have no order.
        let write = |name, value| {
            let number = leaked(8, 0);
            number_in(number, value);
            submit(&context, name, command(Kind::Write, &borrowed, number, 0)).unwrap();
        };
        write(3, u64::MAX - 1);
        assert_eq!(reap(&context, 1), [(3, 8)]);
        write(4, 1);
        assert!(!has_event(&context), "no room");
        assert_eq!(eventfd::drain(counter.as_raw_fd()), u64::MAX - 1);
        assert_eq!(reap(&context, 1), [(4, 8)]);

        let timer = timer_of_a_millisecond();
        let borrowed = timer.as_fd();
        for name in 5..8 {
            submit(&context, name, command(Kind::Read, &borrowed, seen, 0)).unwrap();
            assert_eq!(reap(&context, 1), [(name, 8)]);
            assert_ne!(bytes(seen), [0; 8], "it has expired");
        }
        context.destroy().unwrap();
    });
}

fn number_in(memory: *mut [u8], number: u64) {
    // SAFETY: the memory of these tests is leaked, and no request uses it now.
    unsafe { (*memory).copy_from_slice(&number.to_ne_bytes()) };
}

#[test]
fn a_terminal_is_written_to() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let (terminal, master) = terminal();
        for name in 0..3 {
            submit(&context, name, command(Kind::Write, &terminal, leaked(5, b'w'), 0)).unwrap();
        }
        assert_eq!(reap(&context, 3), [(0, 5), (1, 5), (2, 5)]);
        let mut seen = [0; 15];
        File::from(master).read_exact(&mut seen).unwrap();
        assert_eq!(seen, [b'w'; 15]);
        context.destroy().unwrap();
    });
}

#[test]
fn a_peer_that_hangs_up_ends_all_requests() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 64).unwrap();
        let (reader, writer) = std::io::pipe().unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        for name in 0..10 {
            submit(&context, name, command(Kind::Read, &reader, leaked(8, 0), 0)).unwrap();
            submit(&context, 10 + name, command(Kind::Read, &one, leaked(8, 0), 0)).unwrap();
        }
        submit(&context, 20, poll(&reader, POLLIN)).unwrap();
        drop((writer, other));
        let events = reap(&context, 21);
        assert!(events[..20].iter().all(|(_, res)| *res == 0), "{events:?}");
        assert_eq!(events[20].1 & 0x10, 0x10, "hung up");
        // No reader will read: at first the pipe is full, and then its reader is closed.
        let (reader, writer) = std::io::pipe().unwrap();
        for name in 0..5 {
            submit(&context, name, command(Kind::Write, &writer, leaked(50_000, 0), 0)).unwrap();
        }
        assert_eq!(reap(&context, 1), [(0, 50_000)]);
        drop(reader);
        let results: Vec<i64> = reap(&context, 4).iter().map(|(_, res)| *res).collect();
        // The second write may have begun; the others wrote nothing.
        let begun = results[0] != failed(Errno::PIPE);
        assert!(!begun || 0 < results[0] && results[0] < 50_000, "{results:?}");
        assert_eq!(results[1..], [failed(Errno::PIPE); 3]);
        context.destroy().unwrap();
    });
}

#[test]
fn a_non_blocking_descriptor_says_eagain() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let (one, other) = UnixStream::pair().unwrap();
        one.set_nonblocking(true).unwrap();
        submit(&context, 1, command(Kind::Read, &one, leaked(8, 0), 0)).unwrap();
        assert_eq!(reap(&context, 1), [(1, failed(Errno::AGAIN))]);
        let mut impatient = command(Kind::Read, &other, leaked(8, 0), 0);
        impatient.rw_flags = file::rwf::NOWAIT;
        be_impatient(&context, 2, impatient, &other);
        let whole = leaked(8 << 20, 0);
        submit(&context, 3, command(Kind::Write, &one, whole, 0)).unwrap();
        let (_, written) = reap(&context, 1)[0];
        assert!(0 < written && written < 8 << 20, "what there was room for: {written}");
        context.destroy().unwrap();
    });
}

/// Before Linux 6.4 the kernel refuses the flag on sockets.
fn be_impatient(context: &Arc<Context>, name: u64, read: Command, socket: &UnixStream) {
    let mut byte = 0u8;
    let segments = [file::IoVec { base: &raw mut byte, len: 1 }];
    // SAFETY: the byte is a live local.
    let plain = unsafe { file::preadv2(socket.as_raw_fd(), &segments, -1, file::rwf::NOWAIT) };
    match plain {
        Err(Errno::OPNOTSUPP) => assert_eq!(submit(context, name, read), Err(Errno::OPNOTSUPP)),
        plain => {
            assert_eq!(plain, Err(Errno::AGAIN));
            submit(context, name, read).unwrap();
            assert_eq!(reap(context, 1), [(name, failed(Errno::AGAIN))]);
        }
    }
}

/// After several reads that waited, the engine expects the next one to wait.
fn be_silent(context: &Arc<Context>, reader: &UnixStream, mut writer: &UnixStream) {
    for round in 0..5 {
        let memory = leaked(8, 0);
        submit(context, round, command(Kind::Read, reader, memory, 0)).unwrap();
        assert!(!has_event(context));
        writer.write_all(b"late").unwrap();
        assert_eq!(reap(context, 1), [(round, 4)]);
        assert_eq!(text(memory, 4), b"late");
    }
}

#[test]
fn a_socket_that_was_silent_is_read_at_once_when_it_is_not() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let (reader, mut writer) = UnixStream::pair().unwrap();
        be_silent(&context, &reader, &writer);
        for round in 0..40 {
            writer.write_all(&[round; 8]).unwrap();
            let memory = leaked(8, 0xff);
            submit(&context, 1, command(Kind::Read, &reader, memory, 0)).unwrap();
            assert!(has_event(&context), "the data were there, round {round}");
            assert_eq!(reap(&context, 1), [(1, 8)]);
            assert_eq!(bytes(memory), [round; 8]);
        }
        context.destroy().unwrap();
    });
}

#[test]
fn a_silent_socket_says_eagain_to_the_impatient() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let (reader, writer) = UnixStream::pair().unwrap();
        be_silent(&context, &reader, &writer);
        let mut impatient = command(Kind::Read, &reader, leaked(8, 0), 0);
        impatient.rw_flags = file::rwf::NOWAIT;
        be_impatient(&context, 1, impatient, &reader);
        be_silent(&context, &reader, &writer);
        // A context may remember status flags that are out of date.
        let remembered = Flags::Remembered(file::O_RDWR);
        let hinted = command_with(remembered, Kind::Read, &reader, leaked(8, 0), 0);
        reader.set_nonblocking(true).unwrap();
        submit(&context, 2, hinted).unwrap();
        assert_eq!(reap(&context, 1), [(2, failed(Errno::AGAIN))]);
        context.destroy().unwrap();
    });
}

/// Remembered status flags that are out of date may have O_NONBLOCK.
#[test]
fn a_silent_socket_that_waits_is_not_told_by_remembered_flags() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let (reader, mut writer) = UnixStream::pair().unwrap();
        let remembered = Flags::Remembered(file::O_RDWR | file::O_NONBLOCK);
        let memory = leaked(8, 0);
        submit(&context, 1, command_with(remembered, Kind::Read, &reader, memory, 0)).unwrap();
        assert!(!has_event(&context), "it waits");
        writer.write_all(b"speaks").unwrap();
        assert_eq!(reap(&context, 1), [(1, 6)]);
        assert_eq!(&bytes(memory)[..6], b"speaks");
        context.destroy().unwrap();
    });
}

/// Returns `None` if another test took the number first.
fn in_place_of(old: OwnedFd, file: &impl AsRawFd) -> Option<OwnedFd> {
    let number = old.as_raw_fd();
    drop(old);
    let new = owned(nowait_sys::fd::duplicate(file.as_raw_fd(), number).unwrap());
    (new.as_raw_fd() == number).then_some(new)
}

#[test]
fn a_number_of_a_silent_socket_may_mean_a_file_later() {
    on_every_backend(|engine| {
        let mut file = tempfile::tempfile_in("/var/tmp").unwrap();
        file.write_all(b"of a file").unwrap();
        let context = Context::new(engine, 0, 8).unwrap();
        let (reader, writer) = UnixStream::pair().unwrap();
        be_silent(&context, &reader, &writer);
        if let Some(number) = in_place_of(reader.into(), &file) {
            for round in 0..3 {
                let memory = leaked(4, 0);
                submit(&context, round, command(Kind::Read, &number, memory, 5)).unwrap();
                assert_eq!(reap(&context, 1), [(round, 4)]);
                assert_eq!(bytes(memory), b"file");
            }
            let (reader, writer) = UnixStream::pair().unwrap();
            let number = in_place_of(number, &reader).map(UnixStream::from);
            if let Some(number) = &number {
                be_silent(&context, number, &writer);
            }
        }
        context.destroy().unwrap();
    });
}

/// The channel to the engine's threads may be full: the submitter then gets EAGAIN and tries again.
fn submit_patiently(context: &Arc<Context>, name: u64, command: &Command) {
    while let Err(errno) = submit(context, name, command.clone()) {
        assert_eq!(errno, Errno::AGAIN);
    }
}

/// Streams and polls that wait take none of the slots for file requests.
#[test]
fn a_thousand_silent_streams_delay_no_file() {
    on_every_backend(|engine| {
        const PIPES: u64 = 1000;
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("file");
        std::fs::write(&path, vec![9; 400 * 4096]).unwrap();
        let file = File::open(&path).unwrap();
        let context = Context::new(engine, 0, 2048).unwrap();
        let pipes: Vec<_> = (0..PIPES).map(|_| std::io::pipe().unwrap()).collect();
        for (name, (reader, _)) in pipes.iter().enumerate() {
            let wait = match name % 2 {
                0 => poll(reader, POLLIN),
                _ => command(Kind::Read, reader, leaked(4, 0), 0),
            };
            submit_patiently(&context, name as u64, &wait);
        }
        file::advise(file.as_raw_fd(), 0, 0, file::Advice::DontNeed).unwrap();
        for block in 0..400 {
            let read = command(Kind::Read, &file, leaked(4096, 0), block * 4096);
            submit(&context, PIPES + block, read).unwrap();
        }
        assert!(reap(&context, 400).iter().all(|(name, res)| *name >= PIPES && *res == 4096));
        for (_, writer) in &pipes {
            (&*writer).write_all(b"data").unwrap();
        }
        for (name, res) in reap(&context, PIPES as usize) {
            assert_eq!(res, if name % 2 == 0 { i64::from(POLLIN) } else { 4 });
        }
        context.destroy().unwrap();
    });
}

/// All eventfds have one inode, so the inode does not show which eventfd a number means.
#[test]
fn a_counter_is_held_although_its_number_means_another() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let (first, memory) = (counter(), [leaked(8, 0), leaked(8, 0)]);
        let number = first.as_raw_fd();
        let kept = first.try_clone().unwrap();
        submit(&context, 1, command(Kind::Read, &first, memory[0], 0)).unwrap();
        drop(first);
        let mut others: Vec<OwnedFd> = (0..50).map(|_| counter()).collect();
        let second = others.iter().position(|other| other.as_raw_fd() == number);
        let Some(second) = second.map(|index| others.swap_remove(index)) else { return };
        submit(&context, 2, command(Kind::Read, &second, memory[1], 0)).unwrap();
        write_all(&second, &7u64.to_ne_bytes());
        assert_eq!(reap(&context, 1), [(2, 8)]);
        write_all(&kept, &3u64.to_ne_bytes());
        assert_eq!(reap(&context, 1), [(1, 8)]);
        assert_eq!((bytes(memory[0])[0], bytes(memory[1])[0]), (3, 7));
        // A read of fewer than eight bytes is an error in the request, and its event reports it.
        submit(&context, 3, command(Kind::Read, &second, leaked(4, 0), 0)).unwrap();
        assert_eq!(reap(&context, 1), [(3, failed(Errno::INVAL))]);
        context.destroy().unwrap();
    });
}

/// io_uring gives up a thread's requests when that thread ends.
#[test]
fn requests_on_streams_outlive_their_thread() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let (silent, mut speaker) = std::io::pipe().unwrap();
        let memory = leaked(4, 0);
        let (read, wait) = (command(Kind::Read, &reader, memory, 0), poll(&silent, POLLIN));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                submit(&context, 1, read).unwrap();
                submit(&context, 2, wait).unwrap();
            });
        });
        assert!(!has_event(&context));
        writer.write_all(b"data").unwrap();
        assert_eq!(reap(&context, 1), [(1, 4)]);
        assert_eq!(bytes(memory), b"data");
        speaker.write_all(b"x").unwrap();
        assert_eq!(reap(&context, 1), [(2, i64::from(POLLIN))]);
        context.destroy().unwrap();
    });
}

#[test]
fn polls_of_files_and_of_room_end_at_once() {
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 8).unwrap();
        let file = File::open("/proc/self/exe").unwrap();
        let (_reader, writer) = std::io::pipe().unwrap();
        submit(&context, 1, poll(&file, POLLIN | POLLOUT)).unwrap();
        submit(&context, 2, poll(&writer, POLLIN | POLLOUT)).unwrap();
        assert!(has_event(&context));
        let always = i64::from(POLLIN | POLLOUT);
        assert_eq!(reap(&context, 2), [(1, always), (2, i64::from(POLLOUT))]);
        context.destroy().unwrap();
    });
}

fn polls_of_one_descriptor(engine: &Arc<Engine>) {
    let context = Context::new(engine, 0, 16).unwrap();
    let (one, mut other) = UnixStream::pair().unwrap();
    while context.io().outstanding() == 0 {
        submit(&context, 0, command(Kind::Write, &one, leaked(1 << 20, 0), 0)).unwrap();
        if has_event(&context) {
            reap(&context, 1);
        }
    }
    for name in 1..4 {
        submit(&context, name, poll(&one, POLLIN)).unwrap();
        submit(&context, 10 + name, poll(&one, POLLOUT)).unwrap();
    }
    assert!(!has_event(&context));
    other.write_all(b"x").unwrap();
    let readable: Vec<_> = (1..4).map(|name| (name, i64::from(POLLIN))).collect();
    assert_eq!(reap(&context, 3), readable);
    context.cancel(12).unwrap();
    assert_eq!(reap(&context, 1), [(12, failed(Errno::CANCELED))]);
    other.set_nonblocking(true).unwrap();
    let mut sink = vec![0; 1 << 16];
    let mut seen = Vec::new();
    while seen.len() < 3 {
        while other.read(&mut sink).is_ok_and(|bytes| bytes > 0) {}
        if has_event(&context) {
            seen.extend(reap(&context, 1));
        }
    }
    seen.sort_unstable();
    assert_eq!(seen, [(0, 1 << 20), (11, i64::from(POLLOUT)), (13, i64::from(POLLOUT))]);
    context.destroy().unwrap();
}

#[test]
fn polls_of_one_descriptor_wait_for_their_own_events() {
    on_every_backend(polls_of_one_descriptor);
}

/// A program may use epoll, poll or select on one descriptor instead of io_getevents.
#[test]
fn the_counter_of_a_context_tells_of_its_events() {
    use nowait_sys::{poll::ppoll, time::Deadline};
    on_every_backend(|engine| {
        let context = Context::new(engine, 0, 64).unwrap();
        let (reader, mut writer) = std::io::pipe().unwrap();
        let counter = context.event_counter().unwrap();
        assert_eq!(context.event_counter(), Ok(counter));
        let is_readable = |deadline| ppoll(counter, 1, deadline, None).unwrap() != 0;
        assert!(!is_readable(Deadline::NOW));
        for round in 0..50 {
            submit(&context, round, command(Kind::Read, &reader, leaked(1, 0), 0)).unwrap();
            writer.write_all(b"x").unwrap();
            assert!(is_readable(Deadline::NEVER));
            let mut count = [0; 8];
            let mut file = std::mem::ManuallyDrop::new(
                // SAFETY: the context's descriptor, which is not closed here.
                unsafe { File::from_raw_fd(counter) },
            );
            file.read_exact(&mut count).unwrap();
            assert_eq!(reap(&context, 1), [(round, 1)]);
        }
        context.destroy().unwrap();
    });
}

/// A pipe in packet mode has the flag of direct files (O_DIRECT).
#[test]
fn a_pipe_of_packets_is_a_stream() {
    on_every_backend(|engine| {
        let (reader, writer) = nowait_sys::pipe::packets().unwrap();
        let (reader, writer) = (owned(reader), owned(writer));
        let context = Context::new(engine, 0, 8).unwrap();
        let memory = leaked(100, 0);
        for round in 0..3 {
            submit(&context, round, command(Kind::Read, &reader, memory, 0)).unwrap();
            submit(&context, 9, command(Kind::Write, &writer, leaked(5, 1), 0)).unwrap();
            submit(&context, 10, command(Kind::Write, &writer, leaked(5, 2), 0)).unwrap();
            assert_eq!(reap(&context, 3), [(round, 5), (9, 5), (10, 5)]);
            submit(&context, round, command(Kind::Read, &reader, memory, 0)).unwrap();
            assert_eq!(reap(&context, 1), [(round, 5)]);
        }
        context.destroy().unwrap();
    });
}

/// A read of a pipe may never end by itself, and the end of the process must not wait for it.
#[test]
fn a_pipe_of_packets_under_the_number_of_a_direct_file_is_a_stream() {
    on_every_backend(|engine| {
        let path = tempfile::NamedTempFile::new_in("/var/tmp").unwrap();
        let mut options = OpenOptions::new();
        let file = options.read(true).custom_flags(O_DIRECT).open(path.path()).unwrap();
        let (ended, ends) = mpsc::channel();
        let deliver = Box::new(move |event: IoEvent| ended.send(event.res).unwrap());
        let sink = Sink { face: "test", limit: 8, deliver };
        let context = Context::with_sink(engine, 0, sink).unwrap();
        let read = |file: &OwnedFd| {
            let target = EventTarget { data: 1, obj: 1, eventfd: None };
            let command = command(Kind::Read, file, leaked(4096, 0), 0);
            context.io().reserve(1).unwrap();
            let mut submission = Submission::new(&context);
            submission.submit(command, target).unwrap();
            submission.finish();
        };
        let file = OwnedFd::from(file);
        read(&file);
        ends.recv().unwrap();
        let (reader, writer) = nowait_sys::pipe::packets().unwrap();
        if let Some(number) = in_place_of(file, &owned(reader)) {
            read(&number);
            assert_eq!(context.io().endless(), 1);
            write_all(&owned(writer), b"packet");
            assert_eq!(ends.recv().unwrap(), 6);
        }
        context.destroy().unwrap();
    });
}

fn owned(fd: nowait_sys::Fd) -> OwnedFd {
    // SAFETY: its only owner gives it up.
    unsafe { OwnedFd::from_raw_fd(fd.into_raw()) }
}
