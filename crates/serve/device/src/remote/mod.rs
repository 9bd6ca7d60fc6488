//! An image on an NBD server, over one connection. If [`Patience::outage`] is not 0, the client
//! replaces a lost connection.
//!
//! All serving threads share the connection, so a flush covers the writes of all of them. Serving
//! threads put their requests in a line (`line`), and none of these threads waits for the socket.
//! One thread sends the requests and another receives the answers (`link`), by TLS if the address
//! asks for it (`tls`). If `outage` is not 0, the journal (`journal`) keeps changes that the server
//! has answered but that no flush has made durable. After a reconnect the client first repeats
//! these changes, in case the server was restarted, and then all unanswered requests.
//!
//! An image may have a cache (`cache`), which answers reads of pages that it holds. The cache
//! counts the changes in flight (`changes`), because it must not hold a page that is being changed.

mod cache;
mod changes;
mod handshake;
mod journal;
mod line;
mod link;
mod patience;
mod request;
mod stream;
mod tls;
mod wire;

use crate::{
    Chunk, Mailbox, Source, Tag,
    backing::NbdAddress,
    error::ImageError,
    nbd::{flag, transmission as flags},
    source::{Messages, Transfers},
    stripes::Shared as Blocks,
};
use cache::ImageCache;
use core::{
    ops::Range,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};
use handshake::Export;
use line::Line;
use link::Link;
use nowait::{Errno, Nowait, Zeroing};
use request::{End, Memory};
use std::{
    io,
    path::Path,
    sync::{Arc, mpsc},
    thread,
};
use stream::Stream;
use wire::{Command, Kind};

pub use cache::{Cache, CacheCounts};
pub use patience::Patience;

type Done = Result<(), Errno>;

/// The state and history of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConnectionCounts {
    /// There is a connection to the server.
    pub is_up: bool,
    /// How often the client has replaced a lost connection.
    pub reconnects: u64,
    /// How many changes the client has repeated after reconnects.
    pub repeated: u64,
    /// Bytes of changes in the journal.
    pub kept_bytes: u64,
    /// The counters of the cache; zeroes if the image has none.
    pub cache: CacheCounts,
}

/// The size of the journal in bytes. The client flushes when the journal is more than half full.
const JOURNAL_BYTES: usize = 64 << 20;

/// The longest range of one query for extents, in bytes: the server may take long.
const STATUS_BYTES_MAX: u64 = 1 << 30;

/// An image on an NBD server.
#[derive(Debug)]
pub struct Remote {
    nowait: Nowait,
    address: NbdAddress,
    shown: String,
    export: Export,
    line: Arc<Line>,
    cached: Option<Arc<ImageCache>>,
    reconnects: Arc<AtomicU64>,
    repeated: Arc<AtomicU64>,
    thread: Option<thread::JoinHandle<()>>,
    /// How long [`Source::sync_all`] waits for its flush.
    end: Duration,
}

impl Remote {
    /// Blocks for about ten seconds at most, not counting the lookup of a host name.
    pub(crate) fn connect(
        nowait: &Nowait,
        address: &NbdAddress,
        shown: String,
        patience: Patience,
        cache: Option<&Arc<Cache>>,
    ) -> io::Result<Remote> {
        let (stream, export) = handshake::choose(Stream::to(&address.server)?, address)?;
        let end = export.size - export.size % u64::from(export.block_bytes);
        let cached = cache.map(|cache| Arc::new(cache.image(end)));
        let kept_bytes = if patience.outage.is_zero() { 0 } else { JOURNAL_BYTES };
        let line = Arc::new(Line::new(kept_bytes));
        let (reconnects, repeated) = (Arc::default(), Arc::default());
        let link = Link {
            nowait: nowait.clone(),
            line: line.clone(),
            cached: cached.clone(),
            address: address.clone(),
            shown: shown.clone(),
            export,
            patience,
            reconnects: Arc::clone(&reconnects),
            repeated: Arc::clone(&repeated),
        };
        let named = thread::Builder::new().name("nowait-nbd-in".to_owned());
        let thread = Some(named.spawn(move || link.run(stream))?);
        let (nowait, address) = (nowait.clone(), address.clone());
        Ok(Remote {
            end: patience.outage.saturating_add(patience.end),
            nowait,
            address,
            shown,
            export,
            line,
            cached,
            reconnects,
            repeated,
            thread,
        })
    }

