//! A virtqueue between a driver, as which the test acts, and a medium in memory.

#[path = "support/guest.rs"]
mod guest_support;
mod support;

use guest_support::{
    BORDER, BUFFERS, Device, FEATURES, Guest, MEMORY_BYTES, NEXT, Part, WRITE, counter, drive,
    offered,
};
use nowait::Errno;
use nowait_device::{Kind, Medium, Pool};
use nowait_server::vhost::{Ring, inflight::Area};
use nowait_sim::Prng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use support::{Memory, SIZE, exports};
use virtio_bindings::virtio_blk::*;
use vm_memory::{Bytes, GuestAddress};

const IN: u32 = VIRTIO_BLK_T_IN;
const OUT: u32 = VIRTIO_BLK_T_OUT;
const FLUSH: u32 = VIRTIO_BLK_T_FLUSH;
const OK: u8 = VIRTIO_BLK_S_OK as u8;
const IOERR: u8 = VIRTIO_BLK_S_IOERR as u8;
const UNSUPP: u8 = VIRTIO_BLK_S_UNSUPP as u8;

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + seed + (i >> 9)) as u8).collect()
}

#[test]
fn written_data_is_read_with_and_without_a_copy() {
    for borrows in [true, false] {
        let mut device = Device::new(64, FEATURES, borrows);
        for (sector, len) in [(0, 600 << 10), (3, 512), (5000, 64 << 10)] {
            let data = pattern(len, sector as usize);
            let wrote = device.guest.give(OUT, sector, &data);
            device.run();
            assert_eq!(device.guest.status(wrote), OK);
            assert_eq!(device.medium.bytes[sector as usize * 512..][..len], data);
            let read = device.guest.want(IN, sector, len as u32);
            device.run();
            assert_eq!(device.guest.status(read), OK);
            assert_eq!(device.guest.bytes(read.data, len), data);
            let used = [(wrote.head.into(), 1), (read.head.into(), len as u32 + 1)];
            assert_eq!(device.guest.used(), used);
        }
        assert_eq!(device.image.stats().of(Kind::Read).requests, 3);
        device.end_checked();
    }
}

#[test]
fn boundaries_between_descriptors_have_no_meaning() {
    for borrows in [true, false] {
        let mut device = Device::new(64, FEATURES, borrows);
        let guest = &mut device.guest;
        let data = pattern(2048, 1);
        let header = guest.header(OUT, 8);
        // The data follows the header without a gap, and lies in two regions of the memory.
        let start = BORDER - 1000;
        let mut bytes = guest.bytes(GuestAddress(header), 16);
        bytes.extend(&data);
        guest.memory.write_slice(&bytes, GuestAddress(start)).unwrap();
        let write = [(start, 7, 0), (start + 7, 1500, 0), (0, 0, 0), (start + 1507, 557, 0)];
        let head = guest.chain(&[&write[..], &[(BUFFERS, 1, WRITE)]].concat());
        guest.publish(head);
        // The status is the last byte that the device writes.
        let header = guest.header(IN, 8);
        let head = guest.chain(&[(header, 16, 0), (start, 2049, WRITE)]);
        device.run();
        assert_eq!(device.medium.bytes[4096..6144], data);
        assert_eq!(device.guest.used().len(), 1);
        device.guest.publish(head);
        device.run();
        assert_eq!(device.guest.bytes(GuestAddress(start), 2049), [&data[..], &[OK]].concat());
        device.end_checked();
    }
}

