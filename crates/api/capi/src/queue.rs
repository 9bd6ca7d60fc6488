//! Queues: submit, reap.

use crate::{
    BorrowedMemory, Engine, Request,
    guard::{Failure, ending, guarded, making, negative, remember},
    text::copy_out,
};
use core::{
    ffi::{c_char, c_int},
    time::Duration,
};
use nowait::{Errno, Nowait};
use std::{
    os::fd::AsRawFd,
    sync::{Mutex, TryLockError},
};

/// `nowait_queue`.
pub struct Queue {
    /// Each call on the queue, except its destruction, holds this lock to its end; no call waits
    /// for the lock. A panic poisons the lock permanently: it is then unknown which buffers are
    /// lent.
    queue: Mutex<nowait::Queue<u64, BorrowedMemory>>,
    nowait: Nowait,
}

/// `nowait_completion`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Completion {
    /// The user_data of the request.
    pub user_data: u64,
    /// The value of the request's result, or a negative error number.
    pub result: i64,
    /// Zero.
    pub reserved: [u64; 2],
}

/// Makes a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_queue_create(
    engine: *mut Engine,
    depth: u32,
    queue: *mut *mut Queue,
) -> c_int {
    // SAFETY: the caller's pointers, as the header requires.
    unsafe {
        making(queue, || {
            let nowait = (*engine).nowait.clone();
            Ok(Queue { queue: Mutex::new(nowait.queue(depth as usize)?), nowait })
        })
    }
}

/// Destroys a queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_queue_destroy(queue: *mut Queue) {
    // SAFETY: the caller's queue, or null.
    unsafe { ending(queue) }
}

/// Starts requests.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_submit(
    queue: *mut Queue,
    requests: *const Request,
    count: usize,
) -> c_int {
    // SAFETY: the caller's queue.
    let owner = unsafe { &*queue };
    let result = used(owner, |queue| {
        let count = count.min(c_int::MAX as usize);
        let requests = match count {
            0 => &[], // the address is not used
            // SAFETY: the caller's requests.
            _ => unsafe { core::slice::from_raw_parts(requests, count) },
        };
        // SAFETY: the caller's promise for each request.
        let taken = unsafe { prepare_all(requests, queue, &owner.nowait) }?;
        queue.submit();
        Ok(taken as i64)
    });
    result as c_int
}

/// Puts requests into the queue, up to the first that cannot be accepted, or up to the chain that
/// contains it. Returns the number of requests put in, or the failure if the first is not accepted.
///
/// # Safety
/// Files and memory are as the header requires.
unsafe fn prepare_all(
    requests: &[Request],
    queue: &mut nowait::Queue<u64, BorrowedMemory>,
    nowait: &Nowait,
) -> Result<usize, Failure> {
    let mut chain = Vec::new();
    for (index, request) in requests.iter().enumerate() {
        let accepted = match chain.is_empty() {
            true => check_room(&requests[index..], queue),
            false => Ok(()), // checked with its chain
        };
        let before = chain.last().copied();
        // SAFETY: promised above.
        match accepted.and_then(|()| unsafe { request.prepare(queue, nowait, before) }) {
            Ok(id) if request.is_linked() => chain.push(id),
            Ok(_) => chain.clear(),
            Err(failure) => {
                let first = index - chain.len();
                for id in chain.into_iter().rev() {
                    queue.take_back(id);
                }
                return if first == 0 { Err(failure) } else { Ok(first) };
            }
        }
    }
    Ok(requests.len())
}

fn check_room(
    requests: &[Request],
    queue: &nowait::Queue<u64, BorrowedMemory>,
) -> Result<(), Failure> {
    let refused = |errno, because| Err(Failure::new(errno, "submit", because));
    let Some(last) = requests.iter().position(|request| !request.is_linked()) else {
        return refused(Errno::INVAL, "the last request of the call is linked to nothing");
    };
    if last >= queue.depth() {
        return refused(Errno::INVAL, "the chain is longer than the queue is deep");
    }
    if last >= queue.depth() - queue.len() {
        return refused(Errno::AGAIN, "the queue is full: reap first");
    }
    Ok(())
}

