//! Readahead, checked against a model of the cache: a page is absent, being read, or uptodate.

use nowait_cache::readahead::{Advice, Bounds, Plan, Readahead, Request};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

const MAX: u64 = 128; // 512 KiB
const FILE: u64 = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    UnderWay,
    UpToDate,
}

struct Read {
    request: Request,
    at: u64,
    iterations: u32,
    announced: BTreeSet<u64>,
}

struct Model {
    readahead: Readahead,
    bounds: Bounds,
    pages: BTreeMap<u64, Page>,
    marks: BTreeSet<u64>,
    plans: Vec<Plan>,
    device_pages: u64,
}

impl Model {
    fn new(file_pages: u64) -> Model {
        Model {
            readahead: Readahead::new(MAX as u32),
            bounds: Bounds { file_pages, room_pages: u64::MAX },
            pages: BTreeMap::new(),
            marks: BTreeSet::new(),
            plans: Vec::new(),
            device_pages: 0,
        }
    }

    fn read(pages: Range<u64>, asynchronous: bool) -> Read {
        let (at, request) = (pages.start, Request::new(pages, asynchronous));
        Read { at, request, iterations: 0, announced: BTreeSet::new() }
    }

    fn perform(&mut self, plan: Plan) {
        for index in plan.read.clone() {
            self.pages.entry(index).or_insert_with(|| {
                self.device_pages += 1;
                Page::UnderWay
            });
        }
        self.marks.extend(plan.marker);
        if !plan.read.is_empty() {
            self.plans.push(plan);
        }
    }

    fn iterate(&mut self, read: &mut Read) -> bool {
        read.iterations += 1;
        let end = read.request.pages().end.min(self.bounds.file_pages);
        while read.at < end {
            if !self.pages.contains_key(&read.at) {
                let plan = self.readahead.miss(&mut read.request, read.at, self.bounds);
                assert!(plan.read.contains(&read.at), "the missing page is read");
                self.perform(plan);
            }
            if self.marks.remove(&read.at) {
                let plan = self.readahead.marker(&mut read.request, read.at, self.bounds);
                self.perform(plan);
            }
            if self.pages[&read.at] == Page::UnderWay {
                return false;
            }
            read.at += 1;
        }
        true
    }

    fn device_completes(&mut self) {
        self.pages.values_mut().for_each(|page| *page = Page::UpToDate);
    }

    fn evict(&mut self, pages: Range<u64>) {
        self.pages.retain(|index, page| !pages.contains(index) || *page == Page::UnderWay);
        self.marks.retain(|index| self.pages.contains_key(index));
    }

    fn run(&mut self, pages: Range<u64>, asynchronous: bool) -> u32 {
        let mut read = Model::read(pages, asynchronous);
        while !self.iterate(&mut read) {
            self.device_completes();
        }
        read.iterations
    }

    fn ahead(&self, from: u64) -> u64 {
        let end = self.bounds.file_pages;
        (from..end).take_while(|index| self.pages.contains_key(index)).count() as u64
    }
}

/// The trace of the paper on upfront readahead. There the second read got 8 KiB on its first retry,
/// and the third got 4 KiB.
#[test]
fn three_streaming_random_reads_complete_whole_on_their_first_retry() {
    let mut model = Model::new(FILE);
    let offsets = [5000, 91_000, 40_000];
    let mut reads = offsets.map(|at| Model::read(at..at + 4, true));
    for read in &mut reads {
        assert!(!model.iterate(read));
    }
    let announced: Vec<_> = model.plans.iter().map(|plan| plan.read.clone()).collect();
    assert_eq!(announced, offsets.map(|at| at..at + 4));
    model.device_completes();
    for read in &mut reads {
        assert!(model.iterate(read), "16384 bytes at once");
        assert_eq!(read.iterations, 2);
    }
    assert_eq!(model.plans.len(), 3, "retries announce nothing");
}

