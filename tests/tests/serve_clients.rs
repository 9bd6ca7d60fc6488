//! Descriptors, mappings and memory of `nowait serve` hardly grow by a thousand clients of each
//! kind, also if clients stop in the middle or violate the protocol. The test prints the figures:
//! `cargo test … --test serve_clients -- --nocapture`.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use nowait_tests::scratch::Scratch;
use nowait_tests::server::Server;

const COUNT: usize = 1_000;
/// Number of clients before the measurement. They make the server start threads and fill its
/// buffers and the allocator's caches, which then stay.
const WARM_UP: usize = 200;
const PATIENCE: Duration = Duration::from_mins(1);
/// Memory that a thousand clients may leave behind: less than a page each.
const MEMORY_KIB_MAX: usize = 3 << 10;

#[derive(Debug, Clone, Copy)]
struct Usage {
    descriptors: usize,
    mappings: usize,
    memory_kib: usize,
}

impl Usage {
    fn of(pid: i32) -> Usage {
        let folder = PathBuf::from(format!("/proc/{pid}"));
        let text = |name: &str| fs::read_to_string(folder.join(name)).expect("about the process");
        let status = text("status");
        let memory = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
        let memory = memory.trim().trim_end_matches(" kB").parse().expect("a number");
        Usage {
            descriptors: fs::read_dir(folder.join("fd")).expect("its descriptors").count(),
            mappings: text("maps").lines().count(),
            memory_kib: memory,
        }
    }
}

struct Doors {
    nbd: PathBuf,
    vmm: PathBuf,
    status: PathBuf,
}

/// Connects one client. The number selects one of several kinds of misbehaviour, or none.
type Visit = fn(&Doors, usize) -> io::Result<()>;

fn connect(socket: &Path) -> io::Result<UnixStream> {
    let stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    Ok(stream)
}

