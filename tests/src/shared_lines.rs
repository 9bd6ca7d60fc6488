//! The cache lines that two threads access and at least one thread writes, and the source files
//! after which these lines are named.

use crate::program::{Output, Program, Running};
use crate::skip::Skip;
use crate::stepper::{LINE_BYTES, Lines, Place, Touch, Traced};
use crate::symbols::{Function, Symbols};
use std::collections::BTreeSet;
use std::fmt;
use std::fs::File;
use std::io::{BufRead, BufReader, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

const DEADLINE: Duration = Duration::from_mins(3);
/// The folder in the paths, in debug information, of the project's own sources.
const PROJECT: &str = "/crates/";
const COMPILER: &str = "/rustc/";
/// The source of the allocator, which may hand out memory that another thread used before.
const ALLOCATOR: &str = "sys/src/allocator.rs";
/// The source of the locks. A line is named after the code that uses a lock, not after the lock.
const LOCKS: &str = "sys/src/mutex.rs";

/// A line that one thread writes and the other reads or writes.
#[derive(Debug, Clone)]
pub struct SharedLine {
    /// The address of the line.
    pub address: u64,
    /// The project's sources with the functions after which the line is named; empty if no function
    /// of the project is known to access the line.
    pub sources: BTreeSet<String>,
    /// The names of the functions after which the line is named.
    pub functions: BTreeSet<String>,
}

/// The path of the source of a function of the project, and the name of the function.
type Owner = (String, String);

/// Runs the program `independent`, steps through its two threads, one after the other, and returns
/// the lines that they share.
pub fn of(program: Program) -> Result<(Vec<SharedLine>, Output), Skip> {
    let (mut ours, theirs) = UnixStream::pair().expect("a pair of sockets");
    let running = program.stdin(File::from(OwnedFd::from(theirs))).spawn();
    let watchdog = Watchdog::of(&running);
    let process = running.pid();
    let mut line = String::new();
    let mut answers = BufReader::new(ours.try_clone().expect("a second handle"));
    answers.read_line(&mut line).expect("the numbers of the threads");
    let numbers = line.split_whitespace().map(|it| it.parse().expect("a number"));
    let mut symbols = Symbols::of(process);
    let seize = |thread| Traced::seize(process, thread);
    let threads: Result<Vec<_>, _> = numbers.map(seize).collect();
    let mut record = |thread: Traced| {
        ours.write_all(b"x").expect("a program that reads");
        thread.record()
    };
    let lines: Vec<Lines> = threads?.into_iter().map(&mut record).collect();
    drop(watchdog);
    let output = running.wait(DEADLINE);
    assert!(output.status.success() && lines.len() == 2, "failed\n{output}");
    Ok((shared(&lines[0], &lines[1], &mut symbols), output))
}

fn shared(first: &Lines, second: &Lines, symbols: &mut Symbols) -> Vec<SharedLine> {
    let both = first.iter().filter_map(|(line, touch)| Some((line, touch, second.get(line)?)));
    both.filter(|(_, one, other)| one.is_written() || other.is_written())
        .map(|(line, one, other)| {
            let mut found = |of: fn(&Touch) -> &BTreeSet<Place>| {
                let code = of(one).union(of(other));
                code.filter_map(|it| owner(called(it, symbols))).collect::<Vec<_>>()
            };
            let (writers, readers) = (found(|it| &it.writes), found(|it| &it.reads));
            let (sources, mut functions): (_, BTreeSet<_>) =
                named_after(writers, readers).into_iter().unzip();
            if functions.is_empty() {
                let code =
                    [one, other].into_iter().flat_map(|it| it.writes.iter().chain(&it.reads));
                let chains = code.map(|it| called(it, symbols));
                functions = chains.filter_map(|it| Some(it.into_iter().next()?.name)).collect();
            }
            SharedLine { address: line * LINE_BYTES, sources, functions }
        })
        .collect()
}

/// Returns the functions of an instruction and of the calls that led to it, innermost first.
fn called(place: &Place, symbols: &mut Symbols) -> Vec<Function> {
    place.iter().take_while(|it| **it != 0).flat_map(|it| symbols.functions(*it)).collect()
}

/// Returns the functions after which a line is named: the functions that write it, or, if none of
/// them is known, the functions that read it. If the allocator accesses the line, the line is named
/// after the allocator alone.
fn named_after(writers: Vec<Owner>, readers: Vec<Owner>) -> Vec<Owner> {
    let allocates = |it: &&Owner| it.0 == ALLOCATOR;
    if let Some(allocator) = writers.iter().chain(&readers).find(allocates) {
        return vec![allocator.clone()];
    }
    if writers.is_empty() { readers } else { writers }
}

/// Returns the source and the name of the innermost function of the project that is not in `LOCKS`.
fn owner(functions: Vec<Function>) -> Option<Owner> {
    let ours = functions.into_iter().filter_map(|it| Some((source(&it.file)?, it.name)));
    ours.into_iter().find(|(source, _)| source != LOCKS)
}

fn source(file: &str) -> Option<String> {
    let (_, path) = file.split_once(PROJECT).filter(|_| !file.starts_with(COMPILER))?;
    path.split_once('/').map(|(_, path)| path.to_owned())
}

impl fmt::Display for SharedLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}: {:?}, by {:?}", self.address, self.sources, self.functions)
    }
}

/// Kills a program unless the watchdog is dropped within `DEADLINE`.
struct Watchdog(Option<(mpsc::Sender<()>, thread::JoinHandle<()>)>);

impl Watchdog {
    fn of(running: &Running) -> Self {
        let (process, (send, receive)) = (running.pid(), mpsc::channel());
        let watch = move || {
            if receive.recv_timeout(DEADLINE) == Err(mpsc::RecvTimeoutError::Timeout) {
                // SAFETY: plain numbers; the process is not waited for before this thread ends.
                unsafe { libc::kill(process, libc::SIGKILL) };
            }
        };
        Self(Some((send, thread::spawn(watch))))
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        let Some((send, thread)) = self.0.take() else { return };
        drop(send);
        thread.join().expect("a watchdog");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_named_after_the_innermost_source_that_is_no_lock() {
        let function = |file: &str| Function { name: file.to_owned(), file: file.to_owned() };
        let owner_of = |files: &[&str]| owner(files.iter().map(|it| function(it)).collect());
        let named = owner_of(&[
            "/rustc/library/core/src/sync/atomic.rs",
            "/usr/src/nowait/crates/core/sys/src/mutex.rs",
            "/usr/src/nowait/crates/core/file/src/hold/held.rs",
            "/usr/src/nowait/crates/core/file/src/engine.rs",
        ]);
        assert_eq!(named.map(|it| it.0).as_deref(), Some("file/src/hold/held.rs"));
        let allocator = (ALLOCATOR.to_owned(), "pop".to_owned());
        let other = ("file/src/engine.rs".to_owned(), "start".to_owned());
        assert_eq!(named_after(vec![other.clone()], vec![allocator.clone()]), [allocator]);
        assert_eq!(named_after(vec![], vec![other.clone()]), [other]);
        assert_eq!(owner_of(&["/rustc/library/stdarch/crates/core_arch/src/x86/sse2.rs"]), None);
    }
}
