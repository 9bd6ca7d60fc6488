//! Descriptor numbers that lately meant streams, and whether those had anything to give.
//!
//! Hints for the whole process, as its numbers are, see [`super`]. Being wrong (a number means
//! another file now) costs a system call or the way through a ring, never more.

use core::sync::atomic::{AtomicU8, Ordering::Relaxed};
use std::sync::OnceLock;

/// Numbers that are remembered: 64 KiB, of which only the pages in use are there.
const NUMBERS: usize = 1 << 16;

/// No stream, or never looked at.
const OTHER: u8 = 0;
const STREAM: u8 = 1;
/// A stream that had nothing to give when it was asked last; one more for each read since then.
const SILENT: u8 = 2;
/// Reads of a silent stream that begin by waiting, until one asks again.
const UNASKED: u8 = 15;

/// What was seen of each number.
#[derive(Default)]
pub(crate) struct StreamHints(OnceLock<Box<[AtomicU8]>>);

impl StreamHints {
    /// Tells whether `fd` was a stream when it was looked at last.
    pub(crate) fn is_stream(&self, fd: i32) -> bool {
        self.slot(fd).is_some_and(|slot| slot.load(Relaxed) != OTHER)
    }

    /// Notes whether `fd` is a stream.
    pub(crate) fn looked(&self, fd: i32, is_stream: bool) {
        if is_stream {
            self.0.get_or_init(|| (0..NUMBERS).map(|_| AtomicU8::new(OTHER)).collect());
        }
        let Some(slot) = self.slot(fd) else { return };
        match (slot.load(Relaxed), is_stream) {
            (OTHER, true) => slot.store(STREAM, Relaxed),
            (OTHER, false) | (_, true) => {}
            (_, false) => slot.store(OTHER, Relaxed),
        }
    }

    /// Notes whether a stream that was asked had nothing to give.
    pub(crate) fn asked(&self, fd: i32, silent: bool) {
        let Some(slot) = self.slot(fd) else { return };
        let now = if silent { SILENT } else { STREAM };
        if slot.load(Relaxed) != now {
            slot.store(now, Relaxed);
        }
    }

    /// Tells whether the next read of a stream had better begin by waiting. Once in a while it is
    /// to ask all the same, to notice when that has become worth it.
    pub(crate) fn waits(&self, fd: i32) -> bool {
        let Some(slot) = self.slot(fd) else { return false };
        let now = slot.load(Relaxed);
        let waits = (SILENT..SILENT + UNASKED).contains(&now);
        if waits {
            slot.store(now + 1, Relaxed);
        }
        waits
    }

    fn slot(&self, fd: i32) -> Option<&AtomicU8> {
        self.0.get()?.get(usize::try_from(fd).ok()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_stream_is_asked_once_in_a_while() {
        let seen = StreamHints::default();
        assert!(!seen.is_stream(3) && !seen.waits(3));
        seen.looked(3, true);
        assert!(seen.is_stream(3) && !seen.waits(3), "it was not asked yet");
        let mut asked = 0;
        for _ in 0..160 {
            if !seen.waits(3) {
                asked += 1;
                seen.asked(3, true);
            }
        }
        assert_eq!(asked, 10);
        seen.asked(3, false);
        assert!(!seen.waits(3), "it speaks again");
    }

    #[test]
    fn a_number_that_means_another_file_is_forgotten() {
        let seen = StreamHints::default();
        seen.looked(3, true);
        seen.asked(3, true);
        seen.looked(3, true);
        assert!(seen.waits(3), "what is known of a stream stays");
        seen.looked(3, false);
        assert!(!seen.is_stream(3) && !seen.waits(3));
    }

    #[test]
    fn no_number_is_too_large_to_be_unknown() {
        let seen = StreamHints::default();
        for fd in [i32::MAX, -1, NUMBERS as i32] {
            seen.looked(fd, true);
            seen.asked(fd, true);
            assert!(!seen.is_stream(fd) && !seen.waits(fd));
        }
    }
}
