//! Cases of one request each. The program prints the error of io_submit, or the event of the
//! request.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};

use nowait_tests::aio::{self, Iocb};

use crate::world::{
    FILE_BYTES, LARGE_BYTES, Owned, World, behind_the_end, inotify, large_memory, memory, name,
};

pub(crate) fn print_all(world: &World) {
    let cases = ordinary(world)
        .into_iter()
        .chain(descriptors(world))
        .chain(devices(world))
        .chain(fields(world))
        .chain(vectors(world))
        .chain(flags(world))
        .chain(syncs(world))
        .chain(polls(world))
        .chain(last(world));
    for (case, iocb) in cases {
        println!("{case}: {}", outcome(world, iocb));
        if matches!(iocb.opcode, aio::PWRITE | aio::PWRITEV) {
            world.reset();
        }
    }
}

type Case = (String, Iocb);

fn outcome(world: &World, iocb: Iocb) -> String {
    let context = Owned::new(4);
    let mut iocbs = [iocb];
    let submitted = context.submit(&mut iocbs);
    if submitted != 1 {
        return format!("submit {}", name(submitted.into()));
    }
    let Some(event) = context.reap() else { return "no event".to_owned() };
    let right = event.data == iocb.data && event.iocb == iocbs.as_ptr() as u64;
    let length = world.both.metadata().expect("its size").len();
    let counted = world.counted(iocb.flags & aio::FLAG_RESFD != 0);
    let (res, res2) = (name(event.res), event.res2);
    format!("event {res} {res2} named {right} counted {counted} file {length}")
}

fn ordinary(world: &World) -> Vec<Case> {
    let (read, write) = (|file| world.iocb(aio::PREAD, file), |file| world.iocb(aio::PWRITE, file));
    let at = |iocb: Iocb, offset: i64, bytes: u64| Iocb { offset, bytes, ..iocb };
    let end = FILE_BYTES as i64;
    named(vec![
        ("read", read(&world.both)),
        ("read of nothing", at(read(&world.both), 0, 0)),
        ("read across the end", at(read(&world.both), end - 100, 4096)),
        ("read at the end", at(read(&world.both), end, 4096)),
        ("read beyond the end", at(read(&world.both), end + 4096, 4096)),
        ("read far beyond the end", at(read(&world.both), i64::MAX - 4096, 4096)),
        ("read wrapping the offset", at(read(&world.both), i64::MAX, 4096)),
        ("write", write(&world.both)),
        ("write of nothing", at(write(&world.both), 0, 0)),
        ("write of nothing beyond the end", at(write(&world.both), end + 4096, 0)),
        ("write extending", at(write(&world.both), end, 100)),
        ("write leaving a hole", at(write(&world.both), end + 10_000, 100)),
        ("write at the largest offset", at(write(&world.far), i64::MAX - 4096, 4096)),
        ("write wrapping the offset", at(write(&world.far), i64::MAX, 4096)),
        ("append ignores the offset", at(write(&world.appending), 5, 100)),
        ("direct read", read(&world.direct)),
        ("direct read of half a sector", at(read(&world.direct), 0, 100)),
        ("direct read at an odd offset", at(read(&world.direct), 100, 4096)),
        ("direct read across the end", at(read(&world.direct), end - 4096, 8192)),
        ("direct read at the end", at(read(&world.direct), end, 4096)),
        ("direct write", write(&world.direct)),
        ("direct write of half a sector", at(write(&world.direct), 0, 100)),
        ("direct write extending", at(write(&world.direct), end, 4096)),
        ("read of /dev/null", read(&world.null)),
        ("write to a pipe", at(write(&world.pipe_writer), 0, 4)),
        ("write to a pipe at an offset", at(write(&world.pipe_writer), 100, 4)),
        ("read of a filled pipe", at(read(&world.full_reader), 0, 4)),
        ("read of a filled pipe at an offset", at(read(&world.full_reader), 100, 4)),
        ("read of an empty nonblocking pipe", read(&world.nonblocking_reader)),
    ])
}

fn descriptors(world: &World) -> Vec<Case> {
    let number = |opcode, fd| Iocb { fd, ..world.iocb(opcode, &world.both) };
    named(vec![
        ("fd -1", number(aio::PREAD, -1)),
        ("fd never opened", number(aio::PREAD, 900)),
        ("fd beyond any limit", number(aio::PREAD, i32::MAX)),
        ("write on fd -1", number(aio::PWRITE, -1)),
        ("read of a write-only file", world.iocb(aio::PREAD, &world.writable)),
        ("write of a read-only file", world.iocb(aio::PWRITE, &world.readable)),
        ("vectored write of a read-only file", world.iocb(aio::PWRITEV, &world.readable)),
        ("read of an O_PATH file", world.iocb(aio::PREAD, &world.path_only)),
        ("read of a folder", world.iocb(aio::PREAD, &world.folder)),
        ("write of a folder", world.iocb(aio::PWRITE, &world.folder)),
        ("read of the writing end", world.iocb(aio::PREAD, &world.pipe_writer)),
        ("write of the reading end", world.iocb(aio::PWRITE, &world.full_reader)),
        ("read of an eventfd", world.iocb(aio::PREAD, &world.eventfd)),
    ])
}

