//! Requests on files in memory in offload mode, see `request/copy.rs`.

use super::Submission;
use crate::{
    Command, SubmitMode,
    request::copy::{OnDriver, can_be_copied},
};
use nowait_sys::{Errno, file::Stat};

impl Submission<'_> {
    /// Returns what the driver does of a request besides carrying its bios.
    pub(super) fn on_driver(&self, command: &Command, stat: &Stat) -> Result<OnDriver, Errno> {
        let engine = self.context.engine();
        if self.context.mode != SubmitMode::Offload
            || engine.driver().is_none()
            || !engine.filesystem(stat, command.fd)?.in_memory
        {
            return Ok(OnDriver::Nothing);
        }
        // What others wait for, or waits for others, is not over at once.
        let copies = can_be_copied(command) && self.links.is_none();
        Ok(if copies { OnDriver::Copies } else { OnDriver::Enters })
    }
}
