//! The effects of panics in the threads of a server.

#[path = "../../tests/support/guest.rs"]
mod guest_support;
#[path = "../../tests/support/mod.rs"]
mod support;

use super::{At, want};
use crate::{
    fuse::{Buffers, Front as FileFront, ImageFile, Mount, MountPoint, Rights},
    nbd::Security,
    server::{Address, Config, Inbox, Listener, Order, Server, Worker},
    status::{Endpoint, metrics, snapshot},
    vhost::{Front, Setup, Socket as Place, Workers},
};
use ::vhost::{VhostBackend, vhost_user::Frontend};
use guest_support::{FEATURES, Guest, counter};
use nowait::{BackendChoice, Nowait};
use nowait_device::{Cache, Image, ImageOptions};
use nowait_status::fetch;
use nowait_sys::{
    epoll::{self, Epoll},
    time::Deadline,
};
use std::{
    io::{Read, Write},
    os::unix::{fs::FileExt, net::UnixStream},
    sync::{Arc, mpsc::channel},
    thread,
    time::{Duration, Instant, SystemTime},
};
use tempfile::TempDir;
use virtio_bindings::virtio_blk::{VIRTIO_BLK_S_IOERR, VIRTIO_BLK_S_OK, VIRTIO_BLK_T_IN};

/// The limit against hanging.
const PATIENCE: Duration = Duration::from_secs(10);

struct Rig {
    server: Server,
    image: Arc<Image>,
    folder: TempDir,
}

impl Rig {
    /// Tests inject panics by the name of the image, so each test needs a name of its own.
    fn new(name: &str) -> Rig {
        Rig::on(BackendChoice::Auto, name)
    }

    fn on(backend: BackendChoice, name: &str) -> Rig {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = folder.path().join("image");
        std::fs::write(&path, vec![7; 1 << 20]).unwrap();
        let nowait = Nowait::builder().backend(backend).build().unwrap();
        let (name, cache) = (name.to_owned(), Cache::Host);
        let options = ImageOptions { path, name, cache, ..ImageOptions::default() };
        let image = Arc::new(Image::open(&nowait, &options).unwrap());
        let server = Server::start(&nowait, vec![image.clone()], &Config::default()).unwrap();
        Rig { server, image, folder }
    }

    fn client(&mut self) -> Client {
        let (near, mut far) = UnixStream::pair().unwrap();
        near.set_nonblocking(true).unwrap();
        self.server.serve(near.into(), Security::Plain);
        far.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        // Skip the greeting, and the size and flags of the export.
        far.read_exact(&mut [0; 18 + 10]).unwrap();
        Client(far)
    }

    fn failed(&self) -> u64 {
        snapshot(&self.server.view(), Instant::now()).failed_threads
    }

    fn stop(self) {
        self.server.stop().unwrap();
        assert_eq!((self.image.stats().in_flight(), self.image.stats().connections()), (0, 0));
    }
}

struct Client(UnixStream);

impl Client {
    /// Reads a block; returns `false` if the server has disconnected the client.
    fn reads(&mut self) -> bool {
        let mut request = nowait_device::nbd::REQUEST.to_be_bytes().to_vec();
        request.extend([0; 4 + 8 + 8]);
        request.extend(4096u32.to_be_bytes());
        let mut reply = vec![0; 16 + 4096];
        if self.0.write_all(&request).is_err() || self.0.read_exact(&mut reply).is_err() {
            return false;
        }
        assert!(reply[16..].iter().all(|byte| *byte == 7));
        true
    }
}