/// Requests on devices and other special files. The kernel's AIO refuses reads and writes of a file
/// whose driver has only plain read and write functions.
fn devices(world: &World) -> Vec<Case> {
    let mut cases = Vec::new();
    for (name, file) in &world.special {
        for (verb, opcode, bytes) in [
            ("read", aio::PREAD, 512),
            ("read of nothing", aio::PREAD, 0),
            ("write", aio::PWRITE, 2),
            ("write of nothing", aio::PWRITE, 0),
        ] {
            cases.push((format!("{name}: {verb}"), Iocb { bytes, ..world.iocb(opcode, file) }));
        }
        cases.push((format!("{name}: fsync"), World::fsync(file)));
        // /dev/kmsg reports POLLERR when the kernel has overwritten the next record to read.
        if *name != "/dev/kmsg" {
            let poll = World::poll(file, (libc::POLLIN | libc::POLLOUT) as u64);
            cases.push((format!("{name}: poll"), poll));
        }
    }
    let eight = Iocb { bytes: 8, ..world.iocb(aio::PWRITE, &world.eventfd) };
    let [zero, random] = ["/dev/zero", "/dev/urandom"].map(|it| File::open(it).expect(it));
    let inotify = inotify();
    let large = |file: &File| Iocb {
        buffer: large_memory(),
        bytes: LARGE_BYTES as u64,
        ..world.iocb(aio::PREAD, file)
    };
    cases.extend(named(vec![
        ("read of an inotify file", world.iocb(aio::PREAD, &inotify)),
        ("write of an eventfd", eight),
        ("short write of an eventfd", Iocb { bytes: 4, ..eight }),
        ("short read of an eventfd", Iocb { bytes: 4, opcode: aio::PREAD, ..eight }),
        ("large read of /dev/zero", large(&zero)),
        ("large read of /dev/urandom", large(&random)),
    ]));
    world.keep([zero, random, inotify]);
    cases
}

fn fields(world: &World) -> Vec<Case> {
    let read = world.iocb(aio::PREAD, &world.both);
    let mut cases = named(vec![
        ("negative offset", Iocb { offset: -1, ..read }),
        ("smallest offset", Iocb { offset: i64::MIN, ..read }),
        ("bytes of all ones", Iocb { bytes: u64::MAX, ..read }),
        ("bytes beyond ssize_t", Iocb { bytes: 1 << 63, ..read }),
        ("bytes of the largest ssize_t", Iocb { bytes: i64::MAX as u64, ..read }),
        ("buffer of all ones", Iocb { buffer: u64::MAX, ..read }),
        ("buffer NULL", Iocb { buffer: 0, ..read }),
        ("buffer NULL and no bytes", Iocb { buffer: 0, bytes: 0, ..read }),
        ("buffer unmapped", Iocb { buffer: 4096, ..read }),
        ("buffer read-only", Iocb { buffer: read_only(), ..read }),
        ("write from an unmapped buffer", Iocb { opcode: aio::PWRITE, buffer: 4096, ..read }),
        (
            "write from a read-only buffer",
            Iocb { opcode: aio::PWRITE, buffer: read_only(), ..read },
        ),
        ("buffer without access", Iocb { buffer: memory(libc::PROT_NONE), ..read }),
        (
            "write from a buffer without access",
            Iocb { opcode: aio::PWRITE, buffer: memory(libc::PROT_NONE), ..read },
        ),
        ("buffer behind the end of its file", Iocb { buffer: behind_the_end(), ..read }),
        (
            "write from a buffer behind the end of its file",
            Iocb { opcode: aio::PWRITE, buffer: behind_the_end(), ..read },
        ),
        ("direct read to a NULL buffer", {
            Iocb { buffer: 0, ..world.iocb(aio::PREAD, &world.direct) }
        }),
        ("direct read to an odd buffer", {
            let direct = world.iocb(aio::PREAD, &world.direct);
            Iocb { buffer: direct.buffer + 1, ..direct }
        }),
        ("reserved field", Iocb { reserved: 1, ..read }),
        ("preset key", Iocb { key: 7, ..read }),
        ("priority without its flag", Iocb { reqprio: 77, ..read }),
        ("priority of best effort", Iocb { reqprio: 2 << 13, flags: aio::FLAG_IOPRIO, ..read }),
        ("priority of no class", Iocb { reqprio: -1, flags: aio::FLAG_IOPRIO, ..read }),
        ("unknown flag", Iocb { flags: 1 << 10, ..read }),
    ]);
    for priority in [0, 1, 8, 0x2000, 0x2008, 0x4007, 0x4008, 0x4010, 0x6007, 0x7fff, i16::MIN] {
        let prior = |iocb: Iocb| Iocb { reqprio: priority, flags: aio::FLAG_IOPRIO, ..iocb };
        cases.push((format!("priority {priority:#x}"), prior(read)));
        cases.push((format!("fsync, priority {priority:#x}"), prior(World::fsync(&world.both))));
        let poll = World::poll(&world.both, libc::POLLIN as u64);
        cases.push((format!("poll, priority {priority:#x}"), prior(poll)));
    }
    for opcode in [-1, 4, 6, 9, 10, i16::MAX] {
        cases.push((format!("opcode {opcode}"), Iocb { opcode, ..read }));
    }
    cases
}

