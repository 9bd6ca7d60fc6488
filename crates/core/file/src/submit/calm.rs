//! Buffered writes inside submit: copies into the kernel's page cache, while writes to the device
//! do not block.

use super::{Reason, Submission, attempt::Attempt};
use crate::{
    Command,
    hints::{Device, Write},
};
use nowait_sys::{
    Errno,
    file::{self, IoVec, Stat, rwf},
    thread,
};

const PAGE: u64 = 4096;

impl Submission<'_> {
    pub(super) fn is_calm(&self, command: &Command, stat: &Stat) -> bool {
        let engine = self.context.engine();
        // Checked first, because this check may start the read of a missing page.
        has_pages(command, stat)
            && !engine.orders.has_writer((stat.dev, stat.ino))
            && engine.known.calm.is_calm(Device::of(stat.dev), || engine.parts.clock.now_ns())
    }

    /// Makes a write whose status flags are only remembered, by one call that also checks the
    /// descriptor. Does so only if the file seems to be in memory, or on a device whose writes do
    /// not block.
    pub(super) fn write_unseen(&mut self, command: &mut Command) -> Attempt {
        let more = Attempt::Rest(Reason::Write);
        let engine = self.context.engine();
        if !engine.orders.is_empty() {
            return more;
        }
        let Some(_write) = engine.user_files.begin_unknown(self.context) else { return more };
        let hints = &self.context.hints.descriptors;
        if hints.may_be_in_memory(command.fd) == Some(true) {
            return if self.inline_left > 0 { self.move_now(command, 0) } else { more };
        }
        let Some(device) = hints.written(command.fd) else { return more };
        let range = command.offset as u64..(command.offset as u64).saturating_add(command.len);
        let is_whole = range.start.is_multiple_of(PAGE) && range.end.is_multiple_of(PAGE);
        let is_plain = is_whole && !command.is_synchronous() && !command.wants_nowait();
        let is_alone = engine.unordered.is_empty() && engine.orders.is_empty();
        let is_first = self.uncommitted.is_empty() && is_alone;
        if is_plain && is_first { self.write_here(command, device) } else { more }
    }

    pub(super) fn write_here(&mut self, command: &mut Command, device: Device) -> Attempt {
        let engine = self.context.engine();
        let (calm, clock) = (&engine.known.calm, &engine.parts.clock);
        let slept = calm.is_suspect(device).then(thread::times_slept).flatten();
        let number = self.context.number;
        calm.begins(number, device);
        let began = clock.now_ns();
        let result = loop {
            match command.transfer(command.fd, usize::MAX, 0) {
                Err(Errno::INTR) => {}
                result => break result,
            }
        };
        let now = clock.now_ns();
        let blocked = || slept.map(|before| thread::times_slept() != Some(before));
        let bytes = result.unwrap_or(0);
        let write = Write { bytes, took_ns: now.saturating_sub(began) };
        calm.took((number, device), write, blocked, now);
        match result {
            Ok(bytes) => {
                command.done += bytes as u64;
                self.context.hints.descriptors.hit(command.fd);
                self.context.hints.descriptors.writes_to(command.fd, device);
                Attempt::Done(Ok(command.transferred()))
            }
            Err(errno @ (Errno::OPNOTSUPP | Errno::BADF)) => Attempt::Refused(errno),
            Err(errno) => Attempt::Done(Err(errno)),
        }
    }
}

/// Returns `true` if no page has to be read before the write: each page is covered completely, or
/// lies behind the end of the file, or is in the kernel's page cache. Otherwise the kernel may
/// start the read of a missing page.
fn has_pages(command: &Command, stat: &Stat) -> bool {
    let size = stat.size as u64;
    let start = if command.is_append() { size } else { command.offset as u64 };
    let end = start.saturating_add(command.len);
    let is_there = |at: u64| {
        let page = at / PAGE * PAGE;
        at.is_multiple_of(PAGE) || page >= size || is_cached(command.fd, page)
    };
    // A last page that is covered up to the end of the file counts as covered completely.
    is_there(start) & (end >= size || is_there(end))
}

/// Returns `false` if the page at `offset` would have to be read first. Assumes `true` for a file
/// that is not open for reading.
fn is_cached(fd: i32, offset: u64) -> bool {
    let mut byte = 0u8;
    let part = IoVec { base: &raw mut byte, len: 1 };
    // SAFETY: room for a byte.
    let read = unsafe { file::preadv2(fd, &[part], offset as i64, rwf::NOWAIT) };
    read != Err(Errno::AGAIN)
}