#[test]
fn window_never_collapses_under_streaming_random_aio() {
    let mut model = Model::new(FILE);
    let place = |n: u64| n * 7919 % 60_000 * 16 + 3;
    for batch in 0..256 {
        let mut reads: Vec<_> = (batch * 32..batch * 32 + 32)
            .map(|n| Model::read(place(n)..place(n) + 4, true))
            .collect();
        reads.iter_mut().for_each(|read| assert!(!model.iterate(read)));
        model.device_completes();
        reads.iter_mut().for_each(|read| assert!(model.iterate(read)));
    }
    assert!(model.plans.iter().all(|plan| plan.read.end - plan.read.start == 4));
    assert_eq!(model.device_pages, 256 * 32 * 4, "and no page more");
}

#[test]
fn strided_reads_waste_nothing() {
    for asynchronous in [false, true] {
        let mut model = Model::new(FILE);
        for n in 0..1000 {
            model.run(64 + n * 40..64 + n * 40 + 2, asynchronous);
        }
        assert_eq!(model.device_pages, 2000);
    }
}

#[test]
fn advice_random_reads_only_what_is_asked_for() {
    let mut model = Model::new(FILE);
    model.readahead.advise(Advice::Random);
    for n in 0..100 {
        model.run(n * 4..n * 4 + 4, false);
    }
    assert_eq!(model.device_pages, 400);
}

#[test]
fn advice_sequential_reads_ahead_from_the_first_request_and_farther() {
    let mut model = Model::new(FILE);
    model.readahead.advise(Advice::Sequential);
    model.run(1000..1016, true);
    assert!(model.device_pages > 16);
    for n in 0..100 {
        model.run(1016 + n * 16..1032 + n * 16, true);
    }
    assert!(model.ahead(1000 + 101 * 16) >= 2 * MAX - 16);
}

#[test]
fn sequential_64k_reads_keep_512k_ahead() {
    for asynchronous in [false, true] {
        let mut model = Model::new(FILE);
        for n in 0..1000 {
            model.run(n * 16..n * 16 + 16, asynchronous);
            let ahead = model.ahead(n * 16);
            assert!(n < 8 || ahead >= MAX, "request {n}: {ahead} pages");
            assert!(ahead <= 3 * MAX, "request {n}: {ahead} pages");
        }
    }
}

#[test]
fn a_stream_does_not_wait_for_a_device_that_keeps_up() {
    let mut model = Model::new(FILE);
    let iterations = (0..1000).map(|n| {
        model.device_completes();
        model.run(n * 16..n * 16 + 16, true)
    });
    assert_eq!(iterations.filter(|iterations| *iterations > 1).count(), 2);
}

#[test]
fn a_batch_of_sequential_reads_is_one_stream() {
    let mut model = Model::new(FILE);
    let mut reads: Vec<_> = (0..64).map(|n| Model::read(n * 16..n * 16 + 16, true)).collect();
    reads.iter_mut().for_each(|read| assert!(!model.iterate(read)));
    model.device_completes();
    reads.iter_mut().for_each(|read| assert!(model.iterate(read)));
    assert!(model.plans.len() <= 14, "{} plans for 1024 pages", model.plans.len());
    assert!(model.device_pages <= 1024 + 2 * MAX);
}

#[test]
fn streams_in_turns_on_one_descriptor_keep_their_windows() {
    let mut model = Model::new(FILE);
    for n in 0..200 {
        for stream in 0..6 {
            model.run(stream * 100_000 + n * 4..stream * 100_000 + n * 4 + 4, true);
            // Random requests in between take no stream's slot.
            model.run(900_000 + n * 96 + stream * 16..900_001 + n * 96 + stream * 16, true);
        }
    }
    for stream in 0..6 {
        assert!(model.ahead(stream * 100_000 + 800) >= MAX - 4, "stream {stream}");
    }
    assert!(model.plans.iter().filter(|plan| plan.read.end - plan.read.start == MAX).count() >= 30);
}

#[test]
fn requests_that_meet_within_a_page_are_one_stream() {
    let mut model = Model::new(FILE);
    for n in 0..100u64 {
        let (start, end) = (n * 6000, (n + 1) * 6000);
        model.run(start / 4096..end.div_ceil(4096), true);
    }
    assert!(model.plans.len() <= 8, "{} plans", model.plans.len());
}

