//! A client of the NBD protocol: its requests, and the answers that it understands.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, with the extension "extended headers".

use nowait_sim::Prng;
use std::{
    io::{self, Read, Write},
    os::unix::net::UnixStream,
};

pub(crate) const READ: u16 = 0;
pub(crate) const WRITE: u16 = 1;
pub(crate) const DISCONNECT: u16 = 2;
pub(crate) const FLUSH: u16 = 3;
pub(crate) const TRIM: u16 = 4;
pub(crate) const CACHE: u16 = 5;
pub(crate) const WRITE_ZEROES: u16 = 6;
pub(crate) const BLOCK_STATUS: u16 = 7;

pub(crate) const FUA: u16 = 1;
pub(crate) const NO_HOLE: u16 = 1 << 1;
pub(crate) const FAST_ZERO: u16 = 1 << 4;

pub(crate) const EIO: u32 = 5;
pub(crate) const ENOSPC: u32 = 28;
pub(crate) const EOPNOTSUPP: u32 = 95;
pub(crate) const ESHUTDOWN: u32 = 108;

const OPTION_GO: u32 = 7;
const OPTION_STRUCTURED: u32 = 8;
const OPTION_CONTEXT: u32 = 10;
const OPTION_EXTENDED: u32 = 11;
const ACK: u32 = 1;
const INFO: u32 = 3;
const CONTEXT: u32 = 4;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Agreed {
    pub(crate) structured: bool,
    pub(crate) extended: bool,
    pub(crate) allocation: bool,
    /// The server accepts requests to cache.
    pub(crate) caches: bool,
    pub(crate) size: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Header {
    pub(crate) command: u16,
    pub(crate) flags: u16,
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
    pub(crate) len: u64,
}

#[derive(Debug)]
pub(crate) enum Answer {
    Done,
    Failed(u32),
    Data(Vec<u8>),
    /// Lengths, each with `true` for a hole.
    Extents(Vec<(u64, bool)>),
}

fn number(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte))
}

fn read<const N: usize>(mut socket: &UnixStream) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn read_vec(mut socket: &UnixStream, len: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; len as usize];
    socket.read_exact(&mut bytes)?;
    Ok(bytes)
}

pub(crate) fn shake_hands(
    mut socket: &UnixStream,
    name: &[u8],
    prng: &mut Prng,
) -> io::Result<Agreed> {
    let greeting: [u8; 18] = read(socket)?;
    assert_eq!(&greeting[..16], b"NBDMAGICIHAVEOPT");
    socket.write_all(&3u32.to_be_bytes())?;
    let mut agreed = Agreed::default();
    let option = [OPTION_STRUCTURED, OPTION_EXTENDED][prng.index(2)];
    if prng.chance(700_000) {
        ask(socket, option, &[])?;
        (agreed.structured, agreed.extended) = (true, option == OPTION_EXTENDED);
    }
    let named = [&(name.len() as u32).to_be_bytes(), name].concat();
    if agreed.structured && prng.chance(700_000) {
        let context = b"base:allocation";
        let len = (context.len() as u32).to_be_bytes();
        let asked = [&named[..], &1u32.to_be_bytes(), &len, context].concat();
        ask(socket, OPTION_CONTEXT, &asked)?;
        agreed.allocation = true;
    }
    let about = ask(socket, OPTION_GO, &[&named[..], &[0, 0]].concat())?;
    agreed.size = number(&about[2..10]);
    agreed.caches = number(&about[10..12]) & 1 << 10 != 0;
    Ok(agreed)
}

fn ask(mut socket: &UnixStream, option: u32, data: &[u8]) -> io::Result<Vec<u8>> {
    let mut asked = b"IHAVEOPT".to_vec();
    asked.extend(option.to_be_bytes());
    asked.extend((data.len() as u32).to_be_bytes());
    asked.extend(data);
    socket.write_all(&asked)?;
    let mut first = None;
    loop {
        let head: [u8; 20] = read(socket)?;
        assert_eq!(number(&head[8..12]), u64::from(option));
        let (kind, len) = (number(&head[12..16]) as u32, number(&head[16..]));
        let said = read_vec(socket, len)?;
        match kind {
            ACK => return Ok(first.unwrap_or_default()),
            INFO | CONTEXT => drop(first.get_or_insert(said)),
            other => panic!("option {option} is answered by {other:#x}"),
        }
    }
}

impl Header {
    pub(crate) fn bytes(&self, agreed: Agreed) -> Vec<u8> {
        const PAYLOAD_LEN: u16 = 1 << 5;
        let (magic, flags) = match agreed.extended {
            true if self.command == WRITE => (0x21e4_1c71u32, self.flags | PAYLOAD_LEN),
            true => (0x21e4_1c71, self.flags),
            false => (0x2560_9513, self.flags),
        };
        let mut bytes = magic.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend(self.command.to_be_bytes());
        bytes.extend(self.cookie.to_be_bytes());
        bytes.extend(self.offset.to_be_bytes());
        match agreed.extended {
            true => bytes.extend(self.len.to_be_bytes()),
            false => bytes.extend((self.len as u32).to_be_bytes()),
        }
        bytes
    }
}

pub(crate) fn listen(
    socket: &UnixStream,
    agreed: Agreed,
    asked: impl Fn(u64) -> Header,
) -> io::Result<(u64, Answer)> {
    let magic = number(&read::<4>(socket)?);
    if magic == 0x6744_6698 {
        assert!(!agreed.extended, "a simple answer");
        let head: [u8; 12] = read(socket)?;
        let (error, cookie) = (number(&head[..4]) as u32, number(&head[4..]));
        let header = asked(cookie);
        let answer = match (error, header.command) {
            (0, READ) => {
                assert!(!agreed.structured, "a read is answered by a chunk");
                Answer::Data(read_vec(socket, header.len)?)
            }
            (0, _) => Answer::Done,
            (error, _) => Answer::Failed(error),
        };
        return Ok((cookie, answer));
    }
    let (extended, rest) = match magic {
        0x668e_33ef => (false, 16),
        0x6e8a_278c => (true, 28),
        other => panic!("{other:#x} begins no answer"),
    };
    assert_eq!((extended, true), (agreed.extended, agreed.structured));
    let head = read_vec(socket, rest)?;
    let (flags, kind, cookie) = (number(&head[..2]), number(&head[2..4]), number(&head[4..12]));
    assert_eq!(flags, 1, "an answer is one chunk");
    let header = asked(cookie);
    let len = number(&head[if extended { 20..28 } else { 12..16 }]);
    assert!(!extended || number(&head[12..20]) == header.offset);
    let payload = read_vec(socket, len)?;
    let answer = match kind {
        0 => Answer::Done,
        1 => {
            assert_eq!((header.command, number(&payload[..8])), (READ, header.offset));
            Answer::Data(payload[8..].to_vec())
        }
        5 => Answer::Extents(extents(&payload[4..], 4)),
        6 => Answer::Extents(extents(&payload[8..], 8)),
        0x8001 => Answer::Failed(number(&payload[..4]) as u32),
        other => panic!("a chunk of kind {other}"),
    };
    Ok((cookie, answer))
}

fn extents(payload: &[u8], width: usize) -> Vec<(u64, bool)> {
    const HOLE_AND_ZERO: u64 = 3;
    let pairs = payload.chunks(2 * width).map(|pair| pair.split_at(width));
    pairs.map(|(len, flags)| (number(len), number(flags) == HOLE_AND_ZERO)).collect()
}
