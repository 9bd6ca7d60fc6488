//! An image on an NBD server: one connection, with a thread that sends and one that receives.
//!
//! All serving threads use the one connection: so a flush covers the writes of all of them. What is
//! asked is put in a line, and none of those that ask waits for the socket. When the connection is
//! lost everything in flight ends with `EIO`, and so does everything after it, flushes above all:
//! what the server had not made durable may be gone.

mod handshake;
mod stream;

use crate::{
    Chunk, Mailbox, RequestEnd, Tag,
    backing::{NbdAddress, NbdServer},
    stripes::Shared as Blocks,
};
use core::ops::Range;
use handshake::{Export, flags};
use nowait::{Errno, Nowait};
use nowait_sys::mutex::{Condvar, Mutex};
use std::{
    collections::{HashMap, VecDeque},
    io::{self, Read, Write},
    sync::{Arc, mpsc},
    thread,
};
use stream::Stream;

type Done = Result<(), Errno>;

/// An image on an NBD server.
#[derive(Debug)]
pub struct Remote {
    nowait: Nowait,
    address: NbdAddress,
    shown: String,
    export: Export,
    line: Arc<Line>,
    stream: Stream,
    threads: Vec<thread::JoinHandle<()>>,
}

/// What waits to be sent, and what was sent and not answered.
#[derive(Debug)]
struct Line {
    state: Mutex<State>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct State {
    unsent: VecDeque<u64>,
    asked: HashMap<u64, Request>,
    next_cookie: u64,
    lost: bool,
}

#[derive(Debug)]
struct Request {
    header: [u8; REQUEST_BYTES],
    reads: bool,
    /// `None`: it is being sent, or filled.
    memory: Option<Memory>,
    /// Came while the request was being sent.
    answer: Option<Done>,
    end: End,
}

/// What is sent with a request, or filled by its answer.
#[derive(Debug)]
enum Memory {
    Nothing,
    Chunk(Chunk),
    Bytes(Vec<u8>),
}

impl Memory {
    fn bytes(&self) -> &[u8] {
        match self {
            Memory::Nothing => &[],
            Memory::Chunk(chunk) => chunk.whole(),
            Memory::Bytes(bytes) => bytes,
        }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        match self {
            Memory::Nothing => &mut [],
            Memory::Chunk(chunk) => chunk.whole_mut(),
            Memory::Bytes(bytes) => bytes,
        }
    }
}

/// Where the end of a request goes.
#[derive(Debug)]
enum End {
    Mail(Arc<Mailbox>, Tag, Option<Blocks>),
    Call(mpsc::SyncSender<(Done, Memory)>),
}

impl End {
    fn tell(self, result: Done, memory: Memory) {
        match self {
            End::Mail(mailbox, tag, blocks) => {
                drop(blocks);
                let chunk = if let Memory::Chunk(chunk) = memory { Some(chunk) } else { None };
                mailbox.put(RequestEnd { tag, result, chunk, extents: Vec::new() });
            }
            // The caller waits for it.
            End::Call(sender) => _ = sender.send((result, memory)),
        }
    }
}

const REQUEST: u32 = 0x2560_9513;
const REQUEST_BYTES: usize = 28;
const SIMPLE_REPLY: u32 = 0x6744_6698;

const READ: u16 = 0;
const WRITE: u16 = 1;
const DISCONNECT: u16 = 2;
const FLUSH: u16 = 3;
const TRIM: u16 = 4;
const WRITE_ZEROES: u16 = 6;

const FUA: u16 = 1;
const NO_HOLE: u16 = 1 << 1;
const FAST_ZERO: u16 = 1 << 4;

fn header(command: u16, flags: u16, cookie: u64, at: u64, len: u32) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
    bytes[4..6].copy_from_slice(&flags.to_be_bytes());
    bytes[6..8].copy_from_slice(&command.to_be_bytes());
    bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
    bytes[16..24].copy_from_slice(&at.to_be_bytes());
    bytes[24..].copy_from_slice(&len.to_be_bytes());
    bytes
}

