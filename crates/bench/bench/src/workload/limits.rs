//! `bench limits`: the limits of the machine, with the kernel and nowait for comparison.

use super::args::SuiteDef;
use super::recipe::table;
use crate::args::Defaults;

pub(crate) const EXAMPLES: &str = "\
Five runs of 1 s on 1G: five minutes. With --quick 150 ms on 256M: one minute.

Examples:
  nowait bench limits                         every limit, and how far nowait is from it
  nowait bench limits --case copy-4k,disk-4k --rounds 9
  nowait bench limits --list                  what is compared, nothing run";

pub(crate) const LIMITS: SuiteDef = SuiteDef {
    defaults: Defaults {
        rounds: 5,
        runtime_ms: [1000, 150],
        size_bytes: [1 << 30, 256 << 20],
        least_bytes: 16 << 20,
    },
    takes_engines: false,
    apart: true,
    ..SuiteDef::new("limits", |_| table(include_str!("limits.toml")))
};
