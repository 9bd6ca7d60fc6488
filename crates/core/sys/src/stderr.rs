//! Writes to the standard error of a program that does not expect them.

use crate::{Errno, signal, sys, thread};

const OF_WRITES: u64 = 1 << (libc::SIGPIPE - 1) | 1 << (libc::SIGXFSZ - 1);

/// Writes `text` to the standard error. If a write fails, the rest of the text is lost and the
/// program gets no signal. Takes no lock. Waits while a pipe is full, unless the pipe is
/// non-blocking.
pub fn say(text: &str) {
    let before = thread::block_signals(OF_WRITES);
    // If this thread did not block the signals, none of them can be pending. The call that looks
    // for pending signals is skipped then: the program's seccomp filter may kill for it.
    let pending = if before & OF_WRITES == 0 { 0 } else { pending_signals() };
    if let Err(error) = write_all(libc::STDERR_FILENO, text.as_bytes())
        // A signal that was pending before belongs to the program.
        && pending & OF_WRITES == 0
    {
        signal::take_back(error);
    }
    thread::swap_signal_mask(before);
}

fn write_all(fd: i32, mut bytes: &[u8]) -> Result<(), Errno> {
    while !bytes.is_empty() {
        // SAFETY: pointer and length come from one live slice.
        match unsafe { sys!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) } {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// Source: rt_sigpending(2).
fn pending_signals() -> u64 {
    let mut set = 0u64;
    // SAFETY: the set is a live local of the kernel's 8 bytes.
    let _ = unsafe { sys!(libc::SYS_rt_sigpending, core::ptr::from_mut(&mut set), 8) };
    set
}

#[cfg(all(test, not(miri)))]
mod tests {
    use std::{
        env,
        fs::{File, OpenOptions},
        io::Read,
        os::{fd::AsRawFd, unix::process::ExitStatusExt},
        process::{Command, ExitStatus, Stdio},
    };

    const NAME: &str = "stderr::tests::what_cannot_be_said_changes_nothing";
    const CHILD: &str = "NOWAIT_TEST_CHILD";

    fn set_pipe_signal(handler: libc::sighandler_t) {
        // SAFETY: the default and "ignore" run no code of this process.
        unsafe { libc::signal(libc::SIGPIPE, handler) };
    }

    fn forbid(call: i64) {
        let step = |code: u32, k, jf| libc::sock_filter { code: code as u16, jt: 0, jf, k };
        let mut filter = [
            step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0),
            step(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, call as u32, 1),
            step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_KILL_PROCESS, 0),
            step(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW, 0),
        ];
        let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
        // SAFETY: the program and its filter are live, and only read during the calls.
        unsafe {
            assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
            let mode = libc::SECCOMP_MODE_FILTER;
            assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
        }
    }

    fn speak(how: &str) -> ! {
        set_pipe_signal(libc::SIG_DFL);
        match how {
            "closed" => {
                // SAFETY: nothing else in this process uses it any more.
                unsafe { libc::close(2) };
            }
            "full" => {
                // SAFETY: takes numbers.
                unsafe { libc::fcntl(2, libc::F_SETFL, libc::O_NONBLOCK) };
                super::say(&"x".repeat(1 << 20));
            }
            "confined" => forbid(libc::SYS_rt_sigpending),
            "ignored" => set_pipe_signal(libc::SIG_IGN),
            "limited" => {
                let limit = libc::rlimit { rlim_cur: 1, rlim_max: 1 };
                // SAFETY: a live local that the call reads.
                unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) };
            }
            _ => {}
        }
        super::say("nowait: said\n");
        // SAFETY: ends the process without output of Rust's runtime.
        unsafe { libc::_exit(42) };
    }

    fn child(how: &str, stderr: impl Into<Stdio>) -> ExitStatus {
        let mut child = Command::new(env::current_exe().unwrap());
        child.args(["--exact", NAME, "--nocapture"]).env(CHILD, how).stdout(Stdio::null());
        child.stderr(stderr).status().unwrap()
    }

    #[test]
    fn what_cannot_be_said_changes_nothing() {
        if let Some(how) = env::var_os(CHILD) {
            speak(how.to_str().unwrap());
        }
        let full = || OpenOptions::new().write(true).open("/dev/full").unwrap();
        let broken = || std::io::pipe().unwrap().1;
        let (_reader, writer) = std::io::pipe().unwrap();
        for (how, status) in [
            ("closed", child("closed", Stdio::null())),
            ("/dev/full", child("", full())),
            ("no reader", child("", broken())),
            ("no reader, SIGPIPE ignored", child("ignored", broken())),
            ("a full pipe", child("full", writer)),
            ("a filter of the program's own", child("confined", Stdio::null())),
            ("RLIMIT_FSIZE", child("limited", tempfile())),
        ] {
            assert_eq!((status.code(), status.signal()), (Some(42), None), "{how}");
        }
    }

    fn tempfile() -> File {
        let path = env::temp_dir().join(format!("nowait-stderr-{}", std::process::id()));
        let file = File::create(&path).unwrap();
        std::fs::remove_file(path).unwrap();
        file
    }

    #[test]
    fn all_of_a_long_text_is_written() {
        let (mut reader, writer) = std::io::pipe().unwrap();
        let text = "nowait: a line\n".repeat(1 << 14);
        std::thread::scope(|scope| {
            let bytes = text.as_bytes();
            scope.spawn(move || super::write_all(writer.as_raw_fd(), bytes).unwrap());
            let mut read = String::new();
            reader.read_to_string(&mut read).unwrap();
            assert_eq!(read, text);
        });
    }
}
