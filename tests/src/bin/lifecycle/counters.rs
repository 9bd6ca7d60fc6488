//! Programs that wait for their events by an eventfd, or take them out of the ring themselves.

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read};
use std::os::fd::{AsFd, FromRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use nowait_tests::request::{Context, Request};
use nowait_tests::thread_state::wait_until;

use super::{BLOCK, open, read_block, uncached};

/// The eventfd counts each completion once, before the program reaps the event.
pub(crate) fn eventfd_counts_completions(path: &Path) {
    let file = uncached(path, 32);
    // SAFETY: plain numbers; the new descriptor is owned here alone.
    let mut eventfd = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    let context = Context::new(64).expect("io_setup");
    let announced = |block| read_block(&file, block).eventfd(eventfd.as_fd());
    let requests = (0..32).map(announced).collect();
    assert_eq!(context.submit(requests), 32);
    let mut counted = 0;
    while counted < 32 {
        let mut count = [0; 8];
        eventfd.read_exact(&mut count).unwrap();
        counted += u64::from_ne_bytes(count);
        let ready = context.reap(0, 0, Some(Duration::ZERO));
        assert_eq!(ready.map(|it| it.len()), Ok(0));
    }
    assert_eq!(counted, 32);
    // The program need not wait for events that the eventfd has counted.
    let done = context.reap(32, 32, Some(Duration::ZERO)).unwrap();
    assert_eq!(done.len(), 32);
}

/// A program sleeps on its eventfd, and fetches as many events by io_getevents as the eventfd has
/// counted. Most of its requests are direct, for which the kernel may signal the eventfd.
pub(crate) fn each_direct_request_is_counted_once(path: &Path) {
    const ROUNDS: usize = 2_000;
    let buffered = uncached(path, 64);
    let mut options = OpenOptions::new();
    let direct = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    // SAFETY: plain numbers; the new descriptor is owned here alone.
    let mut counter = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    let context = Context::new(64).expect("io_setup");
    let (mut in_flight, mut end, mut events) = (0, 64, 0);
    for round in 0..ROUNDS {
        let (at, bytes) = ((round * 7 % 64 * BLOCK) as u64, [round as u8; BLOCK]);
        let request = match round % 11 {
            // These writes are behind the end of the file. On some file systems the kernel waits
            // for the allocation of their blocks.
            0 if round < ROUNDS / 2 => {
                end += 1;
                Request::write(direct.as_fd(), &bytes, end * BLOCK as u64)
            }
            1 => Request::read(buffered.as_fd(), BLOCK, at),
            2 | 3 => Request::write(direct.as_fd(), &bytes, at),
            // A read beyond the end of the file finds nothing.
            4 => Request::read(direct.as_fd(), BLOCK, 1 << 40),
            _ => Request::read(direct.as_fd(), BLOCK, at),
        };
        assert_eq!(context.submit(vec![request.eventfd(counter.as_fd())]), 1);
        in_flight += 1;
        while in_flight > round % 5 {
            let mut count = [0; 8];
            counter.read_exact(&mut count).unwrap();
            let count = u64::from_ne_bytes(count) as usize;
            assert!((1..=in_flight).contains(&count), "{count} of {in_flight} are counted");
            let done = context.reap(count as i64, count, Some(Duration::ZERO)).unwrap();
            assert_eq!(done.len(), count, "round {round}");
            in_flight -= count;
            events += count;
        }
    }
    while in_flight > 0 {
        in_flight -= context.reap(1, 64, None).unwrap().len();
        events += 1;
    }
    assert!(events >= ROUNDS - 5);
}

fn counter_and_direct_file(path: &Path) -> (File, File) {
    drop(uncached(path, 64));
    let mut options = OpenOptions::new();
    let direct = options.read(true).write(true).custom_flags(libc::O_DIRECT).open(path).unwrap();
    // SAFETY: plain numbers; the new descriptor is owned here alone.
    let counter = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    (counter, direct)
}

/// Waits until an eventfd is readable; panics after five seconds.
fn await_counter(counter: &File, round: usize) {
    let fd = std::os::fd::AsRawFd::as_raw_fd(counter);
    let mut poll = libc::pollfd { fd, events: libc::POLLIN, revents: 0 };
    loop {
        // SAFETY: one entry.
        match unsafe { libc::poll(&raw mut poll, 1, 5_000) } {
            1 => return,
            0 => panic!("round {round}: never told"),
            _ => assert_eq!(std::io::Error::last_os_error().kind(), ErrorKind::Interrupted),
        }
    }
}

/// A program calls io_getevents only if the ring has events, and reads its eventfd by a system call
/// that the library does not see.
pub(crate) fn one_that_looks_at_the_ring_first_is_told(path: &Path) {
    let (counter, direct) = counter_and_direct_file(path);
    let context = Context::new(64).expect("io_setup");
    for block in 0..32 {
        let request = read_block(&direct, block).eventfd(counter.as_fd());
        assert_eq!(context.submit(vec![request]), 1);
        loop {
            await_counter(&counter, block);
            let fd = std::os::fd::AsRawFd::as_raw_fd(&counter);
            let mut count = 0_u64;
            // SAFETY: room for eight bytes.
            let read = unsafe { libc::syscall(libc::SYS_read, fd, &raw mut count, 8_usize) };
            assert_eq!(read, 8);
            if context.unread() > 0 {
                break;
            }
        }
        assert_eq!(context.reap(1, 1, Some(Duration::ZERO)).unwrap().len(), 1);
    }
}

/// A program reads its eventfd and then takes the events out of the ring itself, as QEMU does. Each
/// time the ring must have all events that the eventfd has counted.
pub(crate) fn one_that_reads_its_counter_finds_the_events(path: &Path) {
    const ROUNDS: usize = 1_000;
    let (mut counter, direct) = counter_and_direct_file(path);
    let context = Context::new(64).expect("io_setup");
    let (mut in_flight, mut told, mut taken, mut submitted) = (0, 0, 0, 0);
    for round in 0..ROUNDS {
        let bytes = [round as u8; BLOCK];
        let request = |each: usize| {
            let request = match (round + each) % 3 {
                // Beyond the end of the file, or into a hole.
                0 if round % 2 == 0 => Request::write(direct.as_fd(), &bytes, hole(round)),
                0 => Request::write(direct.as_fd(), &bytes, (round % 64 * BLOCK) as u64),
                _ => read_block(&direct, round % 64),
            };
            request.eventfd(counter.as_fd())
        };
        let batch: Vec<_> = (0..=round % 5).map(request).collect();
        submitted += batch.len();
        in_flight += batch.len();
        assert_eq!(context.submit(batch), 1 + (round % 5) as i32);
        while in_flight > round % 7 {
            await_counter(&counter, round);
            let mut count = [0; 8];
            counter.read_exact(&mut count).unwrap();
            told += u64::from_ne_bytes(count) as usize;
            let done = context.take_from_ring();
            done.iter().for_each(|done| assert_eq!(done.res, BLOCK as i64, "round {round}"));
            in_flight -= done.len();
            taken += done.len();
            assert!(taken >= told, "round {round}: told of {told}, there are {taken}");
        }
    }
    while taken < submitted {
        await_counter(&counter, ROUNDS);
        counter.read_exact(&mut [0; 8]).unwrap();
        taken += context.take_from_ring().len();
    }
    assert_eq!((context.unread(), taken), (0, submitted));
}

/// Returns the offset of a block beyond the first 64. Every twelfth round has a distant block, so
/// that blocks of other rounds lie in a hole.
fn hole(round: usize) -> u64 {
    let block = if round.is_multiple_of(12) { 10_000 + round } else { 1_000 + round };
    (block * BLOCK) as u64
}

/// A program takes the events out of the ring when its eventfd is readable, and reads the eventfd
/// after that. The engine notices that the program reads late.
pub(crate) fn one_that_reads_its_counter_last_goes_on(path: &Path) {
    const ROUNDS: usize = 200;
    let (mut counter, direct) = counter_and_direct_file(path);
    let context = Context::new(64).expect("io_setup");
    for round in 0..ROUNDS {
        let request = read_block(&direct, round % 64).eventfd(counter.as_fd());
        assert_eq!(context.submit(vec![request]), 1);
        await_counter(&counter, round);
        wait_until(|| !context.take_from_ring().is_empty());
        counter.read_exact(&mut [0; 8]).unwrap();
    }
}

/// A program fetches its events by io_getevents for a while, and then takes them out of the ring
/// itself. The first events after the change may be late, but must arrive.
pub(crate) fn events_come_after_the_last_call(path: &Path) {
    let (_, direct) = counter_and_direct_file(path);
    let context = Context::new(64).expect("io_setup");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(context.submit(vec![read_block(&direct, 1)]), 1);
        assert_eq!(context.reap_all(1).len(), 1);
    }
    for block in 0..32 {
        assert_eq!(context.submit(vec![read_block(&direct, block)]), 1);
        wait_until(|| !context.take_from_ring().is_empty());
    }
}

