//! Programs that change their credentials while requests are in flight.
//!
//! The C library makes every thread of the process change its credentials, also the threads of a
//! library, and waits for all of them. `setxid CASE PATH` runs as root. It exits 0 if the case
//! succeeds, else panics with the reason.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::thread;

use nowait_tests::request::{Context, Request};
use nowait_tests::thread_state::wait_until;

const BLOCK: usize = 4096;
const WIDE: usize = 256 << 10;
/// Neither root nor the owner of the reserved blocks.
const OTHER_USER: libc::uid_t = 12345;
const ROUNDS: usize = 4;
const ENOSPC: i64 = -(libc::ENOSPC as i64);

fn main() {
    // Abort after a panic: a thread that waits for another would keep the process alive.
    let says = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |about| {
        says(about);
        std::process::abort();
    }));
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["in-flight", folder] => every_thread_changes(Path::new(folder)),
        ["rights", folder] => requests_have_the_rights_of_their_submission(Path::new(folder), 0),
        ["rights-direct", folder] => {
            requests_have_the_rights_of_their_submission(Path::new(folder), libc::O_DIRECT);
        }
        _ => panic!("unknown case {args:?}"),
    }
}

fn succeeds(call: &str, rc: i32) {
    assert_eq!(rc, 0, "{call}: {}", std::io::Error::last_os_error());
}

fn set_effective_user(user: libc::uid_t) {
    // SAFETY: plain numbers; affects every thread of the process.
    succeeds("seteuid", unsafe { libc::seteuid(user) });
}

/// Returns the name and the credentials of each thread from /proc: real, effective and saved user
/// and group, and supplementary groups. Leaves kernel threads out.
fn identities() -> Vec<(String, String)> {
    let about = |task: std::fs::DirEntry| {
        let read = |name| std::fs::read_to_string(task.path().join(name)).ok();
        let (name, status) = (read("comm")?, read("status")?);
        let field = |line: &str| match line.split_once(":\t")? {
            // Leave out the fourth number, the identity for file access: a thread that carries out
            // a request may have the request's identity for a moment.
            (field @ ("Uid" | "Gid"), all) => {
                Some(format!("{field} {} ", all.rsplit_once('\t')?.0))
            }
            (field @ "Groups", all) => Some(format!("{field} {}", all.trim())),
            _ => None,
        };
        // io_uring makes kernel threads in the process. These threads act with the credentials of
        // their requests, and the C library does not know the threads.
        let is_of_kernel = name.starts_with("iou-");
        (!is_of_kernel).then(|| (name, status.lines().filter_map(field).collect()))
    };
    let tasks = std::fs::read_dir("/proc/self/task").expect("the threads of this process");
    tasks.flatten().filter_map(about).collect()
}

/// Waits until all threads have the expected credentials. A thread may have other credentials for a
/// moment: if the thread is ending, or carries out a request with the groups of its submission.
fn all_are(expected: &str) {
    wait_until(|| {
        let all = identities();
        all.iter().all(|(_, it)| *it == all[0].1 && it.contains(expected))
    });
}

fn change_identity() {
    // SAFETY: plain numbers and a live array; affects every thread of the process.
    unsafe {
        succeeds("setgid", libc::setgid(libc::getgid()));
        succeeds("setgroups", libc::setgroups(2, [7, 9].as_ptr()));
        all_are("Groups 7 9");
        succeeds("setegid", libc::setegid(OTHER_USER));
        set_effective_user(OTHER_USER);
        all_are(&format!("Uid 0\t{OTHER_USER}\t0"));
        set_effective_user(0);
        succeeds("setegid", libc::setegid(0));
        all_are("Uid 0\t0\t0");
    }
}

/// One thread submits and reaps requests, another waits for a poll, and a third changes the
/// credentials of the process, at last for good.
fn every_thread_changes(folder: &Path) {
    let create = |name: &str, flags: i32| {
        let mut options = OpenOptions::new();
        let options = options.read(true).write(true).create(true).truncate(true);
        options.custom_flags(flags).open(folder.join(name)).expect("a new file")
    };
    let (file, direct) = (create("file", 0), create("direct", libc::O_DIRECT));
    file.write_all_at(&vec![3; 64 * BLOCK], 0).unwrap();
    direct.set_len(64 * BLOCK as u64).unwrap();
    let (silent, writer) = std::io::pipe().unwrap();
    let context = Context::new(64).expect("io_setup");
    let waiting = Context::new(8).expect("io_setup");
    // A poll that does not end before a write to the pipe.
    let waits = vec![Request::poll(silent.as_fd(), libc::POLLIN)];
    assert_eq!(waiting.submit(waits), 1);
    thread::scope(|scope| {
        let waiter = scope.spawn(|| {
            loop {
                match waiting.reap(1, 1, None) {
                    Err(error) => assert_eq!(error, -libc::EINTR, "io_getevents"),
                    Ok(done) => return done.len(),
                }
            }
        });
        let changes = scope.spawn(|| {
            for _ in 0..ROUNDS * 5 {
                change_identity();
            }
            // SAFETY: plain numbers.
            succeeds("setuid", unsafe { libc::setuid(OTHER_USER) });
            all_are(&format!("Uid {OTHER_USER}\t{OTHER_USER}\t{OTHER_USER}"));
        });
        let mut round = 0;
        while round < ROUNDS || !changes.is_finished() {
            work(&context, &file, &direct, round);
            round += 1;
        }
        changes.join().unwrap();
        work(&context, &file, &direct, round);
        (&writer).write_all(b"x").unwrap();
        assert_eq!(waiter.join().unwrap(), 1);
    });
    // A context made now uses the new credentials.
    let more = Context::new(8).expect("io_setup afterwards");
    work(&more, &file, &direct, 0);
    all_are(&format!("Uid {OTHER_USER}\t{OTHER_USER}\t{OTHER_USER}"));
}

