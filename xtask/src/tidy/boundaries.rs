//! The boundaries: which code may use what.

use std::sync::LazyLock;

use regex_lite::Regex;

use super::Finding;
use super::source::Source;
use crate::pattern::regex;

/// Where code of other languages may stand, besides folders of tests: in crates/core/sys, in what
/// looks at the libraries from outside, and in what answers system calls in simulations. The C
/// files of crates/api/libaio only export; they are no Rust.
const SYSTEM_FOLDERS: &[&str] =
    &["crates/core/sys/", "crates/bench/bench/", "crates/verify/machine/"];

static FOREIGN: LazyLock<Regex> = regex!(r"\bextern\s*\{|\b(?:asm|global_asm|naked_asm)!\s*[({]");
static ATOMICS: LazyLock<Regex> =
    regex!(r"\b(?:std|core)\s*::\s*sync\s*::\s*(?:atomic\b|\{[^;]*\batomic\b)");
static SLEEPS: LazyLock<Regex> = regex!(r"\bthread::sleep(?:_ms)?\b");

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

/// Foreign functions and assembly are in crates/core/sys only. (What a crate may depend on, `libc`
/// say, the layers tell; that each `unsafe` is explained, clippy.)
pub(super) fn system_calls(source: &Source, findings: &mut Vec<Finding>) {
    let allowed = SYSTEM_FOLDERS.iter().any(|folder| source.path.starts_with(folder));
    if !source.is_rust() || allowed || source.is_test() {
        return;
    }
    let advice = "foreign code outside crates/core/sys: call a safe function of nowait-sys";
    findings.extend(FOREIGN.find_iter(&source.code).map(|it| source.finding(it.start(), advice)));
}

/// Atomics of what is modelled come from crates/core/sys/src/primitives.rs: loom can replace them
/// there.
pub(super) fn atomics(source: &Source, findings: &mut Vec<Finding>) {
    let modelled = MODELLED.iter().any(|folder| source.path.starts_with(folder));
    if !modelled || !source.is_rust() || ATOMICS_FILES.contains(&source.path.as_str()) {
        return;
    }
    let advice = "atomics of this crate come from nowait_sys::primitives, for loom";
    findings.extend(ATOMICS.find_iter(&source.code).map(|it| source.finding(it.start(), advice)));
}

/// Tests wait for events, not for time to pass.
pub(super) fn sleeps(source: &Source, findings: &mut Vec<Finding>) {
    if !source.is_rust() || SLEEP_EXCEPTIONS.contains(&source.path.as_str()) {
        return;
    }
    let advice = "a test that sleeps: wait for the event (a channel, a barrier, a virtual clock), \
                  or poll a foreign program in tests/src/wait.rs";
    let tests = source.test_ranges();
    let naps = SLEEPS.find_iter(&source.code).map(|nap| nap.start());
    let naps = naps.filter(|at| tests.iter().any(|range| range.contains(at)));
    findings.extend(naps.map(|at| source.finding(at, advice)));
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    const BLOCK: &str = "crates/core/block/src/lib.rs";

    #[test]
    fn foreign_code_outside_sys_is_caught() {
        for canary in
            ["unsafe { asm!(\"syscall\") }", "unsafe extern \"C\" { fn close(fd: i32) -> i32; }"]
        {
            assert_eq!(check_text(system_calls, BLOCK, canary).len(), 1, "{canary}");
            assert_eq!(check_text(system_calls, "crates/core/sys/src/raw.rs", canary), []);
            assert_eq!(check_text(system_calls, "tests/src/lib.rs", canary), []);
            assert_eq!(check_text(system_calls, "crates/cli/nowait/tests/run.rs", canary), []);
        }
    }

    #[test]
    fn comments_and_exports_are_no_foreign_code() {
        let text = "// asm!(x)\npub extern \"C\" fn io_setup() {}\n";
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
}
