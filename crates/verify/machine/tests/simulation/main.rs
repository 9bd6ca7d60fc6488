//! Programs that use the whole engine, on a simulated machine, by many seeds.
//!
//! `SEED=n SEEDS=1` repeats one run, to the last system call; a commit's hash is a legal seed.
#![cfg(simulated)]

mod accepted;
mod contexts;
mod faces;
mod files;
mod libaio;
mod mistakes;
mod model;
mod nbd;
mod posix;

use nowait_machine::{Failure, Report, process};
use std::sync::{Mutex, MutexGuard, PoisonError};

type Program = fn(u64);

/// Mistakes are made by the whole process.
static ONE_TEST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(program: Program, seed: u64) -> Result<Report, Failure> {
    process::run(seed, move || program(seed))
}

/// Returns a number from the environment; of what is longer or has letters, a number all the same.
fn number(name: &str, default: u64) -> u64 {
    let Ok(text) = std::env::var(name) else { return default };
    text.parse().unwrap_or_else(|_| {
        let digits = text.chars().filter_map(|digit| digit.to_digit(16)).take(15);
        digits.fold(0, |number, digit| number << 4 | u64::from(digit))
    })
}

fn runs(program: Program, count: u64) {
    let _alone = alone();
    let (first, count) = (number("SEED", 0), number("SEEDS", count));
    for seed in first..first + count {
        run(program, seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
    // One run that no commit before had, and that can be repeated.
    if std::env::var_os("SIM_COMMIT").is_some() {
        let seed = number("SIM_COMMIT", 0);
        run(program, seed).unwrap_or_else(|failure| panic!("{failure}"));
    }
}

#[test]
fn a_file_is_what_was_written_to_it() {
    runs(files::program, 1_000);
}

#[test]
fn accepted_requests_end_once_and_are_done() {
    runs(contexts::program, 1_000);
}

#[test]
fn what_c_programs_submit_ends_once_and_is_done() {
    runs(faces::program, 1_000);
}

#[test]
fn what_a_server_of_nbd_has_answered_is_there() {
    runs(nbd::program, 1_000);
}

#[test]
fn a_seed_repeats_to_the_last_system_call() {
    let _alone = alone();
    let programs: [(Program, u64); 4] =
        [(files::program, 40), (contexts::program, 41), (faces::program, 42), (nbd::program, 43)];
    for (program, seed) in programs {
        for seed in seed..seed + 30 {
            let once = run(program, seed).unwrap();
            assert_eq!(run(program, seed).unwrap(), once, "seed {seed}");
        }
    }
}
