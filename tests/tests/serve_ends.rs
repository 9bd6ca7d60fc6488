//! The time that `nowait serve` takes to end after a signal, in several states, and the time until
//! the next server serves after the first was killed. The test prints a table: `cargo test … --test
//! serve_ends -- --nocapture`.

#[path = "serve_ends/backing.rs"]
mod backing;

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use backing::{Backing, Manner};
use nowait_tests::fuse::missing_fuse;
use nowait_tests::hang;
use nowait_tests::program::Running;
use nowait_tests::ready;
use nowait_tests::scratch::{Scratch, text};
use nowait_tests::server::tool;
use nowait_tests::skip;
use nowait_tests::stores::Store;

const PATIENCE: Duration = Duration::from_mins(1);
/// Time in which a signal must end a server that nothing delays: one second, which docs/serve.md
/// promises during the start, and another second for a busy machine.
const SOON: Duration = Duration::from_secs(2);

/// Time for which the test checks that a server does not end too early.
const A_WHILE: Duration = Duration::from_millis(100);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// The server opens an image on an NBD server that sends nothing.
    OpeningSilent,
    /// The server opens an image on an NBD server that sends a byte at a time without end.
    OpeningDripping,
    /// The server opens an image on a store that sends nothing.
    OpeningSilentStore,
    /// The server opens an image on a store that refuses connections, and tries again.
    OpeningRefused,
    /// An NBD client has stopped in the middle of an option, a VMM in the middle of a header.
    Handshakes,
    Serving,
    Flushing,
    /// The server has got SIGTERM before, and a client still waits for the reply to a flush.
    Ending,
}

const STATES: [State; 8] = [
    State::OpeningSilent,
    State::OpeningDripping,
    State::OpeningSilentStore,
    State::OpeningRefused,
    State::Handshakes,
    State::Serving,
    State::Flushing,
    State::Ending,
];

impl State {
    /// Returns `true` if the server must not end before a flush in flight has completed.
    fn waits(self) -> bool {
        matches!(self, State::Flushing | State::Ending)
    }
}

struct Scene {
    running: Running,
    nbd: PathBuf,
    vmm: PathBuf,
    backing: Option<Backing>,
    /// A listening socket at the store's address.
    port: Option<TcpListener>,
    /// The server's connection to `port`, on which the test does not answer.
    asked: Option<TcpStream>,
    clients: Vec<UnixStream>,
}

impl Scene {
    /// Starts a server and brings it into `state`.
    /// `None`: this run tests the system's own AIO, which has no server.
    fn set(scratch: &Scratch, state: State) -> Option<Scene> {
        let (nbd, vmm) = (scratch.file("nbd"), scratch.file("vmm"));
        let manner = match state {
            State::OpeningSilent => Some(Manner::Silent),
            State::OpeningDripping => Some(Manner::Drips),
            State::Flushing | State::Ending => Some(Manner::Serves),
            _ => None,
        };
        let backing = manner.map(|manner| Backing::start(scratch.file("backing"), manner));
        let port = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
        let endpoint = format!("http://{}", port.local_addr().expect("its address"));
        let local = scratch.image("disk.img", 1 << 20);
        let arguments: Vec<String> = match state {
            State::OpeningSilentStore | State::OpeningRefused => {
                vec!["s3://disks/vm".to_owned(), "--endpoint".to_owned(), endpoint]
            }
            _ => vec![backing.as_ref().map_or_else(|| text(&local).to_owned(), Backing::image)],
        };
        let port = (state != State::OpeningRefused).then_some(port);
        let running = serve(scratch, &arguments, &nbd, &vmm)?;
        let mut scene =
            Scene { running, nbd, vmm, backing, port, asked: None, clients: Vec::new() };
        scene.reach(state);
        Some(scene)
    }

