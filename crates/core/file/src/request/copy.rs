//! Requests on files in memory in offload mode: the driver copies them itself.
//!
//! Nothing is waited for, and io_uring would hand them to one more thread. It does so first come,
//! first served; so that all others on such files keep their order with copies, they pass through
//! its list too, and take their places in the order there.

use super::{Body, FileOperation, Iteration, kernel::KernelBody};
use crate::{
    Command, Kind,
    order::{Access, FileState, Reach},
    route::Plug,
};
use nowait_retry::{Step, wait::Wait};
use nowait_sys::Errno;

/// Most bytes of a request that the driver copies: others wait for it.
const COPY_BYTES_MAX: u64 = 256 << 10;

/// What the driver does of a request, besides carrying its bios.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDriver {
    /// Nothing.
    Nothing,
    /// It gives it its place in the order.
    Enters,
    /// The same, and it copies the bytes itself.
    Copies,
}

impl FileOperation {
    /// Takes a place in the order, unless it is a copy that nothing is in the way of: that is
    /// over before the driver looks at the next request.
    pub(super) fn enter_on_driver(&mut self, plug: &Plug, wait: &Wait<'_, Self>) {
        let Body::Kernel(kernel) = &mut self.body else { return };
        kernel.enters = false;
        let copies = kernel.on_driver == OnDriver::Copies;
        let free = |file: FileState| {
            let orders = plug.engine().orders();
            let access = Access::of(self.command.kind);
            let reach = || Reach::of(&self.command, file.end);
            orders.is_free_for(access) || !orders.conflicts(file.key, &reach())
        };
        if copies && kernel.carrier.file.is_some_and(free) {
            return;
        }
        if copies {
            let (context, obj) = (&self.target.context, self.target.obj);
            self.in_flight = Some(context.in_flight.insert(wait.request(), obj, false));
        }
        self.take_place(wait);
    }
}

impl KernelBody {
    /// Moves everything now: the file is in memory, and nothing is waited for.
    pub(super) fn copy(&self, fd: i32, it: &mut Iteration<'_, '_>) -> Step {
        let flags = it.target.context.engine().rw_flags(it.command);
        let copied = match &self.credentials {
            Some(rights) => rights.run(|| copy_all(fd, flags, it)),
            None => return copy_all(fd, flags, it),
        };
        copied.unwrap_or_else(|errno| Step::Done(Err(errno)))
    }
}

fn copy_all(fd: i32, flags: u32, it: &mut Iteration<'_, '_>) -> Step {
    loop {
        match it.command.transfer(fd, usize::MAX, flags) {
            Ok(0) => return it.transferred(),
            Ok(bytes) => it.command.done += bytes as u64,
            Err(Errno::INTR) => {}
            Err(errno) => return it.end(Err(errno)),
        }
        if it.command.is_complete() || it.command.is_append() {
            return it.transferred();
        }
    }
}

/// Tells whether the driver may copy a request without keeping others waiting for long.
pub(crate) fn can_be_copied(command: &Command) -> bool {
    matches!(command.kind, Kind::Read | Kind::Write) && command.len <= COPY_BYTES_MAX
}
