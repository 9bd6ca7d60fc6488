//! The boundaries: which code may use what.

use super::Finding;
use super::source::{Source, words};

/// Words in code that reach the system without going through crates/core/sys.
const SYSTEM: &[&str] = &["libc", "io_uring", "rustix", "nix", "asm", "global_asm", "naked_asm"];

/// Where those words may stand, besides folders of tests: crates/core/sys, and what looks at the
/// libraries from outside (it starts and watches foreign programs), and what answers system calls
/// in simulations. The C files of crates/api/libaio only export; they are no Rust.
const SYSTEM_FOLDERS: &[&str] =
    &["crates/core/sys/", "crates/bench/bench/", "crates/verify/machine/"];

/// Exceptions: file, word. Each needs a reason beside it.
const SYSTEM_EXCEPTIONS: &[(&str, &str)] = &[];

/// Crates whose lock-free parts are modelled.
const MODELLED: &[&str] = &[
    "crates/core/retry/src/",
    "crates/core/cache/src/",
    "crates/core/block/src/gate.rs",
    "crates/core/block/src/inbox.rs",
];

/// Where they may name atomics: the statistics, which decide nothing, and hints, which may be
/// wrong: each would only multiply the interleavings of a model; the addresses of chunks of memory,
/// which are only made.
const ATOMICS_FILES: &[&str] = &[
    "crates/core/retry/src/stats.rs",
    "crates/core/retry/src/hint.rs",
    "crates/core/cache/src/nodes.rs",
];

/// Where tests may sleep: the one place that polls a foreign program with a deadline.
const SLEEP_EXCEPTIONS: &[&str] = &["tests/src/wait.rs"];

/// How many lines above an `asm!` its comment may begin.
const SAFETY_LINES_MAX: usize = 12;

/// System calls, and code of other languages, are in crates/core/sys only.
pub(super) fn system_calls(source: &Source, findings: &mut Vec<Finding>) {
    let allowed = SYSTEM_FOLDERS.iter().any(|folder| source.path.starts_with(folder));
    if !source.is_rust() || allowed || source.is_test() {
        return;
    }
    for (offset, word) in words(&source.code) {
        let excepted = SYSTEM_EXCEPTIONS.contains(&(source.path.as_str(), word));
        if SYSTEM.contains(&word) && !excepted && is_use(&source.code, offset, word) {
            let advice =
                format!("`{word}` outside crates/core/sys: call a safe function of nowait-sys");
            findings.push(source.finding(offset, advice));
        }
    }
    let foreign_block = compact(&source.code);
    for (offset, _) in foreign_block.text.match_indices("extern{") {
        let advice = "a block of foreign functions outside crates/core/sys: move it there";
        findings.push(source.finding(foreign_block.offsets[offset], advice));
    }
}

/// Tells a path, an import or a macro from a variable or a module of the same name.
fn is_use(code: &str, offset: usize, word: &str) -> bool {
    let after = &code[offset + word.len()..];
    let imported = code[..offset].trim_end().ends_with("use");
    imported || after.starts_with("::") || after.starts_with("!(") || after.starts_with("!{")
}

/// Atomics of what is modelled come from crates/core/sys/src/primitives.rs: loom can replace them
/// there.
pub(super) fn atomics(source: &Source, findings: &mut Vec<Finding>) {
    let modelled = MODELLED.iter().any(|folder| source.path.starts_with(folder));
    if !modelled || !source.is_rust() || ATOMICS_FILES.contains(&source.path.as_str()) {
        return;
    }
    let compact = compact(&source.code);
    for root in ["std::sync::", "core::sync::"] {
        for (offset, _) in compact.text.match_indices(root) {
            let rest = &compact.text[offset + root.len()..];
            let group = rest.starts_with('{');
            let end = rest.find(if group { '}' } else { ';' }).unwrap_or(rest.len());
            let atomic =
                if group { rest[..end].contains("atomic") } else { rest.starts_with("atomic") };
            if atomic {
                let advice = "atomics of this crate come from nowait_sys::primitives, for loom";
                findings.push(source.finding(compact.offsets[offset], advice));
            }
        }
    }
}

