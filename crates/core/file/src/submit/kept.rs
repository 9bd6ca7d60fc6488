//! Files that are kept open by what submits: some of what decides is found out once.

use crate::{Engine, command::Flags};
use nowait_sys::{
    Errno,
    file::{self, Stat},
};

impl Engine {
    /// Reads the status flags of an open file with this `stat`, which the caller keeps open: where
    /// it is stays so, and requests on it need not look.
    ///
    /// # Errors
    /// The errors of fcntl(2).
    pub fn flags_of_kept(&self, fd: i32, stat: &Stat) -> Result<Flags, Errno> {
        let flags = file::status_flags(fd)?;
        let is_in_memory = || self.filesystem(stat, fd).is_ok_and(|fs| fs.in_memory);
        let is_in_memory = stat.has_offsets() && is_in_memory();
        Ok(if is_in_memory { Flags::InMemory(flags) } else { Flags::Read(flags) })
    }
}