#[test]
fn indirect_tables_are_followed() {
    let mut device = Device::new(4, FEATURES, true);
    let guest = &mut device.guest;
    let (header, table, data) = (guest.header(IN, 1), guest.buffer(1024), guest.buffer(8192));
    device.medium.bytes[512..8704].copy_from_slice(&pattern(8192, 3));
    let mut entries = vec![(header, 16u32, 0u16)];
    entries.extend((0..16).map(|i| (data + i * 512, 512, WRITE)));
    entries.push((BUFFERS, 1, WRITE));
    for (i, (address, len, flags)) in entries.iter().enumerate() {
        let next = if i + 1 < entries.len() { NEXT } else { 0 };
        let at = GuestAddress(table + 16 * i as u64);
        let rest = u64::from(*len) | u64::from(flags | next) << 32 | (i as u64 + 1) << 48;
        guest.memory.write_obj([*address, rest], at).unwrap();
    }
    let head = guest.chain(&[(table, 16 * entries.len() as u32, 4)]);
    guest.publish(head);
    device.run();
    assert_eq!(device.guest.used(), [(head.into(), 8193)]);
    assert_eq!(device.guest.bytes(GuestAddress(data), 8192), pattern(8192, 3));
    device.end_checked();
}

fn range(sector: u64, sectors: u32, flags: u32) -> Vec<u8> {
    let mut bytes = sector.to_le_bytes().to_vec();
    bytes.extend(sectors.to_le_bytes());
    bytes.extend(flags.to_le_bytes());
    bytes
}

#[test]
fn every_kind_of_request_is_done_or_refused() {
    let mut device = Device::new(64, FEATURES, true);
    device.medium.bytes.fill(7);
    let (discard, zeroes) = (VIRTIO_BLK_T_DISCARD, VIRTIO_BLK_T_WRITE_ZEROES);
    let last = SIZE as u64 / 512;
    let several = [range(100, 8, 0), range(200, 8, 1)].concat();
    let mut asked = Vec::new();
    for (kind, sector, data, expected) in [
        (FLUSH, 0, vec![], OK),
        (discard, 0, range(0, 8, 0), OK),
        (discard, 0, range(0, 8, 1), UNSUPP),
        (zeroes, 0, several, OK),
        (zeroes, 0, range(16, 8, 2), UNSUPP),
        (zeroes, 0, range(last, 1, 0), IOERR),
        (zeroes, 0, range(u64::MAX, 1, 0), IOERR),
        (zeroes, 0, range(1, u32::MAX, 0), IOERR),
        (zeroes, 0, vec![0; 15], IOERR),
        (zeroes, 0, vec![], IOERR),
        (OUT, last, vec![1; 512], IOERR),
        (OUT, u64::MAX, vec![1; 512], IOERR),
        (OUT, 0, vec![1; 511], IOERR),
        (OUT, 0, vec![], IOERR),
        (IN, 0, vec![1; 512], IOERR),
        (99, 0, vec![1; 512], UNSUPP),
    ] {
        asked.push((device.guest.give(kind, sector, &data), expected, kind));
        device.run();
    }
    for (asked, expected, kind) in asked {
        assert_eq!(device.guest.status(asked), expected, "{kind}");
    }
    assert!(device.medium.bytes[..4096].iter().all(|byte| *byte == 0));
    assert!(device.medium.bytes[200 * 512..208 * 512].iter().all(|byte| *byte == 0));
    assert_eq!((device.medium.bytes[4096], device.medium.flushes), (7, 1));
    let id = device.guest.want(VIRTIO_BLK_T_GET_ID, 0, 20);
    device.run();
    assert_eq!(device.guest.bytes(id.data, 5), b"disk\0");
    device.medium.failure = Some(Errno::IO);
    let failed = device.guest.want(IN, 0, 512);
    device.run();
    assert_eq!(device.guest.status(failed), IOERR);
    device.end_checked();
}

#[test]
fn a_read_only_image_is_not_changed() {
    let mut device = Device::new(16, FEATURES, true);
    let image = exports()[1].clone();
    device.ring = Ring::new(0, device.guest.setup(&image, FEATURES)).unwrap();
    let writes = device.guest.give(OUT, 0, &[1; 512]);
    let discards = device.guest.give(VIRTIO_BLK_T_DISCARD, 0, &range(0, 1, 0));
    let reads = device.guest.want(IN, 0, 512);
    device.run();
    let status = [writes, discards, reads].map(|asked| device.guest.status(asked));
    assert_eq!(status, [IOERR, IOERR, OK]);
    device.end_checked();
}

