//! NBD sessions that are driven by the bytes of a fuzzer's input.

use super::support::{Client, Memory, PLAIN, SMALL_SIZE};
use nowait_device::{Image, Pool, Properties};
use nowait_server::nbd::{Limits, Security};
use std::sync::Arc;

const LIMITS: Limits = Limits { requests: 16, bytes: 1 << 20 };
/// About the most pieces of an input: each piece costs a round of the loop, however short it is.
const PIECES_MAX: usize = 128;

fn client(security: Security) -> Client {
    let read_only = Properties { read_only: true, ..PLAIN };
    let image = |name, properties| Arc::new(Image::new(name, properties, 0, SMALL_SIZE as u64, ()));
    let images: Arc<[_]> = Arc::new([image("disk", PLAIN), image("fixed", read_only)]);
    Client::of(&images, Memory::sized(64 << 20, SMALL_SIZE), security, LIMITS)
}

/// Sends `input` to a new session. The first byte is not sent: it chooses the security.
pub(crate) fn handshake(input: &[u8]) {
    let Some((first, said)) = input.split_first() else { return };
    let security = match first % 3 {
        0 => Security::Plain,
        1 => Security::TlsRequired,
        _ => Security::TlsOffered,
    };
    let mut client = client(security);
    client.say(said);
    client.end_checked();
}

/// Sends `input` to a session whose client has chosen an export. The first byte is not sent: it
/// chooses the kind of replies, the size of the pieces, and whether the medium holds ends back.
pub(crate) fn requests(input: &[u8]) {
    let Some((first, said)) = input.split_first() else { return };
    let mut client = client(Security::Plain);
    client.choose("disk", first & 1 != 0);
    // An odd number of bytes after the first one finds a pool without room, as if other clients
    // used all memory.
    let short = said.len() % 2 != 0;
    if short {
        client.memory.pool = Pool::new(0);
    }
    let piece = usize::from(first >> 2) * 37 + 1;
    for (number, piece) in said.chunks(piece.max(said.len() / PIECES_MAX)).enumerate() {
        client.memory.holds = first & 2 != 0 && number % 3 != 0;
        client.say(piece);
        client.heard.clear();
        assert!(client.session.in_flight() <= LIMITS.requests);
        assert!(client.memory.pool.used_bytes() <= if short { 4096 } else { 4 << 20 });
    }
    client.end_checked();
}
