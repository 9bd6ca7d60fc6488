//! Work that no engine can avoid: each kind is a loop of a few lines.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use nowait_sys::futex;
use nowait_sys::time::Deadline;

use crate::job::{Act, Outcome};
use crate::run::{joined, rates};
use nowait_harness::error::Result;
use nowait_harness::usage::Used;

/// Number of calls of the action between two reads of the clock.
const BETWEEN_LOOKS: u64 = 256;
pub(crate) fn run(runtime: Duration, act: Act) -> Result<Outcome> {
    match act {
        Act::Call => repeat(runtime, || {
            // SAFETY: the call takes nothing, and always succeeds.
            std::hint::black_box(unsafe { libc::syscall(libc::SYS_getppid) });
            Ok(1)
        }),
        Act::RoundTrip => round_trips(runtime),
    }
}

fn repeat(runtime: Duration, mut act: impl FnMut() -> Result<u64>) -> Result<Outcome> {
    let (before, start, mut count) = (Used::now()?, Instant::now(), 0);
    while start.elapsed() < runtime {
        for _ in 0..BETWEEN_LOOKS {
            count += act()?;
        }
    }
    let used = Used::now()?.less(before);
    Ok(rates(count as f64, 0, start.elapsed().as_secs_f64(), used))
}

/// Two threads wake each other in turn; the word names the thread whose turn it is.
fn round_trips(runtime: Duration) -> Result<Outcome> {
    let (turn, over) = (AtomicU32::new(0), AtomicBool::new(false));
    let pass = |to: u32| {
        turn.store(to, SeqCst);
        futex::wake(&turn, 1);
    };
    let wait = |mine: u32| {
        while turn.load(SeqCst) != mine {
            let _ = futex::wait(&turn, 1 - mine, Deadline::NEVER);
        }
    };
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            loop {
                wait(1);
                if over.load(SeqCst) {
                    return Ok(());
                }
                pass(0);
            }
        });
        let sample = repeat(runtime, || {
            pass(1);
            wait(0);
            Ok(1)
        });
        over.store(true, SeqCst);
        pass(1);
        joined(other)?;
        sample
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_act_is_done_and_counted() {
        let runtime = Duration::from_millis(1);
        for act in [Act::Call, Act::RoundTrip] {
            let figures = run(runtime, act).expect("possible everywhere");
            assert!(figures["iops"] > 0.0 && figures["cpu_us_per_io"] >= 0.0, "{act:?}");
        }
    }
}
