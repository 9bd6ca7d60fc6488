//! `bench paper --device FILE`: the sources' tables on a device that exists.

use std::path::Path;

use super::args::{SuiteDef, WorkloadArgs};
use super::device::MEMORY;
use super::recipe::{Recipe, engine};
use super::sources;
use crate::args::Defaults;
use crate::case::{Case, name};
use crate::error::Result;

/// A full measurement takes seven minutes on a disk of 500 MB/s.
pub(crate) const PAPER: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [110, 50],
        size_bytes: [512 << 20, 64 << 20],
        least_bytes: 4 << 20,
    },
    ..SuiteDef::new("paper", cases)
};

/// If the device is not memory, also makes cases of M9 in memory.
fn cases(args: &WorkloadArgs) -> Result<Vec<Case<Recipe>>> {
    let (blocks, kinds) = match args.measure.quick {
        true => (&sources::RAW_PAGES[..1], &sources::RAW_KINDS[..2]),
        false => (sources::RAW_PAGES, &sources::RAW_KINDS[..]),
    };
    let on_disk = args.device != Path::new(MEMORY);
    let mut in_memory = if on_disk { sources::randrw(&[], true)? } else { Vec::new() };
    let subjects = in_memory.iter_mut().flat_map(|case| &mut case.subjects);
    subjects.for_each(|subject| subject.job.in_memory = true);
    let tables = [
        ("M1", sources::stress_rows(&[])?),
        ("M8", sources::rawio(&[engine("nowait-direct")?], kinds, blocks)?),
        ("M9", sources::randrw(&[], false)?),
        ("M9", in_memory),
        ("M7", sources::vectors_of_source()?),
    ];
    let named =
        |row, case: Case<Recipe>| Case { name: name(format!("{row}-{}", case.name)), ..case };
    let cases = tables.into_iter();
    Ok(cases.flat_map(|(row, cases)| cases.into_iter().map(move |case| named(row, case))).collect())
}