/// The vectors are never freed: a case runs after this function has returned.
fn vectors(world: &World) -> Vec<Case> {
    let vector = |parts: &[(u64, u64)]| parts.to_vec().leak().as_ptr() as u64;
    let memory = world.memory;
    let (plain, pair) = ((memory, 4096), [(memory, 100), (memory + 4096, 200)]);
    let of = |opcode, parts: &[(u64, u64)]| {
        let (buffer, bytes) = (vector(parts), parts.len() as u64);
        Iocb { buffer, bytes, ..world.iocb(opcode, &world.both) }
    };
    let readv = |parts: &[(u64, u64)]| of(aio::PREADV, parts);
    let (empty, direct_fd) = ((memory, 0), world.direct.as_raw_fd());
    let direct = |parts: &[(u64, u64)]| Iocb { fd: direct_fd, ..readv(parts) };
    named(vec![
        ("vectored read", readv(&pair)),
        ("vectored write", of(aio::PWRITEV, &pair)),
        ("vector of nothing", readv(&[])),
        ("vector of empty parts", readv(&[(memory, 0), (memory, 0)])),
        ("vector with one bad part", readv(&[plain, (4096, 4096)])),
        ("vectored write with one bad part", of(aio::PWRITEV, &[plain, (4096, 4096)])),
        ("vectored write with a bad part first", of(aio::PWRITEV, &[(4096, 4096), plain])),
        ("vector with a bad part first", readv(&[(4096, 4096), plain])),
        ("vector with a negative length", readv(&[plain, (memory, u64::MAX)])),
        ("vector beyond all memory", readv(&[plain, (1 << 63, 4096)])),
        ("vector beyond all memory, then of a negative length", {
            readv(&[(1 << 63, 4096), (memory, u64::MAX)])
        }),
        ("vector with empty parts", readv(&[empty, plain, empty, (memory + 4096, 9), empty])),
        ("vectored write with empty parts", of(aio::PWRITEV, &[empty, (memory, 7), empty, plain])),
        ("vector that begins empty", readv(&[empty, empty, (memory, 1)])),
        ("write of empty parts", of(aio::PWRITEV, &[empty, empty])),
        ("vector of 1024 parts, every other empty", readv(&[empty, (memory, 4)].repeat(512))),
        ("vectored write of 1024 parts", of(aio::PWRITEV, &[(memory, 4); 1024])),
        ("vectored write of 1025 parts", of(aio::PWRITEV, &[(memory, 4); 1025])),
        ("vector of 1025 empty parts", readv(&[empty; 1025])),
        ("direct vector with an empty part", direct(&[plain, empty, (memory + 4096, 512)])),
        ("direct vector of 1024 parts", direct(&[(memory, 512); 1024])),
        ("direct vector with one bad part", direct(&[plain, (4096, 4096)])),
        ("direct vector with a bad part first", direct(&[(4096, 4096), plain])),
        ("direct vector of empty parts", direct(&[empty; 3])),
        ("direct vector with an odd part", direct(&[plain, (memory, 100)])),
        ("vector of 1024 parts", readv(&[(memory, 4); 1024])),
        ("vector of 1025 parts", readv(&[(memory, 4); 1025])),
        ("vector unmapped", Iocb { buffer: 4096, ..readv(&pair) }),
        ("vector NULL", Iocb { buffer: 0, ..readv(&pair) }),
        ("vector count of all ones", Iocb { bytes: u64::MAX, ..readv(&pair) }),
    ])
}

