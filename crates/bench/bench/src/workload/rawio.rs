//! `bench rawio`: asynchronous requests against synchronous threads, by block size, in the modes
//! of rawiobench.

use std::path::Path;

use clap::Args;

use super::args::CommonArgs;
use super::device::direct_block_bytes;
use super::job::{Recipe, Transfer, Work};
use crate::args::unknown;
use crate::case::{Case, Subject, Target, name};
use crate::error::{BenchError, Result};
use crate::measurement::Measurement;
use crate::metric::Metric;
use crate::offsets::Access;
use crate::peers::registry::{self, EngineDef};
use crate::units::parse_size;

const EXAMPLES: &str = "\
Examples:
  nowait bench rawio --quick                          every mode and block size, short
  nowait bench rawio --blocks 4k,64k --mode minimum --engine nowait-direct,io_uring-direct
  nowait bench rawio --case random-read-4k --rounds 9
  nowait bench rawio --device /dev/sdx --overwrite    a block device, whose data are lost";

/// Measures asynchronous requests against 160 synchronous threads, in the modes of rawiobench.
#[derive(Debug, Clone, Args)]
#[command(after_help = EXAMPLES)]
pub struct RawioArgs {
    /// Block sizes; those too small for direct I/O on the device are left out
    #[arg(long, value_name = "SIZE,…", value_delimiter = ',', value_parser = parse_size)]
    #[arg(default_values = ["512", "1k", "4k", "16k", "64k", "256k", "1m"])]
    pub blocks: Vec<u64>,

    /// Modes: overhead, batch, minimum, minimum-x2 (default: all)
    #[arg(long = "mode", value_name = "NAME,…", value_delimiter = ',')]
    pub modes: Vec<String>,

    /// Engines, device, length and reports
    #[command(flatten)]
    pub common: CommonArgs,
}

const DEFAULT: &[&str] = &["nowait-direct", "libaio-direct", "io_uring-direct"];
/// The engine that all others are compared with.
const SYNC: &str = "psync-direct";
/// The source's machine: 20 drives, 8 threads each.
const DRIVES: usize = 20;
const THREADS_A_DRIVE: usize = 8;

/// How requests are made, and what the source says of it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mode {
    pub(crate) name: &'static str,
    threads: usize,
    depth: usize,
    /// Requests that must be over before new ones are made.
    refill: usize,
    source: &'static str,
}

pub(crate) const MODES: [Mode; 4] = [
    Mode {
        name: "overhead",
        threads: DRIVES * THREADS_A_DRIVE,
        depth: 1,
        refill: 1,
        source: "overhead: equal from 8 KiB on, 20–25 % more CPU",
    },
    Mode {
        name: "batch",
        threads: 8,
        depth: DRIVES,
        refill: DRIVES,
        source: "batch: well below sync",
    },
    Mode {
        name: "minimum",
        threads: 8,
        depth: DRIVES,
        refill: 1,
        source: "minimum batch: at most equal, 10–20 % more CPU",
    },
    Mode {
        name: "minimum-x2",
        threads: 16,
        depth: DRIVES,
        refill: 1,
        source: "with 16 threads: above sync at 8 KiB only",
    },
];

/// Name, write, random.
pub(crate) const KINDS: [(&str, bool, bool); 4] = [
    ("sequential-read", false, false),
    ("random-read", false, true),
    ("sequential-write", true, false),
    ("random-write", true, true),
];

const COLUMNS: &[Metric] = &[
    Metric::BytesPerS,
    Metric::Iops,
    Metric::CpuUsPerIo,
    Metric::ContextSwitchesPerIo,
    Metric::LatencyUsP50,
    Metric::LatencyUsP99,
];

/// Runs the cases, prints a table for each and the targets, and writes the JSON asked for.
///
/// # Errors
/// Something is missing, a run failed or read wrong bytes, a report cannot be written, the user
/// asked to stop, or `--check` was given and a target is not met.
pub(crate) fn run_rawio(args: &RawioArgs) -> Result<Option<Measurement>> {
    let known = MODES.map(|mode| mode.name);
    if let Some(mode) = args.modes.iter().find(|mode| !known.contains(&mode.as_str())) {
        return Err(unknown("mode", mode, &known));
    }
    for block in &args.blocks {
        if !block.is_power_of_two() || !(512..=16 << 20).contains(block) {
            return Err(BenchError::usage("a block is a power of two from 512 to 16M"));
        }
    }
    let asked = |mode: &Mode| args.modes.is_empty() || args.modes.iter().any(|m| m == mode.name);
    let modes: Vec<Mode> = MODES.into_iter().filter(asked).collect();
    let engines = args.common.engines(DEFAULT)?;
    let blocks = possible(&args.blocks, &args.common.device)?;
    let cases = cases(&engines, &modes, &KINDS, &blocks)?;
    args.common.run("rawio", cases)
}

