//! The requests of one NBD client to one image, and their replies. Uses no sockets: bytes come in,
//! bytes go out.
//!
//! ```text
//!  bytes ─▶ Header ─┬─ refused ──────────────▶ (its data is skipped) ──▶ reply with an error
//!                   ├─ Write: data ─▶ chunks ─▶ medium, as each is full ─┐
//!                   └─ others ────────────────▶ medium ──────────────────┴─▶ end ─▶ reply
//! ```
//! **Bounds.** A client has [`Limits`] of requests and bytes. Beyond these limits, or while the
//! pool has no room, the client's next request and all bytes after it wait unhandled. The data of a
//! write gets memory one chunk at a time, as it arrives. A client that holds no memory may take one
//! small chunk: its write continues with this chunk, slowly, whatever other clients hold. So does
//! its read (`ChunkedRead`) if the client has no other request in flight. The result of a query for
//! extents, and the reply with it, also count as the client's memory.

mod chunked_read;

use super::{
    handshake::Agreement,
    outbox::Outbox,
    reply::{self, RequestRef},
    wire::{self, BadMagic, Header, command, flag},
};
use chunked_read::ChunkedRead;
use core::ops::Range;
use nowait::Errno;
use nowait_device::{
    BlockingTask, Chunk, Extent, Image, Kind, KnownFailures, Medium, PIECE_BYTES, Pool, RequestEnd,
    SMALL_BYTES, Tag,
};
use std::sync::Arc;

/// The limits of one client. A client that holds no memory may exceed the limit of bytes by one
/// request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The most requests in flight. While more than twice as many parts of replies are unsent, no
    /// further request begins either.
    pub requests: usize,
    /// The most bytes of data, in requests and in replies that the client has not taken.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { requests: 256, bytes: 16 << 20 }
    }
}

#[derive(Debug)]
struct Active {
    header: Header,
    kind: Kind,
    began_ns: u64,
    /// A part of the write's data is still to arrive.
    arriving: bool,
    /// The number of parts that are at the medium.
    parts_left: u32,
    failed: Option<Errno>,
    /// The chunks of a read in order; `None`: the part is still at the medium.
    chunks: Vec<Option<Chunk>>,
    /// The bytes that the pool counts for the result of a query for extents, and for its reply.
    reserved: usize,
}

#[derive(Debug)]
enum Receive {
    Header,
    /// Data of the write in `slot`. `chunk` is the chunk that the data fills, and how many bytes of
    /// it are filled; `offset` is its place in the image. A further `left` bytes have no chunk yet.
    Data {
        slot: u32,
        part: u32,
        offset: u64,
        left: usize,
        chunk: Option<(Chunk, usize)>,
    },
    /// Data of a refused request: the session skips `left` bytes, and replies only then. A client
    /// that has not sent all of its request does not expect a reply yet.
    Skip {
        left: u64,
        header: Header,
        errno: Errno,
    },
}

#[derive(Debug)]
pub(crate) struct Transmission<F> {
    owner: u64,
    image: Arc<Image<F>>,
    told: KnownFailures,
    agreed: Agreement,
    limits: Limits,
    receive: Receive,
    requests: Vec<Option<Active>>,
    free: Vec<u32>,
    /// The bytes of memory that the client holds: chunks at the medium, arriving or unsent, and
    /// memory for queries for extents.
    held_bytes: usize,
    chunked: Option<ChunkedRead>,
    /// A reply has begun and cannot be completed, so the connection cannot be used any more.
    pub(crate) broken: bool,
    /// The client has sent the request to disconnect.
    pub(crate) leaving: bool,
    /// The server ends, so requests that have not begun fail with `ESHUTDOWN`.
    stopping: bool,
}

/// The most extents in one reply.
const EXTENTS_MAX: usize = 4096;
/// The most extents in a reply if there is no memory for more. A client that holds no memory and
/// has no request in flight always gets memory for so many.
const EXTENTS_FEW: usize = 64;
const _: () = assert!(reply::extents_bytes(EXTENTS_FEW) <= SMALL_BYTES);

enum HeaderOutcome {
    Yes,
    /// The header stays unhandled now: the client has reached its limits, the pool has no room, or
    /// a chunked read is not over.
    Later,
}

impl<F> Transmission<F> {
    pub(crate) fn new(
        owner: u64,
        image: Arc<Image<F>>,
        agreed: Agreement,
        limits: Limits,
    ) -> Transmission<F> {
        image.stats().connect();
        Transmission {
            owner,
            told: image.join(),
            image,
            agreed,
            limits,
            receive: Receive::Header,
            requests: Vec::new(),
            free: Vec::new(),
            held_bytes: 0,
            chunked: None,
            broken: false,
            leaving: false,
            stopping: false,
        }
    }