    /// Returns the state and history of the connection.
    pub fn counts(&self) -> ConnectionCounts {
        let (kept_bytes, is_up) = self.line.condition();
        ConnectionCounts {
            is_up,
            reconnects: self.reconnects.load(Relaxed),
            repeated: self.repeated.load(Relaxed),
            kept_bytes: kept_bytes as u64,
            cache: self.cached.as_ref().map_or_else(CacheCounts::default, |it| it.counts()),
        }
    }

    pub(crate) fn flushes(&self) -> bool {
        self.can(flags::FLUSH)
    }

    fn can(&self, flag: u16) -> bool {
        self.export.flags & flag != 0
    }

    fn pages(&self, blocks: Range<u64>) -> Range<u64> {
        match &self.cached {
            Some(cached) => cached.span(&blocks),
            None => blocks,
        }
    }

    /// A short read asks for one chunk if possible, so that the server need not look for holes.
    fn read_of(&self, len: u64) -> (Kind, u16) {
        const ALWAYS_ONE_BYTES: u64 = 64 << 10;
        let in_one = self.can(flags::DONT_FRAGMENT) && len <= ALWAYS_ONE_BYTES;
        (Kind::Read, if in_one { flag::DONT_FRAGMENT } else { 0 })
    }

    fn most_bytes(&self) -> usize {
        let unit = handshake::BLOCK_BYTES_MAX;
        (self.export.payload_max / unit * unit) as usize
    }

    fn change(&self, what: (Kind, u16), range: &Range<u64>) -> Done {
        self.call(what, range.start, range.end - range.start, Memory::Nothing).0
    }

    fn call(&self, what: (Kind, u16), at: u64, len: u64, memory: Memory) -> (Done, Memory) {
        let (sender, answer) = mpsc::sync_channel(1);
        self.ask(what, at, len, memory, End::Call(sender));
        answer.recv().unwrap_or((Err(Errno::IO), Memory::Nothing))
    }

    fn ask(&self, what: (Kind, u16), at: u64, len: u64, memory: Memory, end: End) {
        // The protocol cannot express longer requests; callers divide them.
        let Ok(len) = u32::try_from(len) else { return end.tell(Err(Errno::INVAL), memory) };
        let command = Command { kind: what.0, flags: what.1, at, len };
        let visit = self.cached.as_ref().and_then(|cached| cached.begin(&command));
        self.line.ask(command, memory, visit, end);
    }
}

impl Source for Remote {
    fn nowait(&self) -> &Nowait {
        &self.nowait
    }

    fn path(&self) -> &Path {
        Path::new(&self.shown)
    }

    fn size(&self) -> Result<u64, ImageError> {
        Ok(self.export.size)
    }

    fn refresh_size(&self) -> Result<(), ImageError> {
        let reason = "the size of an NBD export stays as at the start: restart nowait serve";
        Err(ImageError::new(format!("{}: {reason}", self.shown)))
    }

    /// The parsed address is the identity, because users can write one address in several ways.
    fn identity(&self) -> String {
        format!("{:?}", self.address)
    }

    fn is_read_only(&self) -> bool {
        self.can(flags::READ_ONLY)
    }

    fn block_bytes(&self) -> u64 {
        u64::from(self.export.block_bytes)
    }

    fn span(&self, range: &Range<u64>) -> Range<u64> {
        let align = self.block_bytes();
        self.pages(range.start / align * align..range.end.next_multiple_of(align))
    }

