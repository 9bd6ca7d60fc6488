//! lio_listio: several requests in one submission, and one notice for all of them.

use crate::{
    aiocb::Block,
    notice::{Group, Notice, SigEvent},
    posix::{Posix, REQUESTS_MAX, begins_not},
    submit::{Order, submit},
};
use nowait_engine::Kind;
use nowait_sys::Errno;

const LIO_READ: i32 = 0;
const LIO_WRITE: i32 = 1;
const LIO_NOP: i32 = 2;

/// Stores `errno` in each block of a list, except for blocks with LIO_NOP, and returns `errno`.
pub fn none_begins(blocks: impl Iterator<Item = Block>, errno: Errno) -> Errno {
    for block in blocks.filter(|block| block.opcode() != LIO_NOP) {
        begins_not(block, errno);
    }
    errno
}

/// Starts the requests of `blocks`; each block gets its own outcome. The end of the last request
/// sends `notice`, if there is one. This function does not wait for the requests.
///
/// # Errors
/// `EAGAIN`: some requests were not queued; their blocks have this error. `EIO`: some blocks name a
/// wrong opcode or priority, and now have the error `EINVAL`. `EINVAL`: too many requests; no block
/// was changed.
pub fn start_all(blocks: &[Block], notice: Option<&SigEvent>) -> Result<(), Errno> {
    if blocks.len() > REQUESTS_MAX {
        return Err(Errno::INVAL);
    }
    let begun_not = |errno| none_begins(blocks.iter().copied(), errno);
    let posix = Posix::current().map_err(begun_not)?;
    let mut orders = Vec::new();
    orders.try_reserve_exact(blocks.len()).map_err(|_| begun_not(Errno::AGAIN))?;
    let group = notice.map(|event| Group::new(Notice::of(event)));
    let mut outcome = Ok(());
    for &block in blocks {
        let kind = match block.opcode() {
            LIO_READ => Kind::Read,
            LIO_WRITE => Kind::Write,
            LIO_NOP => continue,
            _ => {
                posix.shared.begins_not(block, Errno::INVAL);
                outcome = Err(Errno::IO);
                continue;
            }
        };
        orders.push(Order { block, kind, group: group.as_ref().map(Group::join) });
    }
    submit(posix, orders.into_iter(), |_, begun| match begun {
        Err(Errno::AGAIN) => outcome = Err(Errno::AGAIN),
        Err(_) if outcome.is_ok() => outcome = Err(Errno::IO),
        _ => {}
    });
    if let Some(group) = group {
        group.leave(&posix.shared);
    }
    outcome
}
