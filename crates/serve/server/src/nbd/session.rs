//! One connection from its first byte to its last, without its socket.

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
    /// The session reads no more; it still sends its output.
    Closing,
}

/// The next action of the caller for a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Demand {
    /// No action: bytes come and go.
    Serve,
    /// Send the output, do a TLS handshake, and call [`Session::secured`].
    StartTls,
    /// Close the connection when everything was sent.
    Close,
}

/// A connection of the NBD protocol.
#[derive(Debug)]
pub struct Session<F> {
    exports: Exports<F>,
    owner: u64,
    limits: Limits,
    phase: Phase<F>,
    /// Input that was not handled yet: an incomplete message, or more than the limits allow now.
    carry: Vec<u8>,
    outbox: Outbox,
    demand: Demand,
}

/// The most bytes to read at once.
const READ_BYTES: usize = 64 << 10;
/// The most bytes to read beyond the data of a long write, by the same system call.
const READ_AHEAD_BYTES: usize = 512;
/// The memory for unhandled input that is kept while there is none.
const CARRY_KEPT_BYTES: usize = 4 << 10;
/// The most bytes of unsent answers to options; the last answer may exceed it.
const ANSWERS_BYTES_MAX: usize = 16 << 10;
/// The most unsent parts: the session does not read from a client that takes no replies.
const UNSENT_PARTS_MAX: usize = 4096;

impl<F> Session<F> {
    /// Makes a session whose output is a greeting to the client. The ends of its requests carry
    /// `owner`.
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

    /// Returns the next action of the caller.
    pub fn demand(&self) -> Demand {
        self.demand
    }

    /// Returns `true` if the client has chosen no export yet.
    pub fn is_handshake(&self) -> bool {
        matches!(self.phase, Phase::Options(_))
    }

    /// Returns `true` if the client has begun a message that it must complete.
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
    /// cannot continue. `false` for a client that takes no replies: the replies hold the memory, so
    /// the client could continue.
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

    /// Returns how many bytes the session can take now, beyond the receive buffer; 0: do not read.
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

    /// Returns the memory that should receive the next bytes: the data of a write.
    pub fn receive_buffer(&mut self) -> Option<&mut [u8]> {
        match &mut self.phase {
            Phase::Requests(transmission) if self.carry.is_empty() => transmission.receive_buffer(),
            _ => None,
        }
    }

    /// Takes `filled` bytes that are in the receive buffer, and then `input`.
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

    /// Continues with unhandled input, if there is room for it now; returns `true` if some was
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
            // The session discards bytes sent in the clear before the TLS handshake.
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

    /// Begins the options anew after a TLS handshake, without input from before.
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

    /// Begins no further requests, because the server ends. A client that has chosen no export is
    /// disconnected. Otherwise requests in flight continue, and the session refuses later ones with
    /// `ESHUTDOWN`. The caller reads on, and calls [`Session::quiet`] when nothing more arrives.
    pub fn stop<M: Medium<File = F>>(&mut self, medium: &mut M, now_ns: u64) {
        if let Phase::Requests(transmission) = &mut self.phase {
            transmission.stop();
            self.retry(medium, now_ns);
        } else {
            self.phase = Phase::Closing;
            self.leave();
        }
    }

    /// Returns `true` if the session was stopped.
    pub fn is_stopping(&self) -> bool {
        match &self.phase {
            Phase::Requests(transmission) => transmission.is_stopping(),
            Phase::Options(_) => false,
            Phase::Closing => true,
        }
    }

    /// Ends a stopped session if all its replies are in the output. The caller has read all that
    /// has arrived.
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

    /// Continues with the end of a request at the medium.
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

    /// Points `slices` at the next bytes to send; returns how many slices it needs, 0 for none.
    pub fn unsent<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        self.outbox.fill(slices)
    }

    /// Returns `true` if everything was sent.
    pub fn is_sent(&self) -> bool {
        self.outbox.is_empty()
    }

    /// Removes `bytes` of the output, which were sent, and continues a read that has waited for
    /// their memory.
    pub fn sent<M: Medium<File = F>>(&mut self, bytes: usize, medium: &mut M) {
        let given_back = self.outbox.sent(bytes, medium.pool());
        if let Phase::Requests(transmission) = &mut self.phase {
            transmission.sent(given_back, medium);
        }
    }

    /// Ends the session, because the socket is closed. The memory of requests that end later goes
    /// to [`Medium::pool`].
    pub fn abandon<M: Medium<File = F>>(mut self, medium: &mut M) {
        self.outbox.abandon(medium.pool());
        if let Phase::Requests(transmission) = &mut self.phase {
            transmission.abandon(medium);
        }
    }
}