fn flags(world: &World) -> Vec<Case> {
    let rw = |opcode, rw_flags| Iocb { rw_flags, ..world.iocb(opcode, &world.both) };
    let eventfd = |iocb: Iocb, file: &File| Iocb {
        flags: aio::FLAG_RESFD,
        eventfd: file.as_raw_fd() as u32,
        ..iocb
    };
    let read = world.iocb(aio::PREAD, &world.both);
    let mut cases = named(vec![
        ("RWF_DSYNC write", rw(aio::PWRITE, 2)),
        ("RWF_SYNC write", rw(aio::PWRITE, 4)),
        ("RWF_NOWAIT write", rw(aio::PWRITE, aio::RWF_NOWAIT)),
        ("RWF_APPEND write", rw(aio::PWRITE, aio::RWF_APPEND)),
        ("RWF_NOAPPEND write", rw(aio::PWRITE, aio::RWF_NOAPPEND)),
        ("RWF_NOAPPEND read", rw(aio::PREAD, aio::RWF_NOAPPEND)),
        ("RWF_NOAPPEND write to an appending file", {
            let flags = aio::RWF_NOAPPEND;
            Iocb { rw_flags: flags, ..world.iocb(aio::PWRITE, &world.appending) }
        }),
        ("RWF_APPEND and RWF_NOAPPEND", rw(aio::PWRITE, aio::RWF_APPEND | aio::RWF_NOAPPEND)),
        ("eventfd", eventfd(read, &world.eventfd)),
        ("eventfd of a read at the end", {
            eventfd(Iocb { offset: FILE_BYTES as i64, ..read }, &world.eventfd)
        }),
        ("eventfd that is a file", eventfd(read, &world.both)),
        ("eventfd -1", Iocb { flags: aio::FLAG_RESFD, eventfd: u32::MAX, ..read }),
        ("eventfd without its flag", Iocb { eventfd: 900, ..read }),
    ]);
    for bit in [0, 6, 7, 8, 9, 10, 12, 31] {
        let rw_flags = 1 << bit;
        for (kind, file) in [("buffered", &world.both), ("direct", &world.direct)] {
            for (verb, opcode) in [("read", aio::PREAD), ("write", aio::PWRITE)] {
                let iocb = Iocb { rw_flags, ..world.iocb(opcode, file) };
                cases.push((format!("RWF bit {bit}, {kind} {verb}"), iocb));
            }
        }
    }
    cases
}

fn syncs(world: &World) -> Vec<Case> {
    let fsync = World::fsync(&world.both);
    let on = |file: &File| World::fsync(file);
    named(vec![
        ("fsync", fsync),
        ("fdsync", Iocb { opcode: aio::FDSYNC, ..fsync }),
        ("fsync with a buffer", Iocb { buffer: world.memory, ..fsync }),
        ("fsync with bytes", Iocb { bytes: 1, ..fsync }),
        ("fsync with an offset", Iocb { offset: 1, ..fsync }),
        ("fsync with RWF flags", Iocb { rw_flags: 2, ..fsync }),
        ("fsync of a read-only file", on(&world.readable)),
        ("fsync of a folder", on(&world.folder)),
        ("fsync of a pipe", on(&world.pipe_writer)),
        ("fsync of an eventfd", on(&world.eventfd)),
        ("fsync of an O_PATH file", on(&world.path_only)),
        ("fsync of fd -1", Iocb { fd: -1, ..fsync }),
    ])
}

fn polls(world: &World) -> Vec<Case> {
    let writable = World::poll(&world.pipe_writer, libc::POLLOUT as u64);
    let (ended, _) = std::io::pipe().expect("a pipe");
    let ended = File::from(OwnedFd::from(ended));
    let ended_for_nothing = World::poll(&ended, 0);
    world.keep([ended]);
    named(vec![
        ("poll ready", writable),
        ("poll of an ended pipe for nothing", ended_for_nothing),
        ("poll of a file", World::poll(&world.both, libc::POLLIN as u64)),
        ("poll of 17 bits", Iocb { buffer: 1 << 16, ..writable }),
        ("poll with bytes", Iocb { bytes: 1, ..writable }),
        ("poll with an offset", Iocb { offset: 1, ..writable }),
        ("poll with RWF flags", Iocb { rw_flags: 1, ..writable }),
        ("poll of fd -1", Iocb { fd: -1, ..writable }),
        ("poll of an O_PATH file", World::poll(&world.path_only, libc::POLLIN as u64)),
    ])
}

/// The last case. Its result shows if the file is in a page cache.
fn last(world: &World) -> Vec<Case> {
    let nowait = Iocb { rw_flags: aio::RWF_NOWAIT, ..world.iocb(aio::PREAD, &world.both) };
    named(vec![("RWF_NOWAIT read after a plain write", nowait)])
}

fn read_only() -> u64 {
    memory(libc::PROT_READ)
}

fn named(cases: Vec<(&str, Iocb)>) -> Vec<Case> {
    cases.into_iter().map(|(case, iocb)| (case.to_owned(), iocb)).collect()
}