    fn reach(&mut self, state: State) {
        ready::wait_for_socket(&self.nbd, &mut self.running);
        match state {
            State::OpeningSilent | State::OpeningDripping => {
                self.backing.as_ref().expect("it").wait_for_client();
            }
            State::OpeningSilentStore => {
                let port = self.port.as_ref().expect("it");
                self.asked = Some(port.accept().expect("a question").0);
            }
            State::OpeningRefused => {}
            State::Handshakes => {
                ready::wait_for_socket(&self.vmm, &mut self.running);
                let mut client = greeted(&self.nbd);
                client.write_all(b"\0\0\0\x03IHAVE").expect("sent");
                // The server answers the request for its features, so it serves the VMM already.
                let mut machine = UnixStream::connect(&self.vmm).expect("a connection");
                machine.write_all(&[1u32, 1, 0].map(u32::to_ne_bytes).concat()).expect("sent");
                machine.read_exact(&mut [0; 20]).expect("an answer");
                machine.write_all(&[1, 0, 0]).expect("sent");
                self.clients.extend([client, machine]);
            }
            State::Serving => self.clients.push(chosen(&self.nbd)),
            State::Flushing | State::Ending => {
                let mut client = chosen(&self.nbd);
                client.write_all(&request(1, 4096)).expect("sent");
                client.write_all(&[7; 4096]).expect("sent");
                client.read_exact(&mut [0; 16]).expect("an answer");
                client.write_all(&request(3, 0)).expect("sent");
                self.clients.push(client);
                self.backing.as_ref().expect("it").wait_for_flush();
                if state == State::Ending {
                    self.signal(libc::SIGTERM);
                }
            }
        }
    }

    fn signal(&self, signal: i32) {
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(self.running.pid(), signal) }, 0);
    }
}

fn serve(scratch: &Scratch, arguments: &[String], nbd: &Path, vmm: &Path) -> Option<Running> {
    let tool = Store::credentials(tool()?).env("XDG_RUNTIME_DIR", scratch.path());
    let tool = tool.arg("serve").args(arguments);
    let tool = tool.arg("--nbd").arg(format!("unix:{}", nbd.display()));
    Some(tool.arg("--vhost-user").arg(vmm).spawn())
}

fn greeted(socket: &Path) -> UnixStream {
    let mut stream = UnixStream::connect(socket).expect("a connection");
    stream.set_read_timeout(Some(PATIENCE)).expect("a limit against hanging");
    stream.read_exact(&mut [0; 18]).expect("a greeting");
    stream
}

fn chosen(socket: &Path) -> UnixStream {
    let mut stream = greeted(socket);
    stream.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").expect("heard");
    stream.read_exact(&mut [0; 10]).expect("the export");
    stream
}

fn request(command: u8, len: u32) -> Vec<u8> {
    let mut bytes = 0x2560_9513_u32.to_be_bytes().to_vec();
    bytes.extend([0, 0, 0, command]);
    bytes.extend([0; 16]);
    bytes.extend(len.to_be_bytes());
    bytes
}

type Outcome = Result<Duration, String>;

fn ends(state: State, signal: i32) -> Option<Outcome> {
    let scratch = Scratch::new("ends");
    let mut scene = Scene::set(&scratch, state)?;
    let mut start = Instant::now();
    scene.signal(signal);
    if state.waits() {
        // The server must not end before the flush is carried out and answered.
        if scene.running.ends_within(A_WHILE) {
            return Some(Err("it has ended before the flush".to_owned()));
        }
        start = Instant::now();
        scene.backing.as_ref().expect("it").permit_flushes();
        scene.clients[0].read_exact(&mut [0; 16]).expect("an answer to the flush");
    }
    let (nbd, vmm) = (scene.nbd.clone(), scene.vmm.clone());
    Some(ended(scene, start).and_then(|took| match nbd.exists() || vmm.exists() {
        true => Err("sockets are left behind".to_owned()),
        false => Ok(took),
    }))
}

/// Sends SIGHUP to a server in `state`, and returns an error if the server ends. Then sends
/// SIGTERM, and returns the time until the server ends.
fn hangs_up(state: State) -> Option<Outcome> {
    let scratch = Scratch::new("ends");
    let mut scene = Scene::set(&scratch, state)?;
    scene.signal(libc::SIGHUP);
    if scene.running.ends_within(A_WHILE) {
        return Some(Err("it has ended".to_owned()));
    }
    if state.waits() {
        scene.backing.as_ref().expect("it").permit_flushes();
    }
    let start = Instant::now();
    scene.signal(libc::SIGTERM);
    Some(ended(scene, start))
}

