//! `bench cached`: nowait's own page cache against every peer.

use super::args::SuiteDef;
use super::recipe::table;
use crate::args::Defaults;
use crate::measurement::Pairs;

pub(crate) const EXAMPLES: &str = "\
Runs of 2 s; a large cached set of 2G, and a file four times as large; with --quick 150 ms and 128M.

Examples:
  nowait bench cached --quick                  every case, small: under three minutes
  nowait bench cached --case a,e --rounds 9    some cases, more certain
  nowait bench cached --engine nowait,psync --case a-4k
  nowait bench cached --list                   the cases and their targets, nothing run";

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
    ..SuiteDef::new("cached", |_| table(include_str!("cached.toml")))
};
