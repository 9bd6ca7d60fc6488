//! Buffered writes inside submit: a copy into the page cache, while the device is calm.

use super::{Submission, inline::Attempt};
use crate::{
    Command, SubmitMode,
    hints::{Device, Write},
};
use nowait_sys::{
    Errno,
    file::{self, IoVec, Stat, rwf},
    thread,
};

/// The size of a page of the kernel's page cache.
const PAGE: u64 = 4096;

impl Submission<'_> {
    /// Returns `true` if a write that cannot be tried without blocking is made inside submit: it
    /// copies into pages that are there or are covered whole, and such writes have been short.
    pub(super) fn writes_here(&self, command: &Command, stat: &Stat) -> bool {
        let engine = self.context.engine();
        self.context.mode == SubmitMode::Auto
            && self.context.answers_as_aio()
            && stat.is_regular()
            && command.done == 0
            && !command.wants_nowait()
            && !engine.orders().has_writer((stat.dev, stat.ino))
            && engine.calm.is_calm(Device::of(stat.dev), || engine.clock().now_ns())
            && has_pages(command, stat)
    }

    /// Makes a write whose flags are only remembered, if its file is one of a calm device as far as
    /// is known. `None`: more has to be known.
    pub(super) fn write_unseen(&mut self, command: &mut Command) -> Option<Attempt> {
        let device = self.context.history.written(command.fd)?;
        let range = command.offset as u64..(command.offset as u64).saturating_add(command.len);
        let is_whole = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
        let is_plain = is_whole && !command.is_synchronous() && !command.wants_nowait();
        let is_first = self.uncommitted.is_empty() && self.context.engine().unordered.is_empty();
        (is_plain && is_first).then(|| self.write_here(command, device))
    }

    /// Makes the write by one call, as io_submit(2) does, and notes how long it took.
    pub(super) fn write_here(&mut self, command: &mut Command, device: Device) -> Attempt {
        let result = self.timed(device, || {
            loop {
                match command.transfer(command.fd, usize::MAX, 0) {
                    Err(Errno::INTR) => {}
                    result => return (result, result.unwrap_or(0)),
                }
            }
        });
        match result {
            Ok(bytes) => {
                command.done += bytes as u64;
                self.context.history.hit(command.fd);
                self.context.history.writes_to(command.fd, device);
                Attempt::Done(Ok(command.transferred()))
            }
            Err(errno @ (Errno::OPNOTSUPP | Errno::BADF)) => Attempt::Refused(errno),
            Err(errno) => Attempt::Done(Err(errno)),
        }
    }

    /// Makes a call that may block on a device, and notes how long it took. The call returns its
    /// result, and how many bytes it has copied.
    pub(super) fn timed<T>(&self, device: Device, call: impl FnOnce() -> (T, usize)) -> T {
        let engine = self.context.engine();
        let slept = engine.calm.is_suspect(device).then(thread::times_slept);
        let began = engine.clock().now_ns();
        let (result, bytes) = call();
        let now = engine.clock().now_ns();
        let blocked = || slept.map(|before| thread::times_slept() != before);
        let write = Write { bytes, took_ns: now.saturating_sub(began) };
        engine.calm.took(device, write, blocked, now);
        result
    }
}

/// Returns `true` if no page has to be read before the write: each is covered whole, lies behind
/// the end of the file, or is in the page cache. Starts the read of one that is not.
fn has_pages(command: &Command, stat: &Stat) -> bool {
    let size = stat.size as u64;
    let start = if command.is_append() { size } else { command.offset as u64 };
    let end = start.saturating_add(command.len);
    let is_there = |at: u64| {
        let page = at / PAGE * PAGE;
        at.is_multiple_of(PAGE) || page >= size || is_cached(command.fd, page)
    };
    // A last page that is covered up to the end of the file is covered whole.
    is_there(start) && (end >= size || is_there(end))
}

/// Returns `false` if the page at `offset` would have to be read. Of a file that is not open for
/// reading it is not known.
fn is_cached(fd: i32, offset: u64) -> bool {
    let mut byte = 0u8;
    let part = IoVec { base: &raw mut byte, len: 1 };
    // SAFETY: room for a byte.
    let read = unsafe { file::preadv2(fd, &[part], offset as i64, rwf::NOWAIT) };
    read != Err(Errno::AGAIN)
}
