//! `bench growth`: the cost of a request as requests in flight, files, contexts and threads grow in
//! number. Each of the four quantities has a curve, and each point of a curve is a case.

use std::fs;

use nowait_harness::order::Access;
use nowait_peers::job::{Backend, Looks, Transfer, Visits, Work};

use super::args::{SuiteDef, WorkloadArgs};
use super::recipe::{Recipe, case, engine};
use crate::args::Defaults;
use crate::case::{Case, Subject, Target, name};
use crate::error::Result;
use crate::measurement::Pairs;
use crate::metric::Metric;

pub(crate) const GROWTH: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [500, 100],
        size_bytes: [512 << 20, 64 << 20],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    pairs: Pairs::With(&[KERNEL]),
    note: Some(note),
    examples: "\
Five runs of 500 ms for each point, on 512M, and as much again for each number of files: five
minutes. With --quick 100 ms on 64M, and fewer points.

Examples:
  nowait bench growth --html growth.html       every curve
  nowait bench growth --case in-flight-100000 --engine nowait-uring,nowait-kaio
  nowait bench growth --list                   the points, nothing run",
    ..SuiteDef::new("growth", cases)
};

/// The least number of requests in flight on the curves of files, contexts and threads: enough for
/// a disk.
const IN_FLIGHT: usize = 128;
const IN_FLIGHT_OF_THREAD: usize = 8;
/// More requests use several contexts. A context of nowait accepts 65,536.
const CONTEXT_MAX: usize = 50_000;

const READ: Transfer = Transfer {
    access: Access::Uniform,
    visits: Visits::Own,
    one_lap: false,
    depth: IN_FLIGHT,
    batch: 1024,
    looks: Looks::Calls,
    ..Transfer::SINGLE
};

/// A curve: its name, its points, the points of a quick measurement, and a function that returns
/// the transfer and the number of files at a point.
type Curve = (&'static str, &'static [usize], &'static [usize], fn(usize) -> (Transfer, usize));

const THREADS: &str = "threads";

const CURVES: [Curve; 4] = [
    ("in-flight", &[1, 10, 100, 1_000, 10_000, 100_000], &[1, 100, 10_000], |depth| {
        (Transfer { depth, contexts: depth.div_ceil(CONTEXT_MAX), ..READ }, 1)
    }),
    ("files", &[1, 10, 100, 1_000, 10_000], &[1, 30, 1_000], |files| (READ, files)),
    ("contexts", &[1, 4, 16, 64], &[1, 8, 64], |contexts| (Transfer { contexts, ..READ }, 1)),
    (THREADS, &[1, 2, 4, 8, 16], &[1, 4, 16], |threads| {
        let depth = (IN_FLIGHT / threads).max(IN_FLIGHT_OF_THREAD);
        (Transfer { threads, depth, ..READ }, 1)
    }),
];

const SUBJECTS: [(&str, &str, Backend, &str); 4] = [
    ("nowait-uring", "nowait-direct", Backend::Uring, "nowait's queue on io_uring"),
    ("nowait-kaio", "nowait-direct", Backend::Kaio, "nowait's queue on the kernel's native AIO"),
    ("nowait-threads", "nowait-direct", Backend::Threads, "nowait's queue on threads alone"),
    (KERNEL, "libaio-direct", Backend::Auto, "the kernel's native AIO by its system calls"),
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

fn cases(args: &WorkloadArgs) -> Result<Vec<Case<Recipe>>> {
    let quick = args.measure.quick;
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let points = CURVES.iter().flat_map(|(curve, full, short, work)| {
        let points = if quick { short } else { full };
        let points = if *curve == THREADS { up_to(cores, points) } else { points.to_vec() };
        points.into_iter().map(move |at| (*curve, at, work(at)))
    });
    points.map(|(curve, at, work)| point(curve, at, work, room_of_kernel())).collect()
}

/// Returns the numbers of threads: those of `counts`, further ones below the number of processors,
/// each larger by the same factor, and the number of processors itself if it is larger than all.
fn up_to(cores: usize, counts: &[usize]) -> Vec<usize> {
    let mut all = counts.to_vec();
    let [first, second, .., last] = counts[..] else { return all };
    let factor = second / first;
    let more = std::iter::successors(Some(last * factor), |count| Some(count * factor));
    all.extend(more.take_while(|count| *count < cores));
    all.extend((cores > last).then_some(cores));
    all
}

/// Leaves out the kernel's native AIO if it has no room for so many requests in flight.
fn point(
    curve: &str,
    at: usize,
    (read, files): (Transfer, usize),
    room: usize,
) -> Result<Case<Recipe>> {
    let Transfer { contexts, threads, depth, .. } = read;
    let in_flight = depth * threads;
    let takes_part = |it: &&(&str, &str, Backend, &str)| it.0 != KERNEL || in_flight <= room;
    let subject = |&(name, opens, backend, about): &(&'static str, _, _, &'static str)| {
        let recipe = Recipe::new(engine(opens)?, Work::Transfer(read));
        let job = Recipe { backend, cold: false, files, ..recipe };
        Ok(Subject { name, engine: (name, about), job })
    };
    let subjects = SUBJECTS.iter().filter(takes_part).map(subject).collect::<Result<_>>()?;
    let title = format!(
        "direct reads of 4 KiB, {in_flight} in flight, files: {files}, contexts: {contexts}, \
         threads: {threads}"
    );
    let targets = vec![
        Target::at_least(Metric::Iops, "nowait-uring", 1.0, KERNEL),
        Target::at_most(Metric::CpuUsPerIo, "nowait-uring", 1.1, KERNEL),
    ];
    let name = name(format!("{curve}-{at}"));
    Ok(Case { targets, ..case(name, title, COLUMNS, subjects) }.with_possible_targets())
}

fn note() -> String {
    let room = room_of_kernel();
    format!(
        "the kernel's native AIO has no more than {room} requests in flight (fs.aio-max-nr), so \
         that libaio has no figures beyond"
    )
}

/// Returns how many more requests native AIO may have in flight in the whole machine.
fn room_of_kernel() -> usize {
    let read = |name: &str| {
        let text = fs::read_to_string(format!("/proc/sys/fs/{name}")).unwrap_or_default();
        text.trim().parse::<usize>().unwrap_or(0)
    };
    read("aio-max-nr").saturating_sub(read("aio-nr"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn threads_grow_up_to_the_number_of_processors() {
        let (full, quick) = (CURVES[3].1, CURVES[3].2);
        for (counts, cores, more) in [
            (full, 2, &[][..]),
            (full, 16, &[]),
            (full, 24, &[24]),
            (full, 128, &[32, 64, 128]),
            (quick, 128, &[64, 128]),
        ] {
            assert_eq!(up_to(cores, counts), [counts, more].concat(), "{cores} processors");
        }
    }

    #[test]
    fn every_point_is_a_case_of_known_engines() {
        let all = cases(&parse(&[])).expect("known engines");
        crate::testing::check(&all);
        assert!(all.len() >= 20);
        let (.., work) = CURVES[0];
        let names = |at| {
            let case = point("in-flight", at, work(at), 65_536).expect("known engines");
            case.subjects.iter().map(|it| it.name).collect::<Vec<_>>()
        };
        assert!(names(65_000).contains(&KERNEL) && !names(100_000).contains(&KERNEL));
        assert!(all.iter().flat_map(|case| &case.subjects).all(|it| it.job.engine.direct));
    }
}
