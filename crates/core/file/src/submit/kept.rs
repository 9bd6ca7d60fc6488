//! Files that their submitter keeps open: facts about them are read only once.

use crate::{Engine, command::Flags};
use nowait_sys::{
    Errno,
    file::{self, Stat},
};

impl Engine {
    /// Reads the status flags of an open file with this `stat`. The caller keeps the file open, so
    /// its file system does not change, and later requests need not check it.
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
