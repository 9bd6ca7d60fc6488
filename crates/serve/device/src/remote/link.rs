//! The connection to a server: one thread sends and one receives. Unless `Patience::outage` is 0,
//! the receiving thread replaces a lost connection.

use super::{
    Patience,
    cache::ImageCache,
    handshake::{self, Export, Talk},
    journal::Failure,
    line::Line,
    stream::{PATIENCE, Stream},
    wire::{Command, Kind},
};
use crate::backing::NbdAddress;
use core::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use nowait::Nowait;
use std::{
    io::{self, BufReader, Read, Write},
    sync::Arc,
    thread,
};

pub(super) struct Link {
    pub(super) nowait: Nowait,
    pub(super) line: Arc<Line>,
    pub(super) cached: Option<Arc<ImageCache>>,
    pub(super) address: NbdAddress,
    pub(super) shown: String,
    pub(super) export: Export,
    pub(super) patience: Patience,
    pub(super) reconnects: Arc<AtomicU64>,
    pub(super) repeated: Arc<AtomicU64>,
}

/// The shortest and the longest pause between two attempts to connect.
const PAUSE: Duration = Duration::from_millis(10);
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// The receive buffer takes replies and short data; longer data goes directly to its destination.
const ANSWERS_BYTES: usize = 32 << 10;

fn longer(pause: Duration) -> Duration {
    (pause * 2).clamp(PAUSE, PAUSE_MAX)
}

impl Link {
    /// Serves until the image is being closed or the client gives up the server, and then fails the
    /// requests that are left.
    pub(super) fn run(self, stream: Stream) {
        let talk = self.export.talk;
        let ended = self.nowait.caught("on a connection", || self.keep_up(stream, talk));
        if let Some(Err(reason)) = ended {
            self.say(&format!("{reason}; every request fails from now on: restart nowait serve"));
        }
        // Clear the cache before the first request fails: after that, reads of cached data must
        // fail, too.
        self.cached.iter().for_each(|cached| cached.end());
        self.line.give_up();
    }

    /// Returns an error if the client gives up the server though the image is open.
    fn keep_up(&self, mut stream: Stream, mut talk: Talk) -> Result<(), String> {
        let mut is_said = false;
        loop {
            let reason = self.serve(stream, talk)?;
            if self.line.is_closing() {
                return Ok(());
            }
            self.line.regroup()?;
            if self.patience.outage.is_zero() {
                return Err(format!("the connection is lost: {reason}"));
            }
            // If the server accepts connections and closes them again and again, pause between
            // connections, and report only the first loss.
            is_said &= !self.line.has_answered();
            let pause = if is_said { PAUSE } else { Duration::ZERO };
            if !is_said {
                self.say(&format!(
                    "the connection is lost: {reason}; requests wait for the next \
                                   one"
                ));
            }
            let connected = self.connect_again(pause);
            if self.line.is_closing() {
                return Ok(());
            }
            (stream, talk) = connected.map_err(|reason| format!("cannot reconnect: {reason}"))?;
            self.reconnects.fetch_add(1, Relaxed);
            if !std::mem::replace(&mut is_said, true) {
                self.say("connected again");
            }
        }
    }

    fn say(&self, what: &str) {
        if let Some(say) = self.patience.say {
            say(&format!("{}: {what}", self.shown));
        }
    }

    /// Returns why the connection ended. An error means that a thread panicked, and that its
    /// request is lost.
    fn serve(&self, mut stream: Stream, talk: Talk) -> Result<String, String> {
        let mut sends = match self.prepare(&stream) {
            Ok(sends) => sends,
            Err(error) => return Ok(error.to_string()),
        };
        self.line.open(talk);
        thread::scope(|scope| {
            let named = thread::Builder::new().name("nowait-nbd-out".to_owned());
            let sender = named.spawn_scoped(scope, move || {
                let sent = self.nowait.caught("on a connection", || self.send(&mut sends));
                // Shut the connection down, so that the receiving thread stops as well.
                sends.shut();
                sent
            });
            let sender = match sender {
                Ok(sender) => sender,
                Err(error) => {
                    self.line.halt();
                    return Ok(format!("cannot start a thread: {error}"));
                }
            };
            let received = self.nowait.caught("on a connection", || self.receive(&mut stream));
            stream.shut();
            self.line.halt();
            let sent = sender.join().ok().flatten();
            let reason = sent.and(received).map(|error| error.to_string());
            reason.ok_or_else(|| "a thread of the connection has failed".to_owned())
        })
    }

