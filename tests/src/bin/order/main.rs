//! Carries out random overlapping requests on one file, and checks their results against a model of
//! their order.
//!
//! | | |
//! |---|---|
//! | `order run FOLDER SEED COUNT` | carries out the scripts of SEED, SEED + 1, …, until they have had COUNT requests; if a script fails, reduces it, prints it and exits 1 |
//! | `order again FOLDER SEED NUMBERS TIMES` | carries out the requests NUMBERS of a script up to TIMES times, until a run fails |
//! | `order pairs FOLDER SEED SCRIPTS` | carries out scripts of two requests; prints which kinds of pairs were out of order, and how often |

mod model;
mod pairs;
mod play;
mod rule;
mod script;

use std::path::Path;

use model::Model;
use play::Stage;
use rule::Rule;
use script::{REQUESTS_MAX, Script};

/// How often at most a reduced script runs. The script counts as failing if one run fails.
const TRIES: usize = 40;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let folder = Path::new(args.get(1).expect("a folder"));
    let (stage, rule) = (Stage::new(folder), Rule::of(folder));
    match args[..] {
        ["run", _, seed, count] => run(&stage, rule, (number(seed), number(count))),
        ["again", _, seed, numbers, times] => {
            let numbers: Vec<usize> = numbers.split(',').map(|it| number(it) as usize).collect();
            let script = Script::draw(number(seed), REQUESTS_MAX, rule);
            let script = script.only(&numbers, rule).expect("a script that can be carried out");
            let failed = (0..number(times)).find_map(|_| try_once(&stage, rule, &script).err());
            failed.iter().for_each(|why| eprintln!("{why}"));
            std::process::exit(failed.is_some().into());
        }
        ["pairs", _, seed, count] => {
            pairs::print(&stage, number(seed)..number(seed) + number(count));
        }
        _ => panic!("unknown case {args:?}"),
    }
}

fn number(text: &str) -> u64 {
    text.parse().expect("a number")
}

/// The seed of the script that is running. A drop prints it during a panic, such as for a request
/// without an event.
struct Running(u64);

impl Drop for Running {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("in the script of seed {}", self.0);
        }
    }
}

fn try_once(stage: &Stage, rule: Rule, script: &Script) -> Result<(), String> {
    let _running = Running(script.seed);
    Model::new(script, &stage.play(script), rule).check()
}

fn run(stage: &Stage, rule: Rule, (first, count): (u64, u64)) {
    let (mut requests, mut seed) = (0, first);
    while requests < count {
        let script = Script::draw(seed, REQUESTS_MAX, rule);
        if let Err(why) = try_once(stage, rule, &script) {
            let (smallest, why) = shrink(stage, rule, (script, why));
            eprintln!("{why}\n{smallest}\norder again FOLDER {} 1000", smallest.line());
            std::process::exit(1);
        }
        requests += script.requests.len() as u64;
        seed += 1;
    }
    println!("{requests} requests in {} scripts, rule {rule:?}", seed - first);
}

/// Leaves out requests as long as the rest of the script still fails; returns the rest and its
/// failure.
fn shrink(stage: &Stage, rule: Rule, failed: (Script, String)) -> (Script, String) {
    let (mut script, mut why) = failed;
    let mut len = script.requests.len() / 2;
    while len > 0 {
        let mut from = 0;
        while from < script.requests.len() {
            let numbers = script.requests.iter().map(|it| it.number);
            let mut numbers: Vec<usize> = numbers.collect();
            numbers.drain(from..(from + len).min(script.requests.len()));
            let smaller = script.only(&numbers, rule);
            let fails = |it: &Script| (0..TRIES).find_map(|_| try_once(stage, rule, it).err());
            match smaller.and_then(|it| Some((fails(&it)?, it))) {
                Some((new, smaller)) => (script, why) = (smaller, new),
                None => from += len,
            }
        }
        len /= 2;
    }
    (script, why)
}
