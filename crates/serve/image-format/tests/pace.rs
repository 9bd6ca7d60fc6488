//! A writer and an editor, or a writer and the next one, at the same time on a store with a delay;
//! and writers that pause while others continue.

#[path = "support/memory.rs"]
mod memory;

use memory::{BLOCK_BYTES, Memory, image, settings};
use nowait_image_format::{
    Answer, Edit, Editor, Image, Operation, Origin, Over, Request, Settings, Status, Ticket, Writer,
};
use std::collections::BTreeMap;

const MS: u64 = 1_000_000;

fn took(operation: &Operation) -> u64 {
    match operation {
        Operation::Get { .. } => 15 * MS,
        Operation::List { .. } => 40 * MS,
        _ => 30 * MS,
    }
}

enum Event {
    Arrive(usize, Ticket, Operation),
    Answer(usize, Ticket, Answer),
}

enum Other {
    Editor(Box<Editor>),
    Next(Box<Image>),
}

impl Other {
    fn pop_operation(&mut self) -> Option<(Ticket, Operation)> {
        match self {
            Other::Editor(it) => it.pop_operation(),
            Other::Next(it) => it.pop_operation(),
        }
    }

    fn answer(&mut self, ticket: Ticket, answer: Answer, now_ns: u64) {
        match self {
            Other::Editor(it) => it.answer(ticket, answer, now_ns),
            Other::Next(it) => it.answer(ticket, answer, now_ns),
        }
    }

    fn turn(&mut self, now_ns: u64) {
        match self {
            Other::Editor(it) => it.turn(now_ns),
            Other::Next(it) => it.turn(now_ns),
        }
    }

    fn next_ns(&self) -> Option<u64> {
        match self {
            Other::Editor(it) => it.next_ns(),
            Other::Next(it) => it.next_ns(),
        }
    }

    fn is_done(&self) -> bool {
        match self {
            Other::Editor(it) => it.outcome().is_some_and(Result::is_ok),
            Other::Next(it) => matches!(it.status(), Status::Serving { .. }),
        }
    }
}

fn writer(number: u8) -> Writer {
    Writer { nonce: [number; 16], name: format!("writer {number}") }
}

/// Returns how many milliseconds `other` takes while a writer serves a client that pauses for
/// `pause_ns` between two flushes; `None` if `other` does not finish.
fn beside(mut other: Other, pause_ns: u64) -> Option<u64> {
    const LIMIT_NS: u64 = 60_000 * MS;
    let mut store = Memory::default();
    let mut busy = image(&mut store, settings(), 64 << 20);
    let mut events: BTreeMap<(u64, u64), Event> = BTreeMap::new();
    let (mut now_ns, mut count, mut rounds, mut write_ns) = (0, 0, 0, 0);
    while !other.is_done() {
        if now_ns > LIMIT_NS {
            return None;
        }
        if now_ns >= write_ns {
            (write_ns, rounds) = (u64::MAX, rounds + 1);
            let (offset, data) = (rounds % 1000 * BLOCK_BYTES, vec![7; BLOCK_BYTES as usize]);
            busy.submit(rounds, Request::Write { offset, data, durable: true }, now_ns);
        }
        busy.turn(now_ns);
        other.turn(now_ns);
        while let Some(end) = busy.pop_end() {
            write_ns = if end.result.is_ok() { now_ns + pause_ns } else { u64::MAX };
        }
        let of_busy = std::iter::from_fn(|| busy.pop_operation()).map(|it| (0, it));
        let of_other = std::iter::from_fn(|| other.pop_operation()).map(|it| (1, it));
        for (who, (ticket, operation)) in of_busy.chain(of_other).collect::<Vec<_>>() {
            count += 1;
            let at_ns = now_ns + took(&operation) / 2;
            events.insert((at_ns, count), Event::Arrive(who, ticket, operation));
        }
        let due = [busy.next_ns(), other.next_ns()].into_iter().flatten().chain([write_ns]);
        let next = due.chain(events.keys().next().map(|it| it.0)).min().expect("something");
        now_ns = now_ns.max(next);
        while let Some(entry) = events.first_entry().filter(|it| it.key().0 <= now_ns) {
            match entry.remove() {
                Event::Arrive(who, ticket, operation) => {
                    count += 1;
                    let later_ns = now_ns + took(&operation) / 2;
                    let answer = store.perform(operation);
                    events.insert((later_ns, count), Event::Answer(who, ticket, answer));
                }
                Event::Answer(0, ticket, answer) => busy.answer(ticket, answer, now_ns),
                Event::Answer(_, ticket, answer) => other.answer(ticket, answer, now_ns),
            }
        }
    }
    Some(now_ns / MS)
}