#[test]
fn malformed_requests_are_answered_and_the_next_one_is_served() {
    let far = MEMORY_BYTES;
    let chains: [(&str, &[Part]); 10] = [
        ("no header", &[(BUFFERS, 1, WRITE)]),
        ("a short header", &[(BUFFERS, 15, 0), (BUFFERS, 1, WRITE)]),
        ("no status", &[(BUFFERS, 16, 0), (BUFFERS, 512, 0)]),
        ("an empty status", &[(BUFFERS, 16, 0), (BUFFERS, 0, WRITE)]),
        ("data read after data written", &[(BUFFERS, 16, 0), (BUFFERS, 1, WRITE), (BUFFERS, 9, 0)]),
        ("outside", &[(BUFFERS, 16, 0), (far, 512, WRITE), (BUFFERS, 1, WRITE)]),
        ("across the end", &[(BUFFERS, 16, 0), (far - 1, 512, WRITE), (BUFFERS, 1, WRITE)]),
        ("round the end", &[(BUFFERS, 16, 0), (u64::MAX, 512, WRITE), (BUFFERS, 1, WRITE)]),
        ("an indirect table outside", &[(far, 64, 4)]),
        ("half an indirect table", &[(BUFFERS, 40, 4)]),
    ];
    for (what, chain) in chains {
        let mut device = Device::new(16, FEATURES, true);
        let head = device.guest.chain(chain);
        device.guest.publish(head);
        device.run();
        let used = device.guest.used();
        assert!(used.len() == 1 && used[0].0 == u32::from(head), "{what}: {used:?}");
        let next = device.guest.want(IN, 0, 512);
        device.run();
        assert_eq!(device.guest.status(next), OK, "after {what}");
        device.end_checked();
    }
}

#[test]
fn loops_and_oversized_requests_are_answered() {
    let mut device = Device::new(16, FEATURES, true);
    let status = device.guest.buffer(1);
    device.guest.describe(0, status, 1, WRITE | NEXT, 1);
    device.guest.describe(1, status, 1, WRITE | NEXT, 0);
    device.guest.publish(0);
    // An indirect table that contains an indirect table.
    device.guest.describe(2, 16 * 2, 16, 4, 0);
    device.guest.publish(2);
    // A request longer than the device allows.
    let header = device.guest.header(IN, 0);
    let most: Vec<_> = (0..9).map(|_| (BORDER, 1 << 20, WRITE)).collect();
    device.guest.describe(4, header, 16, NEXT, 5);
    for (i, (address, len, flags)) in most.iter().enumerate() {
        let place = 5 + i as u16;
        device.guest.describe(place, *address, *len, flags | NEXT, place + 1);
    }
    device.guest.describe(14, status, 1, WRITE, 0);
    device.guest.publish(4);
    device.run();
    let heads: Vec<u32> = device.guest.used().iter().map(|used| used.0).collect();
    assert_eq!(heads, [0, 2, 4]);
    assert_eq!(device.guest.bytes(GuestAddress(status), 1), [IOERR]);
    assert!(!device.ring.is_broken());
    device.end_checked();
}

#[test]
fn a_ring_with_invalid_indices_is_given_up() {
    for nonsense in [17u16, 0x8000, u16::MAX] {
        let mut device = Device::new(16, FEATURES, true);
        let (error, errors) = counter();
        let mut setup = device.guest.setup(&device.image, FEATURES);
        setup.error = Some(error);
        device.ring = Ring::new(0, setup).unwrap();
        device.guest.set_available(nonsense);
        device.run();
        assert!(device.ring.is_broken() && errors.drain() == 1);
        assert_eq!(device.guest.used(), []);
        device.end_checked();
    }
    let mut device = Device::new(16, FEATURES, true);
    device.guest.publish(16);
    device.run();
    assert!(device.ring.is_broken(), "a head outside the table");
}

