//! Requests and replies as they are sent.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, "Transmission phase".

use crate::nbd::{REQUEST, SIMPLE_REPLY, STRUCTURED_REPLY, ZERO, chunk, command};
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
    Read = command::READ,
    Write = command::WRITE,
    Disconnect = command::DISCONNECT,
    Flush = command::FLUSH,
    Trim = command::TRIM,
    WriteZeroes = command::WRITE_ZEROES,
    BlockStatus = command::BLOCK_STATUS,
}

const REQUEST_BYTES: usize = 28;
/// Of a reply that is one; the header of a chunk goes on with its length.
const REPLY_BYTES: usize = 16;

/// Longer descriptions of an error are not of a server that means well.
const ERROR_BYTES_MAX: u32 = 64 << 10;
/// Nor more extents than this at once.
const EXTENTS_MAX: u32 = 128 << 10;

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
        self.len > 0 && matches!(self.kind, Kind::Write | Kind::Trim | Kind::WriteZeroes)
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

/// What a server says next of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    pub(super) is_last: bool,
    pub(super) part: Part,
}

/// A reply, or a chunk of one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// How it has ended; all that was read follows.
    All(Result<(), Errno>),
    /// So many bytes from this place of the image follow.
    Data(u64, u32),
    /// So many bytes from this place of the image are zeroes.
    Hole(u64, u32),
    /// So many extents follow, of the context with this number.
    Extents(u32, u32),
    Failed(Errno),
    Nothing,
}

/// Returns what a server says next; `chunks`: also a part of a reply.
///
/// # Errors
/// The connection ends, or what comes is no reply.
pub(super) fn reply(stream: &mut impl Read, chunks: bool) -> io::Result<Reply> {
    let reply: [u8; REPLY_BYTES] = bytes(stream)?;
    let [magic, word, high, low] =
        [0, 4, 8, 12].map(|at| u32::from_be_bytes([at, at + 1, at + 2, at + 3].map(|n| reply[n])));
    let cookie = u64::from(high) << 32 | u64::from(low);
    if magic == SIMPLE_REPLY {
        let part = Part::All(if word == 0 { Ok(()) } else { Err(errno(word)) });
        return Ok(Reply { cookie, is_last: true, part });
    }
    if magic != STRUCTURED_REPLY || !chunks {
        return Err(strange());
    }
    let is_last = (word >> 16) as u16 & chunk::DONE != 0;
    let part = part(stream, word as u16)?;
    if part == Part::Nothing && !is_last {
        return Err(strange());
    }
    Ok(Reply { cookie, is_last, part })
}

fn part(stream: &mut impl Read, kind: u16) -> io::Result<Part> {
    // What each kind begins with is read at once.
    match kind {
        chunk::NONE => match u32::from_be_bytes(bytes(stream)?) {
            0 => Ok(Part::Nothing),
            _ => Err(strange()),
        },
        chunk::OFFSET_DATA => match length_and_place(stream)? {
            (len, at) if len > 8 => Ok(Part::Data(at, len - 8)),
            _ => Err(strange()),
        },
        chunk::OFFSET_HOLE => match (length_and_place(stream)?, u32::from_be_bytes(bytes(stream)?))
        {
            ((12, at), len) if len > 0 => Ok(Part::Hole(at, len)),
            _ => Err(strange()),
        },
        chunk::BLOCK_STATUS => match length_and_number(stream)? {
            (len, context) if len >= 12 && len % 8 == 4 && len / 8 <= EXTENTS_MAX => {
                Ok(Part::Extents(context, len / 8))
            }
            _ => Err(strange()),
        },
        _ if kind & chunk::ERROR_BIT != 0 => match length_and_number(stream)? {
            (len @ 6..=ERROR_BYTES_MAX, number) => {
                // What it says in words is for people.
                stream.read_exact(&mut vec![0; len as usize - 4])?;
                Ok(Part::Failed(errno(number)))
            }
            _ => Err(strange()),
        },
        _ => Err(strange()),
    }
}

fn length_and_place(stream: &mut impl Read) -> io::Result<(u32, u64)> {
    let mut both = [0; 16];
    stream.read_exact(&mut both[4..])?;
    let both = u128::from_be_bytes(both);
    Ok(((both >> 64) as u32, both as u64))
}

fn length_and_number(stream: &mut impl Read) -> io::Result<(u32, u32)> {
    let both = u64::from_be_bytes(bytes(stream)?);
    Ok(((both >> 32) as u32, both as u32))
}

/// An extent: how long it is, and whether it has data.
pub(super) type Extent = (u32, bool);

/// Returns so many extents.
///
/// # Errors
/// The connection ends, or one is empty.
pub(super) fn extents(stream: &mut impl Read, count: u32) -> io::Result<Vec<Extent>> {
    let mut all = vec![0; count as usize * 8];
    stream.read_exact(&mut all)?;
    let extents = all.as_chunks::<8>().0.iter().map(|bytes| {
        let both = u64::from_be_bytes(*bytes);
        ((both >> 32) as u32, both as u32 & ZERO == 0)
    });
    let extents: Vec<Extent> = extents.collect();
    if extents.iter().all(|(len, _)| *len > 0) { Ok(extents) } else { Err(strange()) }
}

fn bytes<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
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
