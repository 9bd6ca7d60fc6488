//! VMMs that connect, disconnect and misbehave, at a real socket in front of a real file.

#[path = "support/guest.rs"]
mod guest_support;
mod support;

use guest_support::{FEATURES, Guest, MEMORY_BYTES, offered};
use nowait::Nowait;
use nowait_device::{Cache, Image, ImageOptions};
use nowait_server::{
    access::{Access, Rule},
    server::{Address, Config, Listener, Server},
    status::{metrics, snapshot},
    vhost::{Front, Socket},
};
use nowait_status::KindStatus;
use nowait_sys::{
    epoll::{self, Epoll, Ready},
    eventfd::EventFd as Bell,
    time::Deadline,
};
use std::{
    io::{Read, Write},
    os::{
        fd::{AsRawFd, FromRawFd, IntoRawFd},
        unix::{fs::MetadataExt, net::UnixStream},
    },
    path::{Path, PathBuf},
    sync::Arc,
    time::{Duration, Instant},
};
use tempfile::TempDir;
use vhost::{
    VhostBackend, VhostUserMemoryRegionInfo, VringConfigData,
    vhost_user::{
        Frontend, VhostUserFrontend, VhostUserProtocolFeatures,
        message::{VhostUserConfigFlags, VhostUserHeaderFlag, VhostUserInflight},
    },
};
use virtio_bindings::virtio_blk::{
    VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_T_FLUSH, VIRTIO_BLK_T_IN, VIRTIO_BLK_T_OUT,
    VIRTIO_BLK_T_WRITE_ZEROES,
};
use vm_memory::{FileOffset, GuestAddress, GuestMemoryBackend, GuestMemoryMmap};
use vmm_sys_util::eventfd::{EFD_NONBLOCK, EventFd};

const SIZE: u64 = 8 << 20;
const QUEUES: u16 = 2;
const OK: u8 = VIRTIO_BLK_S_OK as u8;
const IOERR: u8 = VIRTIO_BLK_S_IOERR as u8;

struct Host {
    server: Server,
    front: Front,
    image: Arc<Image>,
    socket: PathBuf,
    /// A second socket: each serves one VMM at a time.
    other: PathBuf,
    file: std::fs::File,
    _folder: TempDir,
}

impl Host {
    fn new() -> Host {
        Host::for_users(&[])
    }

    fn for_users(rules: &[Rule]) -> Host {
        Host::in_folder(tempfile::tempdir().unwrap(), SIZE, rules)
    }

    fn on(parent: &str, bytes: u64) -> Host {
        Host::in_folder(tempfile::tempdir_in(parent).unwrap(), bytes, &[])
    }

    fn in_folder(folder: TempDir, bytes: u64, rules: &[Rule]) -> Host {
        let [path, socket, other] =
            ["image", "socket", "other"].map(|name| folder.path().join(name));
        let file = std::fs::File::create(&path).unwrap();
        file.set_len(bytes).unwrap();
        let nowait = Nowait::new().unwrap();
        // The folder may be on a file system without direct I/O.
        let name = "image".to_owned();
        let options = ImageOptions { path, name, cache: Cache::Host, ..ImageOptions::default() };
        let image = Arc::new(Image::open(&nowait, &options).unwrap());
        let access = Access::new(rules, &[image.name()], false).unwrap();
        let config = Config { access, ..Config::default() };
        let server = Server::start(&nowait, vec![image.clone()], &config).unwrap();
        let listen = |path: &PathBuf| {
            let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
            (Socket { export: None, path: path.clone() }, listener)
        };
        let listeners = vec![listen(&socket), listen(&other)];
        let front = Front::serve(&server.view(), listeners, QUEUES, 2, 64 << 20).unwrap();
        Host { server, front, image, socket, other, file, _folder: folder }
    }

    fn stop(self) {
        self.front.stop().unwrap();
        self.server.stop().unwrap();
        assert_eq!((self.image.stats().in_flight(), self.image.stats().connections()), (0, 0));
    }
}

struct Vmm {
    frontend: Frontend,
    guest: Guest,
    kick: EventFd,
    call: EventFd,
    calls: Epoll,
    called: Vec<Ready>,
}

