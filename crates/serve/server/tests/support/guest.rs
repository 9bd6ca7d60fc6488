//! A guest with one virtqueue. The test acts as its driver.

#![allow(dead_code, reason = "each test uses a part")]

use super::support::{Memory, PLAIN, SMALL_SIZE, exports};
use core::sync::atomic::Ordering;
use nowait_device::{Image, Medium};
use nowait_server::vhost::{Counter, Ring, Setup, device, ring::TakeOutcome};
use std::{os::fd::OwnedFd, sync::Arc};
use virtio_bindings::{
    virtio_blk::VIRTIO_BLK_F_FLUSH,
    virtio_ring::{VIRTIO_RING_F_EVENT_IDX, VRING_DESC_F_NEXT, VRING_DESC_F_WRITE},
};
use virtio_queue::desc::split::Descriptor;
use vm_memory::{Bytes, GuestAddress, GuestMemoryMmap};

pub(crate) const NEXT: u16 = VRING_DESC_F_NEXT as u16;
pub(crate) const WRITE: u16 = VRING_DESC_F_WRITE as u16;

const DESCRIPTORS: u64 = 0;
const AVAILABLE: u64 = 0x8000;
const USED: u64 = 0xc000;
/// The border between the two regions of memory.
pub(crate) const BORDER: u64 = 1 << 20;
pub(crate) const BUFFERS: u64 = 0x1_0000;
pub(crate) const MEMORY_BYTES: u64 = 2 << 20;

pub(crate) const FEATURES: u64 = 1 << VIRTIO_BLK_F_FLUSH | 1 << VIRTIO_RING_F_EVENT_IDX;

/// A descriptor: address, length, flags.
pub(crate) type Part = (u64, u32, u16);

pub(crate) struct Guest {
    pub(crate) memory: Arc<GuestMemoryMmap>,
    pub(crate) size: u16,
    pub(crate) available: u16,
    pub(crate) seen: u16,
    next_descriptor: u16,
    next_buffer: u64,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct GuestRequest {
    pub(crate) head: u16,
    pub(crate) data: GuestAddress,
    pub(crate) status: GuestAddress,
}

impl Guest {
    pub(crate) fn new(size: u16) -> Guest {
        let ranges = [
            (GuestAddress(0), BORDER as usize),
            (GuestAddress(BORDER), (MEMORY_BYTES - BORDER) as usize),
        ];
        let memory = GuestMemoryMmap::from_ranges(&ranges).unwrap();
        Guest::over(Arc::new(memory), size)
    }

    pub(crate) fn over(memory: Arc<GuestMemoryMmap>, size: u16) -> Guest {
        let next_buffer = BUFFERS;
        Guest { memory, size, available: 0, seen: 0, next_descriptor: 0, next_buffer }
    }

    pub(crate) fn setup(&self, image: &Arc<Image<()>>, features: u64) -> Setup<()> {
        Setup {
            image: image.clone(),
            memory: self.memory.clone(),
            features,
            size: self.size,
            descriptors: GuestAddress(DESCRIPTORS),
            available: GuestAddress(AVAILABLE),
            used: GuestAddress(USED),
            next_available: 0,
            call: None,
            error: None,
            inflight: None,
        }
    }

    pub(crate) fn chain(&mut self, descriptors: &[Part]) -> u16 {
        let head = self.next_descriptor % self.size;
        for (index, (address, len, flags)) in descriptors.iter().enumerate() {
            let last = index + 1 == descriptors.len();
            let flags = flags | if last { 0 } else { NEXT };
            let place = self.next_descriptor % self.size;
            self.next_descriptor = (place + 1) % self.size;
            self.describe(place, *address, *len, flags, self.next_descriptor);
        }
        head
    }

    pub(crate) fn describe(&self, place: u16, address: u64, len: u32, flags: u16, next: u16) {
        let at = DESCRIPTORS + 16 * u64::from(place);
        let descriptor = Descriptor::new(address, len, flags, next);
        self.memory.write_obj(descriptor, GuestAddress(at)).unwrap();
    }

    pub(crate) fn publish(&mut self, head: u16) {
        let place = AVAILABLE + 4 + 2 * u64::from(self.available % self.size);
        self.memory.write_obj(head.to_le(), GuestAddress(place)).unwrap();
        self.available = self.available.wrapping_add(1);
        self.set_available(self.available);
    }

    pub(crate) fn set_available(&self, index: u16) {
        self.memory.store(index.to_le(), GuestAddress(AVAILABLE + 2), Ordering::Release).unwrap();
    }