#[test]
fn rings_outside_the_memory_or_of_invalid_size_are_refused() {
    let guest = Guest::new(16);
    let image = exports()[0].clone();
    let made = |change: fn(&mut nowait_server::vhost::Setup<()>)| {
        let mut setup = guest.setup(&image, offered());
        change(&mut setup);
        Ring::new(0, setup).map(drop)
    };
    assert_eq!(made(|_| {}), Ok(()));
    assert_eq!(made(|setup| setup.size = 0), Err(Errno::INVAL));
    assert_eq!(made(|setup| setup.size = 24), Err(Errno::INVAL));
    assert_eq!(made(|setup| setup.size = 2048), Err(Errno::INVAL));
    assert_eq!(made(|setup| setup.used = GuestAddress(2)), Err(Errno::INVAL));
    assert_eq!(made(|setup| setup.available = GuestAddress(MEMORY_BYTES)), Err(Errno::INVAL));
    assert_eq!(made(|setup| setup.descriptors = GuestAddress(u64::MAX - 15)), Err(Errno::INVAL));
}

#[test]
fn the_driver_is_signalled_when_it_asks_for_it() {
    let mut device = Device::new(16, FEATURES, true);
    let (call, calls) = counter();
    let mut setup = device.guest.setup(&device.image, FEATURES);
    setup.call = Some(call);
    device.ring = Ring::new(0, setup).unwrap();
    // The driver may wait for an answer that was given through another eventfd.
    assert_eq!(calls.drain(), 1);
    device.guest.call_after(2);
    for expected in [0, 0, 1, 0] {
        device.guest.want(IN, 0, 512);
        device.run();
        assert_eq!(calls.drain(), expected);
    }
    // For five answers together the device signals once.
    device.guest.call_after(5);
    device.medium.holds = true;
    for _ in 0..5 {
        device.guest.want(IN, 0, 512);
        device.run();
    }
    device.medium.holds = false;
    device.run();
    assert_eq!((calls.drain(), device.guest.used().len()), (1, 9));
}

#[test]
fn requests_in_flight_do_not_exceed_the_queue() {
    let mut device = Device::new(4, FEATURES, true);
    device.medium.holds = true;
    let asked = device.guest.want(IN, 0, 512);
    // The driver publishes one request again and again while it is in flight.
    for _ in 0..20 {
        device.run();
        device.guest.publish(asked.head);
    }
    device.run();
    assert_eq!(device.ring.in_flight(), 4);
    device.medium.holds = false;
    device.run();
    device.end_checked();
}

#[test]
fn requests_without_memory_wait_for_it() {
    let mut device = Device::new(16, FEATURES, false);
    device.medium = support::Memory::new(300 << 10);
    device.medium.holds = true;
    for sector in 0..4 {
        device.guest.want(IN, sector, 128 << 10);
    }
    device.run();
    assert_eq!(device.ring.in_flight(), 2);
    assert!(device.medium.pool().take_refused());
    assert_eq!(device.ring.next_available(), 2, "the third has not begun");
    device.medium.holds = false;
    device.run();
    assert_eq!(device.guest.used().len(), 4);
    device.end_checked();
}

/// A request begins however much memory other images hold, and however small the share of its own
/// image is.
#[test]
fn a_request_of_an_image_that_holds_nothing_begins() {
    let mut device = Device::new(16, FEATURES, false);
    device.medium.pool = Pool::new(2 << 20).shared_by(3);
    device.medium.pool.reserve(1, 2 << 20);
    device.guest.want(IN, 0, 512 << 10);
    device.run();
    assert_eq!(device.guest.used().len(), 1);
    device.medium.pool.release(1, 2 << 20);
    device.end_checked();
}

#[test]
fn without_flush_every_write_is_durable_when_it_ends() {
    let mut device = Device::new(16, 0, true);
    let wrote = device.guest.give(OUT, 0, &[3; 4096]);
    device.run();
    assert_eq!(device.guest.status(wrote), OK);
    assert_eq!(device.medium.durable_writes, 1);
    device.end_checked();
}

