//! A queue in the caller's event loop: the end of each request wakes the loop, on every backend.

mod common;

use common::{BLOCK, everywhere, folder, open};
use nowait::{AlignedBuffer, Queue};
use nowait_sys::{
    epoll::{self, Epoll},
    eventfd::EventFd,
    time::Deadline,
};
use std::os::fd::AsRawFd;

fn limit() -> Deadline {
    Deadline::after_ns(60_000_000_000)
}

fn watched(queue: &Queue<u64, AlignedBuffer>) -> Epoll {
    let epoll = Epoll::new().unwrap();
    for fd in queue.descriptors().unwrap() {
        epoll.add(fd.as_raw_fd(), epoll::IN, 1).unwrap();
    }
    epoll
}

#[test]
fn whatever_ends_rouses_the_loop() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(8).unwrap();
        let (epoll, mut ready) = (watched(&queue), Vec::with_capacity(4));
        let mut done = 0;
        // Depending on the engine and the mode, some of these requests end on threads of the
        // engine, and others in the context queue.
        for round in 0..40u64 {
            let offset = round % 10 * BLOCK as u64;
            let mut block = AlignedBuffer::zeroed(BLOCK);
            block.fill(round as u8);
            let _id = match round % 4 {
                0 => queue.write(&file, block, offset, round).unwrap(),
                1 => queue.write_durable(&file, block, offset, round).unwrap(),
                2 => queue.sync_data(&file, round).unwrap(),
                _ => queue.read(&file, block, 0, round).unwrap(),
            };
            queue.submit();
            let end = limit();
            while done == round {
                assert!(!end.has_passed(), "round {round} on {nowait:?}, {mode:?}");
                queue.sleep(|| epoll.wait(&mut ready, end)).unwrap();
                while let Some(completion) = queue.pop() {
                    completion.result.unwrap();
                    assert_eq!(completion.tag, round);
                    done += 1;
                }
            }
        }
        assert!(queue.is_empty());
    });
}

#[test]
fn what_else_is_in_the_set_ends_the_sleep() {
    everywhere(|nowait, _| {
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(8).unwrap();
        let (epoll, mut ready) = (watched(&queue), Vec::with_capacity(4));
        let counter = EventFd::new().unwrap();
        epoll.add(counter.raw(), epoll::IN, 7).unwrap();
        let mut slept = false;
        counter.signal();
        let over = queue.sleep(|| {
            epoll.wait(&mut ready, limit());
            slept = true;
        });
        assert_eq!(
            (over.unwrap(), slept, ready.first().map(|ready| ready.token)),
            (0, true, Some(7))
        );
    });
}

#[test]
fn who_has_something_already_does_not_sleep() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = open(nowait, mode, &folder.path().join("file"));
        file.write_all_at(&AlignedBuffer::zeroed(BLOCK), 0).unwrap();
        let mut queue: Queue<u64, AlignedBuffer> = nowait.queue(8).unwrap();
        drop(watched(&queue));
        queue.read(&file, AlignedBuffer::zeroed(BLOCK), 0, 1).unwrap();
        queue.submit();
        queue.wait(1, None).unwrap();
        assert_eq!(queue.sleep(|| panic!("there is a completion")).unwrap(), 1);
    });
}
