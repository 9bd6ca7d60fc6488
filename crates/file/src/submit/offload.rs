//! Requests on files in memory in offload mode, see `request/copy.rs`.

use super::Submission;
use crate::{Command, SubmitMode, request::copy::is_small};
use nowait_sys::{Errno, file::Stat};

impl Submission<'_> {
    /// Tells whether a request takes its place in the order on the driver, and whether the driver
    /// carries it out as well.
    pub(crate) fn goes_to_driver(
        &self,
        command: &Command,
        stat: &Stat,
    ) -> Result<(bool, bool), Errno> {
        let engine = self.context.engine();
        if self.context.mode != SubmitMode::Offload || engine.driver().is_none() {
            return Ok((false, false));
        }
        let late = engine.filesystems().of(stat, command.fd)?.in_memory;
        // What others wait for, or waits for others, is not over at once.
        let copies = late && is_small(command) && self.native.links.is_none();
        Ok((late, copies))
    }
}
