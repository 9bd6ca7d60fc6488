//! Tests of a ring: its alarm, completions that do not fit into its queue, and shared tags.

use super::*;
use crate::bio::{BioOp, Segments};
use core::sync::atomic::{AtomicI32, Ordering::SeqCst};
use nowait_sys::{eventfd::EventFd, fd, fdtable, own_thread::OwnThread};
use std::os::fd::AsRawFd;

/// On kernels before 6.7, rings cannot wait on a word of memory.
fn with_a_counter(issuer: Issuer, test: &str) -> Option<Uring> {
    with(issuer, Some(Arc::new(EventFd::new().unwrap())), test)
}

fn with(issuer: Issuer, counter: Option<Arc<dyn Descriptor>>, test: &str) -> Option<Uring> {
    let made = Uring::new(8, issuer, counter);
    made.map_err(|errno| crate::skip::note_skip(test, &errno.to_string())).ok()
}

/// If a dropped ring still waited on the word at its gate's address, it would take the wake-up of
/// the next thread that sleeps at this address.
#[test]
fn a_ring_that_has_gone_waits_for_no_word_any_more() {
    for _ in 0..300 {
        let test = "a_ring_that_has_gone_waits_for_no_word_any_more";
        let Some(uring) = with(Issuer::Any, None, test) else { return };
        uring.reap(&mut Vec::new(), 1, Deadline::after_ns(50_000)).unwrap();
        let address = uring.alarm.gate.address();
        drop(uring);
        let gates: Vec<_> = (0..64).map(|_| Box::new(Gate::default())).collect();
        let Some(gate) = gates.iter().find(|gate| gate.address() == address) else { continue };
        let seen = gate.begin().unwrap();
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| gate.sleep(seen, Deadline::after_ns(5_000_000_000)));
            (0..100).for_each(|_| std::thread::yield_now());
            assert!(gate.wake());
            gate.rouse();
            assert_ne!(sleeper.join().unwrap(), Err(Errno::TIMEDOUT), "the wake-up was lost");
        });
    }
}

/// The kernel shows completions that did not fit into the queue only after a thread has entered the
/// ring. So `reap` must enter the ring even with `min` = 0.
#[test]
fn completions_that_do_not_fit_are_seen_without_a_wait() {
    const POLLS: u64 = 1000;
    let Some(uring) = with_a_counter(Issuer::Any, "completions_that_do_not_fit") else {
        return;
    };
    assert!(uring.ring.completions_max() < POLLS as usize / 10);
    let (reader, mut writer) = std::io::pipe().unwrap();
    let mut done = Vec::new();
    for round in 1..3 {
        for token in 0..POLLS {
            let (events, none) = (BioOp::Poll(1), crate::bio::Segments::NONE);
            // SAFETY: a poll names no memory.
            let poll = unsafe { Bio::new(events, reader.as_raw_fd(), none, 0, token) };
            uring.queue(poll).unwrap();
        }
        uring.commit();
        std::io::Write::write_all(&mut writer, b"x").unwrap();
        let limit = Deadline::after_ns(20_000_000_000);
        while done.len() < POLLS as usize * round && !limit.has_passed() {
            uring.reap(&mut done, 0, Deadline::NOW).unwrap();
        }
        assert_eq!(done.len(), POLLS as usize * round);
        assert_eq!(uring.in_flight(), 0);
    }
}

/// The descriptor of a queued bio belongs to the thread that will commit it, perhaps in another
/// table, so `collect` must not start the bio.
#[test]
fn to_collect_starts_nothing() {
    let Some(uring) = with_a_counter(Issuer::Any, "to_collect_starts_nothing") else { return };
    let (reader, _writer) = std::io::pipe().unwrap();
    let (events, none) = (BioOp::Poll(1), crate::bio::Segments::NONE);
    // SAFETY: a poll names no memory.
    let poll = unsafe { Bio::new(events, reader.as_raw_fd(), none, 0, 1) };
    uring.queue(poll).unwrap();
    uring.cancels.lock().push(u64::MAX >> 1);
    uring.cancels_wait.store(true, Relaxed);
    let mut done = Vec::new();
    uring.collect(&mut done);
    assert_eq!((uring.pending(), done.len()), (1, 0));
    uring.reap(&mut done, 0, Deadline::NOW).unwrap();
    assert_eq!(uring.pending(), 0);
}

/// The first io_uring_enter of a wait also submits the alarm. The call's return value is the same
/// at the end of a slice as after a signal.
#[test]
fn the_end_of_a_slice_is_no_signal() {
    let _own = OwnThread::begin();
    for _ in 0..3 {
        let uring = with_a_counter(Issuer::Any, "the_end_of_a_slice_is_no_signal");
        let Some(uring) = uring else { return };
        let until = Deadline::after_ns(2 * SLICE_NS);
        assert_eq!(uring.reap(&mut Vec::new(), 1, until), Ok(()));
        assert!(until.has_passed(), "the end of a slice ended the wait");
    }
}

#[derive(Debug)]
struct InBoth {
    here: EventFd,
    there: AtomicI32,
}

impl Descriptor for InBoth {
    fn number(&self) -> Result<i32, Errno> {
        Ok(if fdtable::is_private() { self.there.load(SeqCst) } else { self.here.raw() })
    }
}

