//! fio reads back what it wrote, on four file systems, by each backend.
//!
//! The quick form has a small set of combinations in which each pair of values occurs. Submit mode,
//! library, block size and threads or processes form sets. `NOWAIT_FULL=1` runs all combinations of
//! the other parameters, each with one of these sets by turns.

#[path = "fio_verify/pairwise.rs"]
mod pairwise;

use std::fs;

use nowait_tests::direct;
use nowait_tests::disturber;
use nowait_tests::fio::{Job, Mode};
use nowait_tests::limiter::Limit;
use nowait_tests::mount::{Kind, Mount};
use nowait_tests::skip;
use nowait_tests::subject::{Backend, Library, Subject, Submit};

const KINDS: [Kind; 4] = [Kind::Ext4, Kind::Xfs, Kind::Btrfs, Kind::Tmpfs];
const LIBRARIES: [Library; 2] = [Library::Libaio, Library::Preload];
const SUBMITS: [Submit; 2] = [Submit::Auto, Submit::Offload];
const MODES: [Mode; 3] = [Mode::Buffered, Mode::Direct, Mode::Sync];
const PATTERNS: [&str; 3] = ["randrw", "randwrite", "write"];
const BLOCKS: [&str; 2] = ["4k", "64k"];
const DEPTHS: [u32; 4] = [1, 8, 64, 512];
const JOBS: [u32; 2] = [1, 4];

#[test]
fn ext4_gives_back_what_was_written() {
    verify_on(Kind::Ext4);
}

#[test]
fn xfs_gives_back_what_was_written() {
    verify_on(Kind::Xfs);
}

#[test]
fn btrfs_gives_back_what_was_written() {
    verify_on(Kind::Btrfs);
}

#[test]
fn tmpfs_gives_back_what_was_written() {
    verify_on(Kind::Tmpfs);
}

fn verify_on(kind: Kind) {
    let ready = skip::missing_program(&["fio"]).and_then(|()| Mount::new(kind));
    let Some(mount) = skip::unless(ready) else { return };
    let knows_direct = direct::is_known_in(mount.path());
    for (number, (subject, job)) in combinations_on(kind).into_iter().enumerate() {
        // Not every kernel supports direct I/O on tmpfs.
        let is_possible = job.mode != Mode::Direct || knows_direct;
        let job = if is_possible { job } else { Job { mode: Mode::Buffered, ..job } };
        let folder = mount.folder(&number.to_string());
        let output = job.arguments(subject.launch("fio"), &folder).run();
        let what = format!("{subject} on {} {job:?}", kind.name());
        assert!(output.status.success(), "{what}\n{output}");
        assert!(!output.stderr.contains("verify:"), "{what}\n{output}");
        // Jobs that are processes end by _exit, which only the preload library sees.
        if job.threads || subject.library == Library::Preload {
            subject.assert_served(&output);
        }
        fs::remove_dir_all(&folder).expect("the job's files");
    }
}

fn combinations_on(kind: Kind) -> Vec<(Subject, Job)> {
    let backends = Backend::selected();
    let what = [
        KINDS.len(),
        DEPTHS.len(),
        backends.len(),
        MODES.len(),
        PATTERNS.len(),
        JOBS.len(),
        2, // reaping from the user-mapped ring
    ];
    let how = [SUBMITS.len(), LIBRARIES.len(), BLOCKS.len(), 2];
    let sizes = [what.as_slice(), how.as_slice()].concat();
    let rows = if nowait_tests::full() { crossed(&what, &how) } else { covered_twice(&sizes) };
    rows.iter()
        .filter(|row| KINDS[row[0]] == kind)
        .filter_map(|row| Some((subject(row, &backends)?, job(row))))
        .collect()
}

/// Returns combinations in which each pair of values occurs at least twice, mostly with different
/// values of the other parameters.
fn covered_twice(sizes: &[usize]) -> Vec<Vec<usize>> {
    let rows = pairwise::covering(sizes);
    let mirrored =
        |row: &Vec<usize>| row.iter().zip(sizes).map(|(it, size)| size - 1 - it).collect();
    let others: Vec<Vec<usize>> = rows.iter().map(mirrored).collect();
    [rows, others].concat()
}

/// Returns all combinations of `what`, each with a combination of `how`; the combinations of `how`
/// take turns.
fn crossed(what: &[usize], how: &[usize]) -> Vec<Vec<usize>> {
    let how = pairwise::covering(how);
    let rows = pairwise::product(what).into_iter().zip(how.iter().cycle());
    rows.map(|(what, how)| [what.as_slice(), how.as_slice()].concat()).collect()
}

fn subject(row: &[usize], backends: &[Backend]) -> Option<Subject> {
    let wanted = LIBRARIES[row[8]];
    match std::env::var("NOWAIT_TEST_SUBJECT").ok().as_deref().and_then(Library::named) {
        Some(Library::System) => return Some(Subject::SYSTEM),
        Some(only) if only != wanted => return None,
        _ => {}
    }
    let (backend, submit) = (backends[row[2]], SUBMITS[row[7]]);
    let (disturb, limit) = (disturber::seed(), Limit::of_this_run());
    Some(Subject { library: wanted, backend, submit, disturb, limit })
}

fn job(row: &[usize]) -> Job {
    Job {
        engine: Job::BASIC.engine,
        depth: DEPTHS[row[1]],
        mode: MODES[row[3]],
        pattern: PATTERNS[row[4]],
        block: BLOCKS[row[9]],
        jobs: JOBS[row[5]],
        userspace_reap: row[6] == 1,
        threads: row[10] == 0,
    }
}
