//! A request of the driver, as a chain of descriptors in the guest's memory.
//!
//! ```text
//!  read by the device           written by the device
//!  header (16) · data out       data in · status (1)
//! ```
//! The boundaries between descriptors have no meaning. The guest can change its memory at any time,
//! so the server copies descriptors and header, and checks and uses the copies.

use smallvec::SmallVec;
use virtio_bindings::virtio_blk;
use virtio_queue::desc::split::Descriptor;
use vm_memory::{
    Address, Bytes, GuestAddress, GuestMemoryBackend, GuestMemoryMmap, GuestMemoryRegion,
};

/// Contiguous bytes of the guest's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The address of the first byte.
    pub start: GuestAddress,
    /// The number of bytes.
    pub len: usize,
}

/// Ranges of the guest's memory, in order; none is empty.
pub type Spans = SmallVec<[Span; 4]>;

/// The descriptors of a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Table {
    /// The address of the first descriptor.
    pub start: GuestAddress,
    /// The number of descriptors.
    pub len: u16,
}

/// A request whose chain is well-formed.
#[derive(Debug, PartialEq, Eq)]
pub struct Request {
    /// The type: `VIRTIO_BLK_T_…`.
    pub kind: u32,
    /// The offset, in units of 512 bytes.
    pub sector: u64,
    /// The data, all of which the device reads, or all of which it writes.
    pub data: Spans,
    /// The length of the data.
    pub data_bytes: usize,
    /// `true`: the device writes the data; `false`: the device reads the data.
    pub into_guest: bool,
    /// The address of the status.
    pub status: GuestAddress,
}

/// A request whose chain the driver has built wrongly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MalformedRequest {
    /// The address of the last writable byte that was found in the chain, to which the status goes.
    pub status: Option<GuestAddress>,
}

/// The most descriptors of a request. The longest request that the device announces has fewer, but
/// a driver may divide a request into more descriptors.
const DESCRIPTORS_MAX: usize = 1024;
const HEADER_BYTES: usize = 16;

/// Reads the request whose first descriptor is number `head` of `table`.
///
/// # Errors
/// The chain is malformed or too long, or names an address outside the guest's memory.
pub fn read(
    memory: &GuestMemoryMmap,
    table: Table,
    head: u16,
) -> Result<Request, MalformedRequest> {
    let mut parts = Parts::default();
    let walked = parts.walk(memory, table, head);
    let status = parts.take_status();
    walked.and_then(|()| parts.request(memory, status?)).ok_or(MalformedRequest { status })
}

#[derive(Default)]
struct Parts {
    readable: Spans,
    writable: Spans,
}

impl Parts {
    /// Collects the descriptors of a chain; `None`: the chain is malformed.
    fn walk(&mut self, memory: &GuestMemoryMmap, mut table: Table, head: u16) -> Option<()> {
        let (mut index, mut indirect) = (head, false);
        // A chain that visits a descriptor twice is a loop, so it takes more steps than the table
        // has descriptors.
        let mut steps_left = table.len;
        for _ in 0..DESCRIPTORS_MAX {
            if index >= table.len || steps_left == 0 {
                return None;
            }
            steps_left -= 1;
            let place = table.start.checked_add(u64::from(index) * size_of::<Descriptor>() as u64);
            let descriptor: Descriptor = memory.read_obj(place?).ok()?;
            if descriptor.refers_to_indirect_table() {
                if indirect || descriptor.has_next() {
                    return None;
                }
                table = indirect_table(&descriptor)?;
                (index, indirect, steps_left) = (0, true, table.len);
                continue;
            }
            self.push(memory, &descriptor)?;
            if !descriptor.has_next() {
                return Some(());
            }
            index = descriptor.next();
        }
        None
    }

    fn push(&mut self, memory: &GuestMemoryMmap, descriptor: &Descriptor) -> Option<()> {
        let span = Span { start: descriptor.addr(), len: descriptor.len() as usize };
        if span.len == 0 {
            return Some(());
        }
        if !GuestMemoryBackend::check_range(memory, span.start, span.len) {
            return None;
        }
        if descriptor.is_write_only() {
            self.writable.push(span);
            return Some(());
        }
        self.readable.push(span);
        self.writable.is_empty().then_some(())
    }

