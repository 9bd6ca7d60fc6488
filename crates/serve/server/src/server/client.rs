//! One client: its socket and its session.

use super::tls::{Stream, Tls};
#[cfg(test)]
use crate::failure::{self, At};
use crate::{
    access::{Access, Peer},
    nbd::{Demand, Session},
};
use nowait_device::{AnySource, Disk, Image};
use nowait_sys::epoll::{self, Epoll};
use nowait_sys::mutex::RwLock;
use nowait_sys::poll;
use socket2::Socket;
use std::{
    io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write},
    os::fd::AsRawFd,
    sync::Arc,
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    Stays,
    Goes,
}

/// The data that decides which exports a client may see once the client has shown its certificate.
#[derive(Debug)]
pub(crate) struct ExportChoice {
    pub(crate) access: Arc<Access>,
    pub(crate) exports: Arc<[Arc<Image>]>,
    pub(crate) peer: Peer,
}

#[derive(Debug)]
pub(crate) struct Client {
    socket: Socket,
    tls: Option<Box<Stream>>,
    pub(crate) session: Session<AnySource>,
    choice: ExportChoice,
    key: u64,
    /// The events for which the epoll set watches the socket; 0: the socket is not in the set.
    interest: u32,
    pub(crate) came_ns: u64,
    /// The time at which the server last received or sent bytes of this client, or ended one of its
    /// requests; first the time at which the client came.
    pub(crate) moved_ns: u64,
    /// Output is left that the socket does not take at present.
    stuck: bool,
    /// Reading stopped after [`READS_MAX`] reads, and the epoll set may not report the rest.
    unread: bool,
}

/// The most reads in one call of [`Client::read`]. Then other clients get their turn.
const READS_MAX: usize = 4;
const PARTS_MAX: usize = 64;

impl Client {
    pub(crate) fn new(
        socket: Socket,
        session: Session<AnySource>,
        choice: ExportChoice,
        key: u64,
        now_ns: u64,
    ) -> Client {
        Client {
            socket,
            tls: None,
            session,
            choice,
            key,
            interest: 0,
            came_ns: now_ns,
            moved_ns: now_ns,
            stuck: false,
            unread: false,
        }
    }