    fn prepare(&self, stream: &Stream) -> io::Result<Stream> {
        // The read timeout lets the receiving thread notice a silent server.
        let look = self.patience.silence.max(PAUSE) / 4;
        stream.limit((!self.patience.outage.is_zero()).then_some(look), None)?;
        self.line.hold(stream.try_clone()?);
        stream.try_clone()
    }

    /// If the image is being closed, sends a disconnect request at the end.
    fn send(&self, stream: &mut Stream) {
        while let Some(sending) = self.line.next() {
            let bytes = sending.memory.as_ref().map_or(&[][..], |memory| memory.bytes());
            let written = stream.write_all(&sending.header).and_then(|()| stream.write_all(bytes));
            let noted =
                sending.memory.map_or(Ok(()), |memory| self.line.sent(sending.cookie, memory));
            if written.and(noted).is_err() {
                break;
            }
        }
        if self.line.is_closing() {
            // Ignore errors, because the server may be gone already.
            let goodbye = Command::plain(Kind::Disconnect).header(0);
            let _ = stream.write_all(&goodbye).and_then(|()| stream.finish());
        }
    }

    fn receive(&self, stream: &mut Stream) -> io::Error {
        let watched = Watched { stream, line: &self.line, silence: self.patience.silence };
        let mut answers = BufReader::with_capacity(ANSWERS_BYTES, watched);
        loop {
            if let Err(error) = self.line.answer(&mut answers) {
                return error;
            }
        }
    }

    fn connect_again(&self, mut pause: Duration) -> Result<(Stream, Talk), String> {
        let mut reason = "no answer in time".to_owned();
        // If a server accepts connections but never answers a request, the outage goes on, up to
        // its time limit.
        while !self.line.has_waited(self.patience.outage) && self.line.pause(pause) {
            reason = match self.connect() {
                Ok(connected) => return Ok(connected),
                Err(Failure::Final(reason)) => return Err(reason),
                Err(Failure::Passing(error)) if error.kind() == io::ErrorKind::WouldBlock => {
                    "the NBD server does not answer".to_owned()
                }
                Err(Failure::Passing(error)) => error.to_string(),
            };
            pause = longer(pause);
        }
        Err(reason)
    }

    fn connect(&self) -> Result<(Stream, Talk), Failure> {
        let stream = Stream::to(&self.address.server)?;
        if !self.line.hold(stream.try_clone()?) {
            // The image is being closed: the caller ends without a report.
            return Err(io::Error::from(io::ErrorKind::NotConnected).into());
        }
        let (mut stream, export) = handshake::choose(stream, &self.address)?;
        if let Some(reason) = export.differs(&self.export) {
            return Err(Failure::Final(reason));
        }
        let patience = PATIENCE.max(self.patience.silence);
        stream.limit(Some(patience), Some(patience))?;
        let chunks = export.talk.chunks;
        let repeated = self.line.with_journal(|journal| journal.repeat(&mut stream, chunks))?;
        self.repeated.fetch_add(repeated, Relaxed);
        Ok((stream, export.talk))
    }
}

/// A stream whose read fails if the server has requests and answers none for too long.
struct Watched<'a> {
    stream: &'a mut Stream,
    line: &'a Line,
    silence: Duration,
}

impl Read for Watched<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        loop {
            match self.stream.read(bytes) {
                Ok(0) => return Err(io::Error::other("the NBD server closed the connection")),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if self.line.is_silent(self.silence) {
                return Err(io::Error::other("the NBD server does not answer"));
            }
        }
    }
}