/// Leaves out blocks that direct I/O refuses, and says so.
fn possible(blocks: &[u64], device: &Path) -> Result<Vec<usize>> {
    let device = if device == Path::new("ram") { Path::new("/dev/shm") } else { device };
    let smallest = smallest_block(device).unwrap_or(4096);
    let (small, rest): (Vec<usize>, Vec<usize>) =
        blocks.iter().map(|block| *block as usize).partition(|block| *block < smallest);
    if !small.is_empty() {
        let small: Vec<String> = small.iter().map(usize::to_string).collect();
        eprintln!(
            "blocks of {} bytes are left out: direct I/O begins at {smallest} here",
            small.join(", ")
        );
    }
    if rest.is_empty() {
        return Err(BenchError::failed("no block size is possible with O_DIRECT here"));
    }
    Ok(rest)
}

/// Tries a block device or a file that is there; in a folder, a small file.
fn smallest_block(device: &Path) -> Option<usize> {
    if device.is_file() || !device.is_dir() && device.exists() {
        return direct_block_bytes(device);
    }
    let folder = if device.is_dir() { device } else { device.parent()? };
    let file = tempfile::NamedTempFile::new_in(folder).ok()?;
    std::fs::write(file.path(), [0; 8192]).ok()?;
    direct_block_bytes(file.path())
}

/// Makes a case for each kind and block size, with synchronous threads first.
pub(crate) fn cases(
    engines: &[&'static EngineDef],
    modes: &[Mode],
    kinds: &[(&'static str, bool, bool)],
    blocks: &[usize],
) -> Result<Vec<Case<Recipe>>> {
    let sync = registry::find(SYNC)?;
    let mut cases = Vec::new();
    for kind in kinds {
        for block in blocks {
            cases.push(case(sync, engines, modes, *kind, *block));
        }
    }
    Ok(cases)
}

fn case(
    sync: &'static EngineDef,
    engines: &[&'static EngineDef],
    modes: &[Mode],
    (kind, write, random): (&'static str, bool, bool),
    block_bytes: usize,
) -> Case<Recipe> {
    let transfer = |mode: &Mode| {
        Work::Transfer(Transfer {
            write_percent: if write { 100 } else { 0 },
            access: if random { Access::Random } else { Access::Sequential },
            block_bytes,
            one_lap: false,
            threads: mode.threads,
            depth: mode.depth,
            refill: mode.refill,
            batch: mode.depth,
            drives: DRIVES,
            all_drives: mode.depth > 1,
            ..Transfer::SINGLE
        })
    };
    let subject = |name, engine: &'static EngineDef, mode| {
        let job = Recipe { cold: false, ..Recipe::new(engine, transfer(mode)) };
        Subject { name, engine: (engine.name, engine.about), job }
    };
    let mut subjects = vec![subject(SYNC, sync, &MODES[0])];
    let mut targets = Vec::new();
    for mode in modes {
        for engine in engines.iter().filter(|engine| !engine.is_synchronous()) {
            let own = name(format!("{}/{}", engine.name, mode.name));
            subjects.push(subject(own, engine, mode));
            if mode.name == "minimum" && engine.name == "nowait-direct" && block_bytes >= 4096 {
                targets.push(Target::at_least(Metric::BytesPerS, own, 1.0, SYNC));
                targets.push(Target::at_most(Metric::CpuUsPerIo, own, 1.0, SYNC));
            }
        }
    }
    let size = match block_bytes {
        0..1024 => format!("{block_bytes}"),
        1024..0x10_0000 => format!("{}k", block_bytes >> 10),
        _ => format!("{}m", block_bytes >> 20),
    };
    let said: Vec<&str> = modes.iter().map(|mode| mode.source).collect();
    Case {
        name: name(format!("{kind}-{size}")),
        title: format!(
            "{}, {size}, direct: AIO against {} threads",
            kind.replace('-', " "),
            DRIVES * THREADS_A_DRIVE
        ),
        source: format!("against sync, {}", said.join("; ")),
        about: "",
        columns: COLUMNS,
        subjects,
        targets,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_have_the_numbers_of_the_source() {
        let engines = [registry::find("nowait-direct").expect("known")];
        let cases = cases(&engines, &MODES, &KINDS, &[4096, 1 << 20]).expect("made");
        assert_eq!(cases.len(), 8);
        assert_eq!((cases[0].name, cases[1].name), ("sequential-read-4k", "sequential-read-1m"));
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

    fn in_flight(subject: &Subject<Recipe>) -> (&'static str, usize) {
        let Work::Transfer(transfer) = subject.job.work else { unreachable!("all are") };
        (subject.name, transfer.threads * transfer.depth)
    }
}