    /// Reads bytes that have arrived, up to the session's read budget, and passes them to the
    /// session. If bytes are left although the budget is not used up, [`Client::is_unread`] returns
    /// `true`, or the epoll set reports them. Returns [`Fate::Goes`] if the client has
    /// disconnected.
    pub(crate) fn read(&mut self, scratch: &mut [u8], disk: &mut Disk, now_ns: u64) -> Fate {
        #[cfg(test)]
        self.inject(At::Read);
        let mut reads = 0;
        // The epoll set does not report bytes that TLS has decrypted. The epoll set also does not
        // report that a socket is empty, which ends a stopped session. So with TLS, and in a
        // stopped session, read until the socket is empty.
        let to_the_end = self.tls.is_some() || self.session.is_stopping();
        self.unread = false;
        loop {
            if reads == READS_MAX {
                self.unread = to_the_end;
                break;
            }
            reads += 1;
            let read_budget = self.session.read_budget().min(scratch.len());
            if read_budget == 0 {
                break;
            }
            let buffer_len = self.session.receive_buffer().map_or(0, |buffer| buffer.len());
            let count = match self.receive(&mut scratch[..read_budget]) {
                Ok(0) => return Fate::Goes,
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.session.quiet();
                    break;
                }
                Err(_) => return Fate::Goes,
            };
            self.moved_ns = now_ns;
            let in_buffer = if self.tls.is_some() { 0 } else { buffer_len };
            let (filled, rest) = (count.min(in_buffer), count.saturating_sub(in_buffer));
            self.session.receive(filled, &scratch[..rest], disk, now_ns);
            if !to_the_end && count < in_buffer + read_budget {
                break;
            }
        }
        Fate::Stays
    }

    /// Reads into the session's receive buffer, if there is one, and then into `scratch`; with TLS
    /// only into `scratch`. Returns how many bytes were read, 0 if the client has disconnected.
    fn receive(&mut self, scratch: &mut [u8]) -> io::Result<usize> {
        if let Some(tls) = &mut self.tls {
            let read = tls.read(&mut self.socket, scratch);
            let ExportChoice { access, exports, peer } = &mut self.choice;
            // TLS delivers the client's certificate before the client's first data.
            if read.is_ok() && !access.is_open() && peer.certificate.is_none() {
                peer.certificate = tls.certificate();
                self.session.admit(access.of(exports, peer));
            }
            return read;
        }
        match self.session.receive_buffer() {
            Some(buffer) => {
                let mut slices = [IoSliceMut::new(buffer), IoSliceMut::new(scratch)];
                self.socket.read_vectored(&mut slices)
            }
            None => self.socket.read(scratch),
        }
    }

    /// Sends the output. Then starts TLS if the session demands that, and watches the socket for
    /// the events that the session needs. Returns [`Fate::Goes`] if the caller must close the
    /// connection.
    pub(crate) fn settle(
        &mut self,
        disk: &mut Disk,
        epoll: &Epoll,
        tls: &RwLock<Option<Tls>>,
        now_ns: u64,
    ) -> Fate {
        #[cfg(test)]
        self.inject(At::Settle);
        if self.send(disk, now_ns).is_err() {
            return Fate::Goes;
        }
        let sent = self.session.is_sent() && !self.stuck;
        match self.session.demand() {
            Demand::Close if sent => {
                if let Some(tls) = &mut self.tls {
                    tls.close(&mut self.socket);
                }
                return Fate::Goes;
            }
            Demand::StartTls if sent => {
                let stream = tls.read().as_ref().and_then(Tls::begin);
                let Some(stream) = stream else { return Fate::Goes };
                self.tls = Some(Box::new(stream));
                self.session.secured();
            }
            _ => {}
        }
        self.register(epoll)
    }

    fn send(&mut self, disk: &mut Disk, now_ns: u64) -> io::Result<()> {
        self.stuck = false;
        while !self.session.is_sent() {
            let mut slices = [IoSlice::new(&[]); PARTS_MAX];
            let count = self.session.unsent(&mut slices);
            let written = match &mut self.tls {
                Some(tls) => tls.write(&mut self.socket, &slices[..count]),
                None => self.socket.write_vectored(&slices[..count]),
            };
            match written {
                Ok(bytes) => {
                    self.session.sent(bytes, disk);
                    self.moved_ns = now_ns;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    self.stuck = true;
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
        match self.tls.as_mut().map_or(Ok(()), |tls| tls.flush(&mut self.socket)) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => self.stuck = true,
            outcome => return outcome,
        }
        Ok(())
    }

    fn register(&mut self, epoll: &Epoll) -> Fate {
        let mut wanted = if self.session.read_budget() > 0 { epoll::IN } else { 0 };
        wanted |= if self.stuck { epoll::OUT } else { 0 };
        if wanted == self.interest {
            return Fate::Stays;
        }
        let fd = self.socket.as_raw_fd();
        // Remove the socket from the epoll set while no event is wanted, because the set would
        // report a hang-up even then.
        let done = match (self.interest, wanted) {
            (0, _) => epoll.add(fd, wanted, self.key),
            (_, 0) => epoll.remove(fd),
            _ => epoll.change(fd, wanted, self.key),
        };
        self.interest = wanted;
        if done.is_ok() { Fate::Stays } else { Fate::Goes }
    }

    /// Returns `true` if the socket must be read now although the epoll set may not report it: TLS
    /// may hold decrypted bytes that an earlier read budget excluded, and a stopped session ends
    /// when its socket is empty. `false` if the client is read in the next round anyway.
    pub(crate) fn has_more(&self) -> bool {
        let unseen = self.tls.is_some() || self.session.is_stopping();
        unseen && !self.unread && self.session.read_budget() > 0
    }

    pub(crate) fn is_unread(&self) -> bool {
        self.unread
    }

    #[cfg(test)]
    pub(super) fn inject(&self, at: At) {
        failure::inject(at, self.choice.exports[0].name());
    }

    /// Returns `true` if the client must act: choose an export, complete its message, or take its
    /// replies.
    pub(crate) fn owes(&self) -> bool {
        self.session.is_handshake() || self.session.is_mid_message() || self.stuck
    }

    /// Returns `true` if the client waits for memory of the server, all its replies are sent, and
    /// the client is still connected. Polls the socket: the epoll set does not contain the socket
    /// of such a client, and therefore reports no hang-up.
    pub(crate) fn waits_for_us(&self) -> bool {
        self.session.waits_for_memory()
            && !self.stuck
            && !poll::has_hung_up(self.socket.as_raw_fd())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nbd::{Limits, Security};
    use nowait::Nowait;
    use nowait_device::{BlockingTasks, ImageOptions, Mailbox, Medium};
    use std::os::unix::net::UnixStream;

    struct Rig {
        client: Client,
        disk: Disk,
        far: UnixStream,
        _folder: tempfile::TempDir,
    }

    impl Rig {
        fn new() -> Rig {
            let folder = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = folder.path().join("image");
            std::fs::write(&path, vec![0; 4096]).unwrap();
            let nowait = Nowait::new().unwrap();
            let options = ImageOptions { path, ..ImageOptions::default() };
            let image = Image::open(&nowait, &options).unwrap();
            let exports: Arc<[_]> = Arc::new([Arc::new(image)]);
            let (near, far) = UnixStream::pair().unwrap();
            near.set_nonblocking(true).unwrap();
            let session = Session::new(0, &exports, Security::Plain, Limits::default());
            let access = Arc::new(Access::default());
            let choice = ExportChoice { access, exports, peer: Peer::default() };
            let client = Client::new(near.into(), session, choice, 0, 0);
            let mailbox = Mailbox::new().unwrap();
            let disk = Disk::new(&nowait, &BlockingTasks::new(1), mailbox, 1 << 20).unwrap();
            Rig { client, disk, far, _folder: folder }
        }

        fn read(&mut self) {
            let mut scratch = [0; SCRATCH_BYTES];
            assert_eq!(self.client.read(&mut scratch, &mut self.disk, 0), Fate::Stays);
        }
    }

    const SCRATCH_BYTES: usize = 4096;

    /// A client that waits for memory is not in the epoll set, which would report its hang-up.
    #[test]
    fn a_client_that_has_hung_up_does_not_wait_for_the_server() {
        let mut rig = Rig::new();
        rig.far.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        rig.read();
        rig.client.send(&mut rig.disk, 0).unwrap();
        rig.disk.pool().reserve(0, 1 << 20);
        let mut write = nowait_device::nbd::REQUEST.to_be_bytes().to_vec();
        write.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        write.extend(4096u32.to_be_bytes());
        write.extend(vec![0; 4096]);
        // The first write holds the 4 KiB that each client may have beyond the pool's bound.
        rig.far.write_all(&write.repeat(2)).unwrap();
        (0..4).for_each(|_| rig.read());
        assert!(rig.client.owes() && rig.client.waits_for_us());
        rig.far.shutdown(std::net::Shutdown::Both).unwrap();
        assert!(rig.client.owes() && !rig.client.waits_for_us());
        rig.client.session.abandon(&mut rig.disk);
    }

    #[test]
    fn a_stopped_client_takes_turns_with_others() {
        let mut rig = Rig::new();
        rig.far.write_all(b"\0\0\0\x03IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        rig.read();
        assert!(!rig.client.session.is_handshake());
        // After `stop` the server reads the client until its socket is empty.
        rig.client.session.stop(&mut rig.disk, 0);
        let mut write = nowait_device::nbd::REQUEST.to_be_bytes().to_vec();
        write.extend([0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 0]);
        write.extend(100_000u32.to_be_bytes());
        write.extend(vec![0; 100_000]);
        rig.far.write_all(&write).unwrap();
        let mut rounds = 1;
        rig.read();
        while rig.client.is_unread() {
            assert!(!rig.client.has_more(), "not in this round");
            assert_eq!(rig.client.session.demand(), Demand::Serve);
            rig.read();
            rounds += 1;
        }
        assert!(rounds > write.len() / (SCRATCH_BYTES * READS_MAX), "{rounds} rounds");
        assert_eq!(rig.client.session.demand(), Demand::Close, "all was read");
        rig.client.session.abandon(&mut rig.disk);
    }
}
