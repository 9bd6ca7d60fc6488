//! Seccomp filters (seccomp(2)) that the program installs on itself.
//!
//! A program's own filter often kills for a call that only the engine makes, as QEMU's does under
//! libvirt. The kernel does not tell what a filter will return, so the library evaluates each
//! filter that it sees the program pass to the kernel. The engine makes no optional call for which
//! a filter would kill. If the program installed a filter that the library did not see, the engine
//! makes only those optional calls that the program makes, too.

use crate::confined::{self, Extra};
use crate::{announce, inspect, memory, sys};
use core::sync::atomic::{AtomicI32, Ordering::Relaxed};

/// The number of filters on the process when the library was loaded; -1: not counted.
static AT_LOAD: AtomicI32 = AtomicI32::new(-1);
static SEEN: AtomicI32 = AtomicI32::new(0);

/// Counts the filters on the process when the library is loaded: these belong to the container or
/// the service manager.
#[unsafe(link_section = ".text.startup")]
pub fn note_at_load() {
    AT_LOAD.store(filters(), Relaxed);
}

/// Checks whether the program has installed a filter that the library did not see. If so, forbids
/// the optional calls that the program does not make itself.
pub fn look() {
    let at_load = AT_LOAD.load(Relaxed);
    if at_load >= 0 && filters() - at_load > SEEN.load(Relaxed) {
        confined::forbid_all();
    }
}

/// Evaluates the filter that the program is about to install. Returns the newly forbidden calls,
/// for [`was_refused`].
///
/// # Safety
/// `program` is null, or a `sock_fprog` that the kernel can read.
pub unsafe fn sees(program: *const Program) -> u32 {
    SEEN.fetch_add(1, Relaxed);
    // SAFETY: promised by the caller.
    confined::forbid(unsafe { read_filter(program) }.map_or(0, |filter| forbidden_by(&filter)))
}

/// Allows the calls again that [`sees`] has forbidden, after the kernel refused the filter.
pub fn was_refused(forbidden: u32) {
    SEEN.fetch_sub(1, Relaxed);
    confined::allow(forbidden);
}

/// Returns how many filters the calling thread has; before Linux 5.9, or without /proc, 1 if the
/// thread has any.
#[unsafe(link_section = ".text.startup")]
fn filters() -> i32 {
    const GET_SECCOMP: usize = 21; // PR_GET_SECCOMP
    // SAFETY: no memory is involved.
    let is_confined = unsafe { sys!(libc::SYS_prctl, GET_SECCOMP, 0, 0, 0, 0) } == Ok(2);
    if is_confined { count_filters() } else { 0 }
}

fn count_filters() -> i32 {
    let status = inspect::read_text(c"/proc/thread-self/status").unwrap_or_default();
    let count = status.lines().find_map(|line| line.strip_prefix("Seccomp_filters:"));
    count.and_then(|count| count.trim().parse().ok()).unwrap_or(1)
}

/// `struct sock_filter` of linux/filter.h.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Instruction {
    code: u16,
    if_true: u8,
    if_false: u8,
    operand: u32,
}

/// `struct sock_fprog` of linux/filter.h.
#[repr(C)]
#[derive(Debug)]
pub struct Program {
    count: u16,
    filter: *const Instruction,
}

/// Instructions of the longest filter that the kernel accepts (BPF_MAXINSNS).
const INSTRUCTIONS_MAX: usize = 4096;

/// Uses plain loads: an earlier filter may end the process for a system call that checks the
/// memory.
///
/// # Safety
/// As for [`sees`].
unsafe fn read_filter(program: *const Program) -> Option<Vec<Instruction>> {
    // SAFETY: promised by the caller.
    let Program { count, filter } = unsafe { program.as_ref() }?;
    let count = usize::from(*count);
    if filter.is_null() || !(1..=INSTRUCTIONS_MAX).contains(&count) {
        return None;
    }
    // SAFETY: as above: the filter has so many instructions, which are plain data.
    let read = |index| unsafe { filter.add(index).read_unaligned() };
    Some((0..count).map(read).collect())
}

type Call = (i64, [u64; 3]);

