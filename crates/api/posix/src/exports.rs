//! The functions that posix.c calls. Most of them run in [`guarded`], which stops panics and
//! preserves `errno`.

use crate::{
    Posix,
    aiocb::Block,
    cancel,
    list::{none_begins, start_all},
    notice::{Call, SigEvent},
    posix::{PRIO_DELTA_MAX, REQUESTS_MAX, SLEEPERS, begins_not},
    submit,
};
use core::sync::atomic::AtomicU32;
use nowait_engine::Kind;
use nowait_process::{Process, guarded};
use nowait_sys::{Errno, inside::Inside, thread};

/// Blocks all signals except those of faults during a call that may write: SIGPIPE and SIGXFSZ of
/// the write must not reach the program. In the call, `Shared::end` takes a pending one back.
fn unsignalled(call: impl FnOnce() -> Result<i64, Errno>) -> i32 {
    let _inside = Inside::enter();
    let before = thread::swap_signal_mask(thread::ALL_BUT_FAULTS);
    let value = guarded(call) as i32;
    thread::swap_signal_mask(before);
    value
}

fn on_block(address: usize, call: impl FnOnce(Block) -> Result<(), Errno>) -> i32 {
    // SAFETY: the application passes the address of a block that it keeps until the outcome.
    let block = unsafe { Block::at(address) };
    guarded(|| block.ok_or(Errno::INVAL).and_then(call).map(|()| 0)) as i32
}

/// aio_read(3).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_aio_read(block: usize) -> i32 {
    on_block(block, |block| submit::start(block, Kind::Read))
}

/// aio_write(3).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_aio_write(block: usize) -> i32 {
    // SAFETY: as in `on_block`.
    let block = unsafe { Block::at(block) };
    let start = |block| submit::start(block, Kind::Write).map(|()| 0);
    unsignalled(|| block.ok_or(Errno::INVAL).and_then(start))
}

/// aio_fsync(3), of the data alone or of the metadata too.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_aio_fsync(data_only: bool, block: usize) -> i32 {
    on_block(block, |block| submit::sync(block, data_only))
}

/// aio_cancel(3): 0, 1, 2 as in aio.h, or the negative errno.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_aio_cancel(fd: i32, block: usize) -> i32 {
    // SAFETY: as in `on_block`, or null.
    let block = unsafe { Block::at(block) };
    guarded(|| cancel::cancel(fd, block).map(|cancelled| cancelled as i64)) as i32
}

/// Begins lio_listio(3): when this function has succeeded or failed with EIO or EAGAIN, each
/// request is in flight or has its outcome. `event` may be null.
///
/// # Safety
/// `list` has `len` addresses of blocks or nulls; `event` is null or points to a sigevent.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn nowait_lio_listio(
    list: *const usize,
    len: usize,
    event: *const SigEvent,
) -> i32 {
    unsignalled(|| {
        let mut all = Vec::new();
        // SAFETY: promised above.
        let listed = || unsafe { blocks(list, len) };
        all.try_reserve_exact(len).map_err(|_| none_begins(listed(), Errno::AGAIN))?;
        all.extend(listed());
        // SAFETY: promised above.
        start_all(&all, unsafe { event.as_ref() }).map(|()| 0)
    })
}

/// Stores `error`, an errno, as the outcome of a request that no other function of this file began.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_begins_not(block: usize, error: i32) {
    on_block(block, |block| {
        begins_not(block, Errno::new(error));
        Ok(())
    });
}

/// Returns the blocks of a list, without the nulls.
///
/// # Safety
/// `list` has `len` addresses of blocks or nulls.
unsafe fn blocks(list: *const usize, len: usize) -> impl Iterator<Item = Block> {
    // SAFETY: promised above. The elements are read one by one instead of through a slice, because
    // the list may be null if it is empty.
    (0..len).filter_map(move |index| unsafe { Block::at(list.add(index).read()) })
}

// Signal handlers may call the next five functions, which take no lock and allocate no memory.

/// Claims a slot for the calling thread, which will wait. If no slot is free, threads share one.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_waiter_claim() -> u32 {
    SLEEPERS.claim()
}

/// Gives a slot back.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_waiter_give_back(slot: u32) {
    SLEEPERS.give_back(slot);
}

/// Returns the word on which the threads in `slot` sleep.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_waiter_word(slot: u32) -> *const AtomicU32 {
    SLEEPERS.word(slot)
}

/// Asks the requests to wake the threads in `slot` when one of the requests ends. Returns `false`
/// if one has ended already, or if the list has no blocks.
///
/// # Safety
/// `list` has `len` addresses of blocks or nulls.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn nowait_waiter_arm(
    list: *const usize,
    len: usize,
    slot: u32,
) -> bool {
    // SAFETY: promised above.
    let mut blocks = unsafe { blocks(list, len) }.peekable();
    blocks.peek().is_some() && blocks.all(|block| block.arm(slot))
}

/// Waits until the notice of a request, whose outcome the caller has seen, was sent
/// ([`Posix::await_notice`]).
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_await_notice(block: usize) {
    if let Some(posix) = Posix::existing() {
        posix.await_notice(block);
    }
}

/// Returns 1 if a thread must be made for the application's functions: the caller then promises to
/// make one. Otherwise returns 0, or a negative errno if POSIX AIO cannot start here.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_notifier_must_come() -> i32 {
    guarded(|| Ok(i64::from(Posix::current()?.notifiers().must_come()))) as i32
}

/// Withdraws the promise to make a thread.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_notifier_comes_not() {
    guarded(|| {
        if let Some(posix) = Posix::existing() {
            posix.notifiers().comes_not();
        }
        Ok(0)
    });
}

/// Waits for a call to make. Returns a negative number if the calling thread must end, or 1 if the
/// caller must make another thread before it makes the call; otherwise 0.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_notifier_take(is_new: bool, call: &mut Call) -> i32 {
    let taken = guarded(|| {
        let posix = Posix::existing().ok_or(Errno::SRCH)?;
        let taken = posix.notifiers().take(is_new, posix.context.engine()).ok_or(Errno::SRCH)?;
        *call = taken.call;
        Ok(i64::from(taken.makes_another))
    });
    taken as i32
}

/// Called when the process goes on, for example because exec failed: sends the notices that were
/// held back.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_stays() {
    guarded(|| {
        // Does nothing in a child of vfork, whose memory is its parent's.
        if let Some(process) = Process::of_caller() {
            process.stays();
            Posix::existing().iter().for_each(|posix| posix.stays());
        }
        Ok(0)
    });
}

/// Returns AIO_MAX, which is AIO_LISTIO_MAX, too.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_aio_max() -> i64 {
    REQUESTS_MAX as i64
}

/// Returns AIO_PRIO_DELTA_MAX.
#[unsafe(no_mangle)]
pub extern "C-unwind" fn nowait_aio_prio_delta_max() -> i64 {
    i64::from(PRIO_DELTA_MAX)
}
