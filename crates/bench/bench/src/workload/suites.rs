//! The workloads whose cases are tables: how each workload is measured, and the examples in its
//! help.

use std::path::Path;

use super::args::SuiteDef;
use super::device::{MEMORY, smallest_direct_block};
use super::recipe::{engines, table};
use super::sources;
use crate::args::Defaults;
use crate::measurement::Pairs;

pub(crate) const CACHED: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [2000, 150],
        size_bytes: [2 << 30, 128 << 20],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    apart: true,
    pairs: Pairs::FirstWith,
    examples: "\
Runs of 2 s; a large cached set of 2G, and a file four times as large; with --quick 150 ms and 128M.

Examples:
  nowait bench cached --quick                  every case, small: under three minutes
  nowait bench cached --case a,e --rounds 9    some cases, more certain
  nowait bench cached --engine nowait,psync --case a-4k
  nowait bench cached --list                   the cases and their targets, nothing run",
    ..SuiteDef::new("cached", |_| table(include_str!("cached.toml")))
};

pub(crate) const LIMITS: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [1000, 150],
        size_bytes: [1 << 30, 256 << 20],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    apart: true,
    examples: "\
Five runs of 1 s on 1G: five minutes. With --quick 150 ms on 256M: one minute.

Examples:
  nowait bench limits                         every limit, and how far nowait is from it
  nowait bench limits --case copy-4k,disk-4k --rounds 9
  nowait bench limits --list                  what is compared, nothing run",
    ..SuiteDef::new("limits", |_| table(include_str!("limits.toml")))
};

pub(crate) const AIO_STRESS: SuiteDef = SuiteDef {
    examples: "\
Examples:
  nowait bench aio-stress --quick                     six rows, every engine, small
  nowait bench aio-stress --engine nowait-user,libaio,io_uring --case random-read
  nowait bench aio-stress --device ram                a file in memory",
    ..SuiteDef::new("aio-stress", |args| sources::stress_rows(&args.measure.engines))
};

pub(crate) const RAWIO: SuiteDef = SuiteDef {
    examples: "\
Examples:
  nowait bench rawio --quick                          every mode and block size, short
  nowait bench rawio --case '*-4k,*-64k' --engine nowait-direct,io_uring-direct
  nowait bench rawio --case random-read-4k --rounds 9
  nowait bench rawio --device /dev/sdx --overwrite    a block device, whose data are lost",
    ..SuiteDef::new("rawio", |args| {
        let smallest = smallest_direct_block(&args.device).unwrap_or(4096);
        let blocks = sources::RAW_BLOCKS.into_iter().filter(|(bytes, _)| *bytes >= smallest);
        let engines = engines(&args.measure.engines, sources::RAW)?;
        sources::rawio(&engines, &sources::RAW_KINDS, &blocks.collect::<Vec<_>>())
    })
};

pub(crate) const RANDRW: SuiteDef = SuiteDef {
    examples: "\
Examples:
  nowait bench randrw                                 uncached, on a disk
  nowait bench randrw --device ram                    in memory
  nowait bench randrw --engine nowait-host,nowait-offload,libaio --rounds 9",
    ..SuiteDef::new("randrw", |args| {
        sources::randrw(&args.measure.engines, args.device == Path::new(MEMORY))
    })
};

pub(crate) const VECTOR: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 7,
        runtime_ms: [1000, 300],
        size_bytes: [1 << 30; 2],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    examples: "\
Seven runs of 1 s on a file of 1G; with --quick 300 ms.

Examples:
  nowait bench vector                          8 and 16 segments, in small pages and huge ones
  nowait bench vector --case segments-8 --runtime 300ms --rounds 5 --json vector.json",
    ..SuiteDef::new("vector", |_| table(include_str!("vector.toml")))
};
