//! Requests that wait to be sent to a server, and requests that were sent and have no answer yet.
//!
//! ```text
//!  ask ──▶ unsent ──next──▶ sending ──sent──▶ in flight ──answer──▶ ended
//!             ▲                                   │
//!             └──────────── regroup ◀─────────────┘ the connection is lost
//! ```
//! If there is a journal, the client never has overlapping changes in flight at the same time. So
//! the server carries out overlapping changes in the order of its answers, which is the order of
//! the journal.

use super::{
    cache::Visit,
    handshake::Talk,
    journal::{self, Change, Journal},
    request::{End, Memory, Request},
    stream::Stream,
    wire::{self, Command, Header, Kind, Part, Reply},
};
use core::ops::Range;
use nowait::Errno;
use nowait_sys::mutex::{Condvar, Mutex};
use std::{
    collections::{BTreeMap, VecDeque},
    io::{self, Read},
    time::{Duration, Instant},
};

type Done = Result<(), Errno>;

#[derive(Debug)]
pub(super) struct Line {
    state: Mutex<State>,
    news: Condvar,
    /// `true`: the journal keeps changes, because its size is not 0.
    keeps: bool,
}

#[derive(Debug)]
struct State {
    phase: Phase,
    /// The cookies of the requests to be sent, in the order of sending.
    unsent: VecDeque<u64>,
    /// All requests that have not ended, by their cookies. Later requests have larger cookies.
    requests: BTreeMap<u64, Request>,
    next_cookie: u64,
    /// With a journal, the ranges of the changes in flight: the end of each range by its beginning.
    /// No two ranges overlap.
    changing: BTreeMap<u64, u64>,
    changing_bytes: usize,
    journal: Journal,
    /// A flush that the client sent to make room in the journal is in flight.
    makes_room: bool,
    /// The time since which the server has answered nothing; `None`: the server has no requests.
    silent_since: Option<Instant>,
    /// The time since which requests have waited for a connection that answers; `None`: none waits.
    waits_since: Option<Instant>,
    /// The current connection, or else the last one, has answered a request.
    has_answered: bool,
    /// The reason why reconnecting cannot help.
    verdict: Option<String>,
    /// The connection, so that any thread can shut it down.
    stream: Option<Stream>,
    talk: Talk,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// There is no connection, but there may be one later.
    Down,
    Up,
    /// The image is being closed.
    Closing,
    /// No connection will follow: all requests fail.
    Over,
}

pub(super) struct Sending {
    pub(super) cookie: u64,
    pub(super) header: Header,
    pub(super) memory: Option<Memory>,
}

impl Line {
    pub(super) fn new(journal_bytes: usize) -> Line {
        let journal = Journal::new(journal_bytes);
        let keeps = journal.keeps();
        let state = State {
            phase: Phase::Down,
            unsent: VecDeque::new(),
            requests: BTreeMap::new(),
            next_cookie: 0,
            changing: BTreeMap::new(),
            changing_bytes: 0,
            journal,
            makes_room: false,
            silent_since: None,
            waits_since: None,
            has_answered: false,
            verdict: None,
            stream: None,
            talk: Talk::default(),
        };
        Line { state: Mutex::new(state), news: Condvar::new(), keeps }
    }

    /// Ends the request with `EIO` if the image is being closed or has failed. Does not wait.
    pub(super) fn ask(&self, command: Command, memory: Memory, visit: Option<Visit>, end: End) {
        let mut state = self.state.lock();
        if matches!(state.phase, Phase::Closing | Phase::Over) {
            drop(state);
            drop(visit);
            return end.tell(Err(Errno::IO), memory);
        }
        if state.phase == Phase::Down {
            state.waits_since.get_or_insert_with(Instant::now);
        }
        let cookie = state.add(Request { visit, ..Request::new(command, memory, end) });
        state.unsent.push_back(cookie);
        drop(state);
        self.news.notify_one();
    }

    /// Waits for a request to send; `None`: the connection is lost, or the image is being closed.
    pub(super) fn next(&self) -> Option<Sending> {
        let mut state = self.state.lock();
        loop {
            if state.phase != Phase::Up {
                return None;
            }
            if let Some(sending) = state.make_room().or_else(|| state.send_first()) {
                return Some(sending);
            }
            self.news.wait(&mut state);
        }
    }

