//! Runs seeds, shrinks failing scenarios, and prints them.

use clap::{Parser, ValueEnum};
use nowait_simulator::{Profile, Report, Scenario, shrink::explain};
use std::process::ExitCode;

/// Runs the page cache on a simulated device, by seed.
#[derive(Parser, Debug)]
#[command(name = "nowait-simulator", version)]
struct Args {
    /// First seed.
    #[arg(long, env = "SIM_SEED", default_value = "0", value_parser = parse_seed)]
    seed: u64,
    /// How many seeds.
    #[arg(long, default_value_t = 1)]
    seeds: u64,
    /// Operations per seed.
    #[arg(long, default_value_t = 2_000)]
    ops: usize,
    /// Which kind of runs; all kinds if not given.
    #[arg(long, value_enum)]
    profile: Option<Kind>,
    /// Print the world, the operations and the counts of each seed.
    #[arg(long)]
    trace: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Kind {
    /// No faults, a simulated device
    Exact,
    /// No faults, an array
    Memory,
    /// A device that fails
    Faulty,
    /// A device that fails, a third of all operations are cancellations
    Storm,
    /// No faults, another process writes to the file
    Rival,
    /// A small file, power cuts at every request
    Power,
}

impl Kind {
    fn profile(self) -> Profile {
        match self {
            Kind::Exact => Profile::Exact,
            Kind::Memory => Profile::Memory,
            Kind::Faulty => Profile::Faulty,
            Kind::Storm => Profile::Storm,
            Kind::Rival => Profile::Rival,
            Kind::Power => Profile::Power,
        }
    }
}

/// Parses a number, or the first 16 hexadecimal digits of a hash: the hash of a commit is a seed.
fn parse_seed(text: &str) -> Result<u64, String> {
    let hexadecimal = || u64::from_str_radix(text.get(..16.min(text.len()))?, 16).ok();
    text.parse().ok().or_else(hexadecimal).ok_or_else(|| String::from("no number and no hash"))
}

/// Most operations with power cuts: few, because the run cuts the power at each request.
const POWER_OPS: usize = 40;

fn main() -> ExitCode {
    let args = Args::parse();
    let profiles = args.profile.map_or(Profile::ALL.to_vec(), |kind| vec![kind.profile()]);
    let mut total = Report::default();
    for seed in (0..args.seeds).map(|n| args.seed.wrapping_add(n)) {
        for profile in &profiles {
            match one(seed, *profile, &args) {
                Ok(report) => add(&mut total, &report),
                Err(text) => {
                    println!("FAILED {text}");
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    let counts = total.counts;
    println!("seeds {} to {}", args.seed, args.seed.wrapping_add(args.seeds.saturating_sub(1)));
    println!("operations {}, dropped {}, failed {}", counts.ended, counts.dropped, total.errors);
    println!("iterations {}, bios {}", counts.iterations, counts.bios);
    ExitCode::SUCCESS
}

fn one(seed: u64, profile: Profile, args: &Args) -> Result<Report, String> {
    let count = if profile == Profile::Power { args.ops.min(POWER_OPS) } else { args.ops };
    let scenario = Scenario::draw(seed, count, profile);
    if args.trace {
        println!("{profile:?} seed {seed}: {:#?}", scenario.setup);
        scenario.ops.iter().enumerate().for_each(|(index, op)| println!("{index:>5}  {op}"));
    }
    let report = explain(&scenario)?;
    if args.trace {
        println!("{report:#?}");
    }
    Ok(report)
}

fn add(total: &mut Report, report: &Report) {
    let (to, from) = (&mut total.counts, &report.counts);
    to.ended += from.ended;
    to.iterations += from.iterations;
    to.bios += from.bios;
    to.dropped += from.dropped;
    total.errors += report.errors;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_is_a_number_or_the_hash_of_a_commit() {
        assert_eq!(parse_seed("17"), Ok(17));
        assert_eq!(parse_seed("4a825021b0f3c9d2e4a8"), Ok(0x4a82_5021_b0f3_c9d2));
        assert!(parse_seed("main").is_err());
    }
}
