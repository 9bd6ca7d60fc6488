//! Filters of system calls (seccomp(2)) that the program puts on itself.
//!
//! What a container's filter refuses fails with an errno, and there is a way without it. A program
//! that confines itself says *kill* instead, as QEMU does under libvirt: a call that the engine
//! makes and the program does not would end a thread of the engine, or the process. The kernel
//! cannot be asked what a filter will say. So each filter that is seen on its way to the kernel is
//! run here for the calls that the engine can do without; those that it kills for are not made.
//! Where a filter came unseen, none of them is.

use crate::{Errno, inspect, memory, sys};
use core::sync::atomic::{AtomicI32, AtomicU32, Ordering::Relaxed};

/// What the engine can do without.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Extra {
    /// A descriptor table for its threads: unshare(2), close_range(2).
    OwnTable = 1,
    /// A scheduling policy for its threads.
    Policy = 2,
    /// To act with the rights of the submitter: setfsuid(2) and its kin.
    Rights = 4,
    /// io_uring.
    Rings = 8,
    /// process_vm_readv(2) and process_vm_writev(2).
    Memory = 16,
    /// pidfd_getfd(2).
    Fetch = 32,
    /// Native AIO. A program that confines itself may well call it, and the filter allow it.
    NativeAio = 64,
}

/// What is not called where a filter came unseen.
const UNSEEN: u32 = Extra::NativeAio as u32 - 1;

/// The filters on the process when the library was loaded; -1: there was no look.
static AT_LOAD: AtomicI32 = AtomicI32::new(-1);
/// How many were seen since.
static SEEN: AtomicI32 = AtomicI32::new(0);
static FORBIDDEN: AtomicU32 = AtomicU32::new(0);

/// Notes how confined the process is when the library is loaded: what is there then is the
/// container's or the service manager's.
pub fn note_at_load() {
    AT_LOAD.store(filters(), Relaxed);
}

/// Looks whether the program has confined itself unseen since the library was loaded; no more than
/// a system call if it is not confined at all.
pub fn look() {
    let at_load = AT_LOAD.load(Relaxed);
    if at_load >= 0 && filters() - at_load > SEEN.load(Relaxed) {
        FORBIDDEN.fetch_or(UNSEEN, Relaxed);
    }
}

/// Tells whether a call would end the thread or the process, as far as is known.
pub fn forbids(extra: Extra) -> bool {
    FORBIDDEN.load(Relaxed) & extra as u32 != 0
}

/// Returns `EPERM` for what is forbidden.
pub(crate) fn check(extra: Extra) -> Result<(), Errno> {
    if forbids(extra) { Err(Errno::PERM) } else { Ok(()) }
}

/// Takes a look at the filter behind the `sock_fprog` at `address`, which the program is about to
/// put on itself.
pub fn sees(address: usize) {
    SEEN.fetch_add(1, Relaxed);
    let forbidden = read_filter(address).map_or(0, |filter| forbidden_by(&filter));
    FORBIDDEN.fetch_or(forbidden, Relaxed);
}

/// Says that the kernel did not take that filter.
pub fn was_refused() {
    SEEN.fetch_sub(1, Relaxed);
}

/// Returns how many filters the calling thread has; before Linux 5.9, 1 if it has any.
fn filters() -> i32 {
    const GET_SECCOMP: usize = 21; // PR_GET_SECCOMP
    // SAFETY: no memory is involved.
    if unsafe { sys!(libc::SYS_prctl, GET_SECCOMP, 0, 0, 0, 0) } != Ok(2) {
        return 0;
    }
    let status = inspect::read_text(c"/proc/thread-self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(1)
}

/// `struct sock_filter` of linux/filter.h.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

/// The kernel takes no longer ones (BPF_MAXINSNS).
const INSTRUCTIONS_MAX: usize = 4096;

/// Reads a filter; `None`: the kernel will refuse it.
fn read_filter(program: usize) -> Option<Vec<Instruction>> {
    const SIZE: usize = size_of::<Instruction>();
    let mut head = [0u8; 16];
    memory::read_checked(program, &mut head).ok()?;
    let count = usize::from(u16::from_ne_bytes([head[0], head[1]]));
    let start = usize::from_ne_bytes(head[8..].try_into().ok()?);
    let mut bytes = vec![0u8; count.min(INSTRUCTIONS_MAX) * SIZE];
    memory::read_checked(start, &mut bytes).ok()?;
    let instruction = |bytes: &[u8]| Instruction {
        code: u16::from_ne_bytes([bytes[0], bytes[1]]),
        if_true: bytes[2],
        if_false: bytes[3],
        operand: u32::from_ne_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]),
    };
    Some(bytes.chunks_exact(SIZE).map(instruction).collect())
}

/// A system call with the arguments that tell it from others.
type Call = (i64, [u64; 3]);

