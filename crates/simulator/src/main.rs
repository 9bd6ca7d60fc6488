//! Runs seeds, shrinks what fails, and prints how.

use clap::{Parser, ValueEnum};
use nowait_simulator::{Failure, Op, Profile, Report, Scenario, run, shrink};
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
    /// Print the operations of each seed.
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
    /// A small file, power cuts at every request
    Power,
}

impl Kind {
    fn profile(self) -> Profile {
        match self {
            Kind::Exact => Profile::Exact,
            Kind::Memory => Profile::Memory,
            Kind::Faulty => Profile::Faulty,
            Kind::Power => Profile::Power,
        }
    }
}

/// Takes a number, or anything of hexadecimal digits: the hash of a commit is a seed.
fn parse_seed(text: &str) -> Result<u64, String> {
    let hexadecimal = || u64::from_str_radix(text.get(..16.min(text.len()))?, 16).ok();
    text.parse().ok().or_else(hexadecimal).ok_or_else(|| String::from("no number and no hash"))
}

/// Operations of a scenario with power cuts: each request is cut at, so few.
const POWER_OPS: usize = 40;

/// Most runs for shrinking.
const SHRINK_RUNS: usize = 3_000;

fn main() -> ExitCode {
    let args = Args::parse();
    let profiles = match args.profile {
        Some(kind) => vec![kind.profile()],
        None => vec![Profile::Exact, Profile::Memory, Profile::Faulty, Profile::Power],
    };
    let mut total = Report::default();
    for seed in (0..args.seeds).map(|n| args.seed.wrapping_add(n)) {
        for profile in &profiles {
            match one(seed, *profile, &args) {
                Ok(report) => add(&mut total, &report),
                Err((scenario, failure)) => {
                    tell(&scenario, &failure, *profile);
                    return ExitCode::FAILURE;
                }
            }
        }
    }
    let counts = total.counts;
    println!(
        "{} seeds from {}: {} operations, {} iterations, {} bios, {} errors, {} dropped",
        args.seeds, args.seed, counts.ended, counts.iterations, counts.bios, total.errors,
        counts.dropped
    );
    ExitCode::SUCCESS
}

fn one(seed: u64, profile: Profile, args: &Args) -> Result<Report, (Scenario, Failure)> {
    let count = if profile == Profile::Power { args.ops.min(POWER_OPS) } else { args.ops };
    let scenario = Scenario::draw(seed, count, profile);
    if args.trace {
        print_ops(&scenario.ops);
    }
    let fails = |scenario: &Scenario| attempt(scenario, profile).err();
    attempt(&scenario, profile).map_err(|failure| {
        // The panics of each attempt would bury what matters.
        std::panic::set_hook(Box::new(|_| {}));
        shrink::shrink(&scenario, failure, SHRINK_RUNS, fails)
    })
}

fn attempt(scenario: &Scenario, profile: Profile) -> Result<Report, Failure> {
    if profile == Profile::Power { run::every_power_cut(scenario) } else { run::run(scenario) }
}

fn add(total: &mut Report, report: &Report) {
    let (to, from) = (&mut total.counts, &report.counts);
    to.ended += from.ended;
    to.iterations += from.iterations;
    to.bios += from.bios;
    to.dropped += from.dropped;
    total.errors += report.errors;
}

fn tell(scenario: &Scenario, failure: &Failure, profile: Profile) {
    println!("FAILED {profile:?} {failure}");
    println!("{:#?}", scenario.setup);
    print_ops(&scenario.ops);
    println!("again: SIM_SEED={} nowait-simulator", failure.seed);
}

fn print_ops(ops: &[Op]) {
    for (index, op) in ops.iter().enumerate() {
        println!("{index:>5}  {op}");
    }
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