#[test]
fn a_panic_for_a_client_disconnects_that_client_only() {
    const NAME: &str = "client";
    let mut rig = Rig::new(NAME);
    let mut other = rig.client();
    for (count, at) in [At::Read, At::End, At::Settle].into_iter().enumerate() {
        let mut client = rig.client();
        assert!(client.reads() && other.reads());
        want(at, NAME);
        assert!(!client.reads(), "{at:?}");
        assert!(other.reads() && rig.client().reads(), "{at:?}");
        assert_eq!(rig.failed(), count as u64 + 1);
    }
    let status = snapshot(&rig.server.view(), Instant::now());
    assert!(metrics(&status).contains("nowait_serve_failed_threads_total 3\n"));
    drop(other);
    rig.stop();
}

#[test]
fn a_panic_of_a_serving_thread_ends_its_requests_and_new_clients_are_served() {
    const NAME: &str = "round";
    let mut rig = Rig::new(NAME);
    let (mut one, mut two) = (rig.client(), rig.client());
    assert!(one.reads() && two.reads());
    want(At::Round, NAME);
    assert!(!one.reads() && !two.reads());
    assert!(rig.client().reads());
    assert_eq!(rig.failed(), 1);
    rig.stop();
}

#[test]
fn a_panic_for_a_file_is_an_error_of_its_user_and_the_next_request_works() {
    const NAME: &str = "file";
    let rig = Rig::new(NAME);
    let path = rig.folder.path().join("shown");
    let file = ImageFile::new(rig.image.clone(), Rights::default(), SystemTime::now());
    let point = MountPoint::clear(&path).unwrap();
    let mut mount = Mount::new(point, rig.server.front(file), false, 1).unwrap();
    let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
    for (count, at) in [At::Front, At::Ask, At::Round].into_iter().enumerate() {
        let io = |result: std::io::Result<()>| {
            assert_eq!(result.unwrap_err().raw_os_error(), Some(5), "{at:?}");
        };
        want(at, NAME);
        io(file.read_exact_at(&mut [0; 4096], 0));
        file.read_exact_at(&mut [0; 4096], 0).unwrap();
        want(at, NAME);
        io(file.write_all_at(&[7; 4096], 0));
        file.write_all_at(&[7; 4096], 0).unwrap();
        assert_eq!(rig.failed(), 2 * (count as u64 + 1));
    }
    drop(file);
    mount.unmount();
    rig.stop();
}

/// The thread takes both requests from its inbox before it carries out the first one.
#[test]
fn a_panic_for_a_request_leaves_the_orders_behind_it_to_be_carried_out() {
    const NAME: &str = "orders";
    // The end of a ring of io_uring would wake the thread.
    let rig = Rig::on(BackendChoice::Threads, NAME);
    let view = rig.server.view();
    let inbox = Inbox::new().unwrap();
    let (asked, asks) = channel();
    let to = inbox.clone();
    let ask = Box::new(move |file, request| {
        to.put(Order::Ask(file, request));
        asked.send(()).unwrap();
    });
    let file = ImageFile::new(rig.image.clone(), Rights::default(), SystemTime::now());
    let buffers = Arc::new(Buffers::new(1 << 20, 1));
    let front = FileFront::new(file, ask, buffers, view.shared().nowait.clone());
    let point = MountPoint::clear(&rig.folder.path().join("shown")).unwrap();
    let mut mount = Mount::new(point, front, false, 1).unwrap();
    let file = Arc::new(std::fs::File::open(mount.path()).unwrap());
    let (read, reads) = channel();
    for _ in 0..2 {
        let (file, read) = (file.clone(), read.clone());
        thread::spawn(move || {
            let outcome = file.read_exact_at(&mut [0; 4096], 0);
            drop(file);
            read.send(outcome.map_err(|error| error.raw_os_error())).unwrap();
        });
    }
    drop(file);
    (0..2).for_each(|_| asks.recv().unwrap());
    want(At::Ask, NAME);
    let (shared, orders) = (view.shared().clone(), inbox.clone());
    let worker = thread::spawn(move || Worker::new(shared, orders).unwrap().run());
    let mut outcomes = [(); 2].map(|()| reads.recv_timeout(PATIENCE).ok());
    // A process cannot end while a request to its own FUSE file has no answer. So this order, which
    // wakes the thread, comes before the assertion.
    inbox.put(Order::Stop(u64::MAX));
    worker.join().unwrap().unwrap();
    mount.unmount();
    outcomes.sort_unstable();
    assert_eq!(outcomes, [Some(Ok(())), Some(Err(Some(5)))]);
    rig.stop();
}

