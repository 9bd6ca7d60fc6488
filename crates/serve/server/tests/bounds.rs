//! Bounds on the memory that clients can make the server use, measured by the allocator and the
//! pool.

#[path = "support/guest.rs"]
mod guest_support;
mod support;

use core::{
    alloc::{GlobalAlloc, Layout},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};
use guest_support::{Device, FEATURES, NEXT, WRITE};
use nowait_server::nbd::{Limits, Security, Session};
use std::{alloc::System, io::IoSlice, sync::Mutex};
use support::{Memory, STATUS, contexts, exports, go, option, request};
use virtio_bindings::virtio_blk::{VIRTIO_BLK_T_IN, VIRTIO_BLK_T_WRITE_ZEROES};
use vm_memory::{Bytes, GuestAddress};

struct Counting {
    bytes: AtomicUsize,
    bytes_max: AtomicUsize,
}

#[global_allocator]
static COUNTING: Counting = Counting { bytes: AtomicUsize::new(0), bytes_max: AtomicUsize::new(0) };

// SAFETY: all calls go to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = self.bytes.fetch_add(layout.size(), Relaxed) + layout.size();
        self.bytes_max.fetch_max(now, Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        self.bytes.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the caller's promise is the same.
        unsafe { System.dealloc(memory, layout) }
    }
}

fn most(work: impl FnOnce()) -> usize {
    let before = COUNTING.bytes.load(Relaxed);
    COUNTING.bytes_max.store(before, Relaxed);
    work();
    COUNTING.bytes_max.load(Relaxed) - before
}

const POOL: usize = 1 << 20;
/// The bytes that each client may use beyond the pool's bound: for a small chunk, waiting requests,
/// and heads of replies.
const CLIENT: usize = 256 << 10;
const CLIENTS: usize = 16;

/// Each test holds this lock, so that one runs at a time, because the allocator counts for the
/// whole process.
static TURN: Mutex<()> = Mutex::new(());

fn take(session: &mut Session<()>, memory: &mut Memory) {
    while !session.is_sent() {
        let mut slices = [IoSlice::new(&[]); 8];
        let count = session.unsent(&mut slices);
        let bytes = slices[..count].iter().map(|slice| slice.len()).sum();
        session.sent(bytes, memory);
    }
}

/// Clients send many requests, as long as the session takes them, and take no reply to them.
#[test]
fn untaken_replies_stay_within_the_memory_for_all() {
    let _turn = TURN.lock();
    let ask = |say: fn(u64) -> Vec<u8>, after: &[Vec<u8>]| {
        let images = exports();
        let mut memory = Memory { fragmented: true, ..Memory::new(POOL) };
        let mut used_max = 0;
        let session = |owner| Session::new(owner, &images, Security::Plain, Limits::default());
        let mut sessions: Vec<Session<()>> = (0..CLIENTS as u64).map(session).collect();
        let beyond = most(|| {
            for session in &mut sessions {
                session.receive(0, &3u32.to_be_bytes(), &mut memory, 0);
                for option in after {
                    take(session, &mut memory);
                    session.receive(0, option, &mut memory, 0);
                }
                for cookie in 0..10_000 {
                    let one = say(cookie);
                    if session.read_budget() < one.len() {
                        break;
                    }
                    session.receive(0, &one, &mut memory, 0);
                    used_max = used_max.max(memory.pool.used_bytes());
                    while let Some(ended) = memory.ended.pop_front() {
                        session.end(ended, &mut memory, 0);
                    }
                }
            }
        });
        assert!(beyond <= POOL + CLIENTS * CLIENT, "{beyond} bytes of {POOL}, and of each client");
        assert!(used_max <= POOL + CLIENTS * 4096, "{used_max} bytes are counted");
        sessions.into_iter().for_each(|session| session.abandon(&mut memory));
        assert_eq!(memory.pool.used_bytes(), 0);
    };
    let status = |cookie| request(STATUS, 0, cookie, 0, support::SIZE as u32);
    let chosen = [
        option(8, &[]),
        option(10, &contexts("disk", &["base:allocation"])),
        option(7, &go("disk")),
    ];
    ask(status, &chosen);
    // Clients may send options without end. The answers to the second option are longer than the
    // option.
    ask(|_| option(10, &contexts("disk", &["base:"])), &[option(8, &[])]);
    ask(|_| option(3, &[]), &[]);
}

/// The guest sends requests of 1000 segments or 32 ranges, by indirect tables. The medium holds
/// their ends back until the test has checked the counts.
#[test]
fn segments_and_ranges_count_toward_the_memory_for_all() {
    const SEGMENTS: u64 = 1000;
    const INDIRECT: u16 = 4;
    const REQUESTS: u16 = 256;
    let _turn = TURN.lock();
    for zeroes in [false, true] {
        let mut device = Device::new(REQUESTS, FEATURES, true);
        device.medium = Memory { holds: true, borrows: true, ..Memory::new(POOL) };
        let guest = &mut device.guest;
        let kind = if zeroes { VIRTIO_BLK_T_WRITE_ZEROES } else { VIRTIO_BLK_T_IN };
        let (header, data, table) =
            (guest.header(kind, 0), guest.buffer(4096), guest.buffer(16_384));
        let part = |place: u64, address: u64, len: u32, flags: u16| {
            let next = place as u16 + 1;
            let described = virtio_queue::desc::split::Descriptor::new(address, len, flags, next);
            guest.memory.write_obj(described, GuestAddress(table + 16 * place)).unwrap();
        };
        part(0, header, 16, NEXT);
        let count = if zeroes {
            let range = [&0u64.to_le_bytes()[..], &1u32.to_le_bytes(), &[0; 4]].concat();
            guest.memory.write_slice(&range.repeat(32), GuestAddress(data)).unwrap();
            part(1, data, 512, NEXT);
            1
        } else {
            (1..=SEGMENTS).for_each(|at| part(at, data, 512, NEXT | WRITE));
            SEGMENTS
        };
        part(count + 1, data, 1, WRITE);
        for _ in 0..REQUESTS {
            let len = 16 * (count as u32 + 2);
            let head = guest.chain(&[(table, len, INDIRECT)]);
            guest.publish(head);
        }
        device.run();
        let (used, in_flight) = (device.medium.pool.used_bytes(), device.ring.in_flight());
        assert!(in_flight > 1, "{in_flight} requests are in flight");
        let each = if zeroes { 32 * 128 } else { SEGMENTS as usize * 96 };
        assert!(used >= in_flight * each, "{used} bytes are counted of {in_flight} requests");
        assert!(used <= POOL + (128 << 10), "{used} bytes are counted");
        device.end_checked();
    }
}