#[test]
fn the_next_server_completes_requests_in_flight_at_a_crash() {
    let (area, _file, _) = Area::new(1, 16).unwrap();
    let mut device = Device::new(16, FEATURES, false);
    let noted = |guest: &Guest, used| {
        let mut setup = guest.setup(&exports()[0], FEATURES);
        let (notes, left) = area.queue(0, 16, used).unwrap();
        setup.inflight = Some((notes, left.heads));
        Ring::new(0, setup).unwrap()
    };
    device.ring = noted(&device.guest, 0);
    let first = device.guest.give(OUT, 0, &[1; 512]);
    device.run();
    device.medium.holds = true;
    let lost = [2u8, 3, 4].map(|byte| device.guest.give(OUT, byte.into(), &[byte; 512]));
    device.run();
    // The device answers the last request before the others. Then the server is killed.
    let ended = device.medium.ended.pop_back().unwrap();
    device.ring.end(ended, &mut device.medium, 1);
    let mut after = Device::new(16, FEATURES, false);
    after.guest = device.guest;
    after.ring = noted(&after.guest, 2);
    assert_eq!(after.guest.used(), [(first.head.into(), 1), (lost[2].head.into(), 1)]);
    let later = after.guest.want(IN, 3, 512);
    after.run();
    assert_eq!(after.medium.bytes[1024..2048], [[2; 512], [3; 512]].concat());
    let heads = [lost[0].head, lost[1].head, later.head].map(u32::from);
    let used: Vec<u32> = after.guest.used().iter().map(|used| used.0).collect();
    assert_eq!(used, heads);
    after.end_checked();
}

#[test]
fn the_next_server_signals_an_answer_that_the_killed_one_did_not() {
    let (area, _file, _) = Area::new(1, 16).unwrap();
    let ring = |guest: &Guest, used, call| {
        let mut setup = guest.setup(&exports()[0], FEATURES);
        let (notes, left) = area.queue(0, 16, used).unwrap();
        (setup.inflight, setup.call) = (Some((notes, left.heads)), call);
        Ring::new(0, setup).unwrap()
    };
    let mut device = Device::new(16, FEATURES, false);
    device.ring = ring(&device.guest, 0, None);
    let asked = device.guest.want(IN, 0, 512);
    device.ring.take(&mut device.medium, 0);
    let ended = device.medium.pop().unwrap();
    device.ring.end(ended, &mut device.medium, 1);
    // The server is killed after the answer and before the signal, for which the driver waits.
    let (call, calls) = counter();
    device.ring = ring(&device.guest, 1, Some(call));
    assert_eq!(calls.drain(), 1);
    assert_eq!(device.guest.used(), [(asked.head.into(), 513)]);
    device.end_checked();
}

#[test]
fn anything_a_driver_does_is_survived() {
    for seed in 0..1500 {
        let mut prng = Prng::new(seed);
        let len = prng.index(400);
        let input: Vec<u8> = (0..len).map(|_| prng.below(256) as u8).collect();
        drive(&input);
    }
}

#[test]
fn the_corpus_of_the_fuzzer_is_survived() {
    support::replay("vhost_queue", drive);
}

#[test]
fn a_panic_fails_requests_and_the_next_one_works() {
    for borrows in [true, false] {
        let mut device = Device::new(16, FEATURES, borrows);
        device.medium.holds = true;
        let before = device.guest.want(IN, 0, 512);
        device.ring.take(&mut device.medium, 0);
        device.medium.panics = true;
        let lost = device.guest.give(OUT, 8, &[7; 512]);
        let take = AssertUnwindSafe(|| device.ring.take(&mut device.medium, 0));
        assert!(catch_unwind(take).is_err());
        device.medium = Memory { borrows, ..Memory::new(1 << 20) };
        device.ring.give_up(1);
        device.ring.notify();
        assert_eq!(device.guest.used().len(), 2);
        assert_eq!([before, lost].map(|asked| device.guest.status(asked)), [IOERR; 2]);
        let next = device.guest.want(IN, 0, 512);
        device.run();
        assert_eq!(device.guest.status(next), OK);
        device.end_checked();
    }
}