fn shared_memory() -> Arc<GuestMemoryMmap> {
    let file = nowait_sys::inspect::memory_file(&[]).unwrap();
    // SAFETY: the descriptor was just made, and ownership moves to the file.
    let file = unsafe { std::fs::File::from_raw_fd(file.into_raw()) };
    file.set_len(MEMORY_BYTES).unwrap();
    let whole = (GuestAddress(0), MEMORY_BYTES as usize, Some(FileOffset::new(file, 0)));
    Arc::new(GuestMemoryMmap::from_ranges_with_files([whole]).unwrap())
}

fn regions(memory: &GuestMemoryMmap) -> Vec<VhostUserMemoryRegionInfo> {
    let info = |region| VhostUserMemoryRegionInfo::from_guest_region(region).unwrap();
    memory.iter().map(info).collect()
}

const PROTOCOL: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::INFLIGHT_SHMFD);
const PROTOCOL_BIT: u64 = 1 << 30;

fn connect(host: &Host) -> Frontend {
    connect_to(&host.socket)
}

fn connect_to(socket: &Path) -> Frontend {
    let mut frontend = Frontend::connect(socket, QUEUES.into()).unwrap();
    frontend.set_owner().unwrap();
    assert_eq!(frontend.get_features().unwrap(), offered());
    frontend.set_features(FEATURES | PROTOCOL_BIT).unwrap();
    assert!(frontend.get_protocol_features().unwrap().contains(PROTOCOL));
    frontend.set_protocol_features(PROTOCOL).unwrap();
    frontend.set_hdr_flags(VhostUserHeaderFlag::NEED_REPLY);
    frontend
}

impl Vmm {
    fn new(host: &Host) -> Vmm {
        Vmm::with(connect(host), Guest::over(shared_memory(), 64), 0)
    }

    fn with(mut frontend: Frontend, guest: Guest, base: u16) -> Vmm {
        let regions = regions(&guest.memory);
        frontend.set_mem_table(&regions).unwrap();
        let [kick, call] = [(); 2].map(|()| EventFd::new(EFD_NONBLOCK).unwrap());
        let calls = Epoll::new().unwrap();
        calls.add(call.as_raw_fd(), epoll::IN, 0).unwrap();
        let setup = guest.setup(&support::exports()[0], FEATURES);
        let user = |guest: GuestAddress| regions[0].userspace_addr + guest.0;
        frontend.set_vring_num(1, guest.size).unwrap();
        let places = VringConfigData {
            queue_max_size: 64,
            queue_size: guest.size,
            flags: 0,
            desc_table_addr: user(setup.descriptors),
            used_ring_addr: user(setup.used),
            avail_ring_addr: user(setup.available),
            log_addr: None,
        };
        frontend.set_vring_base(1, base).unwrap();
        frontend.set_vring_addr(1, &places).unwrap();
        frontend.set_vring_call(1, &call).unwrap();
        frontend.set_vring_kick(1, &kick).unwrap();
        frontend.set_vring_enable(1, true).unwrap();
        Vmm { frontend, guest, kick, call, calls, called: Vec::with_capacity(1) }
    }

    fn kick(&self) {
        self.kick.write(1).unwrap();
    }

    /// Waits until the device has used descriptors, and returns the new entries of the used ring.
    fn used(&mut self) -> Vec<(u32, u32)> {
        loop {
            self.guest.call_after(self.guest.seen);
            let used = self.guest.used();
            if !used.is_empty() {
                return used;
            }
            self.calls.wait(&mut self.called, Deadline::NEVER);
            // The signal may have been for entries that the driver has seen already.
            let _ = self.call.read();
        }
    }

    fn read(&mut self, sector: u64, len: u32) -> Vec<u8> {
        let asked = self.guest.want(VIRTIO_BLK_T_IN, sector, len);
        self.kick();
        assert_eq!(self.used(), [(asked.head.into(), len + 1)]);
        assert_eq!(self.guest.status(asked), OK);
        self.guest.bytes(asked.data, len as usize)
    }
}

