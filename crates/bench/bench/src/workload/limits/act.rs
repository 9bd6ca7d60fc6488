//! Unavoidable work, each as a program of a few lines.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::{Duration, Instant};

use nowait_sys::eventfd::EventFd;
use nowait_sys::futex;
use nowait_sys::memory::HugeMemory;
use nowait_sys::time::Deadline;
use nowait_sys::uring::{Issuer, Ring, opcode};
use serde::{Deserialize, Serialize};

use super::super::job::Job;
use super::super::run::{joined, rates};
use crate::error::{BenchError, Context, Result, failed};
use crate::metric::Sample;
use crate::peers::ring::enter;
use crate::usage::Used;

/// So many between two looks at the clock.
const BETWEEN_LOOKS: u64 = 256;
/// Bytes that are touched at a time.
const TOUCHED_BYTES: usize = 64 << 20;
/// Requests of a client in flight, as of NBD: 28 bytes each, and 16 before what is answered.
const IN_FLIGHT: usize = 32;
const ASKED_BYTES: usize = 28;
const HEADER_BYTES: usize = 16;

/// One of them.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Act {
    /// A system call that does nothing.
    Call,
    /// An `io_uring` does nothing, so many times for each system call.
    RingNops(u32),
    /// A system call that signals an eventfd, and one that reads it.
    Signal,
    /// A thread wakes another one, and sleeps until that wakes it.
    RoundTrip,
    /// Memory is used for the first time, in huge pages.
    FirstTouch,
    /// A thread sends so many bytes over a socket for each request, many of which are on the way.
    Answer { bytes: usize },
}

/// Does it until the time is over.
///
/// # Errors
/// The machine refuses it (wrong usage where it is not known here), or there is no memory.
pub(crate) fn run(job: &Job, act: Act) -> Result<Sample> {
    let runtime = Duration::from_millis(job.runtime_ms);
    match act {
        Act::Call => repeat(runtime, || {
            // SAFETY: the call takes nothing, and always succeeds.
            std::hint::black_box(unsafe { libc::syscall(libc::SYS_getppid) });
            Ok(1)
        }),
        Act::RingNops(batch) => ring_nops(runtime, batch),
        Act::Signal => {
            let counter = EventFd::new().map_err(failed("eventfd"))?;
            repeat(runtime, || {
                counter.signal();
                Ok(counter.drain())
            })
        }
        Act::RoundTrip => round_trips(runtime),
        Act::FirstTouch => first_touch(runtime),
        Act::Answer { bytes } => answers(runtime, bytes),
    }
}

/// Repeats something that is quick; it says how often it was done.
fn repeat(runtime: Duration, mut act: impl FnMut() -> Result<u64>) -> Result<Sample> {
    let (before, start, mut count) = (Used::now()?, Instant::now(), 0);
    while start.elapsed() < runtime {
        for _ in 0..BETWEEN_LOOKS {
            count += act()?;
        }
    }
    let used = Used::now()?.less(before);
    Ok(rates(count as f64, 0, start.elapsed().as_secs_f64(), used))
}

fn ring_nops(runtime: Duration, batch: u32) -> Result<Sample> {
    let refused = |errno| BenchError::usage(format!("io_uring: {errno}"));
    let ring = Ring::new(batch, Issuer::Single).map_err(refused)?;
    repeat(runtime, || {
        let mut pending = 0;
        // SAFETY: this thread alone uses the ring; an entry without memory or descriptors.
        while pending < batch && unsafe { ring.push(&opcode::Nop::new().build()) } {
            pending += 1;
        }
        enter(&ring, &mut pending, batch)?;
        let mut ended = 0;
        // SAFETY: this thread alone uses the ring.
        while unsafe { ring.pop() }.is_some() {
            ended += 1;
        }
        Ok(ended)
    })
}

/// The word says whose turn it is.
fn round_trips(runtime: Duration) -> Result<Sample> {
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

fn first_touch(runtime: Duration) -> Result<Sample> {
    let (before, start, mut times) = (Used::now()?, Instant::now(), 0_u32);
    while times == 0 || start.elapsed() < runtime {
        let memory = HugeMemory::new(TOUCHED_BYTES).map_err(failed("mmap"))?;
        for at in (0..TOUCHED_BYTES).step_by(4096) {
            // SAFETY: within the mapping, which no other thread has.
            unsafe { memory.base().add(at).write_volatile(1) };
        }
        times += 1;
    }
    let used = Used::now()?.less(before);
    Ok(rates(f64::from(times), TOUCHED_BYTES, start.elapsed().as_secs_f64(), used))
}

/// The answering thread looks at nothing that it is asked, and sends from the same memory.
fn answers(runtime: Duration, bytes: usize) -> Result<Sample> {
    let what = || "a socket".to_owned();
    let (client, server) = UnixStream::pair().context(what)?;
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || serve(&server, bytes));
        let (before, start) = (Used::now()?, Instant::now());
        let asked = ask(&client, bytes, || start.elapsed() < runtime);
        let (wall, used) = (start.elapsed(), Used::now()?.less(before));
        drop(client);
        joined(serving)?;
        Ok(rates(asked.context(what)? as f64, bytes, wall.as_secs_f64(), used))
    })
}

/// Answers whatever was asked, as many at a time as there are, until the client has gone.
fn serve(mut server: &UnixStream, bytes: usize) -> Result<()> {
    let mut asked = vec![0; IN_FLIGHT * ASKED_BYTES];
    let answer = vec![7; HEADER_BYTES + bytes];
    let mut rest = 0;
    loop {
        let read = server.read(&mut asked).context(|| "read a socket".to_owned())?;
        if read == 0 {
            return Ok(());
        }
        rest += read;
        while rest >= ASKED_BYTES {
            rest -= ASKED_BYTES;
            // A client that has its time sees no answer any more.
            if server.write_all(&answer).is_err() {
                return Ok(());
            }
        }
    }
}

fn ask(mut client: &UnixStream, bytes: usize, more: impl Fn() -> bool) -> std::io::Result<u64> {
    let mut answer = vec![0; HEADER_BYTES + bytes];
    client.write_all(&[0; IN_FLIGHT * ASKED_BYTES])?;
    let (mut ended, mut in_flight) = (0, IN_FLIGHT);
    while in_flight > 0 {
        client.read_exact(&mut answer)?;
        ended += 1;
        match more() {
            true => client.write_all(&[0; ASKED_BYTES])?,
            false => in_flight -= 1,
        }
    }
    Ok(ended)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metric::Metric;

    #[test]
    fn each_act_is_done_and_counted() {
        let runtime = Duration::from_millis(1);
        let acts = [round_trips(runtime), first_touch(runtime), answers(runtime, 4096)];
        for sample in acts {
            let sample = sample.expect("possible everywhere");
            assert!(sample[&Metric::Iops] > 0.0 && sample[&Metric::CpuUsPerIo] >= 0.0);
        }
        let nops = ring_nops(runtime, 4);
        assert!(nops.as_ref().map_or_else(BenchError::is_usage, |it| it[&Metric::Iops] > 0.0));
    }
}
