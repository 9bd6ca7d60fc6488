//! The points of the curves, and which engines are measured at each.

use std::fs;

use super::super::job::{Backend, Growth, Recipe, Work};
use crate::case::{Case, Subject, Target, name};
use crate::metric::Metric;
use crate::peers::registry::{ENGINES, EngineDef};

/// Requests in flight where these are not what grows: enough for a disk.
const IN_FLIGHT: usize = 128;
/// A context of nowait takes 65,536: where more are in flight, they are of several contexts.
const CONTEXT_MAX: usize = 50_000;
/// A point that all curves have in common.
const ONE: Growth = Growth { in_flight: IN_FLIGHT, files: 1, contexts: 1, threads: 1 };

/// The points of each curve.
pub(super) struct Shape {
    in_flight: &'static [usize],
    files: &'static [usize],
    contexts: &'static [usize],
    threads: &'static [usize],
}

impl Shape {
    pub(super) const FULL: Self = Self {
        in_flight: &[1, 10, 100, 1_000, 10_000, 100_000],
        files: &[1, 10, 100, 1_000, 10_000],
        contexts: &[1, 4, 16, 64],
        threads: &[1, 2, 4, 8, 16],
    };
    pub(super) const QUICK: Self = Self {
        in_flight: &[1, 100, 10_000],
        files: &[1, 30, 1_000],
        contexts: &[1, 8, 64],
        threads: &[1, 4, 16],
    };

    /// Returns how many there are.
    #[cfg(test)]
    pub(super) fn points(&self) -> usize {
        self.in_flight.len() + self.files.len() + self.contexts.len() + self.threads.len()
    }
}

/// The engines: a name, what it opens, what is underneath, and what it is.
const SUBJECTS: [(&str, &str, Backend, &str); 4] = [
    ("nowait-uring", "nowait-direct", Backend::Uring, "nowait's queue on io_uring"),
    ("nowait-kaio", "nowait-direct", Backend::Kaio, "nowait's queue on the kernel's native AIO"),
    ("nowait-threads", "nowait-direct", Backend::Threads, "nowait's queue on threads alone"),
    (KERNEL, "kaio-direct", Backend::Auto, "the kernel's native AIO by its system calls"),
];
const KERNEL: &str = "libaio";

const COLUMNS: &[Metric] = &[
    Metric::Iops,
    Metric::CpuUsPerIo,
    Metric::MemoryAddedBytes,
    Metric::SubmitUsP999,
    Metric::SubmitUsP9999,
    Metric::SubmitUsMax,
    Metric::ContextSwitchesPerIo,
];

/// Makes the case of every point; the kernel's native AIO takes part where it has room for so many
/// requests in flight.
pub(super) fn cases(shape: &Shape, room: usize) -> Vec<Case<Recipe>> {
    let in_flight = shape.in_flight.iter().map(|n| {
        ("in-flight", *n, Growth { in_flight: *n, contexts: n.div_ceil(CONTEXT_MAX), ..ONE })
    });
    let files = shape.files.iter().map(|n| ("files", *n, Growth { files: *n, ..ONE }));
    let contexts = shape.contexts.iter().map(|n| ("contexts", *n, Growth { contexts: *n, ..ONE }));
    let threads = shape.threads.iter().map(|n| ("threads", *n, Growth { threads: *n, ..ONE }));
    let points = in_flight.chain(files).chain(contexts).chain(threads);
    points.map(|(curve, at, growth)| case(curve, at, growth, room)).collect()
}

/// Returns how many files a case reads.
pub(super) fn files_of(case: &Case<Recipe>) -> usize {
    let work = case.subjects.first().map(|subject| subject.job.work);
    work.map_or(1, |work| if let Work::Growth(growth) = work { growth.files } else { 1 })
}

fn case(curve: &'static str, at: usize, growth: Growth, room: usize) -> Case<Recipe> {
    let takes_part = |of: &&(&str, &str, Backend, &str)| of.0 != KERNEL || growth.in_flight <= room;
    let subject =
        |&(name, engine, backend, about): &(&'static str, &str, Backend, &'static str)| {
            let job = Recipe {
                backend,
                cold: false,
                ..Recipe::new(engine_of(engine), Work::Growth(growth))
            };
            Subject { name, engine: (name, about), job }
        };
    let targets = vec![
        Target::at_least(Metric::Iops, "nowait-uring", 1.0, KERNEL),
        Target::at_most(Metric::CpuUsPerIo, "nowait-uring", 1.1, KERNEL),
    ];
    let Growth { in_flight, files, contexts, threads } = growth;
    let case = Case {
        name: name(format!("{curve}-{at}")),
        title: format!(
            "direct reads of 4 KiB, {in_flight} in flight, files: {files}, contexts: {contexts}, \
             threads: {threads}"
        ),
        about: "",
        source: String::new(),
        columns: COLUMNS,
        subjects: SUBJECTS.iter().filter(takes_part).map(subject).collect(),
        targets,
    };
    case.with_possible_targets()
}

/// Returns an engine of the registry, which has those that are named here.
fn engine_of(name: &str) -> &'static EngineDef {
    ENGINES.iter().find(|engine| engine.name == name).unwrap_or(&ENGINES[0])
}

/// Returns how many requests native AIO may still have in flight, in the whole machine.
pub(super) fn room_of_kernel() -> usize {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/fs/{name}")).unwrap_or_default();
        text.trim().parse::<usize>().unwrap_or(0)
    };
    read("aio-max-nr").saturating_sub(read("aio-nr"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_a_case_of_known_engines() {
        let all = cases(&Shape::FULL, 65_536);
        crate::testing::check(&all);
        assert_eq!(all.len(), Shape::FULL.points());
        let names =
            |case: &Case<Recipe>| case.subjects.iter().map(|it| it.name).collect::<Vec<_>>();
        assert_eq!(names(&all[0]).len(), SUBJECTS.len());
        let most = all.iter().find(|case| case.name == "in-flight-100000").expect("a point");
        assert!(!names(most).contains(&KERNEL) && most.targets.is_empty());
        for (name, engine, ..) in SUBJECTS {
            assert_eq!(engine_of(engine).name, engine, "{name}");
            assert!(engine_of(engine).direct, "{name}");
        }
    }
}
