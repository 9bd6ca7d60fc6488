//! The client: a thread that asks on all connections, and looks at the answers.

use std::io::{ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use nowait_sys::epoll::{self, Epoll};
use nowait_sys::time::Deadline;

use super::{ASK, BLOCK, hang_up};
use nowait_harness::error::{BenchError, Context as _, Result, failed};
use nowait_harness::interrupt;
use nowait_harness::pattern;
use nowait_harness::rig::wrong_bytes;
use nowait_harness::stats::SplitMix;
use nowait_harness::usage::Used;

/// Between looks at whether the user has asked to stop.
const STEP_NS: u64 = 50_000_000;

pub(super) struct Client {
    pub(super) answered: AtomicU64,
    pub(super) seed: u64,
    pub(super) blocks: u64,
    pub(super) until: Instant,
}

/// A connection of the client: what it has asked for, and what has come of it.
struct Connection<'a> {
    socket: &'a UnixStream,
    /// In bytes of the file.
    at: u64,
    answer: Vec<u8>,
    bytes: usize,
}

impl Connection<'_> {
    fn ask(&mut self, block: u64) -> Result<()> {
        let mut request = [0; ASK];
        request[..8].copy_from_slice(&block.to_le_bytes());
        (self.at, self.bytes) = (block * BLOCK as u64, 0);
        self.socket.write_all(&request).context(|| "ask".to_owned())
    }

    /// Takes what is there of the answer; returns whether that is all of it.
    fn take(&mut self) -> Result<bool> {
        match self.socket.read(&mut self.answer[self.bytes..]) {
            Ok(0) => return Err(BenchError::failed("the server hung up before its answer")),
            Ok(bytes) => self.bytes += bytes,
            Err(error)
                if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::Interrupted) => {}
            Err(error) => return Err(error).context(|| "an answer".to_owned()),
        }
        if self.bytes < BLOCK {
            return Ok(false);
        }
        match pattern::is_laid_out(self.at, &self.answer) {
            true => Ok(true),
            false => Err(wrong_bytes(self.at)),
        }
    }
}

impl Client {
    /// Asks on all connections, one request at a time on each, until the time is over; then hangs
    /// up each when it has its answer. Returns what the thread has used.
    ///
    /// At the end all are hung up, also after an error: the server waits for nothing else.
    pub(super) fn run(&self, sockets: &[UnixStream]) -> Result<Used> {
        let asked = self.ask(sockets);
        hang_up(sockets);
        asked.and_then(|()| Used::of_thread())
    }

    fn ask(&self, sockets: &[UnixStream]) -> Result<()> {
        let epoll = Epoll::new().map_err(failed("epoll"))?;
        let mut random = SplitMix(self.seed);
        let connection = |socket| Connection { socket, at: 0, answer: vec![0; BLOCK], bytes: 0 };
        let mut connections: Vec<_> = sockets.iter().map(connection).collect();
        for (index, connection) in connections.iter_mut().enumerate() {
            let socket = connection.socket;
            socket.set_nonblocking(true).context(|| "a socket".to_owned())?;
            epoll.add(socket.as_raw_fd(), epoll::IN, index as u64).map_err(failed("epoll"))?;
            connection.ask(random.next() % self.blocks)?;
        }
        let (mut open, mut ready) = (sockets.len(), Vec::with_capacity(256));
        while open > 0 && !interrupt::happened() {
            epoll.wait(&mut ready, Deadline::after_ns(STEP_NS));
            for event in &ready {
                let connection = &mut connections[event.token as usize];
                if !connection.take()? {
                    continue;
                }
                self.answered.fetch_add(1, Relaxed);
                if Instant::now() < self.until {
                    connection.ask(random.next() % self.blocks)?;
                } else {
                    let socket = connection.socket;
                    epoll.remove(socket.as_raw_fd()).map_err(failed("epoll"))?;
                    socket.shutdown(Shutdown::Both).context(|| "hang up".to_owned())?;
                    open -= 1;
                }
            }
        }
        Ok(())
    }
}