/// When `io_destroy` returns, the eventfd has counted all requests.
pub(crate) fn all_is_counted_when_the_context_is_destroyed(path: &Path) {
    let file = uncached(path, 8);
    for round in 0..200 {
        // SAFETY: plain numbers; the new descriptor is owned here alone.
        let counter = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        // SAFETY: as above.
        let mut counter = unsafe { File::from_raw_fd(counter) };
        let context = Context::new(8).expect("io_setup");
        let announced = |block| read_block(&file, block).eventfd(counter.as_fd());
        assert_eq!(context.submit((0..8).map(announced).collect()), 8);
        assert_eq!(context.destroy(), 0);
        let mut count = [0; 8];
        counter.read_exact(&mut count).unwrap_or_else(|error| panic!("round {round}: {error}"));
        assert_eq!(u64::from_ne_bytes(count), 8, "round {round}");
    }
}

/// A program takes events out of the ring when its eventfd is readable, then reads the eventfd, and
/// sleeps. If an event arrives only after the look at the ring, the eventfd must become readable
/// again.
pub(crate) fn one_that_looks_before_it_reads_is_told_again(path: &Path) {
    let (mut counter, direct) = counter_and_direct_file(path);
    let context = Context::new(64).expect("io_setup");
    for round in 0..100 {
        let request = read_block(&direct, round % 64).eventfd(counter.as_fd());
        assert_eq!(context.submit(vec![request]), 1);
        let mut taken = 0;
        while taken < 1 {
            await_counter(&counter, round);
            taken += context.take_from_ring().len();
            counter.read_exact(&mut [0; 8]).unwrap();
        }
    }
}

