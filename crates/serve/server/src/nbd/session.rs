//! The state of one NBD connection, from its first byte to its last. Uses no socket.

use super::{
    handshake::{Agreement, Exports, Handshake, Next, Security},
    outbox::Outbox,
    transmission::{Limits, Transmission},
};
use nowait_device::{Image, Medium, RequestEnd};
use std::{io::IoSlice, sync::Arc};

#[derive(Debug)]
enum Phase<F> {
    Options(Handshake),
    Requests(Transmission<F>),
    /// The session drops all further input, and still sends its output.
    Closing,
}

/// The action that a session asks of its caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// No action: receive and send bytes.
    Serve,
    /// Send the output, begin TLS on the connection, and call [`Session::secured`].
    StartTls,
    /// Close the connection after all output was sent.
    Close,
}

/// A connection of the NBD protocol.
#[derive(Debug)]
pub struct Session<F> {
    exports: Exports<F>,
    owner: u64,
    limits: Limits,
    phase: Phase<F>,
    /// Input that the session has not handled yet: an incomplete message, or more than the limits
    /// allow now.
    carry: Vec<u8>,
    outbox: Outbox,
    demand: Demand,
}

/// The most bytes of unhandled input for which the session asks. Unhandled input reduces the read
/// budget.
const READ_BYTES: usize = 64 << 10;
/// The read budget while the data of a long write arrives: bytes that one system call may read
/// beyond the receive buffer.
const READ_AHEAD_BYTES: usize = 512;
/// The most memory that the session keeps for unhandled input while there is none.
const CARRY_KEPT_BYTES: usize = 4 << 10;
/// The most bytes of unsent answers to options. The last answer may exceed this limit.
const ANSWERS_BYTES_MAX: usize = 16 << 10;
/// The most unsent parts. Beyond this limit the read budget is 0, so the server does not read from
/// a client that takes no replies.
const UNSENT_PARTS_MAX: usize = 4096;

impl<F> Session<F> {
    /// Makes a session whose first output is the greeting to the client. The tags of its requests
    /// carry `owner`.
    pub fn new(
        owner: u64,
        exports: &Arc<[Arc<Image<F>>]>,
        security: Security,
        limits: Limits,
    ) -> Session<F> {
        let (mut greeting, mut outbox) = (Vec::new(), Outbox::default());
        let handshake = Handshake::new(security, &mut greeting);
        outbox.text(greeting);
        Session {
            exports: Exports::all(exports),
            owner,
            limits,
            phase: Phase::Options(handshake),
            carry: Vec::new(),
            outbox,
            demand: Demand::Serve,
        }
    }

    /// Returns the action that the session asks of its caller.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Returns `true` while the client may still choose an export.
    pub fn is_handshake(&self) -> bool {
        matches!(self.phase, Phase::Options(_))
    }

    /// Returns `true` if the client must complete a request: data of a request is still arriving,
    /// or unhandled input is left and no request is in flight.
    pub fn is_mid_message(&self) -> bool {
        match &self.phase {
            Phase::Requests(transmission) => {
                transmission.is_arriving()
                    || (!self.carry.is_empty() && transmission.in_flight() == 0)
            }
            _ => false,
        }
    }

    /// Returns `true` if the data of a write has come and waits for memory, so that the client
    /// cannot continue. Returns `false` while output is unsent: that output may hold the memory,
    /// and the client could take the output.
    pub fn waits_for_memory(&self) -> bool {
        matches!(&self.phase, Phase::Requests(transmission) if transmission.is_short())
            && !self.carry.is_empty()
            && self.is_sent()
    }

    /// Returns how many requests are in flight.
    pub fn in_flight(&self) -> usize {
        match &self.phase {
            Phase::Requests(transmission) => transmission.in_flight(),
            _ => 0,
        }
    }

    /// Returns how many bytes the session can take now, in addition to the receive buffer; 0: do
    /// not read.
    pub fn read_budget(&self) -> usize {
        let full = self.carry.len() >= READ_BYTES || self.outbox.len() > UNSENT_PARTS_MAX;
        match &self.phase {
            _ if full || self.demand != Demand::Serve => 0,
            // More input would only occupy other memory.
            Phase::Requests(transmission) if transmission.is_short() && !self.carry.is_empty() => 0,
            Phase::Requests(transmission) if transmission.receives_much() => READ_AHEAD_BYTES,
            _ => READ_BYTES - self.carry.len(),
        }
    }

    /// Returns the memory for the next input, if that input is the data of a write.
    pub fn receive_buffer(&mut self) -> Option<&mut [u8]> {
        match &mut self.phase {
            Phase::Requests(transmission) if self.carry.is_empty() => transmission.receive_buffer(),
            _ => None,
        }
    }

    /// Takes `filled` bytes that the caller has put into the receive buffer, and then `input`.
    pub fn receive<M: Medium<File = F>>(
        &mut self,
        filled: usize,
        input: &[u8],
        medium: &mut M,
        now_ns: u64,
    ) {
        if let (true, Phase::Requests(transmission)) = (filled > 0, &mut self.phase) {
            transmission.filled(filled, medium);
        }
        if self.carry.is_empty() {
            let taken = self.take(input, medium, now_ns);
            self.carry.extend_from_slice(&input[taken..]);
        } else {
            self.carry.extend_from_slice(input);
            self.retry(medium, now_ns);
        }
    }