/// In the table of the other thread, a pipe has the number that the eventfd has in this table.
#[test]
fn wake_by_a_thread_with_another_table_ends_the_wait_and_writes_to_no_file() {
    let here = EventFd::new().unwrap().moved_high();
    let (number, counter) = (here.raw(), Arc::new(InBoth { here, there: AtomicI32::new(-1) }));
    let Some(uring) = with(Issuer::Any, Some(counter.clone()), "wake_of_another_table") else {
        return;
    };
    let (mut reader, writer) = std::io::pipe().unwrap();
    let (near, far) = fdtable::channel().unwrap();
    fdtable::send(near.raw(), number, 0).unwrap();
    fdtable::send(near.raw(), writer.as_raw_fd(), 1).unwrap();
    let (ask, asked) = std::sync::mpsc::channel();
    let has_moved = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (uring, far, has_moved) = (&uring, &far, &has_moved);
        scope.spawn(move || {
            fdtable::make_private(far.raw()).unwrap();
            fdtable::mark_private(true);
            let receive = || fdtable::receive(far.raw()).unwrap().1.unwrap();
            counter.there.store(receive().into_raw(), SeqCst);
            let other = fd::duplicate(receive().raw(), number).unwrap();
            has_moved.store(other.raw() == number, SeqCst);
            for () in asked {
                while !uring.alarm.gate.nudge() {
                    std::thread::yield_now();
                }
                uring.alarm.rouse();
                uring.wake();
            }
        });
        for _ in 0..100 {
            ask.send(()).unwrap();
            while uring.reap(&mut Vec::new(), 1, Deadline::NEVER) == Err(Errno::INTR) {}
        }
        drop(ask);
    });
    assert!(has_moved.load(SeqCst), "the number was taken");
    drop(writer); // in this table
    assert_eq!(std::io::Read::read(&mut reader, &mut [0]).unwrap(), 0);
}

/// If the thread that submitted a request has ended, the kernel cancels the request at the time
/// when it would complete; the alarm is such a request.
#[test]
fn the_alarm_of_a_thread_that_has_ended_goes_off_and_is_set_again() {
    let counter: Arc<dyn Descriptor> = Arc::new(EventFd::new().unwrap());
    for counter in [None, Some(counter)] {
        let test = "the_alarm_of_a_thread_that_has_ended";
        let is_known = counter.is_some() || Uring::waits_on_words();
        let made = with(Issuer::Any, counter, test).filter(|_| is_known);
        let Some(uring) = made else { continue };
        std::thread::scope(|scope| {
            scope.spawn(|| assert!(sets_the_alarm(&uring))).join().unwrap();
            scope.spawn(|| {
                while !uring.alarm.gate.wake() {
                    std::thread::yield_now();
                }
                uring.alarm.rouse();
            });
            while uring.reap(&mut Vec::new(), 1, Deadline::NEVER) == Err(Errno::INTR) {}
        });
        assert!(sets_the_alarm(&uring), "waits are cut into slices");
    }
}

/// Waits up to four times: the first waits may return because an earlier alarm completes.
fn sets_the_alarm(uring: &Uring) -> bool {
    (0..4).any(|_| {
        let _ = uring.wait(&mut Vec::new(), Deadline::after_ns(50_000));
        uring.alarm.armed.load(SeqCst)
    })
}

#[test]
fn wake_by_a_counter_ends_the_wait() {
    for issuer in [Issuer::Any, Issuer::InTurn, Issuer::Single] {
        let Some(uring) = with_a_counter(issuer, "wake_by_a_counter") else { return };
        for _ in 0..20 {
            let returned = AtomicBool::new(false);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while !returned.load(SeqCst) {
                        uring.wake();
                        std::thread::yield_now();
                    }
                });
                let mut done = Vec::new();
                let mut reap = || uring.reap(&mut done, 1, Deadline::NEVER);
                let reaped = core::iter::repeat_with(&mut reap).find(|it| *it != Err(Errno::INTR));
                returned.store(true, SeqCst); // before a panic, because the other thread is joined
                assert_eq!((reaped, done.len()), (Some(Ok(())), 0));
            });
        }
    }
}

/// Polls take no tags; a sync takes one until it is reaped.
#[test]
fn a_ring_has_room_where_the_disk_has_tags() {
    let tags = Arc::new(crate::Tags::default());
    tags.note_device(1);
    tags.look(|dev| Some(crate::Disk { dev, tags: 256 }));
    let ring = || {
        let made = Uring::new(192, Issuer::Any, None);
        let noted = |errno: Errno| crate::skip::note_skip_here(&errno.to_string());
        made.map_err(noted).ok().map(|ring| ring.sharing(tags.share(crate::Submitter::Callers)))
    };
    let (Some(one), Some(other)) = (ring(), ring()) else { return };
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    let (reader, _writer) = std::io::pipe().unwrap();
    let number = [file.as_raw_fd(), reader.as_raw_fd()];
    // SAFETY: fsyncs and polls have no memory.
    let bio = |op, number| unsafe { Bio::new(op, number, Segments::NONE, 0, 1) };
    (0..50).for_each(|_| one.queue(bio(BioOp::Poll(1), number[1])).unwrap());
    other.queue(bio(BioOp::Fsync, number[0])).unwrap();
    assert!(other.has_room(191) && !other.has_room(192), "that alone is at a disk");
    (0..100).for_each(|_| one.queue(bio(BioOp::Fsync, number[0])).unwrap());
    assert!(one.has_room(91) && !one.has_room(92));
    assert!(other.has_room(91) && !other.has_room(92));
    let mut done = Vec::new();
    one.reap(&mut done, 100, Deadline::NEVER).unwrap();
    assert!(other.has_room(191) && !other.has_room(192));
}