    /// Asks for a signal when the device has filled entry `index` of the used ring.
    pub(crate) fn call_after(&self, index: u16) {
        let place = AVAILABLE + 4 + 2 * u64::from(self.size);
        self.memory.write_obj(index.to_le(), GuestAddress(place)).unwrap();
    }

    /// Returns the address of the next `len` bytes for buffers. After the end of the memory, begins
    /// anew with the first buffer.
    pub(crate) fn buffer(&mut self, len: u64) -> u64 {
        if self.next_buffer + len > MEMORY_BYTES {
            self.next_buffer = BUFFERS;
        }
        let start = self.next_buffer;
        self.next_buffer = (start + len).next_multiple_of(512);
        start
    }

    pub(crate) fn header(&mut self, kind: u32, sector: u64) -> u64 {
        let at = self.buffer(16);
        let mut header = [0; 16];
        header[..4].copy_from_slice(&kind.to_le_bytes());
        header[8..].copy_from_slice(&sector.to_le_bytes());
        self.memory.write_slice(&header, GuestAddress(at)).unwrap();
        at
    }

    /// Makes a request available whose `data` the device reads.
    pub(crate) fn give(&mut self, kind: u32, sector: u64, data: &[u8]) -> GuestRequest {
        let at = self.buffer(data.len() as u64);
        self.memory.write_slice(data, GuestAddress(at)).unwrap();
        self.ask(kind, sector, (at, data.len() as u32, 0))
    }

    /// Makes a request available to which the device writes `len` bytes.
    pub(crate) fn want(&mut self, kind: u32, sector: u64, len: u32) -> GuestRequest {
        let at = self.buffer(u64::from(len));
        self.ask(kind, sector, (at, len, WRITE))
    }

    pub(crate) fn ask(&mut self, kind: u32, sector: u64, data: Part) -> GuestRequest {
        let (header, status) = (self.header(kind, sector), self.buffer(1));
        self.memory.write_obj(0xffu8, GuestAddress(status)).unwrap();
        let chain = [(header, 16, 0), data, (status, 1, WRITE)];
        let some = usize::from(data.1 > 0);
        let head = match some {
            1 => self.chain(&chain),
            _ => self.chain(&[chain[0], chain[2]]),
        };
        self.publish(head);
        GuestRequest { head, data: GuestAddress(data.0), status: GuestAddress(status) }
    }

    /// Returns the entries used since the last time: first descriptors and lengths.
    pub(crate) fn used(&mut self) -> Vec<(u32, u32)> {
        let index: u16 = self.memory.load(GuestAddress(USED + 2), Ordering::Acquire).unwrap();
        let mut used = Vec::new();
        while self.seen != u16::from_le(index) {
            let place = USED + 4 + 8 * u64::from(self.seen % self.size);
            let entry: [u32; 2] = self.memory.read_obj(GuestAddress(place)).unwrap();
            used.push((u32::from_le(entry[0]), u32::from_le(entry[1])));
            self.seen = self.seen.wrapping_add(1);
        }
        used
    }

    pub(crate) fn status(&self, asked: GuestRequest) -> u8 {
        self.memory.read_obj(asked.status).unwrap()
    }

    pub(crate) fn bytes(&self, at: GuestAddress, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.memory.read_slice(&mut bytes, at).unwrap();
        bytes
    }
}

pub(crate) struct Device {
    pub(crate) guest: Guest,
    pub(crate) ring: Ring<()>,
    pub(crate) medium: Memory,
    pub(crate) image: Arc<Image<()>>,
}

impl Device {
    pub(crate) fn new(size: u16, features: u64, borrows: bool) -> Device {
        let medium = Memory { borrows, ..Memory::new(64 << 20) };
        Device::of(size, features, exports()[0].clone(), medium)
    }

    fn of(size: u16, features: u64, image: Arc<Image<()>>, medium: Memory) -> Device {
        let guest = Guest::new(size);
        let ring = Ring::new(0, guest.setup(&image, features)).unwrap();
        Device { guest, ring, medium, image }
    }

    /// Serves the available requests, and delivers their ends unless the medium holds these back.
    pub(crate) fn run(&mut self) {
        let mut rounds = 0;
        loop {
            let taken = self.ring.take(&mut self.medium, 0);
            assert!(self.ring.in_flight() <= usize::from(self.guest.size));
            let mut ended_any = false;
            while let Some(ended) = self.medium.pop() {
                self.ring.end(ended, &mut self.medium, 1);
                ended_any = true;
            }
            self.ring.notify();
            rounds += 1;
            assert!(rounds < 10_000, "it does not come to an end");
            if taken != TakeOutcome::More && !ended_any {
                return;
            }
        }
    }

