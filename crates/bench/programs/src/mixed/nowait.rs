//! The server with one thread and one context.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use nowait_engine::command::Flags;
use nowait_engine::{BackendChoice, Command, EventTarget, Kind, Segments, Submission};
use nowait_sys::file::IoVec;
use nowait_sys::timer::Timer;

use super::{ASK, BLOCK, TICK_NS, block_of};
use nowait_harness::error::{Result, failed};
use nowait_harness::interrupt;
use nowait_harness::rig::{Rig, engine, expect_whole};

const O_RDWR: i32 = 2;
/// Bytes of a read of the timer.
const TICK: usize = 8;

/// The state of a connection.
#[derive(Clone, Copy)]
enum Wants {
    Request,
    Block,
    Room,
}

impl Wants {
    /// Returns the bytes that are moved then.
    fn len(self) -> usize {
        match self {
            Wants::Request => ASK,
            Wants::Block | Wants::Room => BLOCK,
        }
    }
}

struct Server<'a> {
    rig: &'a Rig,
    sockets: &'a [UnixStream],
    file: &'a File,
    timer: &'a Timer,
}

impl Server<'_> {
    /// The memory of connection `index`; that of the timer is behind all.
    fn memory(&self, index: usize, len: usize) -> IoVec {
        self.rig.segment(index * BLOCK, len)
    }

    fn start(
        &self,
        submission: &mut Submission<'_>,
        index: usize,
        wants: Wants,
        at: u64,
    ) -> Result<()> {
        let (kind, fd) = match wants {
            Wants::Request => (Kind::Read, self.sockets[index].as_fd()),
            Wants::Block => (Kind::Read, self.file.as_fd()),
            Wants::Room => (Kind::Write, self.sockets[index].as_fd()),
        };
        self.begin(submission, kind, fd, index, wants.len(), at)
    }

    fn wait_for_tick(&self, submission: &mut Submission<'_>) -> Result<()> {
        let index = self.sockets.len();
        // SAFETY: the timer lives as long as the server.
        let fd = unsafe { BorrowedFd::borrow_raw(self.timer.raw()) };
        self.begin(submission, Kind::Read, fd, index, TICK, 0)
    }

    fn begin(
        &self,
        submission: &mut Submission<'_>,
        kind: Kind,
        fd: BorrowedFd<'_>,
        index: usize,
        len: usize,
        at: u64,
    ) -> Result<()> {
        let segments = Segments::One(self.memory(index, len));
        // SAFETY: the memory is the rig's, which outlives its requests.
        let command = unsafe {
            Command::new(kind, (fd.as_raw_fd(), Flags::Read(O_RDWR)), segments, at as i64)
        };
        let target = EventTarget { data: index as u64, obj: index as u64, eventfd: None };
        self.rig.context.io().reserve(1).map_err(failed("submit"))?;
        submission.submit(command, target).map_err(failed("submit"))
    }

    /// Serves until all have hung up, or the user has asked to stop; returns how often the timer
    /// was seen, which also ends every wait.
    fn run(&self) -> Result<u64> {
        let (count, mut ticks) = (self.sockets.len(), 0);
        let mut wants = vec![Wants::Request; count];
        let mut open = count;
        let mut submission = Submission::new(&self.rig.context);
        for index in 0..count {
            self.start(&mut submission, index, Wants::Request, 0)?;
        }
        self.wait_for_tick(&mut submission)?;
        submission.finish();
        let mut ended = Vec::new();
        while open > 0 && !interrupt::happened() {
            self.rig.reap_results(256, &mut ended)?;
            let mut submission = Submission::new(&self.rig.context);
            for (name, res) in ended.drain(..) {
                let index = name as usize;
                if index == count {
                    expect_whole(res, TICK)?;
                    ticks += 1;
                    self.wait_for_tick(&mut submission)?;
                    continue;
                }
                let wanted = wants[index];
                if let (Wants::Request, 0) = (wanted, res) {
                    open -= 1; // hung up
                    continue;
                }
                expect_whole(res, wanted.len())?;
                let (next, at) = match wanted {
                    Wants::Request => {
                        // SAFETY: the read has ended: no thread writes there.
                        let request = unsafe {
                            core::slice::from_raw_parts(self.memory(index, ASK).base, ASK)
                        };
                        (Wants::Block, block_of(request))
                    }
                    Wants::Block => (Wants::Room, 0),
                    Wants::Room => (Wants::Request, 0),
                };
                wants[index] = next;
                self.start(&mut submission, index, next, at)?;
            }
            submission.finish();
        }
        Ok(ticks)
    }
}

/// Serves until all clients have hung up; returns how often the timer was seen.
///
/// # Errors
/// No io_uring here, or a request failed.
pub(super) fn serve(sockets: &[UnixStream], file: &File) -> Result<u64> {
    let engine = engine(BackendChoice::Uring)?;
    let rig = Rig::new(&engine, sockets.len() + 1, (sockets.len() + 1) * BLOCK)?;
    let timer = Timer::every_ns(TICK_NS).map_err(failed("a timer"))?;
    let ticks = Server { rig: &rig, sockets, file, timer: &timer }.run();
    drop(rig);
    engine.shutdown();
    ticks
}