#[test]
fn the_next_vmm_sees_all_acknowledged_writes_of_the_previous_one() {
    let host = Host::new();
    for round in 1..=8u8 {
        let mut vmm = Vmm::new(&host);
        let asked: Vec<_> = (0..20)
            .map(|i| (i, vmm.guest.give(VIRTIO_BLK_T_OUT, i * 16, &[round + i as u8; 8192])))
            .collect();
        vmm.kick();
        // The VMM disconnects with requests in flight.
        let mut told = Vec::new();
        while told.len() < usize::from(round) {
            told.extend(vmm.used());
        }
        drop(vmm.frontend);
        let done: Vec<_> =
            asked.into_iter().filter(|(_, one)| vmm.guest.status(*one) == OK).collect();
        assert!(done.len() >= told.len());
        let mut next = Vmm::new(&host);
        for (i, _) in done {
            assert_eq!(next.read(i * 16, 8192), [round + i as u8; 8192], "{round} {i}");
        }
    }
    host.stop();
}

#[test]
fn a_stopped_queue_continues_where_it_was() {
    let host = Host::new();
    let mut vmm = Vmm::new(&host);
    vmm.read(0, 512);
    let base = vmm.frontend.get_vring_base(1).unwrap();
    assert_eq!(base, 1);
    // A request becomes available while the queue is stopped. The device carries out this request
    // after the queue's next start.
    let asked = vmm.guest.give(VIRTIO_BLK_T_OUT, 5, &[9; 512]);
    vmm.kick();
    let Vmm { frontend, guest, .. } = vmm;
    let mut vmm = Vmm::with(frontend, guest, base as u16);
    assert_eq!(vmm.used(), [(asked.head.into(), 1)]);
    // The VMM replaces the memory and an eventfd of a running queue.
    vmm.frontend.set_mem_table(&regions(&vmm.guest.memory)).unwrap();
    vmm.frontend.set_vring_call(1, &vmm.call).unwrap();
    assert_eq!(vmm.read(5, 512), [9; 512]);
    vmm.frontend.set_vring_enable(1, false).unwrap();
    let asked = vmm.guest.want(VIRTIO_BLK_T_IN, 0, 512);
    vmm.kick();
    vmm.frontend.set_vring_enable(1, true).unwrap();
    assert_eq!(vmm.used(), [(asked.head.into(), 513)]);
    host.stop();
}

#[test]
fn requests_in_flight_are_recorded_for_the_next_server() {
    let first = Host::new();
    let mut frontend = connect(&first);
    let wanted = VhostUserInflight::new(0, 0, QUEUES, 64);
    let (area, notes) = frontend.get_inflight_fd(&wanted).unwrap();
    frontend.set_inflight_fd(&area, notes.as_raw_fd()).unwrap();
    let mut vmm = Vmm::with(frontend, Guest::over(shared_memory(), 64), 0);
    vmm.read(0, 512);
    first.stop();
    let second = Host::new();
    let mut frontend = connect(&second);
    frontend.set_inflight_fd(&area, notes.as_raw_fd()).unwrap();
    let asked = vmm.guest.give(VIRTIO_BLK_T_OUT, 1, &[4; 512]);
    // A VMM whose server was killed does not know the position in the ring.
    let mut vmm = Vmm::with(frontend, vmm.guest, 0);
    assert_eq!(vmm.used(), [(asked.head.into(), 1)]);
    assert_eq!(vmm.read(1, 512), [4; 512]);
    second.stop();
}

#[test]
fn the_guest_learns_a_new_size() {
    let host = Host::new();
    let mut vmm = Vmm::new(&host);
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    vmm.frontend.set_backend_request_fd(&theirs).unwrap();
    host.file.set_len(2 * SIZE).unwrap();
    host.image.resize().unwrap();
    host.front.resized();
    let mut message = [0; 12];
    ours.read_exact(&mut message).unwrap();
    assert_eq!(message[..4], 2u32.to_ne_bytes());
    let flags = VhostUserConfigFlags::WRITABLE;
    let (_, config) = vmm.frontend.get_config(0, 8, flags, &[0; 8]).unwrap();
    assert_eq!(config, (2 * SIZE / 512).to_le_bytes());
    assert_eq!(vmm.read(SIZE / 512, 512), [0; 512]);
    host.stop();
}

