//! All experiments of the sources.

use crate::{aio_stress, cleaner, randrw, rawio, table::Table, vector};
use nowait_sim::Hardware;

/// The sizes of the simulated experiments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scale {
    /// The size of the file of aio-stress, in bytes; the source has 1 GiB.
    pub stress_file_bytes: u64,
    /// The size of the file of randrw, in bytes; the source has 200 MiB.
    pub randrw_file_bytes: u64,
    /// The number of requests in a run of rawiobench.
    pub raw_requests: u64,
    /// The number of requests in a run of readv and writev.
    pub vectors: u64,
    /// The number of transactions of the database.
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

    /// A small scale, for tests and for `nowait bench paper --quick`.
    pub const SMALL: Scale = Scale {
        stress_file_bytes: 64 << 20,
        randrw_file_bytes: 4 << 20,
        raw_requests: 200,
        vectors: 50,
        transactions: 200,
    };
}

/// An experiment: its name, and the function that runs it on a device with a seed.
type Experiment = (&'static str, fn(&Hardware, Scale, u64) -> Vec<Table>);

const EXPERIMENTS: [Experiment; 5] = [
    ("M1 aio-stress", |on, scale, seed| vec![aio_stress::table(on, scale.stress_file_bytes, seed)]),
    ("M7 vectors", |on, scale, seed| vec![vector::table(on, scale.vectors, seed)]),
    ("M8 rawiobench", |on, scale, seed| rawio::tables(on, scale.raw_requests, seed)),
    ("M9 randrw", |on, scale, seed| vec![randrw::table(on, scale.randrw_file_bytes, seed)]),
    ("M13 page cleaners", |on, scale, seed| vec![cleaner::table(on, scale.transactions, seed)]),
];

/// Runs the experiments in order, as long as `go_on` returns `true` for their names. Equal seeds
/// give equal tables.
pub fn tables(
    hardware: &Hardware,
    scale: Scale,
    seed: u64,
    mut go_on: impl FnMut(&str) -> bool,
) -> Vec<Table> {
    let wanted = EXPERIMENTS.iter().take_while(|(what, _)| go_on(what));
    wanted.flat_map(|(_, run)| run(hardware, scale, seed)).collect()
}