/// The calls of each part.
const CALLS: &[(Extra, &[Call])] = &[
    (
        Extra::OwnTable,
        &[
            (libc::SYS_unshare, [libc::CLONE_FILES as u64, 0, 0]),
            (libc::SYS_close_range, [3, u32::MAX as u64, 2]),
        ],
    ),
    (
        Extra::Policy,
        &[
            (libc::SYS_sched_setscheduler, [0, libc::SCHED_BATCH as u64, 0]),
            (libc::SYS_sched_setscheduler, [0, libc::SCHED_OTHER as u64, 0]),
        ],
    ),
    (
        Extra::Rights,
        &[
            (libc::SYS_capget, [0; 3]),
            (libc::SYS_getgroups, [0; 3]),
            (libc::SYS_setfsuid, [u32::MAX as u64, 0, 0]),
            (libc::SYS_setfsgid, [u32::MAX as u64, 0, 0]),
            (libc::SYS_setgroups, [0; 3]),
            (libc::SYS_capset, [0; 3]),
        ],
    ),
    (
        Extra::Rings,
        &[
            (libc::SYS_io_uring_setup, [0; 3]),
            (libc::SYS_io_uring_enter, [0; 3]),
            (libc::SYS_io_uring_register, [0; 3]),
        ],
    ),
    (Extra::Memory, &[(libc::SYS_process_vm_readv, [0; 3]), (libc::SYS_process_vm_writev, [0; 3])]),
    (Extra::Fetch, &[(libc::SYS_pidfd_open, [0; 3]), (libc::SYS_pidfd_getfd, [0; 3])]),
    (
        Extra::NativeAio,
        &[
            (libc::SYS_io_setup, [0; 3]),
            (libc::SYS_io_submit, [0; 3]),
            (libc::SYS_io_getevents, [0; 3]),
            (libc::SYS_io_destroy, [0; 3]),
        ],
    ),
];

/// Returns what `filter` kills for, a bit each.
fn forbidden_by(filter: &[Instruction]) -> u32 {
    let kills = |call: &&Call| kills(run(filter, &data_of(call)));
    let forbidden = CALLS.iter().filter(|(_, calls)| calls.iter().any(|call| kills(&call)));
    forbidden.fold(0, |bits, (extra, _)| bits | *extra as u32)
}

/// `struct seccomp_data` of linux/seccomp.h, as words.
type Data = [u32; 16];

#[cfg(target_arch = "x86_64")]
const ARCHITECTURE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const ARCHITECTURE: u32 = 0xc000_00b7;
/// The kernel's number of this machine is not known here: no comparison with it holds.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
const ARCHITECTURE: u32 = 0;

fn data_of((number, args): &Call) -> Data {
    let mut data = [0; 16];
    data[0] = *number as u32;
    data[1] = ARCHITECTURE;
    for (index, arg) in args.iter().enumerate() {
        data[4 + 2 * index] = *arg as u32;
        data[5 + 2 * index] = (arg >> 32) as u32;
    }
    data
}

/// Tells whether a filter that returned this ends the thread. Also SIGSYS does: a thread of the
/// engine has it blocked.
fn kills(returned: Option<u32>) -> bool {
    const KILL_PROCESS: u32 = 0x8000_0000;
    const KILL_THREAD: u32 = 0;
    const TRAP: u32 = 0x0003_0000;
    returned.is_none_or(|value| matches!(value & 0xffff_0000, KILL_PROCESS | KILL_THREAD | TRAP))
}

/// Runs a filter; `None`: it does what no filter may.
/// Source: the kernel's Documentation/networking/filter.rst, "BPF engine and instruction set".
fn run(filter: &[Instruction], data: &Data) -> Option<u32> {
    let (mut accumulator, mut index, mut scratch) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    // No jump goes back: it ends.
    loop {
        let Instruction { code, if_true, if_false, operand } = *filter.get(at)?;
        let other = if code & 0x08 != 0 { index } else { operand };
        at += 1;
        match code {
            0x20 => accumulator = *data.get(operand as usize / 4)?,
            0x80 => accumulator = size_of::<Data>() as u32,
            0x81 => index = size_of::<Data>() as u32,
            0x00 => accumulator = operand,
            0x01 => index = operand,
            0x60 => accumulator = *scratch.get(operand as usize)?,
            0x61 => index = *scratch.get(operand as usize)?,
            0x02 => *scratch.get_mut(operand as usize)? = accumulator,
            0x03 => *scratch.get_mut(operand as usize)? = index,
            0x04 | 0x0c => accumulator = accumulator.wrapping_add(other),
            0x14 | 0x1c => accumulator = accumulator.wrapping_sub(other),
            0x24 | 0x2c => accumulator = accumulator.wrapping_mul(other),
            0x34 | 0x3c => accumulator = accumulator.checked_div(other)?,
            0x44 | 0x4c => accumulator |= other,
            0x54 | 0x5c => accumulator &= other,
            0xa4 | 0xac => accumulator ^= other,
            0x64 | 0x6c => accumulator = accumulator.checked_shl(other)?,
            0x74 | 0x7c => accumulator = accumulator.checked_shr(other)?,
            0x84 => accumulator = accumulator.wrapping_neg(),
            0x05 => at += operand as usize,
            0x15 | 0x1d => at += jump(accumulator == other, if_true, if_false),
            0x25 | 0x2d => at += jump(accumulator > other, if_true, if_false),
            0x35 | 0x3d => at += jump(accumulator >= other, if_true, if_false),
            0x45 | 0x4d => at += jump(accumulator & other != 0, if_true, if_false),
            0x06 => return Some(operand),
            0x16 => return Some(accumulator),
            0x07 => index = accumulator,
            0x87 => accumulator = index,
            _ => return None,
        }
    }
}