/// A program waits for its eventfd in an edge-triggered epoll set, never reads the eventfd, and
/// calls io_getevents only if the ring has events.
pub(crate) fn one_that_never_reads_its_counter_is_told(path: &Path) {
    use std::os::fd::{AsRawFd, OwnedFd};
    let (counter, direct) = counter_and_direct_file(path);
    // SAFETY: plain numbers; the new descriptor is owned here alone.
    let epoll = unsafe { OwnedFd::from_raw_fd(libc::epoll_create1(libc::EPOLL_CLOEXEC)) };
    let mut event = libc::epoll_event { events: (libc::EPOLLIN | libc::EPOLLET) as u32, u64: 0 };
    let (add, number) = (libc::EPOLL_CTL_ADD, counter.as_raw_fd());
    // SAFETY: live descriptors, a live event.
    assert_eq!(unsafe { libc::epoll_ctl(epoll.as_raw_fd(), add, number, &raw mut event) }, 0);
    let context = Context::new(64).expect("io_setup");
    for round in 0..50 {
        let request =
            |each: usize| read_block(&direct, (round + each) % 64).eventfd(counter.as_fd());
        assert_eq!(context.submit((0..3).map(request).collect()), 3);
        let mut taken = 0;
        while taken < 3 {
            // SAFETY: room for one event.
            let ready = unsafe { libc::epoll_wait(epoll.as_raw_fd(), &raw mut event, 1, 5_000) };
            assert_ne!(ready, 0, "round {round}: never told");
            if context.unread() > 0 {
                taken += context.reap(1, 3, Some(Duration::ZERO)).unwrap().len();
            }
        }
    }
}

pub(crate) fn each_of_two_counters_is_signalled(path: &Path) {
    let (mut one, direct) = counter_and_direct_file(path);
    // SAFETY: plain numbers; the new descriptor is owned here alone.
    let mut other = unsafe { File::from_raw_fd(libc::eventfd(0, libc::EFD_CLOEXEC)) };
    let context = Context::new(64).expect("io_setup");
    for round in 0..40 {
        let read = |counter: &File| read_block(&direct, round).eventfd(counter.as_fd());
        let batch = if round < 10 { vec![read(&one)] } else { vec![read(&other), read(&one)] };
        let count = batch.len();
        assert_eq!(context.submit(batch), count as i32);
        let counter = if round < 10 { &mut one } else { &mut other };
        await_counter(counter, round);
        counter.read_exact(&mut [0; 8]).unwrap();
        let mut taken = 0;
        wait_until(|| {
            taken += context.take_from_ring().len();
            taken == count
        });
    }
}

/// The second iocb of a batch names a regular file as its eventfd. io_submit accepts only the first
/// iocb, and writes nothing to the file.
pub(crate) fn a_file_that_is_no_counter_is_refused(path: &Path) {
    let (mut counter, direct) = counter_and_direct_file(path);
    let victim = open(&path.with_extension("victim"));
    victim.write_all_at(b"precious data...", 0).unwrap();
    let context = Context::new(64).expect("io_setup");
    for round in 0..10 {
        let good = || read_block(&direct, round).eventfd(counter.as_fd());
        let mut batch = vec![good()];
        if round >= 5 {
            batch.push(read_block(&direct, round + 1).eventfd(victim.as_fd()));
            batch.push(good());
        }
        assert_eq!(context.submit(batch), 1);
        counter.read_exact(&mut [0; 8]).unwrap();
        assert_eq!(context.reap_all(1).len(), 1);
    }
    let mut left = [0; 16];
    victim.read_exact_at(&mut left, 0).unwrap();
    assert_eq!(&left, b"precious data...");
}

/// A program fetches its events by io_getevents for a while, then submits a buffered read and does
/// not call io_getevents. The read completes within 700 ms, although the engine's driver checks the
/// context rarely.
pub(crate) fn a_deferred_request_ends_the_calm(path: &Path) {
    let buffered = uncached(path, 64);
    let (_, direct) = counter_and_direct_file(path);
    let context = Context::new(64).expect("io_setup");
    let begin = Instant::now();
    while begin.elapsed() < Duration::from_millis(1_500) {
        assert_eq!(context.submit(vec![read_block(&direct, 1)]), 1);
        assert_eq!(context.reap_all(1).len(), 1);
    }
    drop(uncached(path, 64));
    let submitted = Instant::now();
    assert_eq!(context.submit(vec![read_block(&buffered, 33)]), 1);
    wait_until(|| context.unread() > 0);
    let waited = submitted.elapsed();
    assert!(waited < Duration::from_millis(700), "it was there after {waited:?}");
    assert_eq!(context.reap_all(1).len(), 1);
}