const CALLS: &[(Extra, &[Call])] = &[
    (
        Extra::OwnTable,
        &[
            (libc::SYS_unshare, [libc::CLONE_FILES as u64, 0, 0]),
            (libc::SYS_close_range, [3, u32::MAX as u64, 2]),
        ],
    ),
    (
        Extra::Credentials,
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
    (
        Extra::Memory,
        &[
            (libc::SYS_futex, [0, memory::COMPARE as u64, 0]),
            (libc::SYS_futex, [0, memory::TOUCH as u64, 0]),
        ],
    ),
    (
        Extra::Populate,
        &[(libc::SYS_madvise, [0, memory::PAGE_SIZE as u64, libc::MADV_POPULATE_WRITE as u64])],
    ),
    (Extra::Fetch, &[(libc::SYS_pidfd_open, [0; 3]), (libc::SYS_pidfd_getfd, [0; 3])]),
    (
        Extra::NativeAio,
        &[
            (libc::SYS_io_setup, [0; 3]),
            (libc::SYS_io_submit, [0; 3]),
            (libc::SYS_io_getevents, [0; 3]),
            (libc::SYS_io_cancel, [0; 3]),
            (libc::SYS_io_destroy, [0; 3]),
        ],
    ),
    (
        Extra::Announce,
        &[
            (announce::CACHESTAT, [0; 3]),
            // A filter may look at the advice, which `Call` does not hold.
            (libc::SYS_fadvise64, [0; 3]),
        ],
    ),
    (Extra::DescriptorTypes, &[(libc::SYS_readlinkat, [libc::AT_FDCWD as u64, 0, 0])]),
    (Extra::IoPriority, &[(libc::SYS_ioprio_set, [1, 0, 0])]),
    (Extra::Sleeps, &[(libc::SYS_getrusage, [libc::RUSAGE_THREAD as u64, 0, 0])]),
    (Extra::Devices, &[(libc::SYS_openat, [libc::AT_FDCWD as u64, 0, libc::O_CLOEXEC as u64])]),
];

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
/// A value that no kernel uses: the library does not know the number of this architecture, so no
/// comparison with it holds.
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

/// Returns `true` if this return value of a filter ends the thread or the process. A SIGSYS ends
/// the process, too, because the engine's threads block that signal.
fn kills(returned: Option<u32>) -> bool {
    const ERRNO: u32 = 0x0005_0000;
    const USER_NOTIF: u32 = 0x7fc0_0000;
    const TRACE: u32 = 0x7ff0_0000;
    const LOG: u32 = 0x7ffc_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let lets_live = |value| matches!(value & 0xffff_0000, ERRNO | USER_NOTIF | TRACE | LOG | ALLOW);
    !returned.is_some_and(lets_live)
}

/// Source: the kernel's Documentation/networking/filter.rst, "BPF engine and instruction set".
fn run(filter: &[Instruction], data: &Data) -> Option<u32> {
    let (mut accumulator, mut index, mut scratch) = (0u32, 0u32, [0u32; 16]);
    let mut at = 0usize;
    // No jump goes back, so the loop ends.
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
    use confined::{ALL, forbids};

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
            assert_eq!(by(libc::SYS_setfsuid), Extra::Credentials as u32);
            assert_eq!(by(libc::SYS_openat), Extra::Devices as u32);
            assert_eq!(by(libc::SYS_fadvise64), Extra::Announce as u32);
            assert_eq!(by(libc::SYS_getrusage), Extra::Sleeps as u32);
            assert_eq!(by(libc::SYS_ioprio_set), Extra::IoPriority as u32);
            assert_eq!(by(libc::SYS_readlinkat), Extra::DescriptorTypes as u32);
            assert_eq!(by(libc::SYS_read), 0);
        }
        for action in [ERRNO | 1, ALLOW, 0x7ffc_0000] {
            assert_eq!(forbidden_by(&answers(libc::SYS_unshare, action)), 0);
        }
    }

    #[test]
    fn arguments_and_the_machine_are_looked_at() {
        // Kills for close_range(2) up to the highest descriptor, and only on this architecture.
        let filter = [
            step(0x20, 4, 0, 0),
            step(0x15, ARCHITECTURE, 0, 6),
            step(0x20, 0, 0, 0),
            step(0x15, libc::SYS_close_range as u32, 0, 4),
            step(0x20, 24, 0, 0),
            step(0x54, 0xff, 0, 0),
            step(0x15, 0xff, 0, 1),
            step(0x06, 0, 0, 0),
            step(0x06, ALLOW, 0, 0),
        ];
        assert_eq!(forbidden_by(&filter), Extra::OwnTable as u32);
        let mut other = filter;
        other[6].operand = 3;
        assert_eq!(forbidden_by(&other), 0);
        let mut futex = filter;
        futex[3].operand = libc::SYS_futex as u32;
        futex[6].operand = (memory::TOUCH & 0xff) as u32;
        assert_eq!(forbidden_by(&futex), Extra::Memory as u32);
    }

    #[test]
    fn what_is_no_filter_forbids_all() {
        assert_eq!(forbidden_by(&[]), ALL, "it ends without an answer");
        assert_eq!(forbidden_by(&[step(0xffff, 0, 0, 0)]), ALL);
        assert_eq!(forbidden_by(&[step(0x20, 64, 0, 0)]), ALL, "past the data");
        assert_eq!(forbidden_by(&[step(0x06, 0x0002_0000, 0, 0)]), ALL, "no action there is");
    }

    #[test]
    fn a_filter_is_read_and_what_the_kernel_refuses_is_none() {
        let filter = answers(libc::SYS_setgroups, 0);
        let program = |count, filter| Program { count, filter };
        // SAFETY: the instructions exist, or the count or the pointer marks them as missing.
        let read = |program: &Program| unsafe { read_filter(program) };
        assert_eq!(read(&program(4, filter.as_ptr())), Some(filter.clone()));
        assert_eq!(read(&program(0, filter.as_ptr())), None);
        assert_eq!(read(&program(4097, filter.as_ptr())), None);
        assert_eq!(read(&program(4, core::ptr::null())), None);
        // SAFETY: null is allowed.
        assert_eq!(unsafe { read_filter(core::ptr::null()) }, None);
    }

    #[test]
    fn what_the_kernel_did_not_take_forbids_nothing() {
        let filter = answers(libc::SYS_pidfd_open, 0);
        let program = Program { count: 4, filter: filter.as_ptr() };
        // SAFETY: the instructions are a live local.
        let forbidden = unsafe { sees(&raw const program) };
        assert_eq!(forbidden, Extra::Fetch as u32);
        assert!(forbids(Extra::Fetch));
        was_refused(forbidden);
        assert!(!forbids(Extra::Fetch));
    }
}
