//! The tests act as the kernel: they send FUSE requests through fuser's session and the serving
//! threads to a real file. They check which requests succeed or fail, and what the file contains.
//!
//! A datagram socket takes the place of the kernel's device.

use fuser::{Config as SessionConfig, Session, SessionACL};
use nowait::{Errno, Nowait};
use nowait_device::{Cache, Image, ImageOptions};
use nowait_server::{
    fuse::{ImageFile, Rights},
    server::{Config, Server},
};
use nowait_sys::fuse::{allocation, whence};
use std::{
    os::unix::net::UnixDatagram,
    sync::Arc,
    thread::{self, JoinHandle},
    time::UNIX_EPOCH,
};
use tempfile::TempDir;

const SIZE: u64 = 8 << 20;
const USER: u32 = 7;
/// The most bytes of data in a message of these tests, because the datagram socket refuses messages
/// that are too long.
const DATA_BYTES_MAX: usize = 128 << 10;

mod opcode {
    pub(super) const GETATTR: u32 = 3;
    pub(super) const SETATTR: u32 = 4;
    pub(super) const OPEN: u32 = 14;
    pub(super) const READ: u32 = 15;
    pub(super) const WRITE: u32 = 16;
    pub(super) const STATFS: u32 = 17;
    pub(super) const RELEASE: u32 = 18;
    pub(super) const FSYNC: u32 = 20;
    pub(super) const GETXATTR: u32 = 22;
    pub(super) const FLUSH: u32 = 25;
    pub(super) const INIT: u32 = 26;
    pub(super) const DESTROY: u32 = 38;
    pub(super) const FALLOCATE: u32 = 43;
    pub(super) const LSEEK: u32 = 46;
}

struct Kernel {
    device: UnixDatagram,
    server: Option<Server>,
    session: Option<JoinHandle<()>>,
    image: Arc<Image>,
    agreed: Vec<u8>,
    unique: u64,
    _folder: TempDir,
}

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

fn number(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(bytes[at..at + 4].try_into().unwrap())
}

impl Kernel {
    fn new(read_only: bool, users: Vec<u32>) -> Kernel {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("image");
        std::fs::File::create(&path).unwrap().set_len(SIZE).unwrap();
        let nowait = Nowait::new().unwrap();
        // The folder may be on a file system without direct I/O.
        let options =
            ImageOptions { path, cache: Cache::Host, read_only, ..ImageOptions::default() };
        let image = Arc::new(Image::open(&nowait, &options).unwrap());
        let config = Config { threads: 2, ..Config::default() };
        let server = Server::start(&nowait, vec![image.clone()], &config).unwrap();
        let rights = Rights { user: 1, group: 2, users };
        let front = server.front(ImageFile::new(image.clone(), rights, UNIX_EPOCH));
        let (device, far) = UnixDatagram::pair().unwrap();
        let mut kernel = Kernel {
            device,
            server: Some(server),
            session: None,
            image,
            agreed: Vec::new(),
            unique: 0,
            _folder: folder,
        };
        let everything = words(&[pair(7, 45), pair(128 << 10, u32::MAX), 0, 0, 0, 0, 0, 0]);
        kernel.send(opcode::INIT, &everything);
        let config = SessionConfig::default();
        let session = Session::from_fd(front, far.into(), SessionACL::All, config).unwrap();
        kernel.agreed = kernel.answer().unwrap();
        kernel.session = Some(thread::spawn(move || drop(session.run())));
        kernel
    }

    fn send(&mut self, opcode: u32, body: &[u8]) {
        self.unique += 2;
        let len = 40 + body.len() as u32;
        let head = [pair(len, opcode), self.unique, 1, pair(USER, 0), 0];
        let bytes = [words(&head), body.to_vec()].concat();
        assert_eq!(self.device.send(&bytes).unwrap(), bytes.len());
    }

