//! A write has the credentials of the thread that submitted it, whichever thread carries it out.
//!
//! `reserved-blocks FOLDER`: the folder is on a file system with blocks reserved for root. When
//! only these blocks are free, writes of a thread that is not root fail with ENOSPC, and root's
//! writes succeed.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread;

use nowait_tests::request::{Context, Request};

/// Neither root nor the owner of the reserved blocks.
const OTHER_USER: libc::uid_t = 12345;
const WIDE: usize = 256 << 10;
const ROUNDS: usize = 8;

fn main() {
    let folder = PathBuf::from(std::env::args_os().nth(1).expect("a folder"));
    let (to_a_caller, jobs) = mpsc::channel::<File>();
    let (answer, answers) = mpsc::channel::<i64>();
    let context = Context::new(8).expect("io_setup");
    let context = &context;
    thread::scope(|scope| {
        scope.spawn(move || {
            drop_rights();
            for file in jobs {
                answer.send(write_whole(context, &file)).expect("the other thread listens");
            }
        });
        // Made before the blocks run out: the directory may need another block for the new names.
        let files: Vec<_> = (0..ROUNDS)
            .map(|round| ["user", "root"].map(|who| create(&folder, &format!("{who}-{round}"))))
            .collect();
        fill(&folder, &to_a_caller, &answers);
        for (round, [file, next]) in files.into_iter().enumerate() {
            to_a_caller.send(file).unwrap();
            let refused = answers.recv().unwrap();
            assert_eq!(refused, -i64::from(libc::ENOSPC), "round {round}: the reserve is root's");
            let accepted = write_whole(context, &next);
            assert_eq!(accepted, WIDE as i64, "round {round}: root may use the reserve");
        }
        drop(to_a_caller);
    });
}

fn fill(folder: &Path, to_a_caller: &mpsc::Sender<File>, answers: &mpsc::Receiver<i64>) {
    for number in 0.. {
        to_a_caller.send(create(folder, &format!("fill-{number}"))).unwrap();
        match answers.recv().unwrap() {
            full if full == -i64::from(libc::ENOSPC) => return,
            written => assert!(written > 0, "filling: {written}"),
        }
    }
}

fn create(folder: &Path, name: &str) -> File {
    let file = File::options().read(true).write(true).create_new(true).open(folder.join(name));
    let file = file.expect("a new file");
    // A write of the hole needs blocks, but no change of the file's length.
    file.set_len(WIDE as u64).expect("a size");
    file
}

/// Writes `WIDE` bytes and returns the result. A short write ends at the first block that the file
/// system could not allocate. After a short write, writes the rest by a second request, and returns
/// the error of this request or the sum of both results.
fn write_whole(context: &Context, file: &File) -> i64 {
    let write = |from: i64| {
        let bytes = vec![5; WIDE - from as usize];
        context.run(vec![Request::write(file.as_fd(), &bytes, from as u64)])[0].res
    };
    let first = write(0);
    if !(1..WIDE as i64).contains(&first) {
        return first;
    }
    match write(first) {
        rest if rest < 0 => rest,
        rest => first + rest,
    }
}

/// Changes only this thread's user, as a server does that acts for its client. The C library's
/// wrapper would change all threads of the process.
fn drop_rights() {
    // SAFETY: plain numbers; the raw call affects this thread alone.
    let rc = unsafe { libc::syscall(libc::SYS_setresuid, OTHER_USER, OTHER_USER, OTHER_USER) };
    assert_eq!(rc, 0, "setresuid: {}", std::io::Error::last_os_error());
}