    /// Removes the status byte, which is the last writable byte, from the writable parts; returns
    /// its address. `None`: there is no writable byte.
    fn take_status(&mut self) -> Option<GuestAddress> {
        let last = self.writable.last_mut()?;
        last.len -= 1;
        let status = last.start.unchecked_add(last.len as u64);
        if last.len == 0 {
            self.writable.pop();
        }
        Some(status)
    }

    fn request(mut self, memory: &GuestMemoryMmap, status: GuestAddress) -> Option<Request> {
        let mut header = [0; HEADER_BYTES];
        self.take_header(memory, &mut header)?;
        let [kind, sector] = [&header[..4], &header[8..]];
        let kind = u32::from_le_bytes(kind.try_into().ok()?);
        let sector = u64::from_le_bytes(sector.try_into().ok()?);
        let into_guest =
            matches!(kind, virtio_blk::VIRTIO_BLK_T_IN | virtio_blk::VIRTIO_BLK_T_GET_ID);
        let (data, other) = match into_guest {
            true => (self.writable, self.readable),
            false => (self.readable, self.writable),
        };
        let data_bytes = data.iter().map(|span| span.len).sum();
        other.is_empty().then_some(Request { kind, sector, data, data_bytes, into_guest, status })
    }

    fn take_header(&mut self, memory: &GuestMemoryMmap, header: &mut [u8]) -> Option<()> {
        let mut filled = 0;
        while filled < header.len() {
            let span = self.readable.first_mut()?;
            let count = span.len.min(header.len() - filled);
            memory.read_slice(&mut header[filled..filled + count], span.start).ok()?;
            filled += count;
            span.len -= count;
            span.start = span.start.unchecked_add(count as u64);
            if span.len == 0 {
                self.readable.remove(0);
            }
        }
        Some(())
    }
}

fn indirect_table(descriptor: &Descriptor) -> Option<Table> {
    let bytes = descriptor.len() as usize;
    let len = u16::try_from(bytes / size_of::<Descriptor>()).ok()?;
    let whole = bytes.is_multiple_of(size_of::<Descriptor>()) && len > 0;
    whole.then_some(Table { start: descriptor.addr(), len })
}

/// Copies `bytes` into the guest's memory at `spans`, behind the first `skip` bytes of the spans.
/// Returns `false` if the spans are too short or outside the memory.
pub(super) fn scatter(memory: &GuestMemoryMmap, spans: &Spans, skip: usize, bytes: &[u8]) -> bool {
    each_part(spans, skip, bytes.len(), |start, range| {
        memory.write_slice(&bytes[range], start).is_ok()
    })
}

/// Fills `bytes` from the guest's memory at `spans`, behind the first `skip` bytes of the spans.
/// Returns `false` if the spans are too short or outside the memory.
pub(super) fn gather(
    memory: &GuestMemoryMmap,
    spans: &Spans,
    skip: usize,
    bytes: &mut [u8],
) -> bool {
    each_part(spans, skip, bytes.len(), |start, range| {
        memory.read_slice(&mut bytes[range], start).is_ok()
    })
}

/// Divides the `len` bytes behind the first `skip` bytes of `spans` into contiguous parts, and
/// calls `each` with the address of a part and its range among the `len` bytes. Returns `false` if
/// a call returns `false`, or if the spans are too short.
fn each_part(
    spans: &Spans,
    mut skip: usize,
    len: usize,
    mut each: impl FnMut(GuestAddress, core::ops::Range<usize>) -> bool,
) -> bool {
    let mut done = 0;
    for span in spans {
        let skipped = skip.min(span.len);
        skip -= skipped;
        let count = (span.len - skipped).min(len - done);
        if count > 0 && !each(span.start.unchecked_add(skipped as u64), done..done + count) {
            return false;
        }
        done += count;
    }
    done == len
}

/// Splits spans at the borders of memory regions, so that each part is contiguous in this process.
/// Returns `None` if there would be too many parts, or if a span is outside the memory.
pub(super) fn contiguous(memory: &GuestMemoryMmap, spans: &Spans) -> Option<Spans> {
    let mut parts = Spans::new();
    for span in spans {
        let (mut start, mut left) = (span.start, span.len);
        while left > 0 {
            if parts.len() == DESCRIPTORS_MAX {
                return None;
            }
            let (region, offset) = memory.to_region_addr(start)?;
            let count = left.min(usize::try_from(region.len() - offset.raw_value()).ok()?);
            parts.push(Span { start, len: count });
            left -= count;
            start = start.checked_add(count as u64)?;
        }
    }
    Some(parts)
}
