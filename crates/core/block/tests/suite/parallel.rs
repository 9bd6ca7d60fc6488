//! Claims on a backend that several threads use at once.

use super::{
    Claim, FILE_BYTES, Fixture,
    completion::nothing_more,
    fixture::{OnDrop, bio, one},
};
use core::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use nowait_block::{BioOp, BlockBackend};
use nowait_sys::{Errno, time::Deadline};

pub(super) const CLAIMS: &[Claim] = &[
    ("threads_queue_and_commit_while_one_reaps", threads_queue_and_commit_while_one_reaps),
    ("cancels_race_with_completions", cancels_race_with_completions),
];

const THREADS: u64 = 4;
const BIOS_EACH: u64 = 2_000;

fn threads_queue_and_commit_while_one_reaps(fixture: &Fixture) {
    if !fixture.can("threads_queue_and_commit_while_one_reaps", fixture.lacks.threads) {
        return;
    }
    let mut seen = vec![0u8; (THREADS * BIOS_EACH) as usize];
    let mut buffers = vec![[0u8; 16]; THREADS as usize];
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _over = OnDrop(|| over.store(true, SeqCst));
        for (thread, buffer) in (0..THREADS).zip(&mut buffers) {
            let (backend, fd, over) = (&*fixture.backend, fixture.fd, &over);
            scope.spawn(move || feed(backend, fd, thread, buffer, over));
        }
        let mut done = Vec::new();
        let mut left = seen.len();
        while left > 0 {
            fixture.wait(&mut done, 1, Deadline::NEVER);
            for one in done.drain(..) {
                assert_eq!(one.result, Ok(16), "bio {}", one.token);
                seen[one.token as usize] += 1;
                left -= 1;
            }
        }
    });
    assert!(seen.iter().all(|count| *count == 1));
    nothing_more(fixture);
}

/// All bios of a thread read into the same buffer: only their completions matter. If the backend
/// has no room and `over` is set, this function stops, because the reaper has ended.
fn feed(
    backend: &dyn BlockBackend,
    fd: i32,
    thread: u64,
    buffer: &mut [u8; 16],
    over: &AtomicBool,
) {
    for i in 0..BIOS_EACH {
        let offset = (i * 16) as i64 % FILE_BYTES as i64;
        let mut bio = bio(BioOp::Read, fd, one(buffer), offset, thread * BIOS_EACH + i);
        while let Err(back) = backend.queue(bio) {
            if over.load(SeqCst) {
                return;
            }
            // The backend has no room: this thread must start its queued bios, so that some of them
            // complete.
            backend.commit();
            std::thread::yield_now();
            bio = back;
        }
        if i % (1 + i % 13) == 0 {
            backend.commit();
        }
    }
    backend.commit();
}

fn cancels_race_with_completions(fixture: &Fixture) {
    if !fixture.can("cancels_race_with_completions", fixture.lacks.threads) {
        return;
    }
    let next = AtomicU64::new(0);
    let over = AtomicBool::new(false);
    let mut buffer = [0u8; 16];
    std::thread::scope(|scope| {
        let _over = OnDrop(|| over.store(true, SeqCst));
        scope.spawn(|| {
            while !over.load(SeqCst) {
                fixture.backend.cancel(next.load(SeqCst));
                std::thread::yield_now();
            }
        });
        for token in 0..=500 {
            next.store(token, SeqCst);
            let result = fixture.run(fixture.read(&mut buffer, 0, token));
            assert!(matches!(result, Ok(16) | Err(Errno::CANCELED)), "{result:?}");
        }
    });
    nothing_more(fixture);
}