fn nbd(doors: &Doors, way: usize) -> io::Result<()> {
    let mut stream = connect(&doors.nbd)?;
    let choose = b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0";
    let request = |command: u8, len: u32| {
        let head = [&0x2560_9513_u32.to_be_bytes()[..], &[0, 0, 0, command], &[0; 16]].concat();
        [&head[..], &len.to_be_bytes()].concat()
    };
    let said = match way % 8 {
        // The client sends nothing, half an option, an option that is too long, or bytes that are
        // not NBD.
        0 => Vec::new(),
        1 => choose[..9].to_vec(),
        2 => [&choose[..12], &[0, 0, 0, 7], &[0xff; 4]].concat(),
        3 => b"GET / HTTP/1.1\r\n\r\n".repeat(20),
        // The client sends a part of a write, a read whose reply it does not receive, bytes that
        // are no request, or a proper end.
        4 => [&choose[..], &request(1, 1 << 20), &[7; 4096]].concat(),
        5 => [&choose[..], &request(0, 1 << 20)].concat(),
        6 => [&choose[..], &[0xee; 28]].concat(),
        _ => [&choose[..], &request(2, 0)].concat(),
    };
    stream.write_all(&said)?;
    if way % 8 == 7 {
        stream.read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

fn vmm(doors: &Doors, way: usize) -> io::Result<()> {
    let mut stream = connect(&doors.vmm)?;
    let message = |code: u32, size: u32| [code, 1, size].map(u32::to_ne_bytes).concat();
    let (features, table) = (message(1, 0), memory_table(2));
    match way % 8 {
        0 => {}
        1 => stream.write_all(&features[..5])?,
        2 => stream.write_all(&table[..40])?,
        3 => stream.write_all(&[0xff; 300])?,
        // The client sends file descriptors with messages that take none.
        4 => send_with_files(&stream, &features, 4)?,
        5 => send_with_files(&stream, &message(21, 0), 2)?,
        // The client sends a table of two regions of memory, once with too few file descriptors.
        6 => send_with_files(&stream, &table, 2)?,
        _ => send_with_files(&stream, &table, 1)?,
    }
    stream.write_all(&features)?;
    // The server answers, or disconnects the client.
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read_to_end(&mut Vec::new());
    Ok(())
}

const REGION_BYTES: u64 = 1 << 20;

fn memory_table(regions: u32) -> Vec<u8> {
    let mut body = [regions, 0].map(u32::to_ne_bytes).concat();
    for region in 0..u64::from(regions) {
        let start = region * REGION_BYTES;
        body.extend([start, REGION_BYTES, start, 0].map(u64::to_ne_bytes).concat());
    }
    [[5u32, 1, body.len() as u32].map(u32::to_ne_bytes).concat(), body].concat()
}

fn send_with_files(stream: &UnixStream, bytes: &[u8], count: usize) -> io::Result<()> {
    const MOST: usize = 8;
    #[repr(C)]
    struct Control {
        head: libc::cmsghdr,
        fds: [i32; MOST],
    }
    let files: Vec<File> = (0..count).map(|_| memory_file()).collect();
    let mut fds = [0; MOST];
    for (place, file) in fds.iter_mut().zip(&files) {
        *place = file.as_raw_fd();
    }
    // SAFETY: plain data, for which zeroes are valid.
    let (mut message, mut head): (libc::msghdr, libc::cmsghdr) = unsafe { std::mem::zeroed() };
    let len = size_of::<libc::cmsghdr>() + count * size_of::<i32>();
    (head.cmsg_level, head.cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
    head.cmsg_len = len as _;
    let mut control = Control { head, fds };
    let mut iov = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut iov, 1);
    message.msg_control = (&raw mut control).cast();
    message.msg_controllen = len as _;
    // SAFETY: the message and all it points to are live, and only read.
    let sent = unsafe { libc::sendmsg(stream.as_raw_fd(), &raw const message, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn memory_file() -> File {
    // SAFETY: a live string; the descriptor is new, and has no other owner.
    let file = unsafe {
        File::from(OwnedFd::from_raw_fd(libc::memfd_create(c"region".as_ptr(), libc::MFD_CLOEXEC)))
    };
    file.set_len(REGION_BYTES).expect("memory");
    file
}

fn status(doors: &Doors, way: usize) -> io::Result<()> {
    let mut stream = connect(&doors.status)?;
    let said: &[u8] = match way % 5 {
        0 => b"",
        1 => b"GET /sta",
        2 => &[0xff; 4096],
        3 => b"PUT /status HTTP/1.1\r\n\r\n",
        _ => b"GET /status HTTP/1.1\r\n\r\n",
    };
    stream.write_all(said)?;
    if way % 5 > 2 {
        stream.read_to_end(&mut Vec::new())?;
    }
    Ok(())
}

fn settle(doors: &Doors) {
    loop {
        // The server serves one VMM at a time: when it answers this VMM, earlier VMMs have gone.
        let mut last = connect(&doors.vmm).expect("a connection");
        last.write_all(&[1u32, 1, 0].map(u32::to_ne_bytes).concat()).expect("a question");
        last.read_exact(&mut [0; 20]).expect("an answer");
        drop(last);
        let mut stream = connect(&doors.status).expect("a connection");
        stream.write_all(b"GET /status HTTP/1.1\r\n\r\n").expect("a question");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let body = answer.split("\r\n\r\n").nth(1).expect("a body");
        let json: serde_json::Value = serde_json::from_str(body).expect("JSON");
        if json["clients"]["now"] == 0 && json["exports"][0]["in_flight"] == 0 {
            return;
        }
    }
}

fn visit(server: &Server, doors: &Doors, visit: Visit, count: usize) -> Usage {
    for way in 0..count {
        // The server may disconnect the client before the client has sent everything.
        let _ = visit(doors, way);
    }
    settle(doors);
    Usage::of(server.pid())
}

#[test]
fn a_thousand_clients_of_each_kind_leave_nothing_behind() {
    let scratch = Scratch::new("clients");
    let image = scratch.file("disk.img");
    File::create(&image).and_then(|file| file.set_len(8 << 20)).expect("an image");
    let (machines, told) = (scratch.file("vmm"), scratch.file("status"));
    let address = format!("unix:{}", told.display());
    let arguments = [&image, &machines].map(|path| path.to_str().expect("a path of text"));
    let arguments = [arguments[0], "--vhost-user", arguments[1], "--status", &address];
    let Some(mut server) = Server::start(&scratch, &arguments) else { return };
    [&machines, &told].into_iter().for_each(|socket| server.wait_for(socket));
    let doors = Doors { nbd: server.socket().to_owned(), vmm: machines, status: told };
    for (kind, client) in [("nbd", nbd as Visit), ("vhost-user", vmm), ("status", status)] {
        let before = visit(&server, &doors, client, WARM_UP);
        let start = Instant::now();
        let after = visit(&server, &doors, client, COUNT);
        println!("{kind:>10} {COUNT} in {:.2?}\n  {before:?}\n  {after:?}", start.elapsed());
        // A thread of the pool may have started meanwhile and opened a descriptor.
        assert!(after.descriptors <= before.descriptors + 1, "{kind}: {before:?} {after:?}");
        assert!(after.mappings <= before.mappings + 8, "{kind}: {before:?} {after:?}");
        let grown = after.memory_kib.saturating_sub(before.memory_kib);
        assert!(grown <= MEMORY_KIB_MAX, "{kind}: {grown} KiB more");
    }
    server.stop();
}