    pub(crate) fn end_checked(mut self) {
        self.ring.stop();
        self.medium.holds = false;
        self.run();
        assert_eq!((self.ring.in_flight(), self.medium.pool().used_bytes()), (0, 0));
        assert_eq!(self.image.stats().in_flight(), 0);
    }
}

pub(crate) fn counter() -> (Counter, nowait_sys::eventfd::EventFd) {
    let ours = nowait_sys::eventfd::EventFd::new().unwrap();
    let borrowed = std::os::fd::AsFd::as_fd(&ours);
    let theirs: OwnedFd = borrowed.try_clone_to_owned().unwrap();
    (Counter::new(theirs.into()).unwrap(), ours)
}

/// Acts as a driver of a device. The bytes of `input`, which may be any, decide the driver's
/// actions.
///
/// The first two bytes choose the queue and the medium. Then come steps, each a byte and its
/// parameters.
pub(crate) fn drive(input: &[u8]) {
    let mut input = Input(input);
    let (size, choices) = (1 << (input.byte() % 9), input.byte());
    let features = if choices & 1 == 0 { FEATURES } else { 0 };
    let bound = if choices & 4 == 0 { 64 << 20 } else { 64 << 10 };
    let medium = Memory { borrows: choices & 2 == 0, ..Memory::sized(bound, SMALL_SIZE) };
    let image = Arc::new(Image::new("disk", PLAIN, 0, SMALL_SIZE as u64, ()));
    let mut device = Device::of(size, features, image, medium);
    while !input.0.is_empty() {
        step(&mut input, &mut device);
    }
    device.end_checked();
}

struct Input<'a>(&'a [u8]);

impl Input<'_> {
    fn byte(&mut self) -> u8 {
        let (first, rest) = self.0.split_first().unwrap_or((&0, &[]));
        self.0 = rest;
        *first
    }

    fn number(&mut self, bytes: usize) -> u64 {
        (0..bytes).fold(0, |number, _| number << 8 | u64::from(self.byte()))
    }

    /// Returns a sector of the image, or one a little beyond its end.
    fn sector(&mut self) -> u64 {
        self.number(2) % (SMALL_SIZE as u64 / 512 + 16)
    }

    /// Returns an address, more often inside the memory than not.
    fn address(&mut self) -> u64 {
        match self.byte() {
            0 => self.number(8),
            1 => BORDER - u64::from(self.byte()),
            2 => MEMORY_BYTES - u64::from(self.byte()),
            _ => self.number(3) % MEMORY_BYTES,
        }
    }
}

fn step(input: &mut Input<'_>, device: &mut Device) {
    let Device { guest, medium, .. } = device;
    match input.byte() % 10 {
        0 => {
            let (place, address, len) = (input.number(2), input.address(), input.number(4));
            let (flags, next) = (input.byte(), input.number(2));
            guest.describe(place as u16 % 512, address, len as u32, flags.into(), next as u16);
        }
        1 => {
            let (address, len) = (input.address(), usize::from(input.byte()).min(input.0.len()));
            let (bytes, rest) = input.0.split_at(len);
            input.0 = rest;
            let _ = guest.memory.write_slice(bytes, GuestAddress(address));
        }
        2 => {
            let head = input.number(2) as u16;
            guest.publish(head);
        }
        3 => guest.set_available(input.number(2) as u16),
        4 => medium.holds = !medium.holds,
        5 => {
            let (kind, sector, len) = (input.byte() % 16, input.sector(), input.number(2));
            guest.want(kind.into(), sector, len as u32 * 16);
        }
        6 => {
            let (kind, sector, len) = (input.byte() % 16, input.sector(), input.byte());
            let fill = input.byte();
            guest.give(kind.into(), sector, &vec![fill; usize::from(len) * 64]);
        }
        7 => {
            let (address, len) = (input.address(), input.number(2));
            let head = guest.chain(&[(address, len as u32, 4)]);
            guest.publish(head);
        }
        8 => {
            let count = 1 + input.byte() % 6;
            let parts: Vec<_> = (0..count)
                .map(|_| (input.address(), input.number(2) as u32, u16::from(input.byte() & 2)))
                .collect();
            let head = guest.chain(&parts);
            guest.publish(head);
        }
        _ => device.run(),
    }
}

pub(crate) fn offered() -> u64 {
    device::features(PLAIN)
}
