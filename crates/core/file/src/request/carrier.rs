//! The carrier: brings the bios of a request to a queue or to the workers.

use super::Iteration;
use crate::{
    Command, Context, Engine,
    command::{Flags, open_for},
    hold::HeldFd,
    order::FileState,
    route::{Place, Route, own_queue},
};
use core::ops::ControlFlow;
use nowait_block::{Bio, bio::Descriptor};
use nowait_retry::Step;
use nowait_sys::{
    Errno,
    file::{self, Stat},
};
use std::sync::Arc;

pub(crate) struct Carrier {
    pub(crate) route: Route,
    pub(crate) held: Option<Arc<HeldFd>>,
    /// `true`: the engine may keep the held file for the next request on it.
    pub(crate) keeps_file: bool,
    /// The inode and size of the file at submission, if they were looked up.
    pub(crate) file: Option<FileState>,
}

impl Carrier {
    pub(crate) fn by(route: Route, file: Option<FileState>) -> Carrier {
        Carrier { route, held: None, keeps_file: false, file }
    }

    pub(crate) fn hold(
        &mut self,
        engine: &Engine,
        command: &Command,
        stat: &Stat,
    ) -> Result<(), Errno> {
        let (number, flags) = (command.fd, command.flags);
        let held = match stat.names_one_file() {
            true if self.keeps_file && engine.config().sees_closes => {
                engine.holds.hold_and_keep(number, stat, flags)?
            }
            true => engine.holds.hold(number, stat, flags)?,
            // Many files share this inode, so it does not show whether the number still means the
            // same file.
            false => engine.holds.hold_afresh(number)?,
        };
        self.held = Some(held);
        Ok(())
    }

    /// Returns the number of the file for the queue, or breaks if no bio is to be queued now.
    pub(super) fn begin(&self, route: Route, it: &mut Iteration<'_, '_>) -> ControlFlow<Step, i32> {
        if it.wait.is_cancelled() {
            return ControlFlow::Break(Step::Done(Err(Errno::CANCELED))); // a part may be done
        }
        if route == Route::Driver && it.plug.place != Place::Driver {
            it.plug.hand_to_driver(it.wait.request());
            return ControlFlow::Break(Step::Queued);
        }
        match (&self.held, route) {
            (Some(held), Route::Driver) => match held.number() {
                Ok(number) => ControlFlow::Continue(number),
                Err(errno) => ControlFlow::Break(it.end(Err(errno))),
            },
            _ => ControlFlow::Continue(it.command.fd),
        }
    }

    pub(super) fn queue(&self, route: Route, mut bio: Bio, it: &mut Iteration<'_, '_>) -> Step {
        bio.flow = Arc::as_ptr(&it.target.context) as u64;
        match route {
            Route::Own => it.plug.queue_own(bio),
            Route::Driver => it.plug.queue_driver(bio),
            Route::Workers => {
                bio.file = self.held.clone().map(|held| held as Arc<dyn Descriptor>);
                it.plug.queue_worker(bio);
            }
        }
        Step::Queued
    }

    /// Releases the request's file on a thread of the application. The carrier keeps the file if it
    /// is the last to hold it, and only a thread of the engine can close it.
    pub(super) fn give_up(&mut self) {
        // If two threads release the file at once, exactly one gets the last reference.
        let last = self.held.take().and_then(Arc::into_inner);
        self.held = last.and_then(|held| held.close_here().err()).map(Arc::new);
    }

    pub(super) fn was_given_up(&self, result: Result<u32, Errno>) -> bool {
        self.route == Route::Own && own_queue::gave_up(result)
    }

    pub(super) fn was_refused(&self, result: Result<u32, Errno>, command: &Command) -> bool {
        self.route == Route::Own && own_queue::refused(result) && !command.wants_nowait()
    }

    /// Holds the file of a request on the own queue, which needed only the number so far, so that
    /// the request can go on elsewhere. Waits for room on the way to the engine, as a submitter
    /// does. Returns `false` if the application has closed or reused the number meanwhile, or may
    /// have, or if there was no room: then the request ends with its result so far.
    pub(super) fn hold_late(&mut self, command: &mut Command, context: &Context) -> bool {
        let (engine, stays) = (context.engine(), context.submitters.keep_files_open());
        let held = if engine.holds.is_elsewhere() {
            // The thread that reaped the completion is one of the engine's, and its descriptor
            // table has other numbers.
            engine.holds.fetch(command.fd).and_then(|held| {
                command.flags = self.recognize(held.number()?, command, stays)?.1;
                self.held = Some(held);
                Ok(())
            })
        } else {
            self.recognize(command.fd, command, stays).and_then(|(stat, flags)| {
                command.flags = flags;
                engine.with_room(|| self.hold(engine, command, &stat))
            })
        };
        held.is_ok()
    }

    /// Returns `false`, too, if the inode was not looked up at submission.
    pub(super) fn is_still(&self, fd: i32) -> bool {
        let stat = file::stat(fd);
        self.file.is_some_and(|file| stat.is_ok_and(|stat| file.key == (stat.dev, stat.ino)))
    }

    /// Checks that `fd` is the file of this request, opened in the same way. `stays`: the number
    /// means that file as long as the request is in flight. Returns the file's stat and its status
    /// flags.
    ///
    /// # Errors
    /// `EBADF`: `fd` is closed, or is another file.
    pub(super) fn recognize(
        &self,
        fd: i32,
        command: &Command,
        stays: bool,
    ) -> Result<(Stat, Flags), Errno> {
        let stat = file::stat(fd)?;
        let flags = open_for(fd)?;
        let is_same = self.file.map_or(stays, |file| file.key == (stat.dev, stat.ino));
        if !is_same || flags.bits() != command.flags.bits() {
            return Err(Errno::BADF);
        }
        Ok((stat, flags))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Kind, hold::Holds, route::Route};
    use nowait_block::Segments;
    use nowait_sys::fdtable;
    use std::os::fd::AsRawFd;

    #[test]
    fn a_number_that_means_another_file_is_not_the_requests_file() {
        let [one, other] = [(); 2].map(|()| tempfile::tempfile().unwrap());
        let flags = open_for(one.as_raw_fd()).unwrap();
        let at = (one.as_raw_fd(), flags);
        // SAFETY: the command is never carried out.
        let command = unsafe { Command::new(Kind::Read, at, Segments::NONE, 0) };
        let state = FileState::of(&file::stat(one.as_raw_fd()).unwrap());
        let carrier = Carrier::by(Route::Own, Some(state));
        let recognize = |fd, stays| carrier.recognize(fd, &command, stays).map(|(_, flags)| flags);
        assert_eq!(recognize(one.as_raw_fd(), false), Ok(flags));
        for stays in [false, true] {
            assert_eq!(recognize(other.as_raw_fd(), stays), Err(Errno::BADF));
        }
    }

    #[test]
    fn the_last_to_hold_a_file_keeps_it_for_a_thread_that_can_close_it() {
        let (local, remote) = fdtable::channel().unwrap();
        let holds = Holds::new(local, remote.raw());
        let file = std::fs::File::open("/proc/self/exe").unwrap();
        let held = holds.hold_afresh(file.as_raw_fd()).unwrap();
        let mut both = [held.clone(), held]
            .map(|held| Carrier { held: Some(held), ..Carrier::by(Route::Workers, None) });
        let [first, last] = &mut both;
        first.give_up();
        assert!(first.held.is_none());
        (0..2).for_each(|_| last.give_up());
        assert!(last.held.as_ref().is_some_and(|held| held.number().is_ok()), "it still has it");
    }
}