/// Takes completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_reap(
    queue: *mut Queue,
    completions: *mut Completion,
    max: usize,
    min: usize,
    timeout_ns: i64,
) -> c_int {
    // SAFETY: the caller's queue, and room for `max` completions.
    let result = used(unsafe { &*queue }, |queue| unsafe {
        let max = max.min(c_int::MAX as usize);
        queue.wait(min.min(max), u64::try_from(timeout_ns).ok().map(Duration::from_nanos))?;
        let mut count = 0;
        while count < max
            && let Some(done) = queue.pop()
        {
            let result = match done.result {
                Ok(value) => value as i64,
                Err(error) => {
                    remember(error.to_string());
                    negative(error.errno())
                }
            };
            let completion = Completion { user_data: done.tag, result, reserved: [0; 2] };
            completions.add(count).write(completion);
            count += 1;
        }
        queue.ring_if_over();
        Ok(count as i64)
    });
    result as c_int
}

/// Asks for an early end of a request.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_cancel(queue: *mut Queue, user_data: u64) -> c_int {
    // SAFETY: the caller's queue.
    let result =
        used(unsafe { &*queue }, |queue| match queue.cancel_one(|tag| *tag == user_data) {
            true => Ok(0),
            false => Err(Failure::new(Errno::NOENT, "cancel", "no such request is in flight")),
        });
    result as c_int
}

/// Returns the number of requests in the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_queue_length(queue: *mut Queue) -> c_int {
    // SAFETY: the caller's queue.
    used(unsafe { &*queue }, |queue| Ok(queue.len() as i64)) as c_int
}

/// Returns the descriptor that becomes readable with completions.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_queue_fd(queue: *mut Queue) -> c_int {
    // SAFETY: the caller's queue.
    used(unsafe { &*queue }, |queue| Ok(i64::from(queue.event_fd()?.as_raw_fd()))) as c_int
}

/// Writes a report of the queue.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn nowait_queue_report(
    queue: *mut Queue,
    text: *mut c_char,
    size: usize,
) -> i64 {
    // SAFETY: the caller's queue.
    used(unsafe { &*queue }, |queue| {
        // SAFETY: the caller's memory.
        Ok(unsafe { copy_out(queue.report().trim_end(), text, size) })
    })
}

/// Runs a call on a queue. Fails with `EBUSY` if another thread is using the queue, and with `EIO`
/// after an earlier panic in a call on this queue.
fn used(
    queue: &Queue,
    call: impl FnOnce(&mut nowait::Queue<u64, BorrowedMemory>) -> Result<i64, Failure>,
) -> i64 {
    guarded(|| match queue.queue.try_lock() {
        Ok(mut queue) => call(&mut queue),
        Err(TryLockError::WouldBlock) => {
            let because = "another thread uses the queue: make one queue for each thread";
            Err(Failure::new(Errno::BUSY, "use of a queue", because))
        }
        Err(TryLockError::Poisoned(_)) => {
            let because = "an earlier internal failure left the queue unusable: destroy it";
            Err(Failure::new(Errno::IO, "use of a queue", because))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_an_internal_failure_a_queue_is_unusable_and_the_caller_lives() {
        let nowait = Nowait::new().unwrap_or_else(|error| panic!("{error}"));
        let native = nowait.queue(1).unwrap_or_else(|error| panic!("{error}"));
        let queue = Queue { queue: Mutex::new(native), nowait };
        assert_eq!(used(&queue, |queue| Ok(queue.len() as i64)), 0);
        for _ in 0..2 {
            assert_eq!(used(&queue, |_| panic!("on purpose")), negative(Errno::IO));
        }
    }
}