    fn transfers(&self) -> Transfers<'_> {
        Transfers::Messages(self)
    }

    fn read_at(&self, bytes: &mut [u8], at: u64) -> Result<usize, Errno> {
        if self.cached.as_ref().is_some_and(|cached| cached.read(bytes, at)) {
            return Ok(bytes.len());
        }
        let span = self.pages(at..at + bytes.len() as u64);
        for first in span.clone().step_by(self.most_bytes()) {
            let len = (span.end - first).min(self.most_bytes() as u64);
            let memory = Memory::Bytes(vec![0; len as usize]);
            let (done, memory) = self.call(self.read_of(len), first, len, memory);
            done?;
            // With a cache the client reads whole pages, so the first and the last piece may have
            // more bytes than the caller asked for.
            let (start, end) = (first.max(at), (first + len).min(at + bytes.len() as u64));
            let [from, to] = [first, at].map(|base| (start - base) as usize..(end - base) as usize);
            bytes[to].copy_from_slice(&memory.bytes()[from]);
        }
        Ok(bytes.len())
    }

    fn write_all_at(&self, bytes: &[u8], at: u64) -> Done {
        let most = self.most_bytes();
        for (at, piece) in (at..).step_by(most).zip(bytes.chunks(most)) {
            let memory = Memory::Bytes(piece.to_vec());
            self.call((Kind::Write, 0), at, piece.len() as u64, memory).0?;
        }
        Ok(())
    }

    fn discard(&self, range: Range<u64>) -> Done {
        if !self.can(flags::TRIM) {
            return Err(Errno::OPNOTSUPP);
        }
        self.change((Kind::Trim, 0), &range)
    }

    fn zero(&self, range: Range<u64>, zeroing: Zeroing, fast: bool) -> Done {
        if !self.can(flags::WRITE_ZEROES) || fast && !self.can(flags::FAST_ZERO) {
            return Err(Errno::OPNOTSUPP);
        }
        let keep = if matches!(zeroing, Zeroing::Allocated) { flag::NO_HOLE } else { 0 };
        let quick = if fast { flag::FAST_ZERO } else { 0 };
        self.change((Kind::WriteZeroes, keep | quick), &range)
    }

    fn extents(&self, at: u64, end: u64) -> Result<Vec<(u64, bool)>, Errno> {
        if self.export.talk.allocation.is_none() {
            // The server does not report extents, so the whole range may be data.
            return Ok(vec![(end, true)]);
        }
        let block = self.block_bytes();
        let first = at / block * block;
        let end = end.next_multiple_of(block).min(self.export.size);
        let len = (end - first).min(STATUS_BYTES_MAX);
        let what = (Kind::BlockStatus, 0);
        let (done, memory) = self.call(what, first, len, Memory::Extents(Vec::new()));
        done?;
        let Memory::Extents(said) = memory else { return Err(Errno::IO) };
        let mut until = first;
        let ends = said.into_iter().map(|(len, has_data)| {
            until += u64::from(len);
            (until, has_data)
        });
        let extents: Vec<_> = ends.filter(|(until, _)| *until > at).collect();
        // The server reported no extent at the requested offset.
        if extents.is_empty() { Err(Errno::IO) } else { Ok(extents) }
    }

    fn sync_data(&self) -> Done {
        if self.flushes() { self.call((Kind::Flush, 0), 0, 0, Memory::Nothing).0 } else { Ok(()) }
    }

    /// Waits at most `patience.outage` and `patience.end` together, and then fails.
    fn sync_all(&self) -> Result<(), String> {
        if !self.flushes() {
            return Ok(());
        }
        let (sender, answer) = mpsc::sync_channel(1);
        self.ask((Kind::Flush, 0), 0, 0, Memory::Nothing, End::Call(sender));
        let done = answer.recv_timeout(self.end).map_or(Err(Errno::TIMEDOUT), |(done, _)| done);
        done.map_err(|errno| format!("{}: flush: {errno}", self.shown))
    }
}

impl Messages for Remote {
    fn writes_durably(&self) -> bool {
        self.can(flags::FUA)
    }

    fn read_now(&self, chunk: &mut Chunk, at: u64) -> bool {
        self.cached.as_ref().is_some_and(|cached| cached.read(chunk.whole_mut(), at))
    }

    fn read(&self, chunk: Chunk, at: u64, tag: Tag, mailbox: &Arc<Mailbox>) {
        let end = End::Mail(mailbox.clone(), tag, None);
        let len = chunk.whole().len();
        let what = self.read_of(len as u64);
        self.ask(what, at, len as u64, Memory::Chunk(chunk), end);
    }

    fn write(
        &self,
        chunk: Chunk,
        (at, durable): (u64, bool),
        blocks: Option<Blocks>,
        tag: Tag,
        mailbox: &Arc<Mailbox>,
    ) {
        let end = End::Mail(mailbox.clone(), tag, blocks);
        let len = chunk.whole().len();
        let flags = if durable { flag::FUA } else { 0 };
        self.ask((Kind::Write, flags), at, len as u64, Memory::Chunk(chunk), end);
    }

    fn flush(&self, tag: Tag, mailbox: &Arc<Mailbox>) {
        let end = End::Mail(mailbox.clone(), tag, None);
        if self.flushes() {
            self.ask((Kind::Flush, 0), 0, 0, Memory::Nothing, end);
        } else {
            // If the server cannot flush, the image is read-only, so there is nothing to flush.
            end.tell(Ok(()), Memory::Nothing);
        }
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        self.line.close();
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