    /// Handles as much of the unhandled input as there is room for now; returns `true` if some was
    /// handled.
    pub fn retry<M: Medium<File = F>>(&mut self, medium: &mut M, now_ns: u64) -> bool {
        if self.carry.is_empty() {
            return false;
        }
        let mut carry = core::mem::take(&mut self.carry);
        let taken = self.take(&carry, medium, now_ns);
        carry.drain(..taken);
        // Free the memory, because many clients may have had much unhandled input once.
        if carry.is_empty() && carry.capacity() > CARRY_KEPT_BYTES {
            carry = Vec::new();
        }
        self.carry = carry;
        taken > 0
    }

    fn take<M: Medium<File = F>>(&mut self, input: &[u8], medium: &mut M, now_ns: u64) -> usize {
        let mut at = 0;
        loop {
            let rest = &input[at..];
            let taken = match &mut self.phase {
                Phase::Closing => return input.len(),
                Phase::Options(_) if self.demand == Demand::StartTls => return input.len(),
                // Unsent answers must not pile up.
                Phase::Options(_) if self.outbox.bytes() >= ANSWERS_BYTES_MAX => return at,
                Phase::Options(_) => self.take_option(rest),
                Phase::Requests(transmission) => {
                    match transmission.take(rest, medium, &mut self.outbox, now_ns) {
                        Err(_) => {
                            self.demand = Demand::Close;
                            return input.len();
                        }
                        Ok(taken) => {
                            if transmission.leaving {
                                self.leave();
                                return input.len();
                            }
                            return at + taken;
                        }
                    }
                }
            };
            at += taken;
            if taken == 0 {
                return at;
            }
        }
    }

    fn take_option(&mut self, input: &[u8]) -> usize {
        let Phase::Options(handshake) = &mut self.phase else { return 0 };
        let mut out = Vec::new();
        let (taken, next) = handshake.step(input, &self.exports, &mut out);
        self.outbox.text(out);
        match next {
            Next::Option => {}
            // The session drops bytes that the client sends unencrypted after this option.
            Next::Tls => self.demand = Demand::StartTls,
            Next::Transmission(image, agreed) => self.go(image, agreed),
            Next::Close => {
                self.phase = Phase::Closing;
                self.demand = Demand::Close;
            }
        }
        taken
    }

    fn go(&mut self, image: Arc<Image<F>>, agreed: Agreement) {
        self.outbox.is_of(image.number());
        let transmission = Transmission::new(self.owner, image, agreed, self.limits);
        self.phase = Phase::Requests(transmission);
    }

    /// Begins the options anew on a connection that now uses TLS. Drops earlier input and
    /// agreements.
    pub fn secured(&mut self) {
        if let Phase::Options(handshake) = &mut self.phase {
            handshake.secured();
            self.carry.clear();
            self.demand = Demand::Serve;
        }
    }

    /// Offers `exports` from now on. Has no effect on a client that has chosen its export.
    pub fn admit(&mut self, exports: Exports<F>) {
        self.exports = exports;
    }

    /// Begins no further requests, because the server ends. If the client has chosen no export, the
    /// session asks the caller to close the connection. Otherwise requests in flight continue, and
    /// the session refuses all other requests with `ESHUTDOWN`. The caller reads on, and calls
    /// [`Session::quiet`] when nothing more arrives.
    pub fn stop<M: Medium<File = F>>(&mut self, medium: &mut M, now_ns: u64) {
        if let Phase::Requests(transmission) = &mut self.phase {
            transmission.stop();
            self.retry(medium, now_ns);
        } else {
            self.phase = Phase::Closing;
            self.leave();
        }
    }

    /// Returns `true` if the session was stopped, or if the options have ended without an export.
    pub fn is_stopping(&self) -> bool {
        match &self.phase {
            Phase::Requests(transmission) => transmission.is_stopping(),
            Phase::Options(_) => false,
            Phase::Closing => true,
        }
    }

    /// Ends a stopped session if all its replies are in the output. The caller calls this after it
    /// has read all that has arrived.
    pub fn quiet(&mut self) {
        if let Phase::Requests(transmission) = &self.phase
            && transmission.is_stopping()
            && transmission.is_done(&self.carry)
        {
            self.leave();
        }
    }

    fn leave(&mut self) {
        self.carry.clear();
        if self.in_flight() == 0 {
            self.demand = Demand::Close;
        }
    }

    /// Handles the end of a request, or of a part of one, at the medium.
    pub fn end<M: Medium<File = F>>(&mut self, ended: RequestEnd, medium: &mut M, now_ns: u64) {
        match &mut self.phase {
            Phase::Requests(transmission) => {
                transmission.end(ended, medium, &mut self.outbox, now_ns);
                if transmission.broken {
                    self.demand = Demand::Close;
                } else if transmission.leaving {
                    self.leave();
                }
            }
            _ => ended.chunk.into_iter().for_each(|chunk| medium.pool().give_back(chunk)),
        }
    }

    /// Points `slices` at the next bytes to send; returns how many slices it has set, 0 if there is
    /// no output.
    pub fn unsent<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.outbox.fill(slices)
    }

    /// Returns `true` if all output was sent.
    pub fn is_sent(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Removes the first `bytes` bytes of the output, which the caller has sent. If the client then
    /// holds no memory, continues its chunked read, if there is one.
    pub fn sent<M: Medium<File = F>>(&mut self, bytes: usize, medium: &mut M) {
        let given_back = self.outbox.sent(bytes, medium.pool());
        if let Phase::Requests(transmission) = &mut self.phase {
            transmission.sent(given_back, medium);
        }
    }

    /// Ends the session, because the socket is closed. When requests of the session end later, the
    /// caller gives their chunks back to [`Medium::pool`].
    pub fn abandon<M: Medium<File = F>>(mut self, medium: &mut M) {
        self.outbox.abandon(medium.pool());
        if let Phase::Requests(transmission) = &mut self.phase {
            transmission.abandon(medium);
        }
    }
}
