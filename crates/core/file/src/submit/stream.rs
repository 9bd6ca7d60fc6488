//! From a command on a stream to a result, or to a request that waits for readiness.

use super::{Reason, Started, Submission};
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
use nowait_retry::stats::Work;
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
        let begins_later = self.begins_later();
        match poll::ready(command.fd, events as i16) {
            _ if begins_later => {}
            Ok(ready) if events != 0 && ready != 0 => {
                return Ok(self.completed(Work::Stream, Ok(u32::from(ready as u16))));
            }
            _ => {}
        }
        let route = match begins_later {
            true => self.context.engine().queues.stream_route(),
            false => self.stream_route(&target),
        };
        let stat = file::stat(command.fd)?;
        self.request(command, target, &stat, StreamBody::poll(route, &stat), Reason::Driver)
    }

    pub(crate) fn stream(
        &mut self,
        command: &mut Command,
        target: EventTarget,
        stat: &Stat,
    ) -> Result<Started, Errno> {
        let has_begun = command.kind == Kind::Read && command.done > 0;
        if has_begun && !stream::is_cut_short(command, stat) {
            // The command has read by a number whose file was not checked; more bytes could be
            // those of another file.
            return Ok(self.completed(Work::Stream, Ok(command.transferred())));
        }
        let engine = self.context.engine();
        let turn = stream::turn(stat, command.kind);
        let in_turn = !turn.is_some_and(|turn| engine.stream_queues.is_taken(turn));
        let mut way = StreamWait::Ready;
        if command.len == 0 && self.refuses_plain_calls(command, stat) {
            return Err(Errno::INVAL);
        }
        let attempt = match in_turn {
            true => stream::attempt(command, command.fd),
            false => Attempt::Waits,
        };
        let is_cut_short =
            matches!(attempt, Attempt::Over(Ok(_))) && stream::is_cut_short(command, stat);
        match attempt {
            Attempt::Over(Err(errno)) if stream::is_refusal(errno, command, stat) => {
                return Err(if errno == Errno::ISDIR { Errno::INVAL } else { errno });
            }
            Attempt::Over(_) if is_cut_short => way = StreamWait::Worker,
            Attempt::Over(result) => return Ok(self.completed(Work::Stream, result)),
            Attempt::Impossible if self.refuses_plain_calls(command, stat) => {
                return Err(Errno::INVAL);
            }
            Attempt::Waits if in_turn && engine.queues.stream_route() == Route::Driver => {
                way = StreamWait::Ring;
            }
            Attempt::Waits => {}
            Attempt::Impossible => way = StreamWait::Worker,
        }
        command.refresh()?;
        // A read ends with the bytes that were there.
        let has_read = command.kind == Kind::Read && command.done > 0;
        if !is_cut_short && (has_read || stream::is_impatient(command)) {
            let result = match attempt {
                _ if command.done > 0 => Ok(command.transferred()),
                Attempt::Impossible => stream::ask_as_it_is(command),
                _ => Err(Errno::AGAIN),
            };
            return Ok(self.completed(Work::Stream, result));
        }
        // A write may go on after a part, and then needs the held file.
        let route = match self.stream_route(&target) {
            Route::Own if way != StreamWait::Ring || command.kind == Kind::Write => Route::Driver,
            route => route,
        };
        let carrier = Carrier::by(route, Some(FileState::of(stat)));
        let body = Body::Stream(StreamBody::new(carrier, way, turn));
        match self.request(command, target, stat, body, Reason::Driver) {
            // Bytes that were written cannot be taken back.
            Err(_) if command.done > 0 => {
                Ok(self.completed(Work::Stream, Ok(command.transferred())))
            }
            made => made,
        }
    }

    /// Returns `true` if the context refuses a transfer, as the kernel's AIO does, because the
    /// driver of the file knows plain calls only.
    pub(super) fn refuses_plain_calls(&self, command: &Command, stat: &Stat) -> bool {
        self.context.answers_as_aio()
            && !stream::is_one(stat)
            && file::lacks_iterator(command.fd, command.kind == Kind::Write)
    }

    fn stream_route(&self, target: &EventTarget) -> Route {
        match self.async_route(target) {
            Route::Own if self.context.own.limits().readiness => Route::Own,
            _ => self.context.engine().queues.stream_route(),
        }
    }
}
