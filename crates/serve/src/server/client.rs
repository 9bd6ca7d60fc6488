//! One client: its socket and its session.

use super::socket::Socket;
use crate::nbd::{Demand, Session};
use nowait::File;
use nowait_export::Disk;
use nowait_sys::epoll::{self, Epoll};
use std::io::{ErrorKind, IoSlice, IoSliceMut, Read, Write};

/// What became of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    Goes,
}

/// A client of one serving thread.
#[derive(Debug)]
pub(crate) struct Client {
    socket: Socket,
    pub(crate) session: Session<File>,
    key: u64,
    /// What the set waits for on its behalf; 0: it is not in the set.
    interest: u32,
    pub(crate) came_ns: u64,
    /// When bytes last came or went, or a request ended.
    pub(crate) moved_ns: u64,
    /// The socket took less than it was given.
    stuck: bool,
}

/// How often a socket that has more is read before others get their turn.
const READS_MAX: usize = 4;
/// Parts sent by one system call.
const PARTS_MAX: usize = 64;

impl Client {
    pub(crate) fn new(socket: Socket, session: Session<File>, key: u64, now_ns: u64) -> Client {
        Client { socket, session, key, interest: 0, came_ns: now_ns, moved_ns: now_ns, stuck: false }
    }

    /// Reads what has arrived.
    pub(crate) fn read(&mut self, scratch: &mut [u8], disk: &mut Disk, now_ns: u64) -> Fate {
        for _ in 0..READS_MAX {
            let appetite = self.session.appetite().min(scratch.len());
            if appetite == 0 {
                break;
            }
            let scratch = &mut scratch[..appetite];
            let (in_hole, read) = match self.session.hole() {
                Some(hole) => {
                    let len = hole.len();
                    let mut slices = [IoSliceMut::new(hole), IoSliceMut::new(scratch)];
                    (len, self.socket.read_vectored(&mut slices))
                }
                None => (0, self.socket.read(scratch)),
            };
            let count = match read {
                Ok(0) => return Fate::Goes,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => return Fate::Goes,
            };
            self.moved_ns = now_ns;
            let (filled, rest) = (count.min(in_hole), count.saturating_sub(in_hole));
            self.session.receive(filled, &scratch[..rest], disk, now_ns);
            if count < in_hole + appetite {
                break;
            }
        }
        Fate::Stays
    }

    /// Sends what there is to send, and asks for what is needed to go on.
    pub(crate) fn settle(&mut self, disk: &mut Disk, epoll: &Epoll, now_ns: u64) -> Fate {
        self.stuck = false;
        while !self.session.is_sent() {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            let count = self.session.unsent(&mut slices);
            match self.socket.write_vectored(&slices[..count]) {
                Ok(bytes) => {
                    self.session.sent(bytes, disk);
                    self.moved_ns = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stuck = true;
                    break;
                }
                Err(_) => return Fate::Goes,
            }
        }
        match self.session.demand() {
            Demand::Close if self.session.is_sent() => return Fate::Goes,
            // Nobody offers it.
            Demand::StartTls => return Fate::Goes,
            _ => {}
        }
        self.register(epoll)
    }

    fn register(&mut self, epoll: &Epoll) -> Fate {
        let mut wanted = if self.session.appetite() > 0 { epoll::IN } else { 0 };
        wanted |= if self.stuck { epoll::OUT } else { 0 };
        if wanted == self.interest {
            return Fate::Stays;
        }
        let fd = self.socket.raw();
        // Not in the set while nothing is wanted: a hang-up cannot be ignored there.
        let done = match (self.interest, wanted) {
            (0, _) => epoll.add(fd, wanted, self.key),
            (_, 0) => epoll.remove(fd),
            _ => epoll.change(fd, wanted, self.key),
        };
        self.interest = wanted;
        if done.is_ok() { Fate::Stays } else { Fate::Goes }
    }

    /// Tells whether the client owes us something: to go on with what it began, or to take what
    /// it asked for.
    pub(crate) fn owes(&self) -> bool {
        self.session.is_handshake() || self.session.is_mid_message() || self.stuck
    }
}
