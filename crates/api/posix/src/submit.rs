//! aio_read, aio_write, aio_fsync: decodes the application's block to a command of the engine.

use crate::{
    aiocb::Block,
    notice::{Ending, Group, Notice},
    posix::{ASKED, PRIO_DELTA_MAX, Posix, begins_not},
};
use core::sync::atomic::Ordering::Relaxed;
use nowait_engine::{Command, EventTarget, Kind, Segments, Submission, command::open_for};
use nowait_process::{leaving, looks::Looks, memory};
use nowait_sys::{
    Errno,
    allocator::reserve,
    file::{self, IoVec},
    time,
};
use std::sync::Arc;

pub(crate) struct Order {
    pub(crate) block: Block,
    pub(crate) kind: Kind,
    pub(crate) group: Option<Arc<Group>>,
}

/// Starts one request.
///
/// # Errors
/// `EINVAL`: the priority is wrong. `EAGAIN`: too many requests, or the engine cannot start. Any
/// other error becomes the outcome of the request, and this function succeeds.
pub fn start(block: Block, kind: Kind) -> Result<(), Errno> {
    let posix = Posix::current().map_err(|errno| begins_not(block, errno))?;
    let mut outcome = Err(Errno::AGAIN);
    let order = Order { block, kind, group: None };
    submit(posix, core::iter::once(order), |_, result| outcome = result);
    outcome
}

/// Starts a sync of data and metadata; with `data_only` only of data, and of the metadata needed to
/// read them.
///
/// # Errors
/// `EBADF`: not open. The errors of [`start`].
pub fn sync(block: Block, data_only: bool) -> Result<(), Errno> {
    let kind = if data_only { Kind::Fdatasync } else { Kind::Fsync };
    open_for(block.fd())?;
    start(block, kind)
}

/// Calls `begun` once for each request, with the result of its start.
pub(crate) fn submit(
    posix: &Posix,
    orders: impl ExactSizeIterator<Item = Order>,
    mut begun: impl FnMut(Block, Result<(), Errno>),
) {
    let io = posix.context.io();
    let before = if io.stats().enabled() { time::now_ns() } else { 0 };
    let slots = leaving::reserve(&posix.context, orders.len()).unwrap_or(0);
    if ASKED.load(Relaxed) {
        ASKED.store(false, Relaxed);
        posix.context.looked_for_events();
    }
    let mut submission = Submission::new(&posix.context);
    let mut looks = Looks::new(&posix.context, usize::MAX);
    let mut started = 0;
    for (index, order) in orders.enumerate() {
        let block = order.block;
        let result = match lowered_priority(block, order.kind) {
            _ if index >= slots || !reserve::is_there() => {
                refuse(posix, block, order.group, Errno::AGAIN)
            }
            0..=PRIO_DELTA_MAX => begin(posix, &mut looks, &mut submission, order, &mut started),
            _ => refuse(posix, block, order.group, Errno::INVAL),
        };
        begun(block, result);
    }
    if slots > started {
        io.release(slots - started);
    }
    submission.finish();
    posix.shared.tell_failure();
    if io.stats().enabled() {
        io.stats().submit_took(time::now_ns() - before);
        io.stats().add(|c| &c.submits, 1);
        io.stats().add(|c| &c.requests, started as u64);
    }
}

/// Stores an error in the block, as glibc does if the call itself fails. Takes the request out of
/// its group, whose notice does not wait for the request.
fn refuse(
    posix: &Posix,
    block: Block,
    group: Option<Arc<Group>>,
    errno: Errno,
) -> Result<(), Errno> {
    posix.shared.begins_not(block, errno);
    if let Some(group) = group {
        group.leave(&posix.shared);
    }
    Err(errno)
}

/// Begins a request. If the engine refuses the request, the error becomes the request's outcome; if
/// the error is `EAGAIN`, this function returns it, too.
fn begin(
    posix: &Posix,
    looks: &mut Looks<'_>,
    submission: &mut Submission<'_>,
    order: Order,
    started: &mut usize,
) -> Result<(), Errno> {
    let Order { block, kind, group } = order;
    let ending = Ending::word(Notice::of(&block.sigevent()), group);
    posix.shared.begins(block);
    let target = EventTarget { data: ending, obj: block.address() as u64, eventfd: None };
    let result = hand_over(looks, submission, block, kind, target);
    // SAFETY: the engine has refused the request, so no event carries the word.
    let refused = result.map_err(|errno| (errno, unsafe { Ending::from_word(ending) }));
    match refused {
        Ok(()) => *started += 1,
        Err((Errno::AGAIN, ending)) => {
            let group = ending.and_then(|it| it.untold());
            return refuse(posix, block, group, Errno::AGAIN);
        }
        Err((errno, ending)) => posix.shared.end(block, ending, Err(errno)),
    }
    Ok(())
}