/// Tests wait for events, not for time to pass.
pub(super) fn sleeps(source: &Source, findings: &mut Vec<Finding>) {
    if !source.is_rust() || SLEEP_EXCEPTIONS.contains(&source.path.as_str()) {
        return;
    }
    for range in source.test_ranges() {
        for (offset, word) in words(&source.code[range.clone()]) {
            let called = source.code[..range.start + offset].ends_with("thread::");
            if called && (word == "sleep" || word == "sleep_ms") {
                let advice = "a test that sleeps: wait for the event (a channel, a barrier, a \
                              virtual clock), or poll a foreign program in tests/src/wait.rs";
                findings.push(source.finding(range.start + offset, advice));
            }
        }
    }
}

/// Assembly says why it is sound. (Clippy asks the same of other unsafe blocks.)
pub(super) fn assembly(source: &Source, findings: &mut Vec<Finding>) {
    if !source.is_rust() {
        return;
    }
    for (offset, word) in words(&source.code) {
        let called = source.code[offset + word.len()..].starts_with("!(");
        if !called || !["asm", "global_asm", "naked_asm"].contains(&word) {
            continue;
        }
        let line = source.line_of(offset);
        let above = line.saturating_sub(SAFETY_LINES_MAX + 1);
        let mut near = source.text.lines().skip(above).take(line - above);
        if !near.any(|line| line.contains("SAFETY:")) {
            findings
                .push(source.finding(offset, "say above it, as `// SAFETY:`, why this is sound"));
        }
    }
}

/// Code without white space, and where each byte of it came from.
struct Compact {
    text: String,
    offsets: Vec<usize>,
}

fn compact(code: &str) -> Compact {
    let kept = code.char_indices().filter(|(_, c)| c.is_ascii() && !c.is_whitespace());
    let (offsets, text) = kept.unzip();
    Compact { text, offsets }
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    const BLOCK: &str = "crates/core/block/src/lib.rs";

    #[test]
    fn a_system_call_outside_sys_is_caught() {
        for canary in [
            "use libc;",
            "fn a() { libc::close(3); }",
            "use io_uring::IoUring;",
            "unsafe { asm!(\"syscall\") }",
            "unsafe extern \"C\" { fn close(fd: i32) -> i32; }",
        ] {
            assert_eq!(check_text(system_calls, BLOCK, canary).len(), 1, "{canary}");
            assert_eq!(check_text(system_calls, "crates/core/sys/src/raw.rs", canary), []);
            assert_eq!(check_text(system_calls, "tests/src/lib.rs", canary), []);
            assert_eq!(check_text(system_calls, "crates/cli/nowait/tests/run.rs", canary), []);
        }
    }

    #[test]
    fn comments_names_and_exports_are_no_system_calls() {
        let text = "// libc::close is in sys\nuse nowait_sys::libc_free;\nlet io_uring = 1;\n\
                    pub extern \"C\" fn io_setup() {}\n";
        assert_eq!(check_text(system_calls, BLOCK, text), []);
    }

    #[test]
    fn an_atomic_that_loom_cannot_see_is_caught() {
        let path = "crates/core/retry/src/kick.rs";
        for canary in [
            "use std::sync::atomic::AtomicU32;",
            "use std::sync::{Arc,\n    atomic::{AtomicU32, Ordering}};",
            "static A: core::sync::atomic::AtomicBool = x();",
        ] {
            assert_eq!(check_text(atomics, path, canary).len(), 1, "{canary}");
            assert_eq!(check_text(atomics, "crates/core/sys/src/primitives.rs", canary), []);
            assert_eq!(check_text(atomics, "crates/core/block/src/kick.rs", canary), []);
        }
        assert_eq!(check_text(atomics, path, "use std::sync::Arc; use crate::primitives::A;"), []);
    }

    #[test]
    fn a_sleeping_test_is_caught_and_product_code_is_not() {
        let nap = "fn a() { std::thread::sleep(x); }\n";
        assert_eq!(check_text(sleeps, "tests/tests/fio.rs", nap).len(), 1);
        assert_eq!(check_text(sleeps, "tests/src/wait.rs", nap), []);
        assert_eq!(check_text(sleeps, BLOCK, nap), []);
        let module = format!("{nap}#[cfg(test)]\nmod tests {{ {nap} }}\n");
        let found = check_text(sleeps, BLOCK, &module);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].line, 3);
    }

    #[test]
    fn unexplained_assembly_is_caught() {
        let path = "crates/core/sys/src/raw.rs";
        let canary = "fn a() {\n    unsafe { asm!(\"nop\") }\n}\n";
        assert_eq!(check_text(assembly, path, canary).len(), 1);
        let explained = canary.replace("    unsafe", "    // SAFETY: does nothing.\n    unsafe");
        assert_eq!(check_text(assembly, path, &explained), []);
    }
}
