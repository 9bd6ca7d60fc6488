//! The replies, without the data of reads.

use super::{
    handshake::Agreement,
    outbox::Outbox,
    wire::{self, chunk},
};
use nowait_device::Extent;

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestRef {
    /// The number that the client has given its request.
    pub(crate) cookie: u64,
    pub(crate) offset: u64,
}

/// Adds a reply that carries no data. `error` is 0 for success, or an error number of the protocol.
pub(crate) fn plain(out: &mut Outbox, agreed: Agreement, request: RequestRef, error: u32) {
    if agreed.extended {
        match error {
            0 => out.head(&extended(chunk::NONE, request, 0)),
            _ => failed(out, agreed, request, error),
        }
    } else {
        let mut head = [0; 16];
        head[..4].copy_from_slice(&wire::SIMPLE_REPLY.to_be_bytes());
        head[4..8].copy_from_slice(&error.to_be_bytes());
        head[8..].copy_from_slice(&request.cookie.to_be_bytes());
        out.head(&head);
    }
}

/// Adds the head of the reply to a read. The caller adds the `len` bytes of data behind it.
pub(crate) fn data(out: &mut Outbox, agreed: Agreement, request: RequestRef, len: u64) {
    match agreed {
        Agreement { extended: true, .. } => {
            let mut head = [0; 40];
            head[..32].copy_from_slice(&extended(chunk::OFFSET_DATA, request, len + 8));
            head[32..].copy_from_slice(&request.offset.to_be_bytes());
            out.head(&head);
        }
        Agreement { structured: true, .. } => {
            let mut head = [0; 28];
            head[..20].copy_from_slice(&structured(chunk::OFFSET_DATA, request, len as u32 + 8));
            head[20..].copy_from_slice(&request.offset.to_be_bytes());
            out.head(&head);
        }
        _ => plain(out, agreed, request, 0),
    }
}

/// Adds the reply to a failed request: a structured reply if client and server have agreed on
/// these.
pub(crate) fn failed(out: &mut Outbox, agreed: Agreement, request: RequestRef, error: u32) {
    if !agreed.structured {
        return plain(out, agreed, request, error);
    }
    // The payload is the error number and the length of an empty text.
    let mut payload = [0; 6];
    payload[..4].copy_from_slice(&error.to_be_bytes());
    if agreed.extended {
        let mut head = [0; 38];
        head[..32].copy_from_slice(&extended(chunk::ERROR, request, 6));
        head[32..].copy_from_slice(&payload);
        out.head(&head);
    } else {
        let mut head = [0; 26];
        head[..20].copy_from_slice(&structured(chunk::ERROR, request, 6));
        head[20..].copy_from_slice(&payload);
        out.head(&head);
    }
}

/// Returns the most bytes that a query for up to `max` extents takes: for the vector of results,
/// which grows by doubling, and for the reply.
pub(crate) const fn extents_bytes(max: usize) -> usize {
    2 * max * size_of::<Extent>() + STATUS_HEAD_BYTES + max * STATUS_BYTES_MAX
}

const STATUS_HEAD_BYTES: usize = 8;
const STATUS_BYTES_MAX: usize = 16;

/// Adds the reply to a query for extents; returns how many of its bytes are a counted text.
pub(crate) fn extents(
    out: &mut Outbox,
    agreed: Agreement,
    request: RequestRef,
    extents: &[Extent],
) -> usize {
    let status = |extent: &Extent| if extent.hole { wire::HOLE_AND_ZERO } else { 0 };
    let mut payload = Vec::with_capacity(STATUS_HEAD_BYTES + extents.len() * STATUS_BYTES_MAX);
    payload.extend(wire::ALLOCATION_ID.to_be_bytes());
    if agreed.extended {
        payload.extend((extents.len() as u32).to_be_bytes());
        for extent in extents {
            payload.extend(extent.len.to_be_bytes());
            payload.extend(u64::from(status(extent)).to_be_bytes());
        }
        out.head(&extended(chunk::BLOCK_STATUS_EXT, request, payload.len() as u64));
    } else {
        for extent in extents {
            // The length of the requested range has 32 bits, and no extent is longer than the
            // range.
            payload.extend((extent.len as u32).to_be_bytes());
            payload.extend(status(extent).to_be_bytes());
        }
        out.head(&structured(chunk::BLOCK_STATUS, request, payload.len() as u32));
        payload.shrink_to_fit();
    }
    let bytes = payload.len();
    out.counted(payload);
    bytes
}

fn structured(kind: u16, request: RequestRef, len: u32) -> [u8; 20] {
    let mut head = [0; 20];
    head[..4].copy_from_slice(&wire::STRUCTURED_REPLY.to_be_bytes());
    head[4..6].copy_from_slice(&chunk::DONE.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&request.cookie.to_be_bytes());
    head[16..].copy_from_slice(&len.to_be_bytes());
    head
}

fn extended(kind: u16, request: RequestRef, len: u64) -> [u8; 32] {
    let mut head = [0; 32];
    head[..4].copy_from_slice(&wire::EXTENDED_REPLY.to_be_bytes());
    head[4..6].copy_from_slice(&chunk::DONE.to_be_bytes());
    head[6..8].copy_from_slice(&kind.to_be_bytes());
    head[8..16].copy_from_slice(&request.cookie.to_be_bytes());
    head[16..24].copy_from_slice(&request.offset.to_be_bytes());
    head[24..].copy_from_slice(&len.to_be_bytes());
    head
}
