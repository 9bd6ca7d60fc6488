//! Tests of images on stores in memory and in folders, and on stores with errors.

mod answers;
mod cache;
mod catalog;
mod checks;
mod damages;
mod encryption;
mod images;
mod repairs;
mod shrink;
mod snapshots;
mod views;
mod wrong;

use crate::{Request, StoredImage};
use std::io;

impl StoredImage {
    pub(crate) fn read_at(&self, offset: u64, len: u64) -> io::Result<Vec<u8>> {
        self.asked(Request::Read { offset, len })
    }

    pub(crate) fn write_at(&self, offset: u64, data: Vec<u8>) -> io::Result<()> {
        self.asked(Request::Write { offset, data, durable: false }).map(drop)
    }

    pub(crate) fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.asked(Request::Discard { offset, len }).map(drop)
    }

    pub(crate) fn flush(&self) -> io::Result<()> {
        self.asked(Request::Flush).map(drop)
    }

    fn asked(&self, request: Request) -> io::Result<Vec<u8>> {
        self.call(request).map_err(|failure| self.error(failure))
    }
}