impl Remote {
    /// Connects to `address`, given as `shown`. Blocks, some seconds at most.
    ///
    /// # Errors
    /// The server cannot be reached, refuses, or is none of NBD.
    pub(crate) fn connect(
        nowait: &Nowait,
        address: &NbdAddress,
        shown: String,
    ) -> io::Result<Remote> {
        let mut stream = match &address.server {
            NbdServer::Tcp(host, port) => Stream::tcp(host, *port)?,
            NbdServer::Unix(path) => Stream::unix(path)?,
        };
        let export = handshake::choose(&mut stream, &address.export)?;
        stream.wait_without_limit()?;
        let line = Arc::new(Line { state: Mutex::default(), news: Condvar::new() });
        let (sends, receives) = (stream.try_clone()?, stream.try_clone()?);
        let mut remote = Remote {
            nowait: nowait.clone(),
            address: address.clone(),
            shown,
            export,
            line,
            stream,
            threads: Vec::new(),
        };
        remote.start("nowait-nbd-out", move |line| line.send(sends))?;
        remote.start("nowait-nbd-in", move |line| line.receive(receives))?;
        Ok(remote)
    }

    fn start(&mut self, name: &str, work: impl FnOnce(&Line) + Send + 'static) -> io::Result<()> {
        let (nowait, line, stream) =
            (self.nowait.clone(), self.line.clone(), self.stream.try_clone()?);
        let work = move || {
            nowait.caught("on a connection", || work(&line));
            stream.shut();
            line.lose();
        };
        self.threads.push(thread::Builder::new().name(name.to_owned()).spawn(work)?);
        Ok(())
    }

    /// Returns the engine of the images.
    pub(crate) fn nowait(&self) -> &Nowait {
        &self.nowait
    }

    /// Returns where the server is.
    pub(crate) fn address(&self) -> &NbdAddress {
        &self.address
    }

    /// Returns the address as it was given.
    pub(crate) fn shown(&self) -> &str {
        &self.shown
    }

    /// Returns the size in bytes.
    pub(crate) fn size(&self) -> u64 {
        self.export.size
    }

    /// Returns what offsets and lengths must be a multiple of.
    pub(crate) fn block_bytes(&self) -> u32 {
        self.export.block_bytes
    }

    /// Tells whether the server lets nothing be changed.
    pub(crate) fn is_read_only(&self) -> bool {
        self.can(flags::READ_ONLY)
    }

    /// Tells whether what was written can be made durable.
    pub(crate) fn flushes(&self) -> bool {
        self.can(flags::FLUSH)
    }

    /// Tells whether a write can be durable by itself.
    pub(crate) fn writes_durably(&self) -> bool {
        self.can(flags::FUA)
    }

    fn can(&self, flag: u16) -> bool {
        self.export.flags & flag != 0
    }

    /// Reads into all of `chunk`; its end comes into `mailbox`.
    pub(crate) fn read_chunk(&self, chunk: Chunk, at: u64, tag: Tag, mailbox: &Arc<Mailbox>) {
        let end = End::Mail(mailbox.clone(), tag, None);
        let len = chunk.whole().len();
        self.ask((READ, 0), at, len as u64, Memory::Chunk(chunk), end);
    }

    /// Writes all of `chunk`, which holds `blocks`; its end comes into `mailbox`. Only durable
    /// where the server [can that](Remote::writes_durably).
    pub(crate) fn write_chunk(
        &self,
        chunk: Chunk,
        (at, durable): (u64, bool),
        blocks: Option<Blocks>,
        tag: Tag,
        mailbox: &Arc<Mailbox>,
    ) {
        let end = End::Mail(mailbox.clone(), tag, blocks);
        let len = chunk.whole().len();
        let flags = if durable { FUA } else { 0 };
        self.ask((WRITE, flags), at, len as u64, Memory::Chunk(chunk), end);
    }

    /// Makes durable what was answered before; the end comes into `mailbox`.
    pub(crate) fn flush(&self, tag: Tag, mailbox: &Arc<Mailbox>) {
        let end = End::Mail(mailbox.clone(), tag, None);
        if self.flushes() {
            self.ask((FLUSH, 0), 0, 0, Memory::Nothing, end);
        } else {
            // Such an image is only read.
            end.tell(Ok(()), Memory::Nothing);
        }
    }