fn work(context: &Context, file: &File, direct: &File, round: usize) {
    let mut requests = Vec::new();
    for block in 0..4 {
        let at = (block * BLOCK) as u64;
        let end = ((64 + round * 4 + block) * BLOCK) as u64;
        requests.push(Request::read(file.as_fd(), BLOCK, at));
        requests.push(Request::write(file.as_fd(), &[3; BLOCK], end));
        requests.push(Request::write(direct.as_fd(), &[4; BLOCK], at * 4));
        requests.push(Request::read(direct.as_fd(), BLOCK, at));
    }
    requests.push(Request::fsync(file.as_fd()));
    let count = requests.len();
    wait_until(|| context.unread() == 0);
    assert_eq!(context.submit(requests), count as i32, "io_submit");
    let mut left = count;
    while left > 0 {
        match context.reap(1, left, None) {
            Err(error) => assert_eq!(error, -libc::EINTR, "io_getevents"),
            Ok(done) => {
                left -= done.len();
                let expected = |tag: u64| if tag == count as u64 - 1 { 0 } else { BLOCK as i64 };
                let wrong = done.iter().find(|it| it.res != expected(it.tag));
                assert!(wrong.is_none(), "round {round}: {:?}", wrong.map(|it| (it.tag, it.res)));
            }
        }
    }
}

/// Some blocks of the file system are reserved for root. A request submitted without root's
/// privileges fails, even if the process regains these privileges while the request is in flight.
fn requests_have_the_rights_of_their_submission(folder: &Path, flags: i32) {
    let context = Context::new(8).expect("io_setup");
    // Made before the blocks run out: the directory may need another block for the new names.
    let create = |name: String| create(&folder.join(name), flags);
    let files: Vec<_> = (0..ROUNDS * 3).map(|number| create(format!("file-{number}"))).collect();
    fill(&context, folder);
    for (round, files) in files.chunks(3).enumerate() {
        set_effective_user(OTHER_USER);
        assert_eq!(write(&context, &files[0]), ENOSPC, "round {round}: the user's write");
        let begun = context.submit(vec![whole_write(&files[1])]);
        assert_eq!(begun, 1);
        set_effective_user(0);
        let refused = result_of(&context);
        assert_eq!(refused, ENOSPC, "round {round}: the user's, although root again meanwhile");
        assert_eq!(write(&context, &files[2]), WIDE as i64, "round {round}: root's write");
    }
    let files = ["last-0", "last-1"].map(|name| create(name.to_owned()));
    assert_eq!(context.submit(vec![whole_write(&files[0])]), 1);
    // SAFETY: plain numbers.
    succeeds("setuid", unsafe { libc::setuid(OTHER_USER) });
    let last = result_of(&context);
    assert!([WIDE as i64, ENOSPC].contains(&last), "root's, carried out before or after: {last}");
    assert_eq!(write(&context, &files[1]), ENOSPC, "for good");
}

/// Creates a file with a hole of `WIDE` bytes, as root. A write of the hole needs blocks, but no
/// change of the file's length.
fn create(path: &Path, flags: i32) -> File {
    let mut options = OpenOptions::new();
    options.read(true).write(true).create_new(true).custom_flags(flags);
    let file = options.open(path).expect("a new file");
    file.set_len(WIDE as u64).expect("a size");
    file
}

fn fill(context: &Context, folder: &Path) {
    for number in 0.. {
        let file = create(&folder.join(format!("fill-{number}")), 0);
        set_effective_user(OTHER_USER);
        let written = write(context, &file);
        set_effective_user(0);
        match written {
            ENOSPC => return,
            written => assert!(written > 0, "filling: {written}"),
        }
    }
}

fn whole_write(file: &File) -> Request {
    Request::write(file.as_fd(), &vec![5; WIDE], 0)
}

/// Writes `WIDE` bytes and returns the result. A short write counts as ENOSPC: it ends at the first
/// block that the file system could not allocate.
fn write(context: &Context, file: &File) -> i64 {
    assert_eq!(context.submit(vec![whole_write(file)]), 1);
    result_of(context)
}

fn result_of(context: &Context) -> i64 {
    let result = context.reap_all(1)[0].res;
    if (1..WIDE as i64).contains(&result) { ENOSPC } else { result }
}