#[test]
fn a_request_longer_than_the_window_is_announced_in_steps_and_to_its_end_only() {
    let mut model = Model::new(FILE);
    let mut read = Model::read(777..777 + 1000, true);
    assert!(!model.iterate(&mut read));
    assert_eq!(model.plans[0].read, 777..777 + MAX);
    assert_eq!(model.plans.len(), 1, "capped to the maximum");
    model.device_completes();
    while !model.iterate(&mut read) {
        model.device_completes();
    }
    assert_eq!(model.device_pages, 1000);
    assert!(read.iterations <= 1000 / (MAX as u32 / 2) + 2, "{}", read.iterations);
}

#[test]
fn pages_lost_before_use_shrink_the_window_and_it_recovers() {
    let mut model = Model::new(FILE);
    let longest = |model: &Model, from: usize| {
        model.plans[from..].iter().map(|plan| plan.read.end - plan.read.start).max().unwrap_or(0)
    };
    for n in 0..100 {
        model.run(n * 4..n * 4 + 4, true);
    }
    // Evicts the pages read ahead, except the 32 pages after the request.
    let mut from = 0;
    for n in 100..300 {
        from = if n == 200 { model.plans.len() } else { from };
        model.evict(n * 4 + 36..FILE);
        model.run(n * 4..n * 4 + 4, true);
    }
    assert!(longest(&model, from) <= 48, "{}", longest(&model, from));
    let from = model.plans.len();
    for n in 300..2500 {
        model.run(n * 4..n * 4 + 4, true);
    }
    assert_eq!(longest(&model, from), MAX);
}

#[test]
fn memory_pressure_bounds_the_window() {
    let mut model = Model::new(FILE);
    model.bounds.room_pages = 10;
    for n in 0..100 {
        model.run(n * 16..n * 16 + 16, true);
    }
    assert!(model.plans.iter().all(|plan| plan.read.end - plan.read.start <= 10));
    model.bounds.room_pages = 0;
    assert!(model.run(5000..5016, true) > 1, "a request makes progress without room");
}

#[test]
fn pages_dropped_on_purpose_do_not_shrink_the_window() {
    let mut model = Model::new(FILE);
    for n in 0..100 {
        model.run(n * 16..n * 16 + 16, true);
    }
    model.device_completes();
    model.evict(1600..FILE);
    model.readahead.forget(1600..FILE);
    for n in 100..200 {
        model.run(n * 16..n * 16 + 16, true);
    }
    assert!(model.ahead(3200) >= MAX - 16);
    let behind = model.plans.len();
    for n in 200..232 {
        model.run(n * 16..n * 16 + 16, true);
        model.evict(0..n * 16);
        model.readahead.forget(0..n * 16);
    }
    assert_eq!(model.plans.len(), behind + 4, "dropping what was read keeps the stream");
}

#[test]
fn a_file_that_grows_is_still_one_stream() {
    let mut model = Model::new(160);
    for n in 0..10 {
        model.run(n * 16..n * 16 + 16, true);
    }
    model.bounds.file_pages = 320;
    model.run(160..176, true);
    assert!(model.ahead(160) >= MAX / 2);
}

#[test]
fn will_need_is_a_window_at_most_and_ends_with_the_file() {
    let readahead = Readahead::new(MAX as u32);
    let bounds = Bounds { file_pages: 1000, room_pages: u64::MAX };
    assert_eq!(readahead.will_need(100..5000, bounds).read, 100..100 + MAX);
    assert_eq!(readahead.will_need(990..5000, bounds).read, 990..1000);
    assert_eq!(readahead.will_need(1000..5000, bounds), Plan::NONE);
}

#[derive(Clone, Debug)]
enum Step {
    Submit { start: u64, len: u64, asynchronous: bool, sequential: bool },
    Iterate(usize),
    Complete,
    Evict(u64, u64),
    Forget(u64, u64),
    Advise(u8),
    Room(u64),
    Resize(u64),
}