    /// Takes back the memory of a write that was sent. Ends the write if the server has answered it
    /// already.
    pub(super) fn sent(&self, cookie: u64, memory: Memory) -> io::Result<()> {
        let mut state = self.state.lock();
        let request = state.requests.get_mut(&cookie).ok_or_else(wire::strange)?;
        match request.answer {
            None => {
                request.memory = Some(memory);
                Ok(())
            }
            Some(result) => {
                drop(state);
                self.end(cookie, memory, result)
            }
        }
    }

    /// Reads the next answer of the server, or a part of one, and ends the request if the answer is
    /// complete. After an error the client must give up the connection.
    pub(super) fn answer(&self, stream: &mut impl Read) -> io::Result<()> {
        let talk = self.state.lock().talk;
        let Reply { cookie, is_last, part } = wire::reply(stream, talk.chunks)?;
        match part {
            Part::All(result) => return self.finish(cookie, result, Some(stream)),
            Part::Nothing => {}
            Part::Failed(errno) => self.state.lock().fail(cookie, errno)?,
            Part::Extents(context, count) => {
                let extents = wire::extents(stream, count)?;
                let is_meant = talk.allocation == Some(context);
                self.state.lock().put_extents(cookie, extents, is_meant)?;
            }
            Part::Data(at, len) => {
                self.fill(cookie, at..at.saturating_add(len.into()), |bytes| {
                    stream.read_exact(bytes)
                })?;
            }
            Part::Hole(at, len) => {
                self.fill(cookie, at..at.saturating_add(len.into()), |bytes| {
                    bytes.fill(0);
                    Ok(())
                })?;
            }
        }
        if !is_last {
            return Ok(());
        }
        let outcome = self.state.lock().sent(cookie)?.outcome();
        self.finish(cookie, outcome.ok_or_else(wire::strange)?, None::<&mut io::Empty>)
    }

    /// `data` is the data of a read; `None` if the data came in chunks before.
    fn finish(&self, cookie: u64, result: Done, data: Option<&mut impl Read>) -> io::Result<()> {
        if self.keeps && result == Err(Errno::SHUTDOWN) {
            // The client repeats the request on the next connection.
            return Err(io::Error::other("the NBD server is shutting down"));
        }
        let Some((mut memory, reads)) = self.take_memory(cookie, result)? else { return Ok(()) };
        if let Some(data) = data.filter(|_| result.is_ok()) {
            let read = match memory {
                // A server reports extents only in chunks.
                Memory::Extents(_) => Err(wire::strange()),
                _ if reads => data.read_exact(memory.bytes_mut()),
                _ => Ok(()),
            };
            if let Err(error) = read {
                self.put_back(cookie, memory);
                return Err(error);
            }
        }
        self.end(cookie, memory, result)
    }