    /// As [`Remote::flush`]. Blocks.
    pub(crate) fn sync(&self) -> Done {
        if self.flushes() { self.call((FLUSH, 0), 0, 0, Memory::Nothing).0 } else { Ok(()) }
    }

    /// Fills `bytes`, at most a chunk's worth. Blocks.
    pub(crate) fn read_at(&self, bytes: &mut [u8], at: u64) -> Done {
        let memory = Memory::Bytes(vec![0; bytes.len()]);
        let (done, memory) = self.call((READ, 0), at, bytes.len() as u64, memory);
        done?;
        bytes.copy_from_slice(memory.bytes());
        Ok(())
    }

    /// Writes `bytes`, at most a chunk's worth. Blocks.
    pub(crate) fn write_at(&self, bytes: &[u8], at: u64) -> Done {
        let memory = Memory::Bytes(bytes.to_vec());
        self.call((WRITE, 0), at, bytes.len() as u64, memory).0
    }

    /// Gives the space of a range back, whatever it reads as then. Blocks.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the server cannot. `EINVAL`: 4 GiB or more.
    pub(crate) fn trim(&self, range: &Range<u64>) -> Done {
        if !self.can(flags::TRIM) {
            return Err(Errno::OPNOTSUPP);
        }
        self.change((TRIM, 0), range)
    }

    /// Has a range read as zeroes. Blocks.
    ///
    /// # Errors
    /// `EOPNOTSUPP`: the server cannot, or not fast if it must be that. `EINVAL`: 4 GiB or more.
    pub(crate) fn zero(&self, range: &Range<u64>, allocated: bool, fast: bool) -> Done {
        if !self.can(flags::WRITE_ZEROES) || fast && !self.can(flags::FAST_ZERO) {
            return Err(Errno::OPNOTSUPP);
        }
        let keep = if allocated { NO_HOLE } else { 0 };
        self.change((WRITE_ZEROES, keep | if fast { FAST_ZERO } else { 0 }), range)
    }

    fn change(&self, what: (u16, u16), range: &Range<u64>) -> Done {
        self.call(what, range.start, range.end - range.start, Memory::Nothing).0
    }

    fn call(&self, what: (u16, u16), at: u64, len: u64, memory: Memory) -> (Done, Memory) {
        let (sender, answer) = mpsc::sync_channel(1);
        self.ask(what, at, len, memory, End::Call(sender));
        answer.recv().unwrap_or((Err(Errno::IO), Memory::Nothing))
    }