fn hand_over(
    looks: &mut Looks<'_>,
    submission: &mut Submission<'_>,
    block: Block,
    kind: Kind,
    target: EventTarget,
) -> Result<(), Errno> {
    let command = command(looks, block, kind)?;
    let directory = |errno| if is_directory(&command, errno) { Errno::ISDIR } else { errno };
    submission.submit(command.clone(), target).map_err(directory)
}

/// A read of a directory fails with EINVAL in the kernel's AIO, and with EISDIR in read(2).
fn is_directory(command: &Command, errno: Errno) -> bool {
    let is_one = || file::stat(command.fd).is_ok_and(|stat| stat.is_directory());
    errno == Errno::INVAL && command.kind == Kind::Read && is_one()
}

fn command(looks: &mut Looks<'_>, block: Block, kind: Kind) -> Result<Command, Errno> {
    let fd = block.fd();
    let flags = looks.status_flags(kind, fd)?;
    flags.check(kind)?;
    let (segments, offset) = match kind {
        Kind::Read | Kind::Write => {
            // Checks in the order of pread(2), which glibc calls.
            let (base, len) = block.buffer();
            if block.offset() < 0 {
                return Err(Errno::INVAL);
            }
            memory::check_range(base.addr() as u64, len as u64)?;
            if block.offset().checked_add_unsigned(len as u64).is_none() {
                return Err(Errno::INVAL);
            }
            (Segments::One(IoVec { base, len }), block.offset())
        }
        _ => (Segments::NONE, 0),
    };
    // SAFETY: the buffer belongs to the request until the application sees the outcome, as the
    // standard demands.
    let mut command = unsafe { Command::new(kind, (fd, flags), segments, offset) };
    command.priority = priority(lowered_priority(block, kind));
    Ok(command)
}

/// A sync is not lowered, whatever its block says.
fn lowered_priority(block: Block, kind: Kind) -> i32 {
    match kind {
        Kind::Read | Kind::Write => block.lowered_priority(),
        _ => 0,
    }
}

/// For 0, returns 0: the thread's own priority. Numbers from 1 to `PRIO_DELTA_MAX` map to the
/// best-effort levels 4 (the usual level) to 7.
fn priority(lowered: i32) -> u16 {
    const BEST_EFFORT: u16 = 2 << 13;
    const USUAL: i32 = 4;
    const LOWEST: i32 = 7;
    match lowered {
        0 => 0,
        lowered => BEST_EFFORT | (USUAL + lowered * (LOWEST - USUAL) / PRIO_DELTA_MAX) as u16,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_failed_thread_is_said_once_by_the_next_request() {
        const NAME: &str = "submit::tests::a_failed_thread_is_said_once_by_the_next_request";
        // Set for a child process, whose standard error the test reads.
        const CHILD: &str = "NOWAIT_TEST_CHILD";
        if std::env::var_os(CHILD).is_none() {
            let mut child = Command::new(std::env::current_exe().unwrap());
            let child = child.args(["--exact", NAME, "--nocapture"]).env(CHILD, "1");
            let said = String::from_utf8(child.output().unwrap().stderr).unwrap();
            let lines: Vec<_> = said.lines().filter(|it| it.starts_with("nowait:")).collect();
            assert!(lines.len() == 1 && lines[0].contains("failed in a test: first"), "{said}");
            return;
        }
        let posix = Posix::current().unwrap();
        for cause in ["first", "second"] {
            posix.context.engine().caught("in a test", || panic!("{cause}"));
            submit(posix, core::iter::empty(), |_, _| {});
        }
    }

    #[test]
    fn a_lowered_priority_is_never_above_the_usual_one() {
        assert_eq!(priority(0), 0);
        let levels: Vec<u16> = [1, 6, 7, 14, 20].map(|lowered| priority(lowered) & 7).into();
        assert_eq!(levels, [4, 4, 5, 6, 7]);
        assert!((1..=PRIO_DELTA_MAX).all(|lowered| priority(lowered) >> 13 == 2));
    }
}
