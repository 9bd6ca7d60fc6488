//! Finds how much of a VMM's next message has arrived. The listener thread reads a message only
//! after all of it has arrived, so that a VMM that stops in the middle cannot block the read.
//!
//! Source: vhost-user protocol (QEMU, docs/interop/vhost-user.rst), "Message Specification".

use nowait_sys::{poll, socket};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Arrival {
    Nothing,
    /// A part of the message has arrived.
    Begun,
    /// The whole message has arrived, or so much that the read fails at once: the VMM has
    /// disconnected, or the message is too long.
    Whole,
}

/// The length of a message's head: request, flags, and the size of the rest, four bytes each.
const HEAD_BYTES: usize = 12;
/// The longest rest of a message; the head of a longer one is enough to refuse it.
const REST_BYTES_MAX: usize = 4096;

/// Examines the bytes at the socket `raw`, and leaves them there.
pub(super) fn look(raw: i32) -> Arrival {
    // Check this before the bytes are counted, because no bytes arrive after a hang-up.
    let has_gone = poll::has_hung_up(raw);
    let Ok(unread) = socket::unread_bytes(raw) else { return Arrival::Whole };
    let mut head = [0; HEAD_BYTES];
    let seen = if unread < HEAD_BYTES { 0 } else { socket::peek(raw, &mut head).unwrap_or(0) };
    let [.., a, b, c, d] = head;
    let rest = match u32::from_ne_bytes([a, b, c, d]) as usize {
        // The VMM sent the head in two parts, the first with files. A peek shows only the first
        // part, so the size of the rest is not visible yet.
        _ if seen < HEAD_BYTES => 0,
        rest if rest > REST_BYTES_MAX => 0,
        rest => rest,
    };
    match unread {
        _ if has_gone => Arrival::Whole,
        0 => Arrival::Nothing,
        unread if unread < HEAD_BYTES + rest => Arrival::Begun,
        _ => Arrival::Whole,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        io::{Read, Write},
        os::{fd::AsRawFd, unix::net::UnixStream},
    };

    #[test]
    fn a_message_is_whole_with_its_last_byte_or_the_end() {
        let (mut near, far) = UnixStream::pair().unwrap();
        let message: Vec<u8> = [7u32, 1, 16, 1, 2, 3, 4].map(u32::to_ne_bytes).concat();
        for (count, byte) in message.iter().enumerate() {
            let expected = if count == 0 { Arrival::Nothing } else { Arrival::Begun };
            assert_eq!(look(far.as_raw_fd()), expected, "{count} bytes");
            near.write_all(&[*byte]).unwrap();
        }
        assert_eq!(look(far.as_raw_fd()), Arrival::Whole);
        near.write_all(&message[..3]).unwrap();
        (&far).read_exact(&mut [0; 28]).unwrap();
        assert_eq!(look(far.as_raw_fd()), Arrival::Begun);
        drop(near);
        assert_eq!(look(far.as_raw_fd()), Arrival::Whole);
    }

    #[test]
    fn a_message_that_is_too_long_counts_as_whole() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(&[7u32, 1, 5000].map(u32::to_ne_bytes).concat()).unwrap();
        assert_eq!(look(far.as_raw_fd()), Arrival::Whole);
    }
}