    fn fill(
        &self,
        cookie: u64,
        part: Range<u64>,
        fill: impl FnOnce(&mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let (mut memory, place) = self.state.lock().lend(cookie, &part)?;
        let filled = fill(&mut memory.bytes_mut()[place]);
        self.put_back(cookie, memory);
        filled
    }

    /// Returns the memory of a request that the server has answered, and `true` if the request is a
    /// read. `None`: another thread is still sending the request, and ends it afterwards.
    fn take_memory(&self, cookie: u64, result: Done) -> io::Result<Option<(Memory, bool)>> {
        let mut state = self.state.lock();
        let request = state.sent(cookie)?;
        match request.memory.take() {
            Some(memory) => Ok(Some((memory, request.command.reads()))),
            None if request.answer.is_none() => {
                request.answer = Some(result);
                Ok(None)
            }
            // The server has answered twice.
            None => Err(wire::strange()),
        }
    }

    fn put_back(&self, cookie: u64, memory: Memory) {
        if let Some(request) = self.state.lock().requests.get_mut(&cookie) {
            request.memory = Some(memory);
        }
    }

    fn end(&self, cookie: u64, memory: Memory, result: Done) -> io::Result<()> {
        let mut state = self.state.lock();
        let command = state.requests.get(&cookie).ok_or_else(wire::strange)?.command;
        let keeps = self.keeps && command.changes() && result.is_ok();
        let change = if keeps {
            // Copy the bytes without the lock. No thread sends an overlapping change until this
            // change is removed from the line.
            drop(state);
            let bytes = memory.bytes().to_vec();
            state = self.state.lock();
            Some(Change { command, bytes })
        } else {
            None
        };
        let request = state.requests.remove(&cookie).ok_or_else(wire::strange)?;
        let outcome = state.note(&request, result, change);
        let waits = !state.unsent.is_empty();
        drop(state);
        if waits && self.keeps {
            self.news.notify_one();
        }
        request.tell(result, memory);
        outcome
    }

    pub(super) fn is_silent(&self, limit: Duration) -> bool {
        self.state.lock().silent_since.is_some_and(|since| since.elapsed() > limit)
    }

    /// Returns `false` if the image is being closed and needs no connection.
    pub(super) fn hold(&self, stream: Stream) -> bool {
        let mut state = self.state.lock();
        state.stream = Some(stream);
        state.phase == Phase::Down
    }

    pub(super) fn open(&self, talk: Talk) {
        let mut state = self.state.lock();
        (state.talk, state.has_answered) = (talk, false);
        if state.phase == Phase::Down {
            state.phase = Phase::Up;
        }
    }

    pub(super) fn has_answered(&self) -> bool {
        self.state.lock().has_answered
    }

    pub(super) fn halt(&self) {
        let mut state = self.state.lock();
        if state.phase == Phase::Up {
            state.phase = Phase::Down;
        }
        drop(state);
        self.news.notify_all();
    }

    /// Queues all requests that have not ended to be sent again, except the client's own flush for
    /// room in the journal. The threads of the lost connection must have stopped using it.
    ///
    /// # Errors
    /// The reason why reconnecting cannot help.
    pub(super) fn regroup(&self) -> Result<(), String> {
        let mut state = self.state.lock();
        let state = &mut *state;
        state.stream = None;
        state.requests.retain(|_, request| !matches!(request.end, End::Room));
        state.makes_room = false;
        state.requests.values_mut().for_each(Request::forget_answer);
        state.unsent = state.requests.keys().copied().collect();
        state.changing.clear();
        state.changing_bytes = 0;
        let began = state.silent_since.take();
        if !state.requests.is_empty() {
            state.waits_since.get_or_insert_with(|| began.unwrap_or_else(Instant::now));
        }
        state.verdict.take().map_or(Ok(()), Err)
    }

    /// Also counts the time that the lost connection was silent.
    pub(super) fn has_waited(&self, limit: Duration) -> bool {
        self.state.lock().waits_since.is_some_and(|since| since.elapsed() >= limit)
    }

    pub(super) fn pause(&self, time: Duration) -> bool {
        let ends = Instant::now() + time;
        let mut state = self.state.lock();
        while state.phase == Phase::Down && Instant::now() < ends {
            self.news.wait_until(&mut state, ends);
        }
        state.phase == Phase::Down
    }

    /// Lends the journal to `work`. There must be no connection meanwhile.
    pub(super) fn with_journal<T>(&self, work: impl FnOnce(&Journal) -> T) -> T {
        let journal = core::mem::take(&mut self.state.lock().journal);
        let outcome = work(&journal);
        self.state.lock().journal = journal;
        outcome
    }

    /// Returns the bytes in the journal, and `true` if there is a connection.
    pub(super) fn condition(&self) -> (usize, bool) {
        let state = self.state.lock();
        (state.journal.bytes(), state.phase == Phase::Up)
    }

    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        // While requests are in the line, the sending thread may wait for a server that accepts no
        // more bytes. Shutting the connection down wakes this thread.
        let idle = state.phase == Phase::Up && state.requests.is_empty();
        state.phase = Phase::Closing;
        if let Some(stream) = state.stream.as_ref().filter(|_| !idle) {
            stream.shut();
        }
        drop(state);
        self.news.notify_all();
    }

    pub(super) fn is_closing(&self) -> bool {
        self.state.lock().phase == Phase::Closing
    }