    pub(crate) fn in_flight(&self) -> usize {
        self.requests.len() - self.free.len()
    }

    /// Returns `true` if a part of a request's data has not arrived yet, so that the client must
    /// send it.
    pub(crate) fn is_arriving(&self) -> bool {
        !matches!(self.receive, Receive::Header)
    }

    /// Lets later requests fail with `ESHUTDOWN`. Requests in flight continue, also a write whose
    /// data is still arriving.
    pub(crate) fn stop(&mut self) {
        self.stopping = true;
    }

    pub(crate) fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Returns `true` if no reply is outstanding: no request is in flight, no data is arriving, and
    /// the unhandled input `unread` is shorter than a header.
    pub(crate) fn is_done(&self, unread: &[u8]) -> bool {
        let whole = unread.len() >= Header::size(self.agreed.extended);
        self.in_flight() == 0 && !self.is_arriving() && !whole
    }

    fn fits(&self, len: usize, pool: &mut Pool) -> bool {
        let holds = self.held_bytes > 0;
        let room = pool.has_room(self.image.number(), len) || (!holds && len <= SMALL_BYTES);
        room && (!holds || self.held_bytes + len <= self.limits.bytes)
    }

    /// Returns `true` if the next data of a write has no memory yet.
    pub(crate) fn is_short(&self) -> bool {
        matches!(self.receive, Receive::Data { chunk: None, .. })
    }

    /// Returns `true` if the arriving data has at least 32 KiB, counted from the beginning of its
    /// current chunk.
    pub(crate) fn receives_much(&self) -> bool {
        matches!(&self.receive, Receive::Data { left, chunk, .. }
            if *left + chunk.as_ref().map_or(0, |(chunk, _)| chunk.data().len()) >= 32 << 10)
    }

    pub(crate) fn receive_buffer(&mut self) -> Option<&mut [u8]> {
        match &mut self.receive {
            Receive::Data { chunk: Some((chunk, filled)), .. } => {
                Some(&mut chunk.data_mut()[*filled..])
            }
            _ => None,
        }
    }

    /// Counts `bytes` that the caller has put into the receive buffer. If the chunk is full, passes
    /// it to the medium.
    pub(crate) fn filled<M: Medium<File = F>>(&mut self, bytes: usize, medium: &mut M) {
        if let Receive::Data { chunk: Some((_, filled)), .. } = &mut self.receive {
            *filled += bytes;
        }
        self.pass_on(medium);
    }

    /// Takes requests and their data from the front of `input`; returns how many bytes it has
    /// taken. Takes fewer than all if a header is not complete, if the next request or data must
    /// wait for the client's limits or for memory, or if the client has disconnected.
    ///
    /// # Errors
    /// A header in the input begins with a wrong magic number, so the connection cannot be used any
    /// more.
    pub(crate) fn take<M: Medium<File = F>>(
        &mut self,
        input: &[u8],
        medium: &mut M,
        out: &mut Outbox,
        now_ns: u64,
    ) -> Result<usize, BadMagic> {
        let mut at = 0;
        while !self.leaving {
            let rest = &input[at..];
            match &mut self.receive {
                Receive::Skip { left, header, errno } => {
                    let skipped = (*left).min(rest.len() as u64);
                    *left -= skipped;
                    at += skipped as usize;
                    if *left > 0 {
                        break;
                    }
                    let (header, errno) = (*header, *errno);
                    self.receive = Receive::Header;
                    self.answer_error(&header, errno, out);
                }
                Receive::Data { chunk: Some((chunk, filled)), .. } => {
                    let receive_buffer = &mut chunk.data_mut()[*filled..];
                    let count = receive_buffer.len().min(rest.len());
                    if count == 0 {
                        break;
                    }
                    receive_buffer[..count].copy_from_slice(&rest[..count]);
                    *filled += count;
                    at += count;
                    self.pass_on(medium);
                }
                Receive::Data { chunk: None, .. } => {
                    if !self.next_chunk(medium) {
                        break;
                    }
                }
                Receive::Header => {
                    let Some(header) = Header::read(rest, self.agreed.extended)? else { break };
                    match self.begin(header, medium, out, now_ns) {
                        HeaderOutcome::Later => break,
                        HeaderOutcome::Yes => at += Header::size(self.agreed.extended),
                    }
                }
            }
        }
        Ok(at)
    }

