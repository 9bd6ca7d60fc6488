//! setuid(2) and similar calls wait until every thread of the process has made the same call. This
//! test is alone in its process, because it changes the user of the process.

mod common;

use common::{BLOCK, everywhere, folder, open};
use core::time::Duration;
use futures_lite::future::{block_on, poll_once};
use nowait::{AsyncFile, Stream};
use std::io::Write;

fn change_identity() {
    // SAFETY: plain numbers and a live array; affects every thread of the process.
    unsafe {
        assert_eq!(libc::setgid(libc::getgid()), 0);
        if libc::geteuid() == 0 {
            assert_eq!(libc::setgroups(2, [7, 9].as_ptr()), 0);
            assert_eq!(libc::seteuid(12345), 0);
            assert_eq!(libc::seteuid(0), 0);
        }
    }
}

/// In this test the reactor, the timer and the threads for calls run, besides the engine's own
/// threads.
#[test]
fn every_thread_of_an_engine_changes_its_identity() {
    everywhere(|nowait, mode| {
        let folder = folder();
        let file = AsyncFile::from(open(nowait, mode, &folder.path().join("file")));
        let (silent, writer) = std::io::pipe().unwrap();
        let silent = Stream::new(nowait, silent);
        let mut waits = silent.read(vec![0; 8]).timeout(Duration::from_hours(1));
        assert!(block_on(poll_once(&mut waits)).is_none());
        for round in 0..8 {
            let bytes = nowait::AlignedBuffer::zeroed(BLOCK);
            let mut write = file.write_at(bytes, round * BLOCK as u64);
            let begun = block_on(poll_once(&mut write));
            change_identity();
            let written = begun.unwrap_or_else(|| block_on(write));
            assert_eq!(written.0.unwrap(), BLOCK);
        }
        block_on(file.set_len(0)).unwrap();
        change_identity();
        (&writer).write_all(b"all").unwrap();
        assert_eq!(block_on(waits).0.unwrap(), 3);
    });
}
