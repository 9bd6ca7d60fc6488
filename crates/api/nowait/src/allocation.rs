//! Holes and data of an open file.

use crate::{Error, File};
use core::ops::Range;
use nowait_file::UserFile;
use nowait_sys::{Errno, sparse};
use std::sync::Arc;

pub use nowait_sys::sparse::Zeroing;

impl File {
    /// Returns the size in bytes, also of a block device.
    ///
    /// # Errors
    /// The errors of lseek(2).
    pub fn extent(&self) -> Result<u64, Error> {
        match self.user() {
            Some(user) => Ok(user.cached().size()),
            None => sparse::size(self.fd()).map_err(|errno| self.about("size", errno)),
        }
    }

    /// Makes later reads see content and size of the file as they are on disk now, in case another
    /// process has changed them. Blocks.
    ///
    /// If the file is in the page cache of nowait, the call waits for the requests in flight on it,
    /// writes its cached data back, and drops them from the cache. Otherwise the call does nothing.
    /// # Errors
    /// The error of writing cached data back. After an error the data stay cached.
    #[doc(hidden)]
    pub fn look_again(&self) -> Result<(), Error> {
        let looked = self.user().map_or(Ok(()), |user| user.exclude(self.engine()).map(drop));
        looked.map_err(|errno| self.about("lookup", errno))
    }

    /// Makes `range` read as zeroes; the size stays as it is. Blocks.
    ///
    /// If the file is in the page cache of nowait, the call first waits for the requests in flight
    /// on it, writes its cached data back, and drops them from the cache.
    /// # Errors
    /// `EOPNOTSUPP`: this file system or device cannot zero a range; write zeroes instead. The
    /// errors of fallocate(2).
    pub fn zero(&self, range: Range<u64>, zeroing: Zeroing) -> Result<(), Error> {
        let len = range.end.saturating_sub(range.start);
        if len == 0 {
            return Ok(());
        }
        let zero = || sparse::zero(self.fd(), range.start, len, zeroing);
        let cached = |user: &Arc<UserFile>| user.exclude(self.engine()).and_then(|_held| zero());
        let zeroed = self.change(cached, zero);
        zeroed.map_err(|errno| self.about(&format!("zeroing of {range:?}"), errno))
    }

    /// Returns the extent that begins at `offset`: its end, and `true` if it holds data. On a file
    /// system that does not report holes, the extent is data up to the end of the file. `None`:
    /// `offset` is at or beyond the end of the file. Blocks.
    ///
    /// # Errors
    /// The errors of lseek(2).
    pub fn extent_at(&self, offset: u64) -> Result<Option<(u64, bool)>, Error> {
        if let Some(user) = self.user() {
            let settled = user.settle(self.engine());
            settled.map_err(|errno| self.about("extents", errno))?;
        }
        let end = self.extent()?;
        if offset >= end {
            return Ok(None);
        }
        let found = match sparse::next_data(self.fd(), offset) {
            Ok(Some(data)) if data > offset => Ok((data.min(end), false)),
            Ok(Some(_)) => sparse::next_hole(self.fd(), offset)
                .map(|hole| (hole.unwrap_or(end).min(end), true)),
            Ok(None) => Ok((end, false)),
            Err(Errno::INVAL | Errno::OPNOTSUPP) => Ok((end, true)),
            Err(errno) => Err(errno),
        };
        found.map(Some).map_err(|errno| self.about("extents", errno))
    }

    fn about(&self, doing: &str, errno: Errno) -> Error {
        Error::new(errno, format!("{doing} of {}", self.path().display()))
    }
}