fn jump(holds: bool, if_true: u8, if_false: u8) -> usize {
    usize::from(if holds { if_true } else { if_false })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALLOW: u32 = 0x7fff_0000;
    const ERRNO: u32 = 0x0005_0000;

    const fn step(code: u16, operand: u32, if_true: u8, if_false: u8) -> Instruction {
        Instruction { code, if_true, if_false, operand }
    }

    fn answers(call: i64, action: u32) -> Vec<Instruction> {
        vec![
            step(0x20, 0, 0, 0),
            step(0x15, call as u32, 0, 1),
            step(0x06, action, 0, 0),
            step(0x06, ALLOW, 0, 0),
        ]
    }

    #[test]
    fn what_a_filter_kills_for_is_forbidden_and_what_it_refuses_is_not() {
        for action in [0, 0x8000_0000, 0x0003_0000] {
            let by = |call| forbidden_by(&answers(call, action));
            assert_eq!(by(libc::SYS_unshare), Extra::OwnTable as u32);
            assert_eq!(by(libc::SYS_close_range), Extra::OwnTable as u32);
            assert_eq!(by(libc::SYS_io_uring_enter), Extra::Rings as u32);
            assert_eq!(by(libc::SYS_setfsuid), Extra::Rights as u32);
            assert_eq!(by(libc::SYS_read), 0);
        }
        for action in [ERRNO | 1, ALLOW, 0x7ffc_0000] {
            assert_eq!(forbidden_by(&answers(libc::SYS_unshare, action)), 0);
        }
    }

    #[test]
    fn arguments_and_the_machine_are_looked_at() {
        // Kills for SCHED_BATCH only, and only here.
        let filter = [
            step(0x20, 4, 0, 0),
            step(0x15, ARCHITECTURE, 0, 6),
            step(0x20, 0, 0, 0),
            step(0x15, libc::SYS_sched_setscheduler as u32, 0, 4),
            step(0x20, 24, 0, 0),
            step(0x54, 0xff, 0, 0),
            step(0x15, libc::SCHED_BATCH as u32, 0, 1),
            step(0x06, 0, 0, 0),
            step(0x06, ALLOW, 0, 0),
        ];
        assert_eq!(forbidden_by(&filter), Extra::Policy as u32);
        let mut idle = filter;
        idle[6].operand = libc::SCHED_IDLE as u32;
        assert_eq!(forbidden_by(&idle), 0);
    }

    #[test]
    fn what_is_no_filter_forbids_all() {
        let all = CALLS.iter().fold(0, |bits, (extra, _)| bits | *extra as u32);
        assert_eq!(forbidden_by(&[]), all, "it ends without an answer");
        assert_eq!(forbidden_by(&[step(0xffff, 0, 0, 0)]), all);
        assert_eq!(forbidden_by(&[step(0x20, 64, 0, 0)]), all, "past the data");
        assert_eq!(all, UNSEEN | Extra::NativeAio as u32);
    }

    #[test]
    fn a_filter_is_read_from_where_the_program_says() {
        let filter = answers(libc::SYS_setgroups, 0);
        #[repr(C)]
        struct Program {
            count: u16,
            filter: *const Instruction,
        }
        // Laid out as the kernel's: two numbers of two bytes around a pair of one.
        let words: Vec<[u8; 8]> = filter
            .iter()
            .map(|it| {
                let mut bytes = [0; 8];
                bytes[..2].copy_from_slice(&it.code.to_ne_bytes());
                bytes[2..4].copy_from_slice(&[it.if_true, it.if_false]);
                bytes[4..].copy_from_slice(&it.operand.to_ne_bytes());
                bytes
            })
            .collect();
        let program = Program { count: words.len() as u16, filter: words.as_ptr().cast() };
        assert_eq!(read_filter(core::ptr::from_ref(&program) as usize), Some(filter));
        assert_eq!(read_filter(8), None);
    }
}
