//! The experiments of the sources, by the rows of the list of mechanisms: M1 aio-stress, M7 vector,
//! M8 rawiobench, M9 randrw.

use nowait_harness::order::Access;
use nowait_peers::job::{Transfer, Visits, Work};
use nowait_peers::registry::EngineDef;

use super::recipe::{Recipe, case, engine, engines, table};
use crate::case::{Case, Subject, Target, name};
use crate::error::Result;
use crate::metric::Metric;

/// Leaves an engine that cannot write out of the cases that write.
fn of_engines(text: &str, asked: &[String]) -> Result<Vec<Case<Recipe>>> {
    let (mut cases, asked) = (table(text)?, engines(asked, &[])?);
    for case in &mut cases {
        let job = case.subjects[0].job;
        if !asked.is_empty() {
            let subject = |engine: &&'static EngineDef| Recipe { engine, ..job }.subject();
            case.subjects = asked.iter().map(subject).collect();
        }
        case.subjects.retain(|it| it.job.engine.writes() || !job.work.writes());
        for it in &mut case.subjects {
            it.job.work = as_it_can(it.job.engine, it.job.work);
        }
    }
    Ok(cases.into_iter().map(Case::with_possible_targets).collect())
}

/// A synchronous engine has one request, with one buffer that stays in the processor's cache.
fn as_it_can(engine: &EngineDef, work: Work) -> Work {
    match work {
        Work::Transfer(transfer) if engine.is_synchronous() => {
            Work::Transfer(Transfer { depth: 1, refill: 1, ..transfer })
        }
        work => work,
    }
}

pub(super) fn stress_rows(asked: &[String]) -> Result<Vec<Case<Recipe>>> {
    of_engines(include_str!("aio-stress.toml"), asked)
}

pub(super) fn vectors_of_source() -> Result<Vec<Case<Recipe>>> {
    let of_source = |mut case: Case<Recipe>| {
        case.subjects.truncate(2);
        Case {
            title: "4 KiB blocks that adjoin, direct: a request each (split) → one of all (vector)"
                .to_owned(),
            source: "up to 2 : 1 in CPU time; readv against a loop ÷5".to_owned(),
            columns: &[Metric::BytesPerS, Metric::CpuUsPerIo, Metric::ContextSwitchesPerIo],
            targets: vec![Target::at_most(Metric::CpuUsPerIo, "vector", 0.5, "split")],
            ..case
        }
    };
    let cases = table(include_str!("vector.toml"))?.into_iter();
    Ok(cases.take(2).map(of_source).collect())
}

pub(super) const RAW: &[&str] = &["nowait-direct", "libaio-direct", "io_uring-direct"];
/// The engine with which `rawio` compares all others.
const SYNC: &str = "psync-direct";
/// The source's machine: 20 drives, 8 threads each.
const DRIVES: usize = 20;
const THREADS_A_DRIVE: usize = 8;

/// A mode of making requests: its name, threads, depth, how many requests must have ended before
/// the next ones are made, and the source's description.
type Mode = (&'static str, usize, usize, usize, &'static str);

const MODES: [Mode; 4] = [
    ("overhead", DRIVES * THREADS_A_DRIVE, 1, 1, "overhead: equal from 8 KiB on, 20–25 % more CPU"),
    ("batch", 8, DRIVES, DRIVES, "batch: well below sync"),
    ("minimum", 8, DRIVES, 1, "minimum batch: at most equal, 10–20 % more CPU"),
    ("minimum-x2", 16, DRIVES, 1, "with 16 threads: above sync at 8 KiB only"),
];

/// A kind of request: its name, `true` if it writes, `true` for random places.
pub(super) const RAW_KINDS: [(&str, bool, bool); 4] = [
    ("sequential-read", false, false),
    ("random-read", false, true),
    ("sequential-write", true, false),
    ("random-write", true, true),
];

pub(super) const RAW_BLOCKS: [(usize, &str); 7] = [
    (512, "512"),
    (1 << 10, "1k"),
    (4 << 10, "4k"),
    (16 << 10, "16k"),
    (64 << 10, "64k"),
    (256 << 10, "256k"),
    (1 << 20, "1m"),
];
/// The block sizes from 4 KiB on, which nearly all devices accept.
pub(super) const RAW_PAGES: &[(usize, &str)] = RAW_BLOCKS.split_at(2).1;

const RAW_COLUMNS: &[Metric] = &[
    Metric::BytesPerS,
    Metric::Iops,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
    Metric::LatencyUsP50,
    Metric::LatencyUsP99,
];

