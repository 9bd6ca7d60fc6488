//! Requests and replies in the form in which client and server send them.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, "Transmission phase".

use crate::nbd::{REQUEST, SIMPLE_REPLY, STRUCTURED_REPLY, ZERO, chunk, command, errno};
use core::ops::Range;
use nowait::Errno;
use std::io::{self, Read};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Command {
    pub(super) kind: Kind,
    pub(super) flags: u16,
    /// The offset in bytes; `len` is in bytes, too.
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
/// The length of a simple reply, and of a chunk's header without its payload length.
const REPLY_BYTES: usize = 16;

const ERROR_BYTES_MAX: u32 = 64 << 10;
const EXTENTS_MAX: u32 = 128 << 10;

pub(super) type Header = [u8; REQUEST_BYTES];

impl Command {
    pub(super) fn plain(kind: Kind) -> Command {
        Command { kind, flags: 0, at: 0, len: 0 }
    }

    pub(super) fn range(&self) -> Range<u64> {
        self.at..self.at + u64::from(self.len)
    }

    pub(super) fn reads(&self) -> bool {
        self.kind == Kind::Read
    }

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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) cookie: u64,
    pub(super) is_last: bool,
    pub(super) part: Part,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// A simple reply: the result. The data of a successful read follows.
    All(Result<(), Errno>),
    /// The offset and the length of a piece of the image, whose bytes follow.
    Data(u64, u32),
    /// The offset and the length of a piece of the image that reads as zeroes.
    Hole(u64, u32),
    /// The number of a metadata context, and the number of extents that follow.
    Extents(u32, u32),
    Failed(Errno),
    Nothing,
}

/// With `chunks`, accepts chunks too. The caller must read data and extents that follow.
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

/// An extent: its length, and `true` if it holds data.
pub(super) type Extent = (u32, bool);

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

pub(super) fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the NBD server's reply is not NBD")
}