#[test]
fn a_snapshot_and_a_next_writer_finish_beside_flushes_without_a_pause() {
    for pause_ns in [0, 5 * MS, 20 * MS, 50 * MS] {
        let editor = Editor::new(Edit::Snapshot(String::from("s")), 0);
        let snapshot = beside(Other::Editor(Box::new(editor)), pause_ns);
        let next = Image::open(Settings::new(writer(9)), Origin::TakeOver, 0);
        let opened = beside(Other::Next(Box::new(next)), pause_ns);
        println!("{} ms: a snapshot takes {snapshot:?} ms, opening {opened:?} ms", pause_ns / MS);
        assert!(snapshot.is_some_and(|ms| ms < 1_000), "{snapshot:?}");
        assert!(opened.is_some_and(|ms| ms < 1_500), "{opened:?}");
    }
}

fn write(block: u64, what: u8, durable: bool) -> Request {
    let data = vec![what; BLOCK_BYTES as usize];
    Request::Write { offset: block * BLOCK_BYTES, data, durable }
}

/// The first writer continues after the next writer has deleted its fence and has ended. All
/// segments of the next writer are dead.
#[test]
fn a_paused_writer_puts_nothing_into_the_log_of_the_next() {
    let mut store = Memory::default();
    let old = Settings { segment_blocks: 1, checkpoint_bytes: 1 << 30, ..settings() };
    let mut first = image(&mut store, old, 64 << 20);
    for block in 0..4 {
        store.submit(&mut first, write(block, 1, false));
    }
    store.submit(&mut first, Request::Flush);
    store.idle(&mut first);
    store.now_ns += 1_000 * MS;
    let new = Settings { checkpoint_segments: 1, ..Settings::new(writer(9)) };
    let mut next = Image::open(new, Origin::TakeOver, store.now_ns);
    store.serve(&mut next);
    store.idle(&mut next);
    store.now_ns += 70_000 * MS;
    store.submit(&mut next, Request::Discard { offset: 0, len: 64 << 20 });
    store.submit(&mut next, Request::Flush);
    store.idle(&mut next);
    drop(next);
    store.now_ns += 1_000 * MS;
    // The clients of the paused writer write, but do not flush or read.
    for block in 0..40 {
        first.submit(1000 + block, write(100 + block, 66, false), store.now_ns);
        store.serve(&mut first);
    }
    store.now_ns += 2_000 * MS;
    first.turn(store.now_ns);
    store.serve(&mut first);
    assert!(matches!(first.status(), Status::Over(Over::Fenced { .. })), "{:?}", first.status());
    let mut third = Image::open(Settings::new(writer(10)), Origin::TakeOver, store.now_ns);
    store.serve(&mut third);
    store.idle(&mut third);
    let read = Request::Read { offset: 0, len: 200 * BLOCK_BYTES };
    assert!(store.submit(&mut third, read).iter().all(|byte| *byte == 0));
}

#[test]
fn the_first_flush_after_a_minute_reads_the_head_during_its_put() {
    let mut store = Memory::default();
    let mut image = image(&mut store, settings(), 64 << 20);
    image.submit(1, write(0, 1, true), 61_000 * MS);
    assert_eq!(std::iter::from_fn(|| image.pop_operation()).count(), 2);
}

/// If a writer puts segments while the store makes a list, the list may have only some of them.
#[test]
fn a_list_made_during_puts_is_no_loss() {
    let mut store = Memory::default();
    let mut first = image(&mut store, settings(), 64 << 20);
    let mut editor = Editor::new(Edit::Snapshot(String::from("s")), 0);
    while editor.outcome().is_none() {
        while let Some((ticket, operation)) = editor.pop_operation() {
            let is_list = matches!(operation, Operation::List { .. });
            let mut answer = store.perform(operation);
            if is_list {
                for block in 0..20 {
                    store.submit(&mut first, write(block, 1, true));
                }
                let list = Operation::List { image: [2; 16], from: 1 };
                let Answer::Listed(mut all) = store.perform(list) else { panic!("no list") };
                answer = Answer::Listed(all.split_off(18));
            }
            editor.answer(ticket, answer, store.now_ns);
        }
        store.now_ns = editor.next_ns().unwrap_or(store.now_ns);
        editor.turn(store.now_ns);
    }
    assert!(editor.outcome().is_some_and(Result::is_ok), "{:?}", editor.outcome());
}