#[test]
fn vmms_that_violate_the_protocol_are_disconnected_and_the_next_is_served() {
    let host = Host::new();
    let nonsense: [&[u8]; 4] = [b"", b"GET / HTTP/1.1\r\n\r\n", &[0; 12], &[0xff; 300]];
    for bytes in nonsense {
        let mut stream = UnixStream::connect(&host.socket).unwrap();
        // The server may disconnect before it has read all bytes.
        let _ = stream.write_all(bytes);
        drop(stream);
    }
    let short = shared_memory();
    let frontend = connect(&host);
    let mut beyond = regions(&short);
    beyond[0].memory_size += 4096;
    assert!(frontend.set_mem_table(&beyond).is_err(), "memory behind the end of its file");
    let frontend = connect(&host);
    let unknown = frontend.set_vring_num(1, 100).is_err();
    assert!(unknown, "a size that is no power of two");
    let mut vmm = Vmm::new(&host);
    assert_eq!(vmm.read(0, 512), [0; 512]);
    host.stop();
}

#[test]
fn a_vmm_with_a_full_eventfd_that_blocks_delays_no_other() {
    let host = Host::new();
    let mut vmm = Vmm::new(&host);
    let _ = vmm.call.read();
    vmm.call.write(u64::MAX - 1).unwrap();
    // The VMM shares the open file of the eventfd, so it can clear O_NONBLOCK for the server, too.
    // A descriptor of any type has the call that this method makes.
    let call = vmm.call.try_clone().unwrap();
    // SAFETY: the descriptor is a copy that nothing else owns.
    let call = unsafe { UnixStream::from_raw_fd(call.into_raw_fd()) };
    call.set_nonblocking(false).unwrap();
    let asked = vmm.guest.want(VIRTIO_BLK_T_IN, 0, 512);
    vmm.kick();
    while vmm.guest.used().is_empty() {
        std::thread::yield_now();
    }
    assert_eq!(vmm.guest.status(asked), OK);
    // The thread of the first VMM serves one of these two.
    for _ in 0..2 {
        let frontend = connect_to(&host.other);
        let mut next = Vmm::with(frontend, Guest::over(shared_memory(), 64), 0);
        assert_eq!(next.read(0, 512), [0; 512]);
    }
    drop(vmm);
    host.stop();
}

fn begin(host: &Host, part: &[u8]) -> UnixStream {
    let mut stream = UnixStream::connect(&host.socket).unwrap();
    stream.write_all(part).unwrap();
    stream
}

/// Connects, asks for the features until the socket is full, and reads no answer.
fn ask_without_end(host: &Host) -> UnixStream {
    let mut stream = UnixStream::connect(&host.socket).unwrap();
    stream.set_write_timeout(Some(Duration::from_secs(1))).unwrap();
    let question = [1u32, 1, 0].map(u32::to_ne_bytes).concat();
    while stream.write_all(&question).is_ok() {}
    stream
}

/// A VMM stalls in the header of a message, behind the header, or in the rest of the message, or
/// the VMM reads no answers.
#[test]
fn a_stalled_vmm_delays_neither_the_next_one_nor_the_end() {
    let head = [9u32, 1, 40].map(u32::to_ne_bytes).concat();
    let body = [&head[..], &[0; 39]].concat();
    let stands_still: [&(dyn Fn(&Host) -> UnixStream + Sync); 4] = [
        &|host| begin(host, &head[..5]),
        &|host| begin(host, &head),
        &|host| begin(host, &body),
        &ask_without_end,
    ];
    std::thread::scope(|scope| {
        for stands_still in stands_still {
            scope.spawn(move || {
                let host = Host::new();
                let before = stands_still(&host);
                let mut next = Vmm::new(&host);
                assert_eq!(next.read(0, 512), [0; 512]);
                drop((before, next));
                let again = stands_still(&host);
                let start = Instant::now();
                host.stop();
                assert!(start.elapsed() < Duration::from_secs(5), "{:?}", start.elapsed());
                drop(again);
            });
        }
    });
}