    /// Returns `false` if the client may take no memory for the next data now.
    fn next_chunk<M: Medium<File = F>>(&mut self, medium: &mut M) -> bool {
        let Receive::Data { left, offset, .. } = self.receive else { return true };
        let mut len = left.min(PIECE_BYTES);
        if !self.fits(len, medium.pool()) {
            if self.held_bytes > 0 {
                return false;
            }
            len = small(offset, left);
        }
        let taken = medium.pool().take_for(self.image.number(), len);
        if let Receive::Data { left, chunk, .. } = &mut self.receive {
            *left -= len;
            *chunk = Some((taken, 0));
        }
        self.held_bytes += len;
        true
    }

    /// If the current chunk is full, passes it to the medium, and takes the next chunk if data is
    /// left and there is memory.
    fn pass_on<M: Medium<File = F>>(&mut self, medium: &mut M) {
        let Receive::Data { slot, part, offset, left, chunk: held } = &mut self.receive else {
            return;
        };
        let Some((chunk, _)) = held.take_if(|(chunk, filled)| *filled == chunk.data().len()) else {
            return;
        };
        let tag = Tag { owner: self.owner, slot: *slot, part: *part };
        let (at, len) = (*offset, chunk.data().len());
        *offset += len as u64;
        *part += 1;
        let (slot, done) = (*slot, *left == 0);
        let Some(Some(active)) = self.requests.get_mut(slot as usize) else { return };
        active.parts_left += 1;
        active.arriving = !done;
        medium.write(&self.image, chunk, at, active.header.flags & flag::FUA != 0, tag);
        if done {
            self.receive = Receive::Header;
        } else {
            self.next_chunk(medium);
        }
    }

    fn begin<M: Medium<File = F>>(
        &mut self,
        header: Header,
        medium: &mut M,
        out: &mut Outbox,
        now_ns: u64,
    ) -> HeaderOutcome {
        if self.chunked.is_some() {
            return HeaderOutcome::Later;
        }
        if header.command == command::DISCONNECT {
            self.leaving = true;
            return HeaderOutcome::Yes;
        }
        // Unsent replies count as well, because a client could send invalid requests and take no
        // replies.
        if self.in_flight() >= self.limits.requests || out.len() > 2 * self.limits.requests {
            return HeaderOutcome::Later;
        }
        if let Err(errno) = self.check(&header) {
            self.refuse(&header, errno, out);
            return HeaderOutcome::Yes;
        }
        let needed = match header.command {
            command::READ => header.len as usize,
            command::BLOCK_STATUS => reply::extents_bytes(EXTENTS_MAX),
            _ => 0,
        };
        let short = needed > 0 && !self.fits(needed, medium.pool());
        if short && (self.held_bytes > 0 || self.in_flight() > 0) {
            return HeaderOutcome::Later;
        }
        self.image.stats().begin();
        let slot = self.insert(header, now_ns);
        match header.command {
            command::READ if short => {
                self.chunked = Some(ChunkedRead::new(slot, &header));
                self.read_more(medium);
            }
            command::BLOCK_STATUS => self.ask_for_extents(slot, &header, short, medium),
            _ => self.start(slot, header, medium),
        }
        HeaderOutcome::Yes
    }

    fn check(&self, header: &Header) -> Result<(), Errno> {
        if self.stopping {
            return Err(Errno::SHUTDOWN);
        }
        let changes = match header.command {
            command::READ | command::FLUSH | command::CACHE | command::BLOCK_STATUS => false,
            command::WRITE | command::TRIM | command::WRITE_ZEROES => true,
            _ => return Err(Errno::INVAL),
        };
        if header.flags & !allowed_flags(header.command, self.agreed) != 0 {
            return Err(Errno::INVAL);
        }
        if changes && self.image.properties().read_only {
            return Err(Errno::PERM);
        }
        if header.command == command::FLUSH {
            return if header.len == 0 { Ok(()) } else { Err(Errno::INVAL) };
        }
        let moves = matches!(header.command, command::READ | command::WRITE);
        if header.len == 0 || (moves && header.len > u64::from(wire::PAYLOAD_MAX)) {
            return Err(Errno::INVAL);
        }
        // The server offers this command only for images with a cache, so for other images a client
        // must not send the command.
        if header.command == command::CACHE && !self.image.properties().caches {
            return Err(Errno::INVAL);
        }
        if header.command == command::BLOCK_STATUS && !self.agreed.allocation {
            return Err(Errno::INVAL);
        }
        if !self.image.contains(header.offset, header.len) {
            return Err(if changes { Errno::NOSPC } else { Errno::INVAL });
        }
        Ok(())
    }

