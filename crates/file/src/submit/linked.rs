//! What the native faces ask of a submission beyond the kernel's interface: to be told at once what
//! was over at once, and links.

use super::Submission;
use crate::{
    Command, Kind, Opened,
    order::Links,
    request::{Body, event::Reply, kernel::KernelBody, stream::StreamBody},
    route::Route,
};
use nowait_sys::{Errno, file};

/// The state of a submission that only native requests use.
#[derive(Debug, Default)]
pub(crate) struct Native {
    /// What ends inside submit is returned, and has no event.
    pub(crate) tells: bool,
    pub(crate) told: Option<Result<u32, Errno>>,
    /// Those of the request that is being started.
    pub(crate) links: Option<Box<Links>>,
}

impl Native {
    /// Tells whether the request that is being started must wait for another.
    pub(crate) fn is_later(&self) -> bool {
        self.links.as_ref().is_some_and(|links| links.after.is_some())
    }
}

impl Submission<'_> {
    /// Starts a command as [`Submission::start`] does. `Some`: it was over at once, there will be
    /// no event, and the slot is still the caller's.
    ///
    /// # Errors
    /// As [`Submission::start`], and those of commands that were over at once.
    pub fn start_or_end(&mut self, command: Command, reply: Reply) -> Result<Option<u32>, Errno> {
        self.native.tells = true;
        let started = self.start(command, reply);
        self.native.tells = false;
        let told = self.native.told.take();
        started?;
        told.transpose()
    }

    /// Starts a command with links, on a user file or on what is behind its descriptor, as
    /// [`Submission::start_on`] and [`Submission::start_or_end`] do. One that begins after another
    /// must be submitted after it, to the same engine.
    ///
    /// # Errors
    /// Those of these. `EOPNOTSUPP`: a stream cannot begin after another request.
    pub fn start_linked(
        &mut self,
        opened: Option<Opened<'_>>,
        command: Command,
        reply: Reply,
        links: Links,
    ) -> Result<Option<u32>, Errno> {
        let end = links.end.clone();
        self.native.links = Some(Box::new(links));
        let started = match opened {
            Some(opened) => self.start_on(opened, &command, &reply),
            None => self.start_or_end(command, reply),
        };
        self.native.links = None;
        if let Some(end) = end {
            match started {
                Ok(None) => {} // its event says it
                Ok(Some(bytes)) => end.end(Ok(bytes)),
                Err(errno) => end.end(Err(errno)),
            }
        }
        started
    }

    /// Makes the request of a command that begins later, of which nothing may be tried now.
    pub(crate) fn start_later(&mut self, command: &Command, reply: Reply) -> Result<(), Errno> {
        let stat = file::stat(command.fd)?;
        let engine = self.context.engine();
        let route = engine.async_route();
        match command.kind {
            Kind::Poll(_) => {
                self.request(command, reply, &stat, StreamBody::poll(route, &stat), |c| {
                    &c.punt_driver
                })
            }
            Kind::Fsync | Kind::Fdatasync => self.sync(command, reply),
            Kind::Read | Kind::Write if !stat.has_offsets() => Err(Errno::OPNOTSUPP),
            Kind::Read => {
                let route = self.later_read_route(command);
                let on_driver = self.on_driver(command, &stat)?;
                let body = KernelBody::on(route, &stat).with_driver(on_driver);
                self.request(command, reply, &stat, Body::Kernel(body), |c| &c.punt_order)
            }
            Kind::Write => {
                let Some(write) = self.begin_write(command, &stat, &reply)? else { return Ok(()) };
                let exclusive = !command.is_synchronous();
                self.write_request(command, reply, &stat, (exclusive, write), |c| &c.punt_order)
            }
        }
    }

    fn later_read_route(&self, command: &Command) -> Route {
        let engine = self.context.engine();
        match command.is_direct() || engine.queues_buffered_reads() {
            true => engine.async_route(),
            false => Route::Workers,
        }
    }
}
