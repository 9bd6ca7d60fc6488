//! Sleeping on a word of memory. Source: futex(2).

use super::Answer;
use crate::schedule::{Cpu, Key, Slept};
use core::sync::atomic::{AtomicU32, Ordering::SeqCst};

pub(super) unsafe fn futex(
    cpu: &mut Cpu<'_>,
    [address, op, value, time, ..]: [usize; 6],
) -> Answer {
    // SAFETY: the caller's word.
    let word = unsafe { &*(address as *const AtomicU32) };
    match op as i32 & 0x7f {
        op @ (libc::FUTEX_WAIT | libc::FUTEX_WAIT_BITSET) => {
            // SAFETY: a timespec, or none.
            let time = unsafe { (time as *const libc::timespec).as_ref() };
            let time = time.map(|it| it.tv_sec as u64 * 1_000_000_000 + it.tv_nsec as u64);
            let until = match op {
                libc::FUTEX_WAIT => time.map(|ns| cpu.now + ns),
                _ => time,
            };
            if word.load(SeqCst) != value as u32 {
                return Err(libc::EAGAIN);
            }
            match cpu.sleep(Key::Futex(address), until) {
                Slept::Woken => Ok(0),
                Slept::TimeIsUp => Err(libc::ETIMEDOUT),
                Slept::Interrupted => Err(libc::EINTR),
            }
        }
        libc::FUTEX_WAKE | libc::FUTEX_WAKE_BITSET => {
            let count = value.min(i32::MAX as usize);
            let woken = cpu.wake(Key::Futex(address), count);
            Ok(woken + cpu.wake_entries(address, count - woken))
        }
        op => panic!("futex operation {op} is not simulated"),
    }
}

/// Returns `true` for the futex operations by which the engine checks addresses, which wake no
/// thread.
pub(super) fn looks_at_memory(nr: i64, [_, op, ..]: [usize; 6]) -> bool {
    let looks = [libc::FUTEX_WAKE_OP, libc::FUTEX_CMP_REQUEUE];
    nr == libc::SYS_futex && looks.contains(&(op as i32 & 0x7f))
}
