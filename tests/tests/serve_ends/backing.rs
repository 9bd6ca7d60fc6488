//! A small NBD server, on which `nowait serve` opens its image. The small server can keep `nowait
//! serve` waiting.

use std::io::{self, Read, Write};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    Silent,
    /// Sends the greeting, and then its answer slowly, byte by byte.
    Drips,
    /// Serves zeroes, and answers flushes after the test has permitted that.
    Serves,
}

/// The small server. Its threads end with the process of the test.
#[derive(Debug)]
pub(crate) struct Backing {
    socket: PathBuf,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    manner: Manner,
    /// `true` if the server answers flushes, and the number of flushes that it has received.
    flushes: Mutex<(bool, usize)>,
    changed: Condvar,
    connected: AtomicBool,
}

/// Time between two bytes, shorter than any time limit of `nowait serve` for one read.
const DRIP: Duration = Duration::from_millis(200);
const SIZE: u64 = 1 << 20;
const OPTION_REPLY: u64 = 0x0003_e889_0455_65a9;
const GO: u32 = 7;
const UNKNOWN: u32 = 1 << 31 | 1;
/// The export's flags: flags are valid, and flush is supported.
const FLAGS: u16 = 1 | 1 << 2;
const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;

impl Backing {
    pub(crate) fn start(socket: PathBuf, manner: Manner) -> Self {
        let listener = UnixListener::bind(&socket).expect("a socket");
        let (flushes, changed) = (Mutex::new((false, 0)), Condvar::new());
        let state = Arc::new(State { manner, flushes, changed, connected: AtomicBool::new(false) });
        let shared = state.clone();
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let state = shared.clone();
                state.connected.store(true, Relaxed);
                // Errors are ignored: the test checks `nowait serve`, the client of this server.
                thread::spawn(move || drop(state.talk(stream)));
            }
        });
        Self { socket, state }
    }

    pub(crate) fn image(&self) -> String {
        image_at(&self.socket)
    }

    pub(crate) fn wait_for_client(&self) {
        while !self.state.connected.load(Relaxed) {
            thread::yield_now();
        }
    }

    pub(crate) fn wait_for_flush(&self) {
        let flushes = self.state.flushes.lock().expect("the state");
        drop(self.state.changed.wait_while(flushes, |(_, count)| *count == 0).expect("the state"));
    }

    pub(crate) fn permit_flushes(&self) {
        self.state.flushes.lock().expect("the state").0 = true;
        self.state.changed.notify_all();
    }
}

/// Returns the name of the image of an NBD server at `socket`, for the command line of `nowait
/// serve`.
pub(crate) fn image_at(socket: &Path) -> String {
    format!("vm=nbd+unix:///vm?socket={}", socket.display())
}

impl State {
    fn talk(&self, mut stream: UnixStream) -> io::Result<()> {
        if self.manner == Manner::Silent {
            return stream.read_exact(&mut [0]);
        }
        stream.write_all(b"NBDMAGICIHAVEOPT\0\x03")?;
        stream.read_exact(&mut [0; 4])?;
        if self.manner == Manner::Drips {
            return drip(stream);
        }
        negotiate(&mut stream)?;
        while self.serve(&mut stream)? {}
        Ok(())
    }

    fn serve(&self, stream: &mut UnixStream) -> io::Result<bool> {
        let mut request = [0; 28];
        stream.read_exact(&mut request)?;
        let command = u16::from_be_bytes([request[6], request[7]]);
        let len = u32::from_be_bytes([request[24], request[25], request[26], request[27]]);
        match command {
            WRITE => stream.read_exact(&mut vec![0; len as usize])?,
            FLUSH => self.wait_for_permission(),
            DISCONNECT => return Ok(false),
            _ => {}
        }
        let mut reply = 0x6744_6698_u32.to_be_bytes().to_vec();
        reply.extend([0; 4]);
        reply.extend(&request[8..16]);
        reply.resize(16 + if command == READ { len as usize } else { 0 }, 0);
        stream.write_all(&reply)?;
        Ok(true)
    }

    fn wait_for_permission(&self) {
        let mut flushes = self.flushes.lock().expect("the state");
        flushes.1 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(flushes, |(permitted, _)| !*permitted).expect("the state"));
    }
}

/// Refuses an option with a long message, sent slowly byte by byte.
fn drip(mut stream: UnixStream) -> io::Result<()> {
    const LEN: u32 = 60_000;
    let mut option = [0; 16];
    stream.read_exact(&mut option)?;
    let head = [&OPTION_REPLY.to_be_bytes()[..], &option[8..12], &UNKNOWN.to_be_bytes()].concat();
    stream.write_all(&[&head[..], &LEN.to_be_bytes()].concat())?;
    stream.set_read_timeout(Some(DRIP))?;
    loop {
        stream.write_all(b"x")?;
        match stream.read(&mut [0; 64]) {
            Ok(0) => return Ok(()),
            Err(error) if error.kind() != io::ErrorKind::WouldBlock => return Err(error),
            _ => {}
        }
    }
}

fn negotiate(stream: &mut UnixStream) -> io::Result<()> {
    const ACK: u32 = 1;
    const INFO: u32 = 3;
    loop {
        let mut option = [0; 16];
        stream.read_exact(&mut option)?;
        let number = |at: usize| u32::from_be_bytes(option[at..][..4].try_into().expect("four"));
        let (option, len) = (number(8), number(12));
        stream.read_exact(&mut vec![0; len as usize])?;
        let mut answer = |kind: u32, body: &[u8]| {
            let mut bytes = OPTION_REPLY.to_be_bytes().to_vec();
            bytes.extend([option, kind, body.len() as u32].map(u32::to_be_bytes).concat());
            bytes.extend(body);
            stream.write_all(&bytes)
        };
        if option != GO {
            answer(UNKNOWN, &[])?;
            continue;
        }
        let export = [&[0, 0][..], &SIZE.to_be_bytes(), &FLAGS.to_be_bytes()].concat();
        answer(INFO, &export)?;
        return answer(ACK, &[]);
    }
}
