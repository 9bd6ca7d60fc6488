//! Requests of a ublk queue, on a medium in memory.

mod support;

use core::ptr::NonNull;
use nowait::{AlignedBuffer, Errno};
use nowait_device::{Image, Kind, LentMemory, Medium, Properties};
use nowait_server::ublk::{Kernel, Session};
use nowait_sys::ublk::{Request, operation, request_flag};
use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};
use support::{Memory, PLAIN, SIZE};

const DEPTH: u16 = 8;
const BUFFER_BYTES: usize = 64 << 10;

/// Takes the results in place of the kernel.
struct Queue {
    /// The buffer of each tag, which does not move.
    buffers: Vec<Arc<AlignedBuffer>>,
    places: Vec<NonNull<u8>>,
    results: Vec<(u16, i32)>,
}

impl Queue {
    fn new() -> Queue {
        let mut buffers: Vec<AlignedBuffer> =
            (0..DEPTH).map(|_| AlignedBuffer::zeroed(BUFFER_BYTES)).collect();
        let place = |buffer: &mut AlignedBuffer| NonNull::new(buffer.as_mut_ptr()).unwrap();
        let places = buffers.iter_mut().map(place).collect();
        let buffers = buffers.into_iter().map(Arc::new).collect();
        Queue { buffers, places, results: Vec::new() }
    }

    fn bytes(&mut self, tag: u16) -> &mut [u8] {
        let start = self.places[usize::from(tag)];
        // SAFETY: the buffer lives as long as `self`, and no request uses it at present.
        unsafe { core::slice::from_raw_parts_mut(start.as_ptr(), BUFFER_BYTES) }
    }
}

impl Kernel for Queue {
    fn lend(&self, tag: u16, len: usize) -> Option<LentMemory> {
        let index = usize::from(tag);
        // SAFETY: the bytes are in a buffer that lives as long as the loan.
        let lend =
            || unsafe { LentMemory::new(self.places[index], len, self.buffers[index].clone()) };
        (len <= BUFFER_BYTES).then(lend)
    }

    fn commit(&mut self, tag: u16, result: i32) {
        self.results.push((tag, result));
    }
}

struct Bench {
    session: Session<()>,
    memory: Memory,
    queue: Queue,
    image: Arc<Image<()>>,
}

impl Bench {
    fn new(properties: Properties) -> Bench {
        let image = Arc::new(Image::new("disk", properties, 0, SIZE as u64, ()));
        let session = Session::new(7, image.clone(), DEPTH);
        let memory = Memory { borrows: true, ..Memory::new(1 << 20) };
        Bench { session, memory, queue: Queue::new(), image }
    }

    fn ask(&mut self, tag: u16, operation_and_flags: (u8, u32), offset: u64, len: u64) {
        let (operation, flags) = operation_and_flags;
        let request = Request { tag, operation, flags, offset, len };
        self.session.request(request, &mut self.memory, &mut self.queue, 0);
    }

    fn results(&mut self) -> Vec<(u16, i32)> {
        while let Some(ended) = self.memory.pop() {
            self.session.end(ended, &mut self.memory, &mut self.queue, 1);
        }
        core::mem::take(&mut self.queue.results)
    }
}

const READ: (u8, u32) = (operation::READ, 0);
const WRITE: (u8, u32) = (operation::WRITE, 0);

#[test]
fn written_data_is_read() {
    let mut bench = Bench::new(PLAIN);
    bench.queue.bytes(3)[..4096].fill(0xa5);
    bench.ask(3, WRITE, 8192, 4096);
    assert_eq!(bench.results(), [(3, 4096)]);
    bench.queue.bytes(4).fill(1);
    bench.ask(4, READ, 4096, 8192);
    assert_eq!(bench.results(), [(4, 8192)]);
    let read = bench.queue.bytes(4);
    assert!(read[..4096].iter().all(|byte| *byte == 0));
    assert!(read[4096..8192].iter().all(|byte| *byte == 0xa5));
    assert_eq!(read[8192], 1, "no more than was asked for");
    assert_eq!(bench.memory.durable_writes, 0);
}

/// The medium borrows no memory for an image on an object store or an NBD server, nor for a file
/// while another request writes a part of the same blocks.
#[test]
fn a_medium_that_borrows_no_memory_gets_copies() {
    let mut bench = Bench::new(PLAIN);
    bench.memory.borrows = false;
    bench.queue.bytes(3).fill(0xa5);
    bench.ask(3, (operation::WRITE, request_flag::FUA), 0, BUFFER_BYTES as u64);
    assert_eq!(bench.results(), [(3, BUFFER_BYTES as i32)]);
    assert_eq!(bench.memory.durable_writes, 1);
    bench.queue.bytes(4).fill(1);
    bench.ask(4, READ, BUFFER_BYTES as u64 - 4096, 8192);
    assert_eq!(bench.results(), [(4, 8192)]);
    let read = bench.queue.bytes(4);
    assert!(read[..4096].iter().all(|byte| *byte == 0xa5));
    assert!(read[4096..8192].iter().all(|byte| *byte == 0));
    assert_eq!(read[8192], 1, "no more than was asked for");
    assert_eq!(bench.memory.pool().used_by(bench.image.number()), 0, "chunks go back to the pool");
}

