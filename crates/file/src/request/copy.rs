//! Requests on files in memory in offload mode: the driver copies them itself.
//!
//! Nothing is waited for, and io_uring would hand them to one more thread. It does so first come,
//! first served; so that all others on such files keep their order with copies, they pass through
//! its list too, and take their places in the order there.

use super::FileOperation;
use crate::{Command, Kind, order::reach, route::Plug};
use nowait_retry::{Step, wait::Wait};
use nowait_sys::{Errno, file};

/// Most bytes of a request that the driver copies: others wait for it.
const COPY_BYTES_MAX: u64 = 256 << 10;

impl FileOperation {
    /// Takes a place in the order, unless it is a copy that nothing is in the way of: that is
    /// over before the driver looks at the next request.
    pub(crate) fn enter_on_driver(&mut self, plug: &Plug, wait: &Wait<'_, Self>) {
        let free = |key| {
            let orders = plug.engine().orders();
            let (range, access) = reach(&self.command);
            orders.is_empty() || !orders.conflicts(key, &range, access)
        };
        if !self.registers || self.copies && self.inode.is_some_and(free) {
            return;
        }
        if self.copies {
            let (context, obj) = (&self.target.context, self.target.obj);
            self.in_flight = Some(context.in_flight.insert(wait.request(), obj, false));
        }
        self.take_place(wait);
    }

    /// Moves everything now: the file is in memory, and nothing is waited for.
    pub(crate) fn copy(&mut self, fd: i32) -> Step {
        let copied = match self.credentials.clone() {
            Some(rights) => rights.run(|| self.copy_all(fd)),
            None => return self.copy_all(fd),
        };
        copied.unwrap_or_else(|errno| Step::Done(Err(errno)))
    }

    fn copy_all(&mut self, fd: i32) -> Step {
        loop {
            let result = copy_part(&self.command, fd, self.rw_flags());
            match result {
                Ok(0) => return Step::Done(Ok(self.command.transferred())),
                Ok(bytes) => self.command.done += bytes as u64,
                Err(Errno::INTR) => {}
                Err(errno) => return self.end(Err(errno)),
            }
            if self.command.is_complete() || self.command.is_append() {
                return Step::Done(Ok(self.command.transferred()));
            }
        }
    }
}

/// Tells whether the driver may copy a request without keeping others waiting for long.
pub(crate) fn is_small(command: &Command) -> bool {
    command.len <= COPY_BYTES_MAX
}

/// Reads or writes what is left.
fn copy_part(command: &Command, fd: i32, flags: u32) -> Result<usize, Errno> {
    let rest = command.segments.after(command.done as usize);
    let offset = command.offset + command.done as i64;
    // SAFETY: the command's maker promised that its segments are valid until its event.
    unsafe {
        match command.kind {
            Kind::Read => file::preadv2(fd, rest.as_slice(), offset, flags),
            _ => file::pwritev2(fd, rest.as_slice(), offset, flags),
        }
    }
}