fn ended(scene: Scene, start: Instant) -> Outcome {
    let output = scene.running.try_wait(PATIENCE)?;
    let took = start.elapsed();
    match output.status.success() {
        true => Ok(took),
        false => Err(format!("after {took:.2?} {}", output.stderr.trim())),
    }
}

fn is_there_again(state: State) -> Option<Outcome> {
    let scratch = Scratch::new("ends");
    let scene = Scene::set(&scratch, state)?;
    let (nbd, vmm) = (scene.nbd.clone(), scene.vmm.clone());
    let start = Instant::now();
    scene.signal(libc::SIGKILL);
    if let Some(backing) = &scene.backing {
        backing.permit_flushes();
    }
    scene.running.wait(PATIENCE);
    let arguments = [text(&scratch.file("disk.img")).to_owned()];
    let mut next = serve(&scratch, &arguments, &nbd, &vmm)?;
    ready::wait_for_socket(&nbd, &mut next);
    drop(chosen(&nbd));
    let took = start.elapsed();
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(next.pid(), libc::SIGTERM) }, 0);
    let output = next.wait(PATIENCE);
    Some(if output.status.success() { Ok(took) } else { Err(output.to_string()) })
}

#[test]
fn a_signal_ends_a_server_soon_in_every_state() {
    let limit = SOON * hang::slowness();
    let mut faults = Vec::new();
    println!(
        "{:>20} {:>9} {:>9} {:>13} {:>13}",
        "", "SIGTERM", "SIGINT", "HUP, TERM", "KILL, again"
    );
    for state in STATES {
        let (term, int) = (ends(state, libc::SIGTERM), ends(state, libc::SIGINT));
        let took = [term, int, hangs_up(state), is_there_again(state)];
        let [Some(term), Some(int), Some(hang_up), Some(again)] = &took else { return };
        let shown = |outcome: &Outcome| match outcome {
            Ok(took) => format!("{took:.2?}"),
            Err(_) => "wrong".to_owned(),
        };
        let shown = [term, int, hang_up, again].map(shown);
        let (name, [term, int, hang_up, again]) = (format!("{state:?}"), shown);
        println!("{name:>20} {term:>9} {int:>9} {hang_up:>13} {again:>13}");
        for (signal, outcome) in
            ["TERM", "INT", "HUP", "KILL"].iter().zip(took.into_iter().flatten())
        {
            match outcome {
                Ok(took) if took <= limit => {}
                Ok(took) => faults.push(format!("{state:?}, {signal}: {took:.2?}")),
                Err(what) => faults.push(format!("{state:?}, {signal}: {what}")),
            }
        }
    }
    assert!(faults.is_empty(), "{}", faults.join("\n"));
}

/// Without the signal, the server would wait up to two seconds for the folder's lock, for each of
/// its three sockets in the folder.
#[test]
fn a_signal_ends_a_start_whose_sockets_for_vmms_are_in_a_folder_that_another_has_locked() {
    let Some(tool) = tool() else { return };
    let scratch = Scratch::new("ends");
    let (nbd, folder) = (scratch.file("nbd"), scratch.file("vmms"));
    fs::create_dir(&folder).expect("a folder");
    let lock = File::open(&folder).expect("it");
    lock.lock().expect("it is new");
    let tool = tool
        .env("XDG_RUNTIME_DIR", scratch.path())
        .arg("serve")
        .arg(scratch.image("disk.img", 1 << 20));
    let tool = tool.arg("--nbd").arg(format!("unix:{}", nbd.display()));
    let sockets = ["a", "b", "c"].map(|name| folder.join(name));
    let tool = sockets.iter().fold(tool, |tool, socket| tool.arg("--vhost-user").arg(socket));
    let mut running = tool.spawn();
    ready::wait_for_socket(&nbd, &mut running);
    let start = Instant::now();
    // SAFETY: takes numbers; the process is a child that has not been waited for.
    assert_eq!(unsafe { libc::kill(running.pid(), libc::SIGTERM) }, 0);
    let output = running.wait(PATIENCE);
    assert!(output.status.success(), "{output}");
    assert!(start.elapsed() < SOON * hang::slowness(), "{:?}\n{output}", start.elapsed());
    assert!(!sockets.iter().any(|socket| socket.exists()), "sockets are left behind");
}

