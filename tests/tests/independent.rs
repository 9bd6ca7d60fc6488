//! Two threads with their own contexts and files share no cache line that one of them writes,
//! except for lines that docs/internals/locks.md names for the kind of their requests.

#![cfg(target_arch = "x86_64")]

use nowait_tests::scratch::Scratch;
use nowait_tests::shared_lines::{self, SharedLine};
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject};

const PROGRAM: &str = env!("CARGO_BIN_EXE_independent");
const NAMED: &str = include_str!("../../docs/internals/locks.md");
const HEADING: &str = "## Shared by all contexts";

macro_rules! each_kind {
    ($($name:ident: $kind:literal,)+) => {
        $(mod $name {
            use super::*;

            #[test]
            fn auto() {
                check($kind, Backend::Auto);
            }

            #[test]
            fn kaio() {
                check($kind, Backend::Kaio);
            }
        })+
    };
}

each_kind! {
    cached_reads_share_what_is_named: "cached-read",
    uncached_reads_share_what_is_named: "uncached-read",
    direct_reads_share_what_is_named: "direct-read",
    direct_writes_share_what_is_named: "direct-write",
    buffered_writes_share_what_is_named: "buffered-write",
    polls_share_what_is_named: "poll",
    reads_of_an_eventfd_share_nothing: "counter-read",
    reads_of_an_eventfd_of_requests_share_nothing: "named-counter-read",
}

/// The most traces of a test. The test passes if one trace has no unnamed line. A request that
/// meets a busy device, or a page that the kernel has dropped, may take another path in the library
/// and share more lines.
const TRACES: usize = 3;

fn check(kind: &str, backend: Backend) {
    let Some(subject) = Subject::chosen(Library::Preload, backend) else { return };
    let mut added = Vec::new();
    for _ in 0..TRACES {
        let Some((lines, own)) = shared(kind, subject) else { return };
        added = unnamed(kind, &lines, own);
        if added.is_empty() {
            return println!("{kind}, {subject}: {} lines, all named", lines.len() - 1);
        }
    }
    panic!("{kind}: not in \"{HEADING}\":\n{}", added.join("\n"));
}

/// Returns the shared lines that docs/internals/locks.md does not name for a kind. Leaves out the
/// program's own line, which is at address `own`.
///
/// # Panics
/// The program's own line is missing from `lines`: then the trace may lack lines of the library,
/// too.
fn unnamed(kind: &str, lines: &[SharedLine], own: u64) -> Vec<String> {
    let named = sources_named(kind);
    let is_named = |line: &SharedLine| {
        !line.sources.is_empty() && line.sources.iter().all(|it| named.contains(&it.as_str()))
    };
    let is_own = |line: &&SharedLine| line.address == own;
    assert!(lines.iter().any(|line| is_own(&line)), "{kind}: no line of the program in {lines:?}");
    let others = lines.iter().filter(|line| !is_own(line) && !is_named(line));
    others.map(ToString::to_string).collect()
}

fn shared(kind: &str, subject: Subject) -> Option<(Vec<SharedLine>, u64)> {
    // A disturber would be a third thread.
    let subject = Subject { disturb: None, limit: None, ..subject };
    let scratch = Scratch::new("independent");
    let program = subject.launch(PROGRAM).arg(kind).arg(scratch.path());
    let (lines, output) = skip::unless(shared_lines::of(program))?;
    subject.assert_served(&output);
    let own = output.stdout.lines().next().and_then(|line| line.parse().ok());
    Some((lines, own.expect("the address of the program's line")))
}

/// Returns the sources whose lines requests of a kind may share: each `path` in the second cell of
/// a row that has the kind in its third cell.
fn sources_named(kind: &str) -> Vec<&'static str> {
    let (_, section) = NAMED.split_once(HEADING).expect("a section");
    let section = section.split("\n## ").next().unwrap_or(section);
    let rows = section.lines().filter(|line| line.starts_with('|'));
    let cells = rows.map(|row| row.split('|').map(str::trim).collect::<Vec<_>>());
    let of_kind = cells.filter(|cells| cells[3].split(", ").any(|it| it == kind));
    of_kind.flat_map(|cells| cells[2].split('`').skip(1).step_by(2)).collect()
}
