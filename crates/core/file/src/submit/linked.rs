//! Requests with links, which only the engine's native interfaces offer, not the kernel's.

use super::{Started, Submission};
use crate::{Command, Opened, order::Links, request::event::EventTarget};
use nowait_sys::Errno;

impl Submission<'_> {
    pub(super) fn begins_later(&self) -> bool {
        self.links.as_ref().is_some_and(|links| links.after.is_some())
    }

    /// Starts a command with links, on the cached file `opened` as [`Submission::start_on`] does,
    /// or on its descriptor as [`Submission::start`] does. A request that begins after another must
    /// be submitted after it, to the same engine.
    ///
    /// # Errors
    /// The errors of both functions. `EOPNOTSUPP`: a stream request cannot begin after another
    /// request.
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
            end.end(result); // otherwise the request itself ends the link
        }
        started
    }
}