    /// The threads of the last connection must have stopped using it.
    pub(super) fn give_up(&self) {
        let mut state = self.state.lock();
        state.phase = Phase::Over;
        state.stream = None;
        state.unsent.clear();
        let requests = core::mem::take(&mut state.requests);
        state.journal.forget(u64::MAX);
        drop(state);
        for mut request in requests.into_values() {
            let memory = request.memory.take().unwrap_or(Memory::Nothing);
            request.tell(Err(Errno::IO), memory);
        }
    }
}

impl State {
    fn add(&mut self, request: Request) -> u64 {
        let cookie = self.next_cookie;
        self.next_cookie += 1;
        self.requests.insert(cookie, request);
        cookie
    }

    /// Begins a flush before the journal is full, so that changes need not wait for room in it.
    fn make_room(&mut self) -> Option<Sending> {
        if self.makes_room || !self.journal.is_half_full() {
            return None;
        }
        self.makes_room = true;
        let flush = Request::new(Command::plain(Kind::Flush), Memory::Nothing, End::Room);
        let cookie = self.add(flush);
        self.send(cookie)
    }

    fn send_first(&mut self) -> Option<Sending> {
        let cookie = *self.unsent.front()?;
        let command = self.requests.get(&cookie)?.command;
        if self.journal.keeps() && command.changes() {
            let range = command.range();
            let before = self.changing.range(..range.end).next_back();
            if before.is_some_and(|(_, end)| *end > range.start)
                || !self.journal.has_room(self.changing_bytes + journal::cost(&command))
            {
                return None;
            }
            self.changing.insert(range.start, range.end);
            self.changing_bytes += journal::cost(&command);
        }
        self.unsent.pop_front();
        self.send(cookie)
    }

    fn send(&mut self, cookie: u64) -> Option<Sending> {
        self.silent_since.get_or_insert_with(Instant::now);
        let covers = self.journal.end();
        let request = self.requests.get_mut(&cookie)?;
        request.is_sent = true;
        request.covers = covers;
        let header = request.command.header(cookie);
        let writes = request.command.kind == Kind::Write;
        let memory = if writes { request.memory.take() } else { None };
        Some(Sending { cookie, header, memory })
    }

    /// Fails for a request that was not sent: the server cannot answer it.
    fn sent(&mut self, cookie: u64) -> io::Result<&mut Request> {
        let request = self.requests.get_mut(&cookie).filter(|request| request.is_sent);
        request.ok_or_else(wire::strange)
    }

    fn fail(&mut self, cookie: u64, errno: Errno) -> io::Result<()> {
        /// The most errors in one reply. A server that sends errors without end does not count as
        /// silent, so this limit ends the connection.
        const FAILURES_MAX: u32 = 64;
        let so_far = &mut self.sent(cookie)?.so_far;
        so_far.failure.get_or_insert(errno);
        so_far.failures += 1;
        if so_far.failures > FAILURES_MAX { Err(wire::strange()) } else { Ok(()) }
    }

    /// A second report, or a report for another metadata context, breaks the protocol.
    fn put_extents(
        &mut self,
        cookie: u64,
        extents: Vec<wire::Extent>,
        is_meant: bool,
    ) -> io::Result<()> {
        match &mut self.sent(cookie)?.memory {
            Some(Memory::Extents(none)) if none.is_empty() && is_meant => *none = extents,
            _ => return Err(wire::strange()),
        }
        Ok(())
    }

    /// Lends the memory of a read, and the place in it for the bytes `part` of the image.
    fn lend(&mut self, cookie: u64, part: &Range<u64>) -> io::Result<(Memory, Range<usize>)> {
        let request = self.sent(cookie)?;
        let (whole, so_far) = (request.command.range(), &mut request.so_far);
        let is_inside = whole.start <= part.start && part.end <= whole.end;
        let left = u64::from(request.command.len - so_far.bytes);
        let len = part.end - part.start;
        if !(request.command.reads() && is_inside && len <= left) {
            return Err(wire::strange());
        }
        let mut memory = request.memory.take().ok_or_else(wire::strange)?;
        if so_far.bytes == 0 && len < left {
            // The chunks of a reply may leave bytes out, and the memory may hold data of another
            // client.
            memory.bytes_mut().fill(0);
        }
        so_far.bytes += len as u32;
        let place = |at: u64| (at - whole.start) as usize;
        Ok((memory, place(part.start)..place(part.end)))
    }