fn step() -> impl Strategy<Value = Step> {
    let page = || prop_oneof![0..40u64, 0..2000u64];
    prop_oneof![
        6 => (page(), 1..200u64, any::<bool>(), any::<bool>()).prop_map(
            |(start, len, asynchronous, sequential)|
            Step::Submit { start, len, asynchronous, sequential }
        ),
        8 => any::<usize>().prop_map(Step::Iterate),
        4 => Just(Step::Complete),
        1 => (page(), page()).prop_map(|(start, len)| Step::Evict(start, start + len)),
        1 => (page(), page()).prop_map(|(start, len)| Step::Forget(start, start + len)),
        1 => (0..3u8).prop_map(Step::Advise),
        1 => prop_oneof![0..300u64, Just(u64::MAX)].prop_map(Step::Room),
        1 => (1..2100u64).prop_map(Step::Resize),
    ]
}

fn check(model: &Model, plans: &[Plan]) {
    for plan in plans {
        let pages = plan.read.end - plan.read.start;
        assert!(plan.read.end <= model.bounds.file_pages, "beyond the end of the file");
        assert!(pages <= model.readahead.pages_max(), "longer than the maximum");
        assert!(pages <= model.bounds.room_pages.max(4), "more than there is room for");
        assert!(plan.marker.is_none_or(|marker| plan.read.contains(&marker)));
    }
}

fn iterate_checked(model: &mut Model, read: &mut Read, kept: bool) -> bool {
    let before = model.plans.len();
    let done = model.iterate(read);
    check(model, &model.plans[before..]);
    for plan in &model.plans[before..] {
        for index in plan.read.clone().filter(|index| read.request.pages().contains(index)) {
            assert!(read.announced.insert(index) || !kept, "page {index} announced again");
        }
    }
    done
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..Default::default() })]
    #[test]
    fn plans_keep_their_bounds_and_every_read_ends(steps in prop::collection::vec(step(), 1..120)) {
        let mut model = Model::new(2000);
        let (mut reads, mut last): (Vec<Read>, u64) = (Vec::new(), 0);
        let mut kept = true; // nothing was evicted
        for step in steps {
            match step {
                Step::Submit { start, len, asynchronous, sequential } => {
                    let start = if sequential { last } else { start };
                    last = start + len;
                    reads.push(Model::read(start..last, asynchronous));
                }
                Step::Iterate(n) if !reads.is_empty() => {
                    let n = n % reads.len();
                    if iterate_checked(&mut model, &mut reads[n], kept) {
                        reads.swap_remove(n);
                    }
                }
                Step::Iterate(_) => {}
                Step::Complete => model.device_completes(),
                Step::Evict(start, end) => {
                    kept = false;
                    model.evict(start..end);
                }
                Step::Forget(start, end) => {
                    kept = false;
                    model.evict(start..end);
                    model.readahead.forget(start..end);
                }
                Step::Advise(n) => model.readahead.advise(
                    [Advice::Normal, Advice::Random, Advice::Sequential][usize::from(n)],
                ),
                Step::Room(pages) => model.bounds.room_pages = pages,
                Step::Resize(pages) => {
                    kept = false;
                    model.pages.retain(|index, _| *index < pages);
                    model.marks.retain(|index| *index < pages);
                    model.bounds.file_pages = pages;
                }
            }
        }
        for mut read in reads {
            for _ in 0..2200 {
                if iterate_checked(&mut model, &mut read, kept) {
                    break;
                }
                model.device_completes();
            }
            prop_assert!(read.at >= read.request.pages().end.min(model.bounds.file_pages));
        }
    }

    #[test]
    fn a_request_alone_is_announced_once_and_whole(
        start in 1..3000u64, len in 1..=MAX, asynchronous: bool,
    ) {
        let mut model = Model::new(FILE);
        prop_assert_eq!(model.run(start..start + len, asynchronous), 2);
        prop_assert_eq!(&model.plans, &[Plan { read: start..start + len, marker: None }]);
    }
}