#[test]
fn a_panic_for_a_ring_fails_its_requests_and_the_next_one_works() {
    const NAME: &str = "ring";
    let rig = Rig::new(NAME);
    let view = rig.server.view();
    let workers = Workers::start(view.shared(), 1, 1 << 20).unwrap();
    let mut guest = Guest::new(16);
    let ((kick, kicks), (call, calls)) = (counter(), counter());
    let epoll = Epoll::new().unwrap();
    epoll.add(calls.raw(), epoll::IN, 0).unwrap();
    let setup = guest.setup(&support::exports()[0], FEATURES);
    let Setup { memory, features, size, descriptors, available, used, next_available, .. } = setup;
    let setup = Setup {
        image: rig.image.clone(),
        memory,
        features,
        size,
        descriptors,
        available,
        used,
        next_available,
        call: Some(call),
        error: None,
        inflight: None,
    };
    let running = workers.serve(setup, kick).unwrap();
    let mut read = |panic: Option<At>| {
        let asked = guest.want(VIRTIO_BLK_T_IN, 0, 512);
        panic.into_iter().for_each(|at| want(at, NAME));
        kicks.signal();
        loop {
            guest.call_after(guest.seen);
            if !guest.used().is_empty() {
                return u32::from(guest.status(asked));
            }
            epoll.wait(&mut Vec::with_capacity(1), Deadline::NEVER);
            calls.drain();
        }
    };
    assert_eq!(read(None), VIRTIO_BLK_S_OK);
    // The worker panicked before it took the request from the ring, so it serves the request
    // afterwards.
    assert_eq!(read(Some(At::Ring)), VIRTIO_BLK_S_OK);
    assert_eq!(read(Some(At::End)), VIRTIO_BLK_S_IOERR);
    assert_eq!(read(None), VIRTIO_BLK_S_OK);
    assert_eq!(rig.failed(), 2);
    workers.stop(running).unwrap();
    workers.quit().unwrap();
    rig.stop();
}

#[test]
fn a_panic_for_a_vmm_disconnects_it_and_the_next_one_is_served() {
    const NAME: &str = "vmm";
    let rig = Rig::new(NAME);
    let path = rig.folder.path().join("socket");
    let listener = Listener::bind(&Address::Unix(path.clone())).unwrap();
    let listeners = vec![(Place { export: None, path: path.clone() }, listener)];
    let front = Front::serve(&rig.server.view(), listeners, 1, 1, 1 << 20).unwrap();
    want(At::Talk, NAME);
    let lost = Frontend::connect(&path, 1).unwrap();
    assert!(lost.get_features().is_err());
    assert!(Frontend::connect(&path, 1).unwrap().get_features().is_ok());
    assert_eq!(rig.failed(), 1);
    front.stop().unwrap();
    assert_eq!(rig.server.view().clients().now(), 0);
    rig.stop();
}

#[test]
fn a_panic_during_a_status_request_sends_no_answer_and_the_next_request_works() {
    const NAME: &str = "status";
    let rig = Rig::new(NAME);
    let path = rig.folder.path().join("socket");
    let listener = Arc::new(Listener::bind(&Address::Unix(path.clone())).unwrap());
    let (view, started) = (rig.server.view(), Instant::now());
    Endpoint::start(listener, &rig.server.view(), move || snapshot(&view, started)).unwrap();
    want(At::Status, NAME);
    assert!(fetch(&path).is_err());
    assert_eq!(fetch(&path).unwrap().failed_threads, 1);
    rig.stop();
}