    /// Answers a request with an error, after the request's data, if any, was skipped.
    fn refuse(&mut self, header: &Header, errno: Errno, out: &mut Outbox) {
        let has_data = match self.agreed.extended {
            true => header.command == command::WRITE || header.flags & flag::PAYLOAD_LEN != 0,
            false => header.command == command::WRITE,
        };
        if has_data {
            self.receive = Receive::Skip { left: header.len, header: *header, errno };
        } else {
            self.answer_error(header, errno, out);
        }
    }

    fn answer_error(&self, header: &Header, errno: Errno, out: &mut Outbox) {
        let request = RequestRef { cookie: header.cookie, offset: header.offset };
        let error = wire::error_number(errno);
        match header.command {
            command::READ | command::BLOCK_STATUS => {
                reply::failed(out, self.agreed, request, error);
            }
            _ => reply::plain(out, self.agreed, request, error),
        }
    }

    fn insert(&mut self, header: Header, now_ns: u64) -> u32 {
        let active = Active {
            header,
            kind: kind(header.command),
            began_ns: now_ns,
            arriving: false,
            parts_left: 0,
            failed: None,
            chunks: Vec::new(),
            reserved: 0,
        };
        if let Some(slot) = self.free.pop() {
            self.requests[slot as usize] = Some(active);
            return slot;
        }
        self.requests.push(Some(active));
        self.requests.len() as u32 - 1
    }

    fn start<M: Medium<File = F>>(&mut self, slot: u32, header: Header, medium: &mut M) {
        let Some(Some(active)) = self.requests.get_mut(slot as usize) else { return };
        active.parts_left = 1;
        let tag = Tag { owner: self.owner, slot, part: 0 };
        let range = header.offset..header.offset + header.len;
        let durable = header.flags & flag::FUA != 0;
        let task = match header.command {
            command::READ => return self.read(slot, &range, medium),
            command::WRITE => {
                active.parts_left = 0;
                active.arriving = true;
                let (offset, left) = (header.offset, header.len as usize);
                self.receive = Receive::Data { slot, part: 0, offset, left, chunk: None };
                return;
            }
            command::FLUSH => return medium.flush(&self.image, &self.told, tag),
            command::TRIM => BlockingTask::Discard { range, durable },
            command::WRITE_ZEROES => BlockingTask::Zero {
                range,
                allocated: header.flags & flag::NO_HOLE != 0,
                fast: header.flags & flag::FAST_ZERO != 0,
                durable,
            },
            _ => BlockingTask::Prefetch { range },
        };
        medium.run(&self.image, task, tag);
    }

    /// With `short`, asks for at most [`EXTENTS_FEW`], because there is no memory for more.
    fn ask_for_extents<M: Medium<File = F>>(
        &mut self,
        slot: u32,
        header: &Header,
        short: bool,
        medium: &mut M,
    ) {
        let Some(Some(active)) = self.requests.get_mut(slot as usize) else { return };
        let max = match (header.flags & flag::ONE != 0, short) {
            (true, _) => 1,
            (false, true) => EXTENTS_FEW,
            (false, false) => EXTENTS_MAX,
        };
        active.parts_left = 1;
        active.reserved = reply::extents_bytes(max);
        self.held_bytes += active.reserved;
        medium.pool().reserve(self.image.number(), active.reserved);
        let range = header.offset..header.offset + header.len;
        let tag = Tag { owner: self.owner, slot, part: 0 };
        medium.run(&self.image, BlockingTask::Extents { range, max }, tag);
    }

    fn read<M: Medium<File = F>>(&mut self, slot: u32, range: &Range<u64>, medium: &mut M) {
        let Some(Some(active)) = self.requests.get_mut(slot as usize) else { return };
        let len = (range.end - range.start) as usize;
        let parts = len.div_ceil(PIECE_BYTES);
        active.parts_left = parts as u32;
        active.chunks = core::iter::repeat_with(|| None).take(parts).collect();
        self.held_bytes += len;
        for part in 0..parts {
            let from = part * PIECE_BYTES;
            let chunk = medium.pool().take_for(self.image.number(), (len - from).min(PIECE_BYTES));
            let tag = Tag { owner: self.owner, slot, part: part as u32 };
            medium.read(&self.image, chunk, range.start + from as u64, tag);
        }
    }

