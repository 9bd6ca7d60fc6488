//! Describes the stacks of a program that hangs, before the test kills the program. The stacks show
//! why the program missed its deadline.

use std::env;
use std::fmt::Write;
use std::fs;
use std::process::{Command, Stdio};

/// Returns the factor for the time limits of programs: `NOWAIT_TEST_SLOWNESS`, which is set on an
/// emulated processor, for example; 1 if it is not set or no number.
pub fn slowness() -> u32 {
    let times = env::var("NOWAIT_TEST_SLOWNESS").ok().and_then(|times| times.parse().ok());
    times.unwrap_or(1)
}

/// Describes each thread of the process group: its state, system call, kernel stack and user stack,
/// as far as this process may read them.
pub fn describe(group: i32) -> String {
    let mut text = String::new();
    for pid in members(group) {
        describe_tasks(pid, &mut text);
        text.push_str(&user_stacks(pid));
    }
    text
}

fn members(group: i32) -> Vec<i32> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|pid| group_of(*pid) == Some(group))
        .collect()
}

fn group_of(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may contain spaces and parentheses; the fields start after the last parenthesis.
    let (_, fields) = stat.rsplit_once(')')?;
    fields.split_whitespace().nth(2)?.parse().ok()
}

fn describe_tasks(pid: i32, text: &mut String) {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return };
    for task in tasks.flatten() {
        let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let state = read("stat").rsplit_once(") ").map_or('?', |(_, s)| s.chars().next().unwrap());
        let _ = writeln!(
            text,
            "{} {} state {state} in {} syscall {}\n{}",
            task.path().display(),
            read("comm").trim(),
            read("wchan"),
            read("syscall").trim(),
            read("stack"),
        );
    }
}

/// Returns gdb's standard output; empty if gdb is not installed.
fn user_stacks(pid: i32) -> String {
    let gdb = Command::new("timeout")
        .args(["--kill-after=1", "20", "gdb", "--batch", "--nx", "-p", &pid.to_string()])
        .args(["-ex", "set pagination off", "-ex", "thread apply all backtrace 24"])
        .stdin(Stdio::null())
        .output();
    gdb.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default()
}
