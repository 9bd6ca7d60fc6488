//! Checks the boundaries: which code may use which functions and types.

use std::sync::LazyLock;

use regex_lite::Regex;

use super::Finding;
use super::source::Source;
use crate::pattern::regex;

/// A pattern that code must not contain, and the prefixes of the paths to which the rule applies.
struct Boundary {
    pattern: &'static LazyLock<Regex>,
    inside: &'static [&'static str],
    except: &'static [&'static str],
    part: Part,
    advice: &'static str,
}

#[derive(PartialEq, Eq)]
enum Part {
    All,
    /// Rust files outside folders of tests, which look at the product from outside.
    Product,
    Tests,
}

static FOREIGN: LazyLock<Regex> = regex!(r"\bextern\s*\{|\b(?:asm|global_asm|naked_asm)!\s*[({]");
static ATOMICS: LazyLock<Regex> =
    regex!(r"\b(?:std|core)\s*::\s*sync\s*::\s*(?:atomic\b|\{[^;]*\batomic\b)");
static SLEEPS: LazyLock<Regex> = regex!(r"\bthread::sleep(?:_ms)?\b");

const BOUNDARIES: &[Boundary] = &[
    // The exceptions are `sys`, programs that use the libraries from outside, and simulations that
    // answer system calls. `layers.rs` says which crates may depend on crates of system calls,
    // such as `libc`.
    Boundary {
        pattern: &FOREIGN,
        inside: &[""],
        except: &["crates/core/sys/", "crates/bench/", "crates/verify/machine/"],
        part: Part::Product,
        advice: "foreign code outside crates/core/sys: call a safe function of nowait-sys",
    },
    // In the loom models of these crates, loom replaces the primitives of sys. The exceptions are
    // statistics, hints, and addresses that are set once: they would only multiply the
    // interleavings.
    Boundary {
        pattern: &ATOMICS,
        inside: &[
            "crates/core/retry/src/",
            "crates/core/cache/src/",
            "crates/core/block/src/gate.rs",
            "crates/core/block/src/inbox.rs",
        ],
        except: &[
            "crates/core/retry/src/stats.rs",
            "crates/core/retry/src/hint.rs",
            "crates/core/cache/src/nodes.rs",
        ],
        part: Part::All,
        advice: "atomics of this crate come from nowait_sys::primitives, for loom",
    },
    Boundary {
        pattern: &SLEEPS,
        inside: &[""],
        except: &[],
        part: Part::Tests,
        advice: "a test that sleeps: wait for the event (a channel, a barrier, a virtual clock)",
    },
];

pub(super) fn check(source: &Source, findings: &mut Vec<Finding>) {
    let is_in = |folders: &[&str]| folders.iter().any(|it| source.path.starts_with(it));
    for boundary in BOUNDARIES.iter().filter(|it| is_in(it.inside) && !is_in(it.except)) {
        if !source.is_rust() || boundary.part == Part::Product && source.is_test() {
            continue;
        }
        let tests = source.test_ranges();
        let counts = |at: &usize| {
            boundary.part != Part::Tests || tests.iter().any(|range| range.contains(at))
        };
        let found = boundary.pattern.find_iter(&source.code).map(|found| found.start());
        let found = found.filter(counts);
        findings.extend(found.map(|at| source.finding(at, boundary.advice)));
    }
}

#[cfg(test)]
mod tests {
    use super::super::check_text;
    use super::*;

    #[test]
    fn what_a_boundary_keeps_out_is_caught_on_its_side_only() {
        const BLOCK: &str = "crates/core/block/src/lib.rs";
        const KICK: &str = "crates/core/retry/src/kick.rs";
        let asm = "unsafe { asm!(\"syscall\") }";
        let atomic = "use std::sync::atomic::AtomicU32;";
        let nap = "fn a() { std::thread::sleep(x); }\n";
        let module = format!("{nap}#[cfg(test)]\nmod tests {{ {nap} }}\n");
        for (path, text, lines) in [
            (BLOCK, asm, &[1][..]),
            (BLOCK, "unsafe extern \"C\" { fn close(fd: i32) -> i32; }", &[1]),
            ("crates/core/sys/src/raw.rs", asm, &[]),
            ("tests/src/lib.rs", asm, &[]),
            ("crates/cli/nowait/tests/run.rs", asm, &[]),
            (BLOCK, "// asm!(x)\npub extern \"C\" fn io_setup() {}\n", &[]),
            (KICK, atomic, &[1]),
            (KICK, "use std::sync::{Arc,\n    atomic::{AtomicU32, Ordering}};", &[1]),
            (KICK, "static A: core::sync::atomic::AtomicBool = x();", &[1]),
            (KICK, "use std::sync::Arc; use crate::primitives::A;", &[]),
            ("crates/core/sys/src/primitives.rs", atomic, &[]),
            ("crates/core/block/src/kick.rs", atomic, &[]),
            ("tests/tests/fio.rs", nap, &[1]),
            (BLOCK, nap, &[]),
            (BLOCK, &module, &[3]),
        ] {
            let found: Vec<usize> =
                check_text(check, path, text).iter().map(|it| it.line).collect();
            assert_eq!(found, lines, "{path}: {text}");
        }
    }
}