    fn answer(&mut self) -> Result<Vec<u8>, i32> {
        let mut bytes = vec![0; DATA_BYTES_MAX + 16];
        let len = self.device.recv(&mut bytes).unwrap();
        bytes.truncate(len);
        assert_eq!(number(&bytes, 0) as usize, bytes.len());
        assert_eq!(bytes[8..16], self.unique.to_ne_bytes());
        match number(&bytes, 4) as i32 {
            0 => Ok(bytes.split_off(16)),
            error => Err(-error),
        }
    }

    fn ask(&mut self, opcode: u32, body: &[u8]) -> Result<Vec<u8>, i32> {
        self.send(opcode, body);
        self.answer()
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<Vec<u8>, i32> {
        let about = words(&[0, offset, pair(data.len() as u32, 0), 0, 0]);
        self.ask(opcode::WRITE, &[about, data.to_vec()].concat())
    }

    fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, i32> {
        self.ask(opcode::READ, &words(&[0, offset, pair(len, 0), 0, 0]))
    }

    fn seek(&mut self, offset: u64, way: u32) -> Result<Vec<u8>, i32> {
        self.ask(opcode::LSEEK, &words(&[0, offset, pair(way, 0)]))
    }

    fn allocate(&mut self, mode: u32, offset: u64, len: u64) -> Result<Vec<u8>, i32> {
        self.ask(opcode::FALLOCATE, &words(&[0, offset, len, pair(mode, 0)]))
    }

    fn end(mut self) {
        assert_eq!(self.ask(opcode::DESTROY, &[]), Ok(vec![]));
        self.session.take().unwrap().join().unwrap();
        self.server.take().unwrap().stop().unwrap();
        assert_eq!((self.image.stats().in_flight(), self.image.stats().connections()), (0, 0));
    }
}

#[test]
fn the_greeting_negotiates_the_needed_features() {
    let kernel = Kernel::new(false, vec![]);
    let flags = number(&kernel.agreed, 12);
    // The flags are ASYNC_READ, BIG_WRITES, ASYNC_DIO and MAX_PAGES.
    for needed in [1, 1 << 5, 1 << 15, 1 << 22] {
        assert_ne!(flags & needed, 0, "{needed:#x} of {flags:#x}");
    }
    // With WRITEBACK_CACHE the kernel would report a write as done before the server has received
    // it.
    assert_eq!(flags & 1 << 16, 0);
    let background = number(&kernel.agreed, 16) & 0xffff;
    assert_eq!((background, number(&kernel.agreed, 20)), (512, 256 << 10));
    kernel.end();
}

#[test]
fn data_of_any_length_is_read_back() {
    let mut kernel = Kernel::new(false, vec![]);
    for len in [1, 4095, 4096, 40_000, DATA_BYTES_MAX - 100] {
        let data: Vec<u8> = (0..len).map(|i| (i * 13 + len) as u8).collect();
        let written = kernel.write(512, &data).expect("written");
        assert_eq!(written, words(&[pair(len as u32, 0)]));
        assert!(kernel.read(512, len as u32).expect("read") == data, "{len}");
    }
    assert_eq!(kernel.ask(opcode::FSYNC, &words(&[0, 0])), Ok(vec![]));
    kernel.end();
}

#[test]
fn the_end_of_the_file_is_where_the_image_ends() {
    let mut kernel = Kernel::new(false, vec![]);
    assert_eq!(kernel.read(SIZE, 10), Ok(vec![]));
    assert_eq!(kernel.read(SIZE - 3, 10), Ok(vec![0; 3]));
    assert_eq!(kernel.write(SIZE, b"x"), Err(Errno::NOSPC.raw()));
    assert_eq!(kernel.write(SIZE - 2, b"xyz"), Ok(words(&[pair(2, 0)])));
    // This number is too large for an offset in a file.
    assert_eq!(kernel.read(u64::MAX, 10), Err(Errno::INVAL.raw()));
    let attributes = kernel.ask(opcode::GETATTR, &words(&[0, 0])).expect("attributes");
    assert_eq!(attributes[..16], [0; 16], "remembered");
    assert_eq!(attributes[24..32], SIZE.to_ne_bytes());
    let all = kernel.ask(opcode::STATFS, &[]).expect("blocks");
    assert_eq!(all[..8], (SIZE / 4096).to_ne_bytes());
    kernel.end();
}

#[test]
fn holes_are_made_and_found() {
    let mut kernel = Kernel::new(false, vec![]);
    kernel.write(1 << 20, &vec![1; 64 << 10]).expect("written");
    let found = |offset: u64| Ok(words(&[offset]));
    assert_eq!(kernel.seek(0, whence::DATA), found(1 << 20));
    assert_eq!(kernel.seek(1 << 20, whence::HOLE), found((1 << 20) + (64 << 10)));
    assert_eq!(kernel.seek(2 << 20, whence::DATA), Err(Errno::NXIO.raw()));
    assert_eq!(kernel.seek(SIZE, whence::HOLE), Err(Errno::NXIO.raw()));
    assert_eq!(kernel.seek(0, 2), Err(Errno::INVAL.raw()));
    let punch = allocation::PUNCH_HOLE | allocation::KEEP_SIZE;
    assert_eq!(kernel.allocate(punch, 1 << 20, 64 << 10), Ok(vec![]));
    assert_eq!(kernel.read(1 << 20, 4096), Ok(vec![0; 4096]));
    assert_eq!(kernel.allocate(punch, SIZE, 4096), Ok(vec![]), "beyond the end");
    let zero = allocation::ZERO_RANGE;
    assert_eq!(kernel.allocate(zero, SIZE - 1, 2), Err(Errno::NOSPC.raw()));
    assert_eq!(kernel.allocate(zero, 8, u64::MAX), Err(Errno::INVAL.raw()));
    assert_eq!(kernel.allocate(0, 0, 4096), Err(Errno::OPNOTSUPP.raw()));
    kernel.end();
}

#[test]
fn other_users_and_changes_of_a_read_only_image_are_refused() {
    let mut kernel = Kernel::new(true, vec![USER]);
    assert!(kernel.ask(opcode::OPEN, &words(&[0])).is_ok(), "open for reading");
    assert_eq!(kernel.image.stats().connections(), 1);
    assert_eq!(kernel.ask(opcode::RELEASE, &words(&[0, 0, 0])), Ok(vec![]));
    assert_eq!(kernel.ask(opcode::OPEN, &words(&[pair(2, 0)])), Err(Errno::ROFS.raw()));
    assert_eq!(kernel.write(0, b"x"), Err(Errno::ROFS.raw()));
    let punch = allocation::PUNCH_HOLE | allocation::KEEP_SIZE;
    assert_eq!(kernel.allocate(punch, 0, 4096), Err(Errno::ROFS.raw()));
    kernel.end();
    let mut kernel = Kernel::new(false, vec![USER + 1]);
    assert_eq!(kernel.ask(opcode::OPEN, &words(&[0])), Err(Errno::ACCES.raw()));
    let resize = words(&[pair(8, 0), 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(kernel.ask(opcode::SETATTR, &resize), Err(Errno::PERM.raw()));
    kernel.end();
}

#[test]
fn unsupported_requests_are_refused_so_that_the_kernel_stops_asking() {
    let mut kernel = Kernel::new(false, vec![]);
    let name = [&words(&[0])[..], b"security.capability\0"].concat();
    assert_eq!(kernel.ask(opcode::GETXATTR, &name), Err(Errno::NOSYS.raw()));
    assert_eq!(kernel.ask(opcode::FLUSH, &words(&[0, 0, 0])), Err(Errno::NOSYS.raw()));
    kernel.end();
}

#[test]
fn open_files_are_uncounted_when_the_mount_ends() {
    let mut kernel = Kernel::new(false, vec![]);
    assert!(kernel.ask(opcode::OPEN, &words(&[0])).is_ok());
    assert_eq!(kernel.image.stats().connections(), 1);
    kernel.end();
}
