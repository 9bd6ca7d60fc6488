//! Requests and replies as they are sent.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, "Transmission phase".

use core::ops::Range;
use nowait::Errno;
use std::io::{self, Read};

/// What a server is asked to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) kind: Kind,
    pub(super) flags: u16,
    /// In bytes, as is the length.
    pub(super) at: u64,
    pub(super) len: u32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u16)]
pub(super) enum Kind {
    Read = 0,
    Write = 1,
    Disconnect = 2,
    Flush = 3,
    Trim = 4,
    WriteZeroes = 6,
}

pub(super) const FUA: u16 = 1;
pub(super) const NO_HOLE: u16 = 1 << 1;
pub(super) const FAST_ZERO: u16 = 1 << 4;

const REQUEST: u32 = 0x2560_9513;
const REQUEST_BYTES: usize = 28;
const SIMPLE_REPLY: u32 = 0x6744_6698;
const REPLY_BYTES: usize = 16;

/// A request without its data.
pub(super) type Header = [u8; REQUEST_BYTES];

impl Command {
    /// Asks for no range.
    pub(super) fn plain(kind: Kind) -> Command {
        Command { kind, flags: 0, at: 0, len: 0 }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.at..self.at + u64::from(self.len)
    }

    pub(super) fn reads(&self) -> bool {
        self.kind == Kind::Read
    }

    /// Tells whether the image is not what it was before.
    pub(super) fn changes(&self) -> bool {
        matches!(self.kind, Kind::Write | Kind::Trim | Kind::WriteZeroes)
    }

    pub(super) fn header(&self, cookie: u64) -> Header {
        let mut bytes = [0; REQUEST_BYTES];
        bytes[..4].copy_from_slice(&REQUEST.to_be_bytes());
        bytes[4..6].copy_from_slice(&self.flags.to_be_bytes());
        bytes[6..8].copy_from_slice(&(self.kind as u16).to_be_bytes());
        bytes[8..16].copy_from_slice(&cookie.to_be_bytes());
        bytes[16..24].copy_from_slice(&self.at.to_be_bytes());
        bytes[24..].copy_from_slice(&self.len.to_be_bytes());
        bytes
    }
}

/// Returns which request a server answers next, and how it ended. What was read follows.
///
/// # Errors
/// The connection ends, or what comes is no reply.
pub(super) fn reply(stream: &mut impl Read) -> io::Result<(u64, Result<(), Errno>)> {
    let mut reply = [0; REPLY_BYTES];
    stream.read_exact(&mut reply)?;
    let [magic, error, high, low] =
        [0, 4, 8, 12].map(|at| u32::from_be_bytes([at, at + 1, at + 2, at + 3].map(|n| reply[n])));
    if magic != SIMPLE_REPLY {
        return Err(strange());
    }
    let cookie = u64::from(high) << 32 | u64::from(low);
    Ok((cookie, if error == 0 { Ok(()) } else { Err(errno(error)) }))
}

/// Is said of a server that does not follow the protocol.
pub(super) fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its reply is not one of NBD")
}

/// Returns the error that a number of the protocol stands for.
fn errno(number: u32) -> Errno {
    match number {
        1 => Errno::PERM,
        12 => Errno::NOMEM,
        22 => Errno::INVAL,
        28 => Errno::NOSPC,
        75 => Errno::OVERFLOW,
        95 => Errno::OPNOTSUPP,
        108 => Errno::SHUTDOWN,
        _ => Errno::IO,
    }
}