#[test]
fn durable_writes_flushes_discards_and_zeroes_reach_the_medium() {
    let mut bench = Bench::new(PLAIN);
    bench.queue.bytes(0).fill(9);
    bench.ask(0, (operation::WRITE, request_flag::FUA), 0, BUFFER_BYTES as u64);
    bench.ask(1, (operation::FLUSH, 0), 0, 0);
    assert_eq!(bench.results(), [(0, BUFFER_BYTES as i32), (1, 0)]);
    assert_eq!((bench.memory.durable_writes, bench.memory.flushes), (1, 1));
    bench.ask(2, (operation::DISCARD, 0), 0, 4096);
    bench.ask(3, (operation::WRITE_ZEROES, request_flag::NO_UNMAP), 8192, 4096);
    assert_eq!(bench.results(), [(2, 0), (3, 0)]);
    assert_eq!((bench.memory.bytes[4095], bench.memory.bytes[4096]), (0, 9));
    assert_eq!((bench.memory.bytes[8192], bench.memory.bytes[12288]), (0, 9));
    let counted = [Kind::Write, Kind::Flush, Kind::Discard, Kind::Zero];
    assert_eq!(counted.map(|kind| bench.image.stats().of(kind).requests), [1; 4]);
}

#[test]
fn invalid_requests_are_refused_and_not_counted() {
    let mut bench = Bench::new(PLAIN);
    let outside = -Errno::IO.raw();
    bench.ask(0, READ, SIZE as u64, 512);
    bench.ask(1, WRITE, u64::MAX - 511, 512);
    bench.ask(2, READ, 0, 0);
    bench.ask(3, (operation::DISCARD, 0), SIZE as u64 - 512, 1024);
    assert_eq!(bench.results(), [(0, outside), (1, outside), (2, outside), (3, outside)]);
    bench.ask(4, READ, 0, BUFFER_BYTES as u64 + 512);
    bench.ask(5, (77, 0), 0, 512);
    let [large, unknown] = [Errno::INVAL, Errno::OPNOTSUPP].map(|errno| -errno.raw());
    assert_eq!(bench.results(), [(4, large), (5, unknown)]);
    assert_eq!((bench.session.in_flight(), bench.image.stats().in_flight()), (0, 0));
}

#[test]
fn a_read_only_disk_is_only_read() {
    let mut bench = Bench::new(Properties { read_only: true, ..PLAIN });
    let refused = -Errno::ROFS.raw();
    bench.ask(0, WRITE, 0, 512);
    bench.ask(1, (operation::DISCARD, 0), 0, 512);
    bench.ask(2, (operation::WRITE_ZEROES, 0), 0, 512);
    bench.ask(3, READ, 0, 512);
    assert_eq!(bench.results(), [(0, refused), (1, refused), (2, refused), (3, 512)]);
}

#[test]
fn a_failure_is_the_result_and_its_tag_is_reused() {
    let mut bench = Bench::new(PLAIN);
    bench.memory.failure = Some(Errno::NOSPC);
    bench.memory.holds = true;
    for tag in 0..DEPTH {
        bench.ask(tag, WRITE, u64::from(tag) * 4096, 4096);
    }
    assert_eq!(bench.session.in_flight(), usize::from(DEPTH));
    assert_eq!(bench.results(), []);
    bench.memory.holds = false;
    let failed: Vec<_> = (0..DEPTH).map(|tag| (tag, -Errno::NOSPC.raw())).collect();
    assert_eq!(bench.results(), failed);
    bench.memory.failure = None;
    bench.ask(5, WRITE, 0, 512);
    assert_eq!(bench.results(), [(5, 512)]);
    let writes = bench.image.stats().of(Kind::Write);
    assert_eq!((writes.requests, writes.errors), (u64::from(DEPTH) + 1, u64::from(DEPTH)));
}

#[test]
fn a_panic_ends_requests_with_eio_and_the_next_one_works() {
    let mut bench = Bench::new(PLAIN);
    let failed = |tag| (tag, -Errno::IO.raw());
    let panics = |bench: &mut Bench, request: (u8, u32), offset| {
        bench.memory.panics = true;
        let ask = AssertUnwindSafe(|| bench.ask(2, request, offset, 4096));
        assert!(catch_unwind(ask).is_err());
    };
    bench.memory.holds = true;
    bench.ask(1, WRITE, 0, 4096);
    panics(&mut bench, READ, 4096);
    assert_eq!(bench.session.in_flight(), 2, "it is unknown whether the medium has it");
    bench.memory = Memory { borrows: true, ..Memory::new(1 << 20) };
    bench.session.give_up(&mut bench.queue, 1);
    assert_eq!(bench.results(), [failed(1), failed(2)]);
    bench.ask(2, READ, 4096, 4096);
    assert_eq!(bench.results(), [(2, 4096)]);
    assert_eq!((bench.session.in_flight(), bench.image.stats().in_flight()), (0, 0));
}