#[test]
fn a_vmm_is_counted_as_other_clients_are() {
    let host = Host::new();
    let view = host.server.view();
    let status = || snapshot(&view, Instant::now());
    // `--exit-with-last-client` waits for this event.
    let last_gone = Arc::new(Bell::new().unwrap());
    host.image.stats().tell_when_last_gone(last_gone.clone());
    let mut vmm = Vmm::new(&host);
    for sector in 0..3 {
        vmm.guest.give(VIRTIO_BLK_T_OUT, sector, &[1; 512]);
        vmm.kick();
        assert_eq!(vmm.used().len(), 1);
    }
    vmm.read(0, 4096);
    vmm.guest.give(VIRTIO_BLK_T_FLUSH, 0, &[]);
    vmm.kick();
    assert_eq!(vmm.used().len(), 1);
    let now = status();
    assert_eq!((now.clients.now, now.clients.total), (1, 1));
    let [export] = &now.exports[..] else { panic!("{now:?}") };
    assert_eq!((&*export.name, export.connections, export.in_flight), ("image", 1, 0));
    let counted = |kind: &KindStatus| (kind.requests, kind.bytes, kind.errors);
    let of = |kind: &str| export.kinds.iter().find(|one| one.kind == kind).map(counted);
    let kinds = ["write", "read", "flush"].map(of);
    assert_eq!(kinds, [Some((3, 1536, 0)), Some((1, 4096, 0)), Some((1, 0, 0))]);
    let text = metrics(&now);
    for line in [
        "nowait_serve_clients 1",
        "nowait_serve_connections{export=\"image\"} 1",
        "nowait_serve_requests_total{export=\"image\",kind=\"write\"} 3",
        "nowait_serve_bytes_total{export=\"image\",kind=\"read\"} 4096",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    assert_eq!(last_gone.drain(), 0, "it is still there");
    drop(vmm);
    while status().clients.now > 0 {
        std::thread::yield_now();
    }
    assert_eq!(status().exports[0].connections, 0);
    assert_eq!(last_gone.drain(), 1);
    host.stop();
}

#[test]
fn a_vmm_of_another_user_is_disconnected() {
    let me = tempfile::tempfile().unwrap().metadata().unwrap().uid();
    let rule = |user: u32| [format!("uid:{user}").parse().unwrap()];
    let host = Host::for_users(&rule(me + 1));
    let mut stream = UnixStream::connect(&host.socket).unwrap();
    // If the server admits this VMM, the server waits for a message from it. Then this read must
    // fail, not hang.
    stream.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    // `read_to_end` repeats an interrupted read. The kernel does not restart a read with a time
    // limit if work of a ring interrupts its thread (signal(7)).
    assert_eq!(stream.read_to_end(&mut Vec::new()).unwrap(), 0, "closed without a word");
    host.stop();
    let host = Host::for_users(&rule(me));
    let mut vmm = Vmm::new(&host);
    assert_eq!(vmm.read(0, 512), [0; 512]);
    drop(vmm);
    host.stop();
}

/// A guest zeroes its whole disk 512 times, on a file system that must write the zeroes. To
/// complete all of this would take minutes after the server was ordered to end.
#[test]
fn endless_zeroing_does_not_delay_the_end_and_is_left_to_the_next_server() {
    const BYTES: u64 = 256 << 20;
    let host = Host::on("/dev/shm", BYTES);
    let mut frontend = connect(&host);
    let wanted = VhostUserInflight::new(0, 0, QUEUES, 64);
    let (area, notes) = frontend.get_inflight_fd(&wanted).unwrap();
    frontend.set_inflight_fd(&area, notes.as_raw_fd()).unwrap();
    let mut vmm = Vmm::with(frontend, Guest::over(shared_memory(), 64), 0);
    let sectors = (BYTES / 512) as u32;
    let one = [&0u64.to_le_bytes()[..], &sectors.to_le_bytes(), &[0; 4]].concat();
    let asked: Vec<_> =
        (0..16).map(|_| vmm.guest.give(VIRTIO_BLK_T_WRITE_ZEROES, 0, &one.repeat(32))).collect();
    vmm.kick();
    while host.image.stats().in_flight() < 16 {
        std::thread::yield_now();
    }
    let Host { front, server, image, .. } = host;
    front.stop().unwrap();
    server.stop().unwrap();
    let failed = asked.iter().filter(|one| vmm.guest.status(**one) == IOERR).count();
    assert_eq!((failed, image.stats().in_flight()), (0, 0), "the guest has no errors from it");
    let heads: Vec<u32> = vmm.guest.used().into_iter().map(|(head, _)| head).collect();
    assert!(heads.len() < asked.len(), "not all were done: {heads:?}");
}