    pub(crate) fn end<M: Medium<File = F>>(
        &mut self,
        ended: RequestEnd,
        medium: &mut M,
        out: &mut Outbox,
        now_ns: u64,
    ) {
        if self.chunked.is_some() {
            return self.chunk_ended(ended, medium, out, now_ns);
        }
        let RequestEnd { tag, result, chunk, extents } = ended;
        let Some(Some(active)) = self.requests.get_mut(tag.slot as usize) else { return };
        active.parts_left -= 1;
        if let Err(errno) = result {
            active.failed.get_or_insert(errno);
        }
        match (chunk, active.chunks.get_mut(tag.part as usize)) {
            (Some(chunk), Some(place)) => *place = Some(chunk),
            (Some(chunk), None) => {
                self.held_bytes -= chunk.data().len();
                medium.pool().give_back(chunk);
            }
            (None, _) => {}
        }
        if active.parts_left == 0 && !active.arriving {
            let active = self.requests[tag.slot as usize].take();
            self.free.push(tag.slot);
            if let Some(active) = active {
                self.finish(active, extents, medium, out, now_ns);
            }
        }
    }

    fn finish<M: Medium<File = F>>(
        &mut self,
        active: Active,
        extents: Vec<Extent>,
        medium: &mut M,
        out: &mut Outbox,
        now_ns: u64,
    ) {
        let Active { header, kind, began_ns, failed, chunks, reserved, .. } = active;
        let elapsed_ns = now_ns.saturating_sub(began_ns);
        self.image.stats().end(kind, header.len, elapsed_ns, failed.is_some());
        let request = RequestRef { cookie: header.cookie, offset: header.offset };
        if let Some(errno) = failed {
            for chunk in chunks.into_iter().flatten() {
                self.held_bytes -= chunk.data().len();
                medium.pool().give_back(chunk);
            }
            self.unreserve(reserved, medium);
            return self.answer_error(&header, errno, out);
        }
        match header.command {
            command::READ => {
                reply::data(out, self.agreed, request, header.len);
                chunks.into_iter().flatten().for_each(|chunk| out.data(chunk));
            }
            command::BLOCK_STATUS => {
                let unsent = reply::extents(out, self.agreed, request, &extents);
                drop(extents);
                self.unreserve(reserved - unsent, medium);
            }
            _ => reply::plain(out, self.agreed, request, 0),
        }
    }

    fn unreserve<M: Medium<File = F>>(&mut self, bytes: usize, medium: &mut M) {
        self.held_bytes -= bytes;
        medium.pool().release(self.image.number(), bytes);
    }

    /// Subtracts `bytes`, which were sent, from the memory that the client holds. If the client
    /// holds none then, continues the chunked read, if there is one.
    pub(crate) fn sent<M: Medium<File = F>>(&mut self, bytes: usize, medium: &mut M) {
        self.held_bytes -= bytes;
        if self.held_bytes == 0 {
            self.read_more(medium);
        }
    }

    /// Ends the transmission, because the connection is closed. Chunks at the medium stay there;
    /// the caller gives them back to the pool when their requests end.
    pub(crate) fn abandon<M: Medium<File = F>>(&mut self, medium: &mut M) {
        if let Receive::Data { chunk: Some((chunk, _)), .. } =
            core::mem::replace(&mut self.receive, Receive::Header)
        {
            medium.pool().give_back(chunk);
        }
        medium.forget(self.owner);
        for active in self.requests.drain(..).flatten() {
            self.image.stats().forget();
            active.chunks.into_iter().flatten().for_each(|chunk| medium.pool().give_back(chunk));
            medium.pool().release(self.image.number(), active.reserved);
        }
        self.image.stats().disconnect();
    }
}

/// Returns how many of `left` bytes at `offset` a small chunk takes: at most up to the next
/// multiple of [`SMALL_BYTES`], so that the following chunks begin at such a multiple.
fn small(offset: u64, left: usize) -> usize {
    left.min(SMALL_BYTES - (offset % SMALL_BYTES as u64) as usize)
}

fn kind(number: u16) -> Kind {
    match number {
        command::READ => Kind::Read,
        command::WRITE => Kind::Write,
        command::FLUSH => Kind::Flush,
        command::TRIM => Kind::Discard,
        command::WRITE_ZEROES => Kind::Zero,
        _ => Kind::Other,
    }
}

fn allowed_flags(number: u16, agreed: Agreement) -> u16 {
    let own = match number {
        command::READ if agreed.structured => flag::DONT_FRAGMENT,
        command::WRITE_ZEROES => flag::NO_HOLE | flag::FAST_ZERO,
        command::BLOCK_STATUS => flag::ONE,
        command::WRITE if agreed.extended => flag::PAYLOAD_LEN,
        _ => 0,
    };
    // FUA is valid in all requests because the server offers it. FUA has no effect in requests that
    // write nothing.
    own | flag::FUA
}
