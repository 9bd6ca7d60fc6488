//! All tables of the sources.

use crate::{aio_stress, cleaner, randrw, rawio, table::Table, vector};
use nowait_sim::Hardware;

/// The sizes of the simulated experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The file of aio-stress, in bytes; the source has 1 GiB.
    pub stress_file_bytes: u64,
    /// The file of randrw, in bytes; the source has 200 MiB.
    pub randrw_file_bytes: u64,
    /// Requests of a run of rawiobench.
    pub raw_requests: u64,
    /// Requests of a run of readv and writev.
    pub vectors: u64,
    /// Transactions of the database.
    pub transactions: u64,
}

impl Scale {
    /// The sizes of the sources, as far as the sources state them.
    pub const FULL: Scale = Scale {
        stress_file_bytes: 1 << 30,
        randrw_file_bytes: 200 << 20,
        raw_requests: 4_000,
        vectors: 2_000,
        transactions: 4_000,
    };

    /// A small scale, for tests.
    pub const SMALL: Scale = Scale {
        stress_file_bytes: 64 << 20,
        randrw_file_bytes: 4 << 20,
        raw_requests: 200,
        vectors: 50,
        transactions: 200,
    };
}

/// Runs every experiment on a device, in virtual time; equal seeds give equal tables. `go_on` is
/// called with the name of each experiment before it; if it returns `false`, the tables so far are
/// returned.
pub fn tables(
    hardware: &Hardware,
    scale: Scale,
    seed: u64,
    mut go_on: impl FnMut(&str) -> bool,
) -> Vec<Table> {
    type Experiment<'a> = (&'a str, Box<dyn Fn() -> Vec<Table> + 'a>);
    let experiments: [Experiment<'_>; 5] = [
        (
            "M1 aio-stress",
            Box::new(|| vec![aio_stress::table(hardware, scale.stress_file_bytes, seed)]),
        ),
        ("M7 vectors", Box::new(|| vec![vector::table(hardware, scale.vectors, seed)])),
        ("M8 rawiobench", Box::new(|| rawio::tables(hardware, scale.raw_requests, seed))),
        ("M9 randrw", Box::new(|| vec![randrw::table(hardware, scale.randrw_file_bytes, seed)])),
        (
            "M13 page cleaners",
            Box::new(|| vec![cleaner::table(hardware, scale.transactions, seed)]),
        ),
    ];
    let wanted = experiments.iter().take_while(|(what, _)| go_on(what));
    wanted.flat_map(|(_, run)| run()).collect()
}
