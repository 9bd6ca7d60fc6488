//! The beginning of a connection: the client chooses an export and learns its properties.
//!
//! Source: doc/proto.md of NetworkBlockDevice/nbd, fixed newstyle negotiation.

use super::{
    stream::Stream,
    tls::{self, Tls},
};
use crate::backing::NbdAddress;
use crate::nbd::{
    ALLOCATION, FIXED_NEWSTYLE, GREETING, NO_ZEROES, OPTION, OPTION_REPLY, PAYLOAD_MAX, answer,
    info, option, transmission as flags,
};
use std::io::{self, Read, Write};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Export {
    pub(super) size: u64,
    /// Flags of [`crate::nbd::transmission`].
    pub(super) flags: u16,
    /// Offsets and lengths of requests must be multiples of this, in bytes.
    pub(super) block_bytes: u32,
    /// The most bytes that one request may read or write.
    pub(super) payload_max: u32,
    pub(super) talk: Talk,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Talk {
    /// The server may send replies in chunks.
    pub(super) chunks: bool,
    /// The number of the metadata context that describes data and holes, if the server supports it.
    pub(super) allocation: Option<u32>,
}

impl Export {
    /// Returns the first difference in size or capabilities from `before`, the first connection's.
    pub(super) fn differs(&self, before: &Export) -> Option<String> {
        if self.size != before.size {
            return Some(format!(
                "the export has {} bytes now, before {}: restart nowait serve",
                self.size, before.size
            ));
        }
        let tells_less = self.talk.allocation.is_none() && before.talk.allocation.is_some();
        if self.block_bytes != before.block_bytes || self.flags != before.flags || tells_less {
            return Some(
                "the NBD server's capabilities changed since the last connection: restart \
                         nowait serve"
                    .to_owned(),
            );
        }
        None
    }
}

const REPLY_BYTES_MAX: u32 = 64 << 10;
const REPLIES_MAX: usize = 64;
pub(super) const BLOCK_BYTES_MAX: u32 = 64 << 10;

/// The caller must use the returned stream from then on.
pub(super) fn choose(mut stream: Stream, address: &NbdAddress) -> io::Result<(Stream, Export)> {
    greet(&mut stream)?;
    if let Some(wish) = &address.tls {
        let tls = Tls::load(wish)?;
        start_tls(&mut stream)?;
        stream = Stream::Tls(tls::Channel::begin(stream, &tls)?.into());
    }
    let talk = agree(&mut stream, &address.export)?;
    let export = go(&mut stream, &address.export)?;
    Ok((stream, Export { talk, ..export }))
}

fn greet(stream: &mut Stream) -> io::Result<()> {
    let greeting = [u64::from_be_bytes(bytes(stream)?), u64::from_be_bytes(bytes(stream)?)];
    if greeting != [GREETING, OPTION] {
        return Err(against("the server does not greet as an NBD server: check host and port"));
    }
    let offered = u16::from_be_bytes(bytes(stream)?);
    if offered & FIXED_NEWSTYLE == 0 {
        return Err(against(
            "the NBD server offers only oldstyle NBD: use a server with fixed newstyle",
        ));
    }
    stream.write_all(&u32::from(offered & (FIXED_NEWSTYLE | NO_ZEROES)).to_be_bytes())
}

fn start_tls(stream: &mut Stream) -> io::Result<()> {
    ask(stream, option::STARTTLS, &[])?;
    match answer_to(stream, option::STARTTLS)? {
        (answer::ACK, _) => Ok(()),
        (kind, body) if kind & answer::ERROR_BIT != 0 => Err(refusal(
            kind,
            &body,
            "the NBD server does not offer TLS: use nbd:// to connect without \
                                      TLS",
        )),
        _ => Err(against("the NBD server's answer has an unknown type")),
    }
}

/// Negotiates replies in chunks and the description of holes. A server that refuses both because it
/// requires TLS says so again when the client chooses an export.
fn agree(stream: &mut Stream, name: &str) -> io::Result<Talk> {
    ask(stream, option::STRUCTURED_REPLY, &[])?;
    let chunks = match answer_to(stream, option::STRUCTURED_REPLY)? {
        (answer::ACK, _) => true,
        (kind, _) if kind & answer::ERROR_BIT != 0 => false,
        _ => return Err(against("the NBD server's answer has an unknown type")),
    };
    let allocation = if chunks { choose_context(stream, name)? } else { None };
    Ok(Talk { chunks, allocation })
}

fn choose_context(stream: &mut Stream, name: &str) -> io::Result<Option<u32>> {
    let mut said = (name.len() as u32).to_be_bytes().to_vec();
    said.extend(name.as_bytes());
    said.extend([1, ALLOCATION.len() as u32].map(u32::to_be_bytes).concat());
    said.extend(ALLOCATION);
    ask(stream, option::SET_META_CONTEXT, &said)?;
    let mut allocation = None;
    for _ in 0..REPLIES_MAX {
        match answer_to(stream, option::SET_META_CONTEXT)? {
            (answer::ACK, _) => return Ok(allocation),
            (answer::META_CONTEXT, body) => {
                let short = || against("the NBD server's answer is too short");
                let (number, context) = body.split_first_chunk().ok_or_else(short)?;
                if context == ALLOCATION {
                    allocation = Some(u32::from_be_bytes(*number));
                }
            }
            (kind, _) if kind & answer::ERROR_BIT != 0 => return Ok(None),
            _ => return Err(against("the NBD server's answer has an unknown type")),
        }
    }
    Err(against("the NBD server sends too many answers to one option"))
}

fn go(stream: &mut Stream, name: &str) -> io::Result<Export> {
    let mut said = (name.len() as u32).to_be_bytes().to_vec();
    said.extend(name.as_bytes());
    said.extend([0, 1]);
    said.extend(info::BLOCK_SIZE.to_be_bytes());
    ask(stream, option::GO, &said)?;
    let talk = Talk::default();
    let mut export = Export { size: 0, flags: 0, block_bytes: 1, payload_max: PAYLOAD_MAX, talk };
    for _ in 0..REPLIES_MAX {
        match answer_to(stream, option::GO)? {
            (answer::ACK, _) => return checked(export),
            (answer::INFO, body) => note(&mut export, &body)?,
            (kind, body) if kind & answer::ERROR_BIT != 0 => {
                return Err(refusal(
                    kind,
                    &body,
                    "the NBD server does not know NBD_OPT_GO: use a newer server",
                ));
            }
            _ => return Err(against("the NBD server's answer has an unknown type")),
        }
    }
    Err(against("the NBD server sends too many answers to one option"))
}

fn ask(stream: &mut Stream, option: u32, data: &[u8]) -> io::Result<()> {
    let mut said = OPTION.to_be_bytes().to_vec();
    said.extend(option.to_be_bytes());
    said.extend((data.len() as u32).to_be_bytes());
    said.extend(data);
    stream.write_all(&said)
}

fn answer_to(stream: &mut Stream, asked: u32) -> io::Result<(u32, Vec<u8>)> {
    let magic = u64::from_be_bytes(bytes(stream)?);
    let option = u32::from_be_bytes(bytes(stream)?);
    let kind = u32::from_be_bytes(bytes(stream)?);
    let len = u32::from_be_bytes(bytes(stream)?);
    if magic != OPTION_REPLY || option != asked || len > REPLY_BYTES_MAX {
        return Err(against("the NBD server's answer is not NBD"));
    }
    let mut body = vec![0; len as usize];
    stream.read_exact(&mut body)?;
    Ok((kind, body))
}

fn note(export: &mut Export, body: &[u8]) -> io::Result<()> {
    let short = || against("the NBD server's answer is too short");
    let (kind, rest) = body.split_first_chunk().ok_or_else(short)?;
    match u16::from_be_bytes(*kind) {
        info::EXPORT => {
            let (size, rest) = rest.split_first_chunk().ok_or_else(short)?;
            let flags = rest.first_chunk().ok_or_else(short)?;
            export.size = u64::from_be_bytes(*size);
            export.flags = u16::from_be_bytes(*flags);
        }
        info::BLOCK_SIZE => {
            let (least, rest) = rest.split_first_chunk().ok_or_else(short)?;
            let most = rest.get(4..).and_then(<[u8]>::first_chunk).ok_or_else(short)?;
            export.block_bytes = u32::from_be_bytes(*least);
            export.payload_max = u32::from_be_bytes(*most);
        }
        // A client may ignore information that it did not ask for.
        _ => {}
    }
    Ok(())
}

fn checked(export: Export) -> io::Result<Export> {
    /// The bytes that a server must at least accept in one request: the largest chunk of this
    /// program, with the blocks around its ends.
    const PAYLOAD_LEAST: u32 = 512 << 10;
    if export.flags & flags::HAS_FLAGS == 0 {
        return Err(against("the NBD server does not send the export's flags"));
    }
    if export.size > i64::MAX as u64 {
        return Err(against("the export is larger than the largest file offset"));
    }
    if !export.block_bytes.is_power_of_two() || export.block_bytes > BLOCK_BYTES_MAX {
        return Err(against(&format!(
            "unsupported block size of the NBD server: {} bytes",
            export.block_bytes
        )));
    }
    if export.payload_max < PAYLOAD_LEAST {
        return Err(against(&format!(
            "the NBD server limits a request to {} bytes, which is too little",
            export.payload_max
        )));
    }
    Ok(export)
}

fn refusal(kind: u32, message: &[u8], unknown: &'static str) -> io::Error {
    let reason = match kind {
        answer::UNSUPPORTED => unknown,
        answer::POLICY => "the NBD server does not permit it",
        answer::TLS_REQUIRED => "the NBD server requires TLS: use an address that begins with nbds",
        answer::UNKNOWN => "the NBD server has no such export",
        answer::SHUTDOWN => "the NBD server is shutting down",
        _ => "the NBD server refuses",
    };
    const SHOWN_MAX: usize = 200;
    let message = String::from_utf8_lossy(message);
    let shown = message.chars().filter(|sign| !sign.is_control()).take(SHOWN_MAX);
    let shown: String = shown.collect();
    io::Error::other(if shown.is_empty() {
        reason.to_owned()
    } else {
        format!("{reason}: {shown}")
    })
}

fn against(reason: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
}

fn bytes<const N: usize>(stream: &mut impl Read) -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}