    fn ask(&self, what: (u16, u16), at: u64, len: u64, memory: Memory, end: End) {
        // More than the protocol can say; those that ask take steps.
        let Ok(len) = u32::try_from(len) else { return end.tell(Err(Errno::INVAL), memory) };
        let mut state = self.line.state.lock();
        if state.lost {
            drop(state);
            return end.tell(Err(Errno::IO), memory);
        }
        let cookie = state.next_cookie;
        state.next_cookie += 1;
        let header = header(what.0, what.1, cookie, at, len);
        let reads = what.0 == READ;
        let asked = Request { header, reads, memory: Some(memory), answer: None, end };
        state.asked.insert(cookie, asked);
        state.unsent.push_back(cookie);
        drop(state);
        self.line.news.notify_one();
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        // A server that still has requests may take no more bytes.
        if self.line.lose() {
            self.stream.shut();
        }
        // The first sends, and shuts the stream for the other.
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

impl Line {
    /// Sends what is asked, in turn, until the connection is lost.
    fn send(&self, mut stream: Stream) {
        while let Some((cookie, header, memory)) = self.next() {
            let sent = stream.write_all(&header).and_then(|()| match &memory {
                Some(memory) => stream.write_all(memory.bytes()),
                None => Ok(()),
            });
            if let Some(memory) = memory {
                self.sent(cookie, memory);
            }
            if sent.is_err() {
                break;
            }
        }
        let _ = stream.write_all(&header(DISCONNECT, 0, 0, 0, 0));
    }

    /// Waits for a request to be sent; returns what it writes as well. `None`: the connection is
    /// lost.
    fn next(&self) -> Option<(u64, [u8; REQUEST_BYTES], Option<Memory>)> {
        let mut state = self.state.lock();
        loop {
            if state.lost {
                return None;
            }
            if let Some(cookie) = state.unsent.pop_front()
                && let Some(asked) = state.asked.get_mut(&cookie)
            {
                let memory = if asked.reads { None } else { asked.memory.take() };
                return Some((cookie, asked.header, memory));
            }
            self.news.wait(&mut state);
        }
    }

    /// Notes that a request was sent: a server may have answered it already.
    fn sent(&self, cookie: u64, memory: Memory) {
        let mut state = self.state.lock();
        let Some(asked) = state.asked.get_mut(&cookie) else { return };
        match asked.answer {
            None => asked.memory = Some(memory),
            Some(result) => {
                let Some(asked) = state.asked.remove(&cookie) else { return };
                drop(state);
                asked.end.tell(result, memory);
            }
        }
    }

    /// Takes what the server answers until the connection is lost.
    fn receive(&self, mut stream: Stream) {
        while self.answer(&mut stream).is_ok() {}
    }

    fn answer(&self, stream: &mut impl Read) -> io::Result<()> {
        let mut reply = [0; 16];
        stream.read_exact(&mut reply)?;
        let (magic, rest) = reply.split_at(4);
        let (error, cookie) = rest.split_at(4);
        let strange = || io::Error::from(io::ErrorKind::InvalidData);
        if magic != SIMPLE_REPLY.to_be_bytes() {
            return Err(strange());
        }
        let error = u32::from_be_bytes(error.try_into().map_err(|_| strange())?);
        let cookie = u64::from_be_bytes(cookie.try_into().map_err(|_| strange())?);
        let result = if error == 0 { Ok(()) } else { Err(errno(error)) };
        let (mut memory, reads) = {
            let mut state = self.state.lock();
            let asked = state.asked.get_mut(&cookie).ok_or_else(strange)?;
            match asked.memory.take() {
                Some(memory) => (memory, asked.reads),
                // Being sent: it ends when that is over. Twice is once too often.
                None if asked.answer.is_none() => {
                    asked.answer = Some(result);
                    return Ok(());
                }
                None => return Err(strange()),
            }
        };
        let filled = match reads && result.is_ok() {
            true => stream.read_exact(memory.bytes_mut()),
            false => Ok(()),
        };
        let asked = self.state.lock().asked.remove(&cookie).ok_or_else(strange)?;
        asked.end.tell(result.and(filled.as_ref().map(drop).map_err(|_| Errno::IO)), memory);
        filled
    }

    /// Ends everything with `EIO`, but for what the other thread has in its hands: that one calls
    /// it as well.
    /// Returns whether there was anything.
    fn lose(&self) -> bool {
        let mut state = self.state.lock();
        let was_idle = state.asked.is_empty();
        state.lost = true;
        state.unsent.clear();
        let held = |asked: &Request| asked.memory.is_none();
        let (kept, ended) =
            state.asked.drain().partition::<HashMap<_, _>, _>(|(_, asked)| held(asked));
        state.asked = kept;
        drop(state);
        self.news.notify_all();
        for asked in ended.into_values() {
            let Request { end, memory, .. } = asked;
            end.tell(Err(Errno::IO), memory.unwrap_or(Memory::Nothing));
        }
        !was_idle
    }
}

/// Returns the error that a number of the protocol stands for.
fn errno(number: u32) -> Errno {
    match number {
        1 => Errno::PERM,
        12 => Errno::NOMEM,
        22 => Errno::INVAL,
        28 => Errno::NOSPC,
        75 => Errno::OVERFLOW,
        95 => Errno::OPNOTSUPP,
        108 => Errno::SHUTDOWN,
        _ => Errno::IO,
    }
}
