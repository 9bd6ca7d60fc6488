//! Programs that use the whole engine, on a simulated machine, by many seeds.
//!
//! `SEED=n SEEDS=1` repeats one run, to the last system call; a commit's hash is a legal seed.
#![cfg(simulated)]

mod accepted;
mod beside;
mod callers;
mod contexts;
mod cores;
mod faces;
mod files;
mod growth;
mod libaio;
mod mistakes;
mod model;
mod nbd;
mod order;
mod posix;
mod rivals;
mod signals;

use nowait_machine::{Failure, Report, explain, process};
use nowait_sim::Prng;
use std::{
    process::Command,
    sync::{Mutex, MutexGuard, PoisonError},
    thread::JoinHandle,
};

type Program = fn(u64);

/// A deliberate mistake applies to the whole process: one test runs at a time.
static ONE_TEST: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ONE_TEST.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(program: Program, seed: u64) -> Result<Report, Failure> {
    process::run(seed, move || begin(program, seed))
}

/// Runs a program on a drawn kernel and device, of which some are old or refuse RWF_NOWAIT.
fn begin(program: Program, seed: u64) {
    // Other generators draw the kernel, so that the program draws the same numbers on every kernel.
    if Prng::new(seed ^ 0x67).chance(250_000) {
        nowait_machine::wait_on_no_words();
        if Prng::new(seed ^ 0x510).chance(500_000) {
            nowait_machine::mark_pages();
        }
    }
    match Prng::new(seed ^ 0x4e).index(8) {
        0 => nowait_machine::know_no_nowait(),
        1 => nowait_machine::refuse_late(20_000),
        2 => nowait_machine::refuse_late(500_000),
        _ => {}
    }
    let mut tags = Prng::new(seed ^ 0x7a6);
    if tags.chance(200_000) {
        nowait_machine::say_tags([2, 8, 32][tags.index(3)]);
    }
    if Prng::new(seed ^ 0x5a7).chance(125_000) {
        nowait_machine::start_no_read();
    }
    match Prng::new(seed ^ 0xba1).index(8) {
        0 => nowait_machine::throttle(20_000, 20_000_000),
        1 => nowait_machine::throttle(300_000, 4_000_000),
        _ => {}
    }
    program(seed);
}

pub(crate) fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
    std::thread::Builder::new().name(name.to_owned()).spawn(work).expect("threads can be had")
}

/// The weight of the first kind is never 0.
pub(crate) fn swarm<K: Copy, const COUNT: usize>(
    kinds: &[(K, u32); COUNT],
    prng: &mut Prng,
) -> [u32; COUNT] {
    let mut weights = kinds.map(|(_, weight)| weight);
    prng.swarm(&mut weights[1..]);
    weights
}

fn check(program: Program, seed: u64) {
    explain(seed, move || begin(program, seed)).unwrap_or_else(|smallest| panic!("{smallest}"));
}

/// Text that is no decimal number counts by its first 15 hexadecimal digits.
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
        check(program, seed);
    }
    // A seed that differs for each commit, and that can be repeated.
    if std::env::var_os("SIM_COMMIT").is_some() {
        let seed = number("SIM_COMMIT", 0);
        check(program, seed);
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
fn requests_take_effect_in_the_order_of_their_submission() {
    runs(order::program, 1_000);
}

#[test]
fn requests_end_however_callers_come_for_them() {
    runs(callers::program, 1_000);
}

#[test]
fn what_another_process_writes_is_seen_by_the_next_open_and_stays() {
    runs(rivals::program, 1_000);
}

fn all_reports() -> Vec<String> {
    let programs: [(Program, u64); 7] = [
        (files::program, 40),
        (contexts::program, 41),
        (faces::program, 42),
        (nbd::program, 43),
        (order::program, 44),
        (rivals::program, 45),
        (callers::program, 46),
    ];
    let runs = programs.iter().flat_map(|(program, first)| {
        (*first..first + 30).map(move |seed| (seed, run(*program, seed).unwrap()))
    });
    runs.map(|(seed, report)| format!("seed {seed}: {report:?}")).collect()
}

#[test]
fn a_seed_repeats_to_the_last_system_call() {
    let _alone = alone();
    assert_eq!(all_reports(), all_reports());
}

#[test]
fn a_seed_repeats_where_addresses_are_others() {
    const TELLS: &str = "TELLS_REPORTS";
    let _alone = alone();
    let here = all_reports();
    if std::env::var_os(TELLS).is_some() {
        return here.iter().for_each(|line| println!("{line}"));
    }
    let mut other = Command::new(std::env::current_exe().unwrap());
    other.args(["a_seed_repeats_where_addresses_are_others", "--nocapture"]).env(TELLS, "1");
    let told = String::from_utf8(other.output().unwrap().stdout).unwrap();
    let there: Vec<&str> = told.lines().filter(|line| line.starts_with("seed ")).collect();
    assert_eq!(there, here);
}
