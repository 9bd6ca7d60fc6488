//! From a command to a wait for readiness, or to a transfer of a stream.

use super::{Reason, Started, Submission, inline::LazyStat};
use crate::{
    Command, Kind,
    order::FileState,
    request::{
        Body, Carrier,
        event::EventTarget,
        stream::{self, Attempt, StreamBody, StreamWait},
    },
    route::Route,
};
use nowait_sys::{
    Errno,
    file::{self, Stat},
    poll,
};

impl Submission<'_> {
    pub(crate) fn poll(
        &mut self,
        events: u16,
        command: &Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        match poll::ready(command.fd, events as i16) {
            Ok(ready) if events != 0 && ready != 0 => {
                return Ok(self.completed(Ok(u32::from(ready as u16))));
            }
            _ => {}
        }
        let route = self.stream_route(&target);
        let stat = file::stat(command.fd)?;
        self.request(command, target, &stat, StreamBody::poll(route, &stat), Reason::Driver)
    }

    /// Tells whether the file is a stream, if it was when its number was looked at last: an attempt
    /// at an offset would only say so once more.
    pub(crate) fn is_stream_still(&self, status: &mut LazyStat) -> Result<bool, Errno> {
        let (seen, fd) = (self.context.engine().stream_hints(), status.fd);
        if !seen.is_stream(fd) {
            return Ok(false);
        }
        let stat = *status.stat()?;
        let is_stream = !stat.has_offsets() && !stat.is_directory();
        seen.looked(fd, is_stream);
        Ok(is_stream)
    }

    /// A pipe, a socket, a terminal: tried now, else armed and kicked by readiness.
    pub(crate) fn stream(
        &mut self,
        command: &mut Command,
        target: EventTarget,
        stat: &Stat,
    ) -> Result<Started, Errno> {
        let engine = self.context.engine();
        engine.stream_hints().looked(command.fd, true);
        let turn = stream::turn(stat, command.kind);
        let in_turn = !turn.is_some_and(|turn| engine.stream_queues().is_taken(turn));
        let mut way = StreamWait::Ready;
        if command.len == 0 && self.refuses_plain_calls(command, stat) {
            return Err(Errno::INVAL);
        }
        let asks = in_turn && !self.leaves_attempt_to_ring(command, &target, stat)?;
        let attempt = match asks {
            true => stream::attempt(command, command.fd),
            false => Attempt::Waits,
        };
        let is_cut_short =
            matches!(attempt, Attempt::Over(Ok(_))) && stream::is_cut_short(command, stat);
        if asks && command.kind == Kind::Read {
            engine.stream_hints().asked(command.fd, attempt == Attempt::Waits);
        }
        match attempt {
            Attempt::Over(Err(errno)) if stream::is_refusal(errno, command, stat) => {
                return Err(if errno == Errno::ISDIR { Errno::INVAL } else { errno });
            }
            Attempt::Over(_) if is_cut_short => way = StreamWait::Worker,
            Attempt::Over(result) => return Ok(self.completed(result)),
            Attempt::Impossible if self.refuses_plain_calls(command, stat) => {
                return Err(Errno::INVAL);
            }
            Attempt::Waits if in_turn && engine.stream_route() == Route::Driver => {
                way = StreamWait::Ring;
            }
            Attempt::Waits => {}
            Attempt::Impossible => way = StreamWait::Worker,
        }
        command.refresh()?;
        // A read ends with what there was.
        let has_read = command.kind == Kind::Read && command.done > 0;
        if !is_cut_short && (has_read || stream::is_impatient(command)) {
            let result = match attempt {
                _ if command.done > 0 => Ok(command.transferred()),
                Attempt::Impossible => stream::ask_as_it_is(command),
                _ => Err(Errno::AGAIN),
            };
            return Ok(self.completed(result));
        }
        // A write may go on after a part, and then needs the held file.
        let route = match self.stream_route(&target) {
            Route::Own if way != StreamWait::Ring || command.kind == Kind::Write => Route::Driver,
            route => route,
        };
        let carrier = Carrier::by(route, Some(FileState::of(stat)));
        let body = Body::Stream(StreamBody::new(carrier, way, turn));
        match self.request(command, target, stat, body, Reason::Driver) {
            // What was written cannot be taken back.
            Err(_) if command.done > 0 => Ok(self.completed(Ok(command.transferred()))),
            made => made,
        }
    }

    /// Tells whether the context refuses a transfer, as the kernel's AIO does, because the driver
    /// of the file knows plain calls only.
    pub(super) fn refuses_plain_calls(&self, command: &Command, stat: &Stat) -> bool {
        self.context.answers_as_aio()
            && !stream::is_one(stat)
            && file::lacks_iterator(command.fd, command.kind == Kind::Write)
    }

    /// Tells whether the ring asks a socket first: it would have to wait all the same, if the
    /// socket is as silent as it was lately. A request that must not wait gets its result at once.
    fn leaves_attempt_to_ring(
        &self,
        command: &mut Command,
        target: &EventTarget,
        stat: &Stat,
    ) -> Result<bool, Errno> {
        // Other streams may be of a kind that a ring can only read by a blocking call.
        let may = command.kind == Kind::Read && command.rw_flags == 0 && stat.is_socket();
        if !may || self.stream_route(target) != Route::Own {
            return Ok(false);
        }
        if !self.context.engine().stream_hints().waits(command.fd) {
            return Ok(false);
        }
        command.refresh()?;
        Ok(!stream::is_impatient(command))
    }

    /// Chooses who waits for readiness.
    fn stream_route(&self, target: &EventTarget) -> Route {
        match self.async_route(target) {
            Route::Own if self.context.own_limits().readiness => Route::Own,
            _ => self.context.engine().stream_route(),
        }
    }
}