    /// Fails if the client's own flush for room in the journal has failed.
    fn note(&mut self, request: &Request, result: Done, change: Option<Change>) -> io::Result<()> {
        (self.waits_since, self.has_answered) = (None, true);
        let in_flight = self.requests.len() > self.unsent.len();
        self.silent_since = in_flight.then(Instant::now);
        let command = &request.command;
        if self.journal.keeps() && command.changes() {
            self.changing.remove(&command.at);
            self.changing_bytes -= journal::cost(command);
        }
        if let Some(change) = change {
            self.journal.add(change);
        }
        if command.kind == Kind::Flush && result.is_ok() {
            self.journal.forget(request.covers);
        }
        if let End::Room = request.end {
            self.makes_room = false;
            if let Err(errno) = result {
                // No client waits for this flush. If the connection went on, no client would learn
                // that acknowledged data may be lost.
                let reason = format!("the NBD server cannot make written data durable: {errno}");
                self.verdict = Some(reason.clone());
                return Err(io::Error::other(reason));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    const WRITE: u32 = 256 << 10;

    fn write(line: &Line, at: u64) {
        let command = Command { kind: Kind::Write, flags: 0, at, len: WRITE };
        let end = End::Call(mpsc::sync_channel(1).0);
        line.ask(command, Memory::Bytes(vec![0; WRITE as usize]), None, end);
    }

    fn send(line: &Line) -> Option<u64> {
        let mut state = line.state.lock();
        let sending = state.make_room().or_else(|| state.send_first())?;
        let request = state.requests.get_mut(&sending.cookie).unwrap();
        request.memory = Some(sending.memory.unwrap_or(Memory::Nothing));
        Some(sending.cookie)
    }

    fn answer(line: &Line, cookie: u64) {
        let header =
            [&crate::nbd::SIMPLE_REPLY.to_be_bytes()[..], &[0; 4], &cookie.to_be_bytes()].concat();
        line.answer(&mut &header[..]).unwrap();
    }

    #[test]
    fn a_change_waits_for_room_and_for_those_it_overlaps() {
        let line = Line::new(1 << 20);
        line.open(Talk::default());
        for place in [0, 1, 1, 2] {
            write(&line, place * u64::from(WRITE));
        }
        write(&line, u64::from(WRITE) - 1);
        assert_eq!([send(&line), send(&line), send(&line)], [Some(0), Some(1), None], "overlap");
        answer(&line, 0);
        assert_eq!(send(&line), None, "still");
        answer(&line, 1);
        assert_eq!(send(&line), Some(5), "more than half is used: a flush");
        assert_eq!([send(&line), send(&line)], [Some(2), None], "what is in flight counts, too");
        answer(&line, 5);
        assert_eq!([send(&line), send(&line)], [Some(3), None], "room, but an overlap");
        answer(&line, 2);
        assert_eq!([send(&line), send(&line)], [Some(4), None], "no more");
        assert_eq!(line.condition(), (WRITE as usize + 128, true));
    }

    #[test]
    fn an_empty_change_waits_for_no_other() {
        let line = Line::new(1 << 20);
        line.open(Talk::default());
        write(&line, 0);
        let nothing = Command { len: 0, ..Command::plain(Kind::Write) };
        line.ask(nothing, Memory::Nothing, None, End::Call(mpsc::sync_channel(1).0));
        write(&line, 0);
        assert_eq!([send(&line), send(&line), send(&line)], [Some(0), Some(1), None]);
        answer(&line, 1);
        assert_eq!(send(&line), None, "the first one is in flight");
        answer(&line, 0);
        assert_eq!(send(&line), Some(2));
    }

    #[test]
    fn a_flush_covers_what_was_answered_before_it_was_sent() {
        let line = Line::new(8 << 20);
        line.open(Talk::default());
        write(&line, 0);
        write(&line, u64::from(WRITE));
        let end = End::Call(mpsc::sync_channel(1).0);
        line.ask(Command::plain(Kind::Flush), Memory::Nothing, None, end);
        assert_eq!([send(&line), send(&line)], [Some(0), Some(1)]);
        answer(&line, 0);
        assert_eq!(send(&line), Some(2));
        answer(&line, 1);
        answer(&line, 2);
        assert_eq!(line.condition(), (WRITE as usize + 128, true), "the second is kept");
    }
}
