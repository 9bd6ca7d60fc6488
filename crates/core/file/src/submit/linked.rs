//! Requests with links, which the native faces have beyond the kernel's interface.

use super::{Reason, Started, Submission};
use crate::{
    Command, Kind, Opened,
    order::Links,
    request::{Body, event::EventTarget, kernel::KernelBody, stream::StreamBody},
    route::Route,
};
use nowait_sys::{Errno, file};

impl Submission<'_> {
    /// Tells whether the request that is being started must wait for another.
    pub(super) fn begins_later(&self) -> bool {
        self.links.as_ref().is_some_and(|links| links.after.is_some())
    }

    /// Starts a command with links, on a cached file or on what is behind its descriptor, as
    /// [`Submission::start_on`] and [`Submission::start`] do. One that begins after another must be
    /// submitted after it, to the same engine.
    ///
    /// # Errors
    /// Those of these. `EOPNOTSUPP`: a stream cannot begin after another request.
    pub fn start_linked(
        &mut self,
        opened: Option<Opened<'_>>,
        command: Command,
        target: EventTarget,
        links: Links,
    ) -> Result<Started, Errno> {
        let end = links.end.clone();
        self.links = Some(Box::new(links));
        let started = match opened {
            Some(opened) => self.start_on(opened, &command, &target),
            None => self.start(command, target),
        };
        self.links = None;
        if let (Some(end), Some(result)) = (end, Started::result(started)) {
            end.end(result); // else its event says it
        }
        started
    }

    /// Makes the request of a command that begins later, of which nothing may be tried now.
    pub(crate) fn start_later(
        &mut self,
        command: &Command,
        target: EventTarget,
    ) -> Result<Started, Errno> {
        let stat = file::stat(command.fd)?;
        let engine = self.context.engine();
        let route = engine.route_past_own();
        match command.kind {
            Kind::Poll(_) => {
                self.request(command, target, &stat, StreamBody::poll(route, &stat), Reason::Driver)
            }
            Kind::Fsync | Kind::Fdatasync => self.sync(command, target),
            Kind::Read | Kind::Write if !stat.has_offsets() => Err(Errno::OPNOTSUPP),
            Kind::Read => {
                let route = self.later_read_route(command);
                let on_driver = self.on_driver(command, &stat)?;
                let body = KernelBody::on(route, &stat).with_driver(on_driver);
                self.request(command, target, &stat, Body::Kernel(body), Reason::Order)
            }
            Kind::Write => {
                let write = match self.begin_write(command, &stat, &target)? {
                    Ok(write) => write,
                    Err(started) => return Ok(started),
                };
                let exclusive = !command.is_synchronous();
                self.write_request(command, target, &stat, (exclusive, write), Reason::Order)
            }
        }
    }

    fn later_read_route(&self, command: &Command) -> Route {
        let engine = self.context.engine();
        match command.is_direct() || engine.queues_buffered_reads() {
            true => engine.route_past_own(),
            false => Route::Workers,
        }
    }
}