#[test]
fn an_nbd_server_that_does_not_let_us_in_is_an_error_of_one_line() {
    let Some(_) = tool() else { return };
    std::thread::scope(|scope| {
        for state in [State::OpeningSilent, State::OpeningDripping] {
            scope.spawn(move || {
                let scratch = Scratch::new("ends");
                let scene = Scene::set(&scratch, state).expect("asked before");
                let output = scene.running.wait(PATIENCE);
                assert_eq!(output.status.code(), Some(1), "{state:?}\n{output}");
                assert_eq!(output.stderr.lines().count(), 1, "{state:?}\n{output}");
                assert!(output.stderr.contains("does not answer within 10 s"), "{output}");
                assert!(!scene.nbd.exists(), "{state:?}: a socket is left behind");
            });
        }
    });
}

/// The files that a server makes, in this order.
const MADE: [&str; 5] = ["nbd", "status", "vmm", "shown", "pid"];

/// Starts a server that makes all of [`MADE`]; `wrong` are further arguments.
fn start_all(scratch: &Scratch, wrong: &[&str]) -> Option<Running> {
    let [nbd, status, vmm, shown, pid] = MADE.map(|name| scratch.file(name));
    let disk = scratch.image("disk.img", 1 << 20);
    let tool = tool()?.env("XDG_RUNTIME_DIR", scratch.path()).arg("serve").arg(disk);
    let tool = tool.arg("--nbd").arg(format!("unix:{}", nbd.display()));
    let tool = tool.arg("--status").arg(format!("unix:{}", status.display()));
    let tool = tool.arg("--fuse").arg(shown).arg("--vhost-user").arg(vmm);
    let tool = if wrong.contains(&"--pid-file") { tool } else { tool.arg("--pid-file").arg(pid) };
    Some(tool.args(wrong).spawn())
}

fn left(scratch: &Scratch) -> Vec<String> {
    let own = fs::read_dir(scratch.file("nowait")).into_iter().flatten();
    let own = own.map(|entry| entry.expect("an entry").path().display().to_string());
    let made = MADE.iter().filter(|name| scratch.file(name).exists());
    made.map(|name| (*name).to_owned()).chain(own).collect()
}

#[test]
fn a_signal_at_any_moment_of_the_start_leaves_nothing_behind() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    for last in MADE.iter().cycle().take(if nowait_tests::full() { 200 } else { 20 }) {
        let scratch = Scratch::new("ends");
        let Some(mut running) = start_all(&scratch, &[]) else { return };
        while !scratch.file(last).exists() {
            assert!(!running.ended(), "{last}: {}", running.stderr());
        }
        // SAFETY: takes numbers; the process is a child that has not been waited for.
        assert_eq!(unsafe { libc::kill(running.pid(), libc::SIGTERM) }, 0);
        let output = running.wait(PATIENCE);
        assert!(output.status.success(), "{last}: {output}");
        assert!(left(&scratch).is_empty(), "{last}: {:?}\n{output}", left(&scratch));
    }
}

#[test]
fn a_start_that_fails_leaves_nothing_behind() {
    let Some(()) = skip::unless(missing_fuse()) else { return };
    let wrong: [&[&str]; 5] = [
        &["--nbd", "unix:/x/y/z"],
        &["--allow", "elsewhere=uid:7"],
        &["--fuse", "/x/y/z"],
        &["--vhost-user", "elsewhere=/x/y/z"],
        &["--pid-file", "/x/y/z"],
    ];
    for wrong in wrong {
        let scratch = Scratch::new("ends");
        let Some(running) = start_all(&scratch, wrong) else { return };
        let output = running.wait(PATIENCE);
        assert_eq!(output.status.code(), Some(1), "{wrong:?}: {output}");
        assert!(left(&scratch).is_empty(), "{wrong:?}: {:?}\n{output}", left(&scratch));
    }
}