/// The first subject of each case makes synchronous calls in threads.
pub(super) fn rawio(
    engines: &[&'static EngineDef],
    kinds: &[(&str, bool, bool)],
    blocks: &[(usize, &str)],
) -> Result<Vec<Case<Recipe>>> {
    let cases = kinds.iter().flat_map(|kind| blocks.iter().map(move |block| (*kind, *block)));
    cases.map(|(kind, block)| raw_case(engines, kind, block)).collect()
}

fn raw_case(
    engines: &[&'static EngineDef],
    (kind, write, random): (&str, bool, bool),
    (block_bytes, size): (usize, &str),
) -> Result<Case<Recipe>> {
    let subject = |name, engine: &'static EngineDef, (_, threads, depth, refill, _): Mode| {
        let work = Work::Transfer(Transfer {
            write_percent: if write { 100 } else { 0 },
            access: if random { Access::Random } else { Access::Sequential },
            block_bytes,
            one_lap: false,
            threads,
            depth,
            refill,
            batch: depth,
            visits: if depth > 1 { Visits::Parts(DRIVES) } else { Visits::Part(DRIVES) },
            ..Transfer::SINGLE
        });
        let job = Recipe { cold: false, ..Recipe::new(engine, work) };
        Subject { name, ..job.subject() }
    };
    let mut subjects = vec![subject(SYNC, engine(SYNC)?, MODES[0])];
    let mut targets = Vec::new();
    for mode in MODES {
        for engine in engines.iter().filter(|engine| !engine.is_synchronous()) {
            let own = name(format!("{}/{}", engine.name, mode.0));
            subjects.push(subject(own, engine, mode));
            if mode.0 == "minimum" && engine.name == "nowait-direct" && block_bytes >= 4096 {
                targets.push(Target::at_least(Metric::BytesPerS, own, 1.0, SYNC));
                targets.push(Target::at_most(Metric::CpuUsPerIo, own, 1.0, SYNC));
            }
        }
    }
    let (words, threads) = (kind.replace('-', " "), DRIVES * THREADS_A_DRIVE);
    let title = format!("{words}, {size}, direct: AIO against {threads} threads");
    let source = format!("against sync, {}", MODES.map(|mode| mode.4).join("; "));
    let name = name(format!("{kind}-{size}"));
    Ok(Case { source, targets, ..case(name, title, RAW_COLUMNS, subjects) })
}

pub(super) fn randrw(asked: &[String], ram: bool) -> Result<Vec<Case<Recipe>>> {
    let mut cases = of_engines(include_str!("randrw.toml"), asked)?;
    cases.retain(|case| ram == (case.name == "ram"));
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    #[test]
    fn the_tables_are_well_formed() {
        let args: crate::workload::WorkloadArgs = parse(&[]);
        for suite in [crate::workload::AIO_STRESS, crate::workload::RAWIO, crate::workload::RANDRW]
        {
            crate::testing::check(&(suite.cases)(&args).expect("known engines"));
        }
    }

    #[test]
    fn the_rows_of_aio_stress_are_those_of_the_source() {
        let cases = stress_rows(&[]).expect("known");
        assert_eq!(cases.len(), 6);
        assert!(cases[0].has("mmap") && !cases[1].has("mmap"), "mmap only reads");
        assert!(cases[0].targets.iter().all(|target| target.metric == Metric::BytesPerS));
        assert!(cases[5].targets.iter().all(|target| target.metric == Metric::BytesPerSSynced));
    }

    #[test]
    fn modes_have_the_numbers_of_the_source() {
        let engines = [engine("nowait-direct").expect("known")];
        let cases = rawio(&engines, &RAW_KINDS, &[(4096, "4k"), (1 << 20, "1m")]).expect("made");
        assert_eq!(cases.len(), 8);
        assert_eq!((cases[0].name, cases[1].name), ("sequential-read-4k", "sequential-read-1m"));
        let in_flight = |subject: &Subject<Recipe>| match subject.job.work {
            Work::Transfer(transfer) => (subject.name, transfer.threads * transfer.depth),
            Work::Act(_) => unreachable!("all are transfers"),
        };
        let flights: Vec<(&str, usize)> = cases[0].subjects.iter().map(in_flight).collect();
        assert_eq!(
            flights,
            [
                ("psync-direct", 160),
                ("nowait-direct/overhead", 160),
                ("nowait-direct/batch", 160),
                ("nowait-direct/minimum", 160),
                ("nowait-direct/minimum-x2", 320)
            ]
        );
        assert_eq!(cases[0].targets.len(), 2);
    }
}
