//! Streams: pipes, sockets, terminals, eventfds, and all other files without offsets.
//!
//! | file | attempted by | waits |
//! |---|---|---|
//! | pipe, socket, eventfd or timer that is read | `preadv2`, `pwritev2` with `RWF_NOWAIT` | in the ring, else for readiness |
//! | socket where the kernel refuses that flag | `recvmsg`, `sendmsg` with `MSG_DONTWAIT` | for readiness |
//! | FIFO, terminal, inotify, eventfd that is written | a blocking call, when it is ready | for readiness |
//!
//! The descriptor's own mode is never changed. A read ends with the bytes that are there. The
//! exception is a device that never runs out (/dev/zero): an attempt may end short without a
//! reason, so a worker reads the rest. A write on a blocking descriptor goes on until all is
//! written, as write(2) does. Requests on one pipe or socket take turns in the order of submission,
//! reads and writes separately.

use super::{Body, Carrier, Iteration};
use crate::{
    Command, Kind,
    order::{FileState, InodeKey},
    route::Route,
};
use core::ops::ControlFlow;
use nowait_block::{Bio, BioOp, Segments, bio::Descriptor};
use nowait_retry::Step;
use nowait_sys::{
    Errno,
    file::{self, O_NONBLOCK, Stat, rwf},
    socket,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StreamWait {
    /// The ring waits and then transfers.
    Ring,
    /// Waits for readiness, then attempts the transfer.
    Ready,
    /// Waits for readiness, then a worker makes a blocking call.
    Worker,
    Poll,
}

pub(crate) struct StreamBody {
    pub(crate) carrier: Carrier,
    pub(crate) wait: StreamWait,
    /// The key of the line in which the request takes its turn.
    pub(crate) queue: Option<InodeKey>,
    /// `true`: the bio in flight is a poll for the stream's readiness.
    asks: bool,
}

impl StreamBody {
    pub(crate) fn new(carrier: Carrier, wait: StreamWait, queue: Option<InodeKey>) -> StreamBody {
        StreamBody { carrier, wait, queue, asks: false }
    }

    pub(crate) fn poll(route: Route, stat: &Stat) -> Body {
        let carrier = Carrier::by(route, Some(FileState::of(stat)));
        Body::Stream(StreamBody::new(carrier, StreamWait::Poll, None))
    }

    pub(super) fn dispatch(&mut self, it: &mut Iteration<'_, '_>) -> Step {
        self.asks = matches!(self.wait, StreamWait::Ready | StreamWait::Worker);
        self.dispatch_by(self.carrier.route, it)
    }

    fn dispatch_by(&mut self, route: Route, it: &mut Iteration<'_, '_>) -> Step {
        let fd = match self.carrier.begin(route, it) {
            ControlFlow::Continue(fd) => fd,
            ControlFlow::Break(step) => return step,
        };
        let mut bio = it.command.bio(fd, it.wait.token());
        if self.wait != StreamWait::Poll {
            self.adapt(&mut bio, it.command.kind);
        }
        if bio.is_endless() {
            it.plug.watch_cancel(it.wait.request(), bio.token);
        }
        self.carrier.queue(route, bio, it)
    }

    fn adapt(&self, bio: &mut Bio, kind: Kind) {
        bio.offset = -1;
        if self.asks {
            bio.op = BioOp::Poll(if kind == Kind::Write { POLLOUT } else { POLLIN });
            bio.segments = Segments::NONE;
        } else if self.wait == StreamWait::Worker && kind == Kind::Write {
            bio.segments = bio.segments.first(BLOCKING_WRITE_MAX);
        }
    }

    pub(super) fn complete(
        &mut self,
        it: &mut Iteration<'_, '_>,
        result: Result<u32, Errno>,
    ) -> Step {
        let asked = core::mem::take(&mut self.asks);
        match result {
            result if self.wait == StreamWait::Poll => it.end(result),
            Ok(ready) if asked => self.is_ready(ready, it),
            Ok(bytes) => {
                it.command.done += u64::from(bytes);
                let over = it.command.kind == Kind::Read || bytes == 0;
                if over || it.command.is_complete() {
                    return it.transferred();
                }
                self.dispatch(it)
            }
            // The ring does not wait for this kind of file.
            Err(Errno::AGAIN) if self.wait == StreamWait::Ring && self.carrier.held.is_some() => {
                self.wait = StreamWait::Ready;
                self.dispatch(it)
            }
            result => it.end(result),
        }
    }

    fn is_ready(&mut self, ready: u32, it: &mut Iteration<'_, '_>) -> Step {
        if self.wait == StreamWait::Ready {
            let number = self.carrier.held.as_ref().map_or(Ok(it.command.fd), |it| it.number());
            let attempt = match number {
                Ok(fd) => attempt(it.command, fd),
                Err(errno) => return it.end(Err(errno)),
            };
            match attempt {
                Attempt::Over(result) => return Step::Done(result),
                // Another reader or writer came first.
                Attempt::Waits if ready & u32::from(POLLIN | POLLOUT) != 0 => {
                    return self.dispatch(it);
                }
                // The stream reports only an error, which this request did not get: another poll
                // would return at once again.
                Attempt::Waits | Attempt::Impossible => {}
            }
        }
        self.dispatch_by(Route::Workers, it)
    }
}

const POLLIN: u16 = 1;
const POLLOUT: u16 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attempt {
    Over(Result<u32, Errno>),
    /// The stream must become ready first; the command counts the bytes transferred so far.
    Waits,
    /// The file does not support an attempt without blocking.
    Impossible,
}

/// The bytes that one blocking call writes to a stream that is ready: one page, for which a pipe
/// that is ready has room.
pub(crate) const BLOCKING_WRITE_MAX: usize = 4096;

pub(crate) fn is_impatient(command: &Command) -> bool {
    command.flags.bits() & O_NONBLOCK != 0 || command.wants_nowait()
}

/// Returns `true` if an attempt at a read may have ended before the data that were there.
pub(crate) fn is_cut_short(command: &Command, stat: &Stat) -> bool {
    command.kind == Kind::Read
        && !command.is_complete()
        && !command.wants_nowait()
        && stat.is_endless()
}

/// Returns `true` if an inode is one stream, so that two descriptors of it mean the same stream.
/// That does not hold for inodes of anonymous files and of devices.
pub(crate) fn is_one(stat: &Stat) -> bool {
    stat.is_pipe() || stat.is_socket()
}

/// Returns the key by which requests on a stream take turns. `None`: the inode does not identify
/// the stream, so its requests take no turns.
pub(crate) fn turn(stat: &Stat, kind: Kind) -> Option<InodeKey> {
    const READS: u64 = 1 << 63;
    const WRITES: u64 = 1 << 62;
    let direction = if kind == Kind::Read { READS } else { WRITES };
    // Device numbers have 32 bits, so these keys differ from those of files.
    is_one(stat).then_some((stat.dev | direction, stat.ino))
}

/// Reads once, or writes as much as there is room for, without waiting; `fd` is the command's file
/// in the calling thread's descriptor table. The caller decides by the status flags whether the
/// request then waits.
pub(crate) fn attempt(command: &mut Command, fd: i32) -> Attempt {
    loop {
        let moved = match transfer(command, fd, rwf::NOWAIT) {
            Err(Errno::OPNOTSUPP) if command.wants_nowait() => Err(Errno::OPNOTSUPP),
            // Kernels before 6.4 refuse the flag on sockets, which have calls of their own for it.
            // A seccomp filter may also refuse the flag or the call.
            Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::PERM) => {
                match ask_otherwise(command, fd) {
                    None => return Attempt::Impossible,
                    Some(moved) => moved,
                }
            }
            moved => moved,
        };
        match moved {
            Ok(bytes) => {
                command.done += bytes as u64;
                if command.kind == Kind::Read || bytes == 0 || command.is_complete() {
                    return Attempt::Over(Ok(command.transferred()));
                }
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Attempt::Waits,
            // If bytes have been transferred, they are the result, not a later error, as in
            // write(2).
            Err(_) if command.done > 0 => return Attempt::Over(Ok(command.transferred())),
            Err(errno) => return Attempt::Over(Err(errno)),
        }
    }
}

/// Makes a plain call on a descriptor with O_NONBLOCK, for files that support no other attempt.
/// If the descriptor lacks O_NONBLOCK, makes no call and fails with EOPNOTSUPP.
pub(crate) fn ask_as_it_is(command: &Command) -> Result<u32, Errno> {
    if command.flags.bits() & O_NONBLOCK == 0 {
        return Err(Errno::OPNOTSUPP);
    }
    transfer(command, command.fd, 0).map(|bytes| bytes as u32)
}

/// Returns `true` if the kernel's AIO refuses a request at submission whose attempt ended with
/// `errno`.
pub(crate) fn is_refusal(errno: Errno, command: &Command, stat: &Stat) -> bool {
    /// An eventfd refuses fewer bytes with EINVAL, too: then the request is wrong, not the file.
    const COUNTER_BYTES: u64 = 8;
    match errno {
        Errno::BADF | Errno::OPNOTSUPP | Errno::ISDIR => true,
        Errno::INVAL => !is_one(stat) && command.len >= COUNTER_BYTES,
        _ => false,
    }
}

fn transfer(command: &Command, fd: i32, flags: u32) -> Result<usize, Errno> {
    let (segments, flags) = (rest(command), command.rw_flags | flags);
    // SAFETY: the command's maker promised that its segments are valid until its event.
    unsafe {
        match command.kind {
            Kind::Read => file::preadv2(fd, segments.as_slice(), -1, flags),
            _ => file::pwritev2(fd, segments.as_slice(), -1, flags),
        }
    }
}

/// Returns `None` if the file is neither a pipe nor a socket, or a pipe on which the transfer might
/// wait.
fn ask_otherwise(command: &Command, fd: i32) -> Option<Result<usize, Errno>> {
    let stat = file::stat(fd).ok().filter(is_one)?;
    // A transfer of 0 bytes ends at once; a read of 0 bytes takes no message from a socket, as with
    // read(2).
    if command.len == 0 && (stat.is_pipe() || command.kind == Kind::Read) {
        return Some(Ok(0));
    }
    if stat.is_pipe() {
        return None;
    }
    let segments = rest(command);
    // SAFETY: as above.
    Some(unsafe {
        match command.kind {
            Kind::Read => socket::receive_now(fd, segments.as_slice()),
            _ => socket::send_now(fd, segments.as_slice()),
        }
    })
}

fn rest(command: &Command) -> Segments {
    let rest = command.segments.after(command.done as usize);
    let left = (command.len - command.done) as usize;
    if rest.len() > left { rest.first(left) } else { rest }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Flags;
    use nowait_sys::file::IoVec;
    use std::os::{fd::AsRawFd, unix::net::UnixStream};

    fn command(kind: Kind, fd: i32, memory: &mut [u8]) -> Command {
        let segment = IoVec { base: memory.as_mut_ptr(), len: memory.len() };
        // SAFETY: used up before the memory is freed.
        unsafe { Command::new(kind, (fd, Flags::Read(2)), Segments::One(segment), 0) }
    }

    #[test]
    fn sockets_can_be_asked_by_their_own_calls() {
        let (one, other) = UnixStream::pair().unwrap();
        let (fd, mut memory) = (one.as_raw_fd(), [7; 16]);
        let read = command(Kind::Read, other.as_raw_fd(), &mut memory);
        assert_eq!(ask_otherwise(&read, other.as_raw_fd()), Some(Err(Errno::AGAIN)));
        let mut sent = [3; 10];
        let mut write = command(Kind::Write, fd, &mut sent);
        write.done = 4;
        assert_eq!(ask_otherwise(&write, fd), Some(Ok(6)), "the rest of it");
        assert_eq!(ask_otherwise(&read, other.as_raw_fd()), Some(Ok(6)));
        assert_eq!(memory[..7], [3, 3, 3, 3, 3, 3, 7]);
        let none = command(Kind::Read, other.as_raw_fd(), &mut []);
        assert_eq!(ask_otherwise(&none, other.as_raw_fd()), Some(Ok(0)));
        let (reader, _writer) = std::io::pipe().unwrap();
        let fd = reader.as_raw_fd();
        let mut byte = [0];
        assert_eq!(ask_otherwise(&command(Kind::Read, fd, &mut byte), fd), None);
        assert_eq!(ask_otherwise(&command(Kind::Read, fd, &mut []), fd), Some(Ok(0)));
    }

    #[test]
    fn the_two_directions_of_a_socket_have_turns_of_their_own() {
        let (one, other) = UnixStream::pair().unwrap();
        let one = file::stat(one.as_raw_fd()).unwrap();
        let other = file::stat(other.as_raw_fd()).unwrap();
        assert_ne!(turn(&one, Kind::Read), turn(&one, Kind::Write));
        assert_ne!(turn(&one, Kind::Read), turn(&other, Kind::Read));
        let counter = nowait_sys::eventfd::EventFd::new().unwrap();
        assert_eq!(turn(&file::stat(counter.raw()).unwrap(), Kind::Read), None);
    }
}
