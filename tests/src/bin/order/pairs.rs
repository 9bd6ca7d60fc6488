//! Finds the kinds of pairs of requests that do not always take effect in the order of submission.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::model::Model;
use crate::play::Stage;
use crate::rule::Rule;
use crate::script::{PAGE, Request, Script};

pub(crate) fn print(stage: &Stage, seeds: Range<u64>) {
    let mut table: BTreeMap<String, (u64, u64, u64)> = BTreeMap::new();
    for seed in seeds {
        let mut script = Script::draw(seed, 2, Rule::Strict);
        script.requests.iter_mut().for_each(|it| (it.thread, it.waits) = (0, false));
        let is_right = Model::new(&script, &stage.play(&script), Rule::Strict).check().is_ok();
        let (count, wrong, last) = table.entry(describe(&script)).or_default();
        *count += 1;
        if !is_right {
            *wrong += 1;
            *last = seed;
        }
    }
    for (pair, (count, wrong, last)) in table.iter().filter(|(_, row)| row.1 > 0) {
        println!("{pair}: {wrong} of {count}, seed {last}");
    }
    let pairs: u64 = table.values().map(|row| row.0).sum();
    println!("{} kinds of pairs, {pairs} pairs", table.len());
}

fn describe(script: &Script) -> String {
    let ranges = script.reach().0;
    let (one, other) = (ranges[0], ranges[1]);
    let meet = |one: (u64, u64), other: (u64, u64)| one.0 < other.1 && other.0 < one.1;
    let pages = |(from, to): (u64, u64)| (from / PAGE * PAGE, to.next_multiple_of(PAGE));
    let place = match meet(one, other) {
        true => "same bytes",
        false if meet(pages(one), pages(other)) => "same page",
        false => "apart",
    };
    let [one, other] = [0, 1].map(|index| describe_one(script, index));
    format!("{one}, then {other}: {place}")
}

fn describe_one(script: &Script, index: usize) -> String {
    let (ranges, sizes) = script.reach();
    let (it, (from, to)): (&Request, _) = (&script.requests[index], ranges[index]);
    let size = if index == 0 { script.size } else { sizes[index - 1] };
    let way = if it.direct { "direct" } else { "buffered" };
    let is_part = from % PAGE != 0 || to % PAGE != 0;
    let allocates = it.direct && it.writes() && script.allocates((from, to));
    let words = [
        (is_part, " of part"),
        (allocates, ", allocating"),
        (it.writes() && to > size, ", longer"),
    ];
    let words: String = words.iter().filter(|it| it.0).map(|it| it.1).collect();
    format!("{way} {:?}{words}", it.kind)
}
