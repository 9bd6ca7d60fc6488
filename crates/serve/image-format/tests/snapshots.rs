//! Snapshots on a store without errors: snapshots keep objects, and after their removal the writer
//! deletes these objects.

#[path = "support/memory.rs"]
mod memory;

use memory::{BLOCK_BYTES, Memory, image, settings};
use nowait_image_format::head::{EDITED_BYTES_MAX, HEAD_BYTES_MAX, RETIRED_MAX};
use nowait_image_format::{
    Answer, CloneOf, Edit, Editor, Head, Image, Key, Operation, Origin, Over, Request, Settings,
    Status, Writer,
};

const BLOCKS: u64 = 256;

const SAY_SHRINK: &str = "the image is larger: stop its server, then add --shrink to cut it off";

fn write_all(store: &mut Memory, image: &mut Image, round: u8) {
    for block in 0..BLOCKS {
        let data = vec![round; BLOCK_BYTES as usize];
        store.submit(image, Request::Write { offset: block * BLOCK_BYTES, data, durable: false });
    }
    store.submit(image, Request::Flush);
    store.idle(image);
}

/// Returns an edit that removes the snapshot `name`.
fn kept(store: &Memory, name: &str) -> Edit {
    Edit::Remove(store.head().snapshot(name).into_iter().cloned().collect())
}

fn small(store: &mut Memory) -> Image {
    let settings = Settings { segment_blocks: 16, checkpoint_bytes: 1 << 16, ..settings() };
    image(store, settings, BLOCKS * BLOCK_BYTES)
}

#[test]
fn a_snapshot_keeps_overwritten_blocks_until_it_is_removed() {
    let mut store = Memory::default();
    let mut image = small(&mut store);
    write_all(&mut store, &mut image, 1);
    write_all(&mut store, &mut image, 2);
    let (alone, parts) = (store.bytes(), store.parts());
    store.edit(Edit::Snapshot(String::from("one"))).expect("a snapshot");
    for round in 3..6 {
        write_all(&mut store, &mut image, round);
    }
    // The snapshot adds the bytes of all blocks about once, although clients have overwritten the
    // blocks several times since.
    let with_one = store.bytes();
    assert!(with_one > alone + alone * 8 / 10 && with_one < alone + alone * 13 / 10);
    store.edit(Edit::Snapshot(String::from("two"))).expect("a snapshot");
    write_all(&mut store, &mut image, 6);
    assert!(store.bytes() > with_one + alone * 8 / 10);
    // The writer now deletes the segments that only the first snapshot needs.
    let gone = kept(&store, "one");
    store.edit(gone).expect("it is there");
    write_all(&mut store, &mut image, 7);
    assert!(store.bytes() < alone * 23 / 10, "{} of {alone}", store.bytes());
    let gone = kept(&store, "two");
    store.edit(gone).expect("it is there");
    write_all(&mut store, &mut image, 8);
    write_all(&mut store, &mut image, 9);
    assert!(store.bytes() < alone * 13 / 10, "{} of {alone}", store.bytes());
    assert_eq!(store.parts(), parts);
}

#[test]
fn a_snapshot_of_an_image_at_rest_is_a_few_gets_and_one_put() {
    let mut store = Memory::default();
    let mut image = small(&mut store);
    write_all(&mut store, &mut image, 1);
    let costs = store.edit(Edit::Snapshot(String::from("s"))).expect("a snapshot");
    // GETs of the head; of the places of the log from the checkpoint on; and again of a place at
    // the log's end.
    assert_eq!(
        (costs.puts, costs.gets <= 1 + 17 + 4 + 1, costs.deletes),
        (1, true, 0),
        "{costs:?}"
    );
}

#[test]
fn impossible_edits_are_refused_and_nothing_is_put() {
    let mut store = Memory::default();
    let mut image = small(&mut store);
    let name = |it: &str| it.to_owned();
    store.edit(Edit::Snapshot(name("s"))).expect("a snapshot");
    for (edit, why) in [
        (Edit::Snapshot(name("s")), "a snapshot of this name exists: choose another name"),
        (Edit::Snapshot(name("")), "the name of a snapshot must have 1 to 255 bytes"),
        (Edit::Snapshot("x".repeat(256)), "the name of a snapshot must have 1 to 255 bytes"),
        (Edit::Remove(Vec::new()), "no such snapshot: see nowait image info"),
        (Edit::Made([9; 16]), "the snapshot was removed meanwhile"),
        (Edit::Grow(BLOCK_BYTES), SAY_SHRINK),
        (Edit::Grow(0), SAY_SHRINK),
        (Edit::Grow(BLOCKS * BLOCK_BYTES + 1), "the size must be a multiple of the block size"),
        (Edit::Grow(u64::MAX - BLOCK_BYTES + 1), "the image is too large"),
    ] {
        let bytes = store.bytes();
        assert_eq!(store.edit(edit), Err(why));
        assert_eq!(store.bytes(), bytes);
    }
    store.edit(Edit::Grow(2 * BLOCKS * BLOCK_BYTES)).expect("it grows");
    write_all(&mut store, &mut image, 1);
}

#[test]
fn a_removal_whose_answer_is_lost_does_not_remove_the_next_of_that_name() {
    let mut store = Memory::default();
    let mut image = small(&mut store);
    let make = || Edit::Snapshot(String::from("s"));
    store.edit(make()).expect("a snapshot");
    let mut editor = Editor::new(kept(&store, "s"), 0);
    let (ticket, get) = editor.pop_operation().expect("the head is read");
    editor.answer(ticket, store.perform(get), 0);
    let (ticket, put) = editor.pop_operation().expect("the head is put");
    assert!(matches!(store.perform(put), Answer::Put(_)));
    editor.answer(ticket, Answer::Failed, 0);
    write_all(&mut store, &mut image, 1);
    store.edit(make()).expect("another one");
    editor.turn(u64::MAX);
    while let Some((ticket, operation)) = editor.pop_operation() {
        let answer = store.perform(operation);
        editor.answer(ticket, answer, u64::MAX);
    }
    assert!(editor.outcome().is_some_and(Result::is_ok));
    assert!(store.head().snapshot("s").is_some(), "it was removed, too");
}

#[test]
fn a_store_that_deletes_nothing_gets_a_longer_log_and_a_readable_head() {
    let mut store = Memory::default();
    store.keeps_all = true;
    let settings = Settings { checkpoint_segments: 1, ..settings() };
    let mut image = image(&mut store, settings, BLOCK_BYTES);
    for _ in 0..RETIRED_MAX {
        let data = vec![1; BLOCK_BYTES as usize];
        store.submit(&mut image, Request::Write { offset: 0, data, durable: true });
    }
    let retired = store.head().retired.len();
    assert!((1..=RETIRED_MAX / 2).contains(&retired), "{retired}");
    let position = store.head().checkpoint.position;
    store.keeps_all = false;
    store.idle(&mut image);
    for _ in 0..3 {
        let data = vec![1; BLOCK_BYTES as usize];
        store.submit(&mut image, Request::Write { offset: 0, data, durable: true });
    }
    let head = store.head();
    assert!(head.checkpoint.position > position && head.retired.len() < retired, "{head:?}");
}

#[test]
fn a_head_with_as_many_clones_as_it_may_have_has_room_for_its_writers() {
    let mut store = Memory::default();
    let mut image = small(&mut store);
    store.edit(Edit::Snapshot(String::from("s"))).expect("a snapshot");
    let path = "p".repeat(1000);
    let refused = (0..2000_u32).find_map(|number| {
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        let clone = CloneOf { image: id, path: path.clone(), is_made: false };
        store.edit(Edit::Clone { snapshot: String::from("s"), clone }).err()
    });
    assert_eq!(refused, Some("the image has too many snapshots or clones: remove one"));
    let bytes = store.head().encode().len();
    assert!(bytes <= EDITED_BYTES_MAX && bytes > EDITED_BYTES_MAX - 1100);
    const { assert!(HEAD_BYTES_MAX - EDITED_BYTES_MAX >= 255 + 24 * RETIRED_MAX) };
    write_all(&mut store, &mut image, 1);
    store.edit(Edit::Release([0; 16])).expect("one goes");
}

#[test]
fn a_missing_segment_of_a_snapshot_is_never_taken_for_the_end_of_the_log() {
    let mut store = Memory::default();
    let settings = Settings { checkpoint_segments: 100, ..settings() };
    let mut first = image(&mut store, settings.clone(), BLOCKS * BLOCK_BYTES);
    for round in 0..30 {
        let data = vec![round; BLOCK_BYTES as usize];
        store.submit(&mut first, Request::Write { offset: 0, data, durable: true });
    }
    store.edit(Edit::Snapshot(String::from("s"))).expect("a snapshot");
    store.perform(Operation::Delete { image: [2; 16], key: Key::Segment(20) });
    let said = store.edit(Edit::Snapshot(String::from("t"))).unwrap_err();
    assert_eq!(said, "a part of its log is missing: see nowait image check");
    let mut next = Image::open(settings, Origin::TakeOver, 0);
    store.serve(&mut next);
    store.idle(&mut next);
    let Status::Over(Over::Failed(why)) = next.status() else { panic!("{:?}", next.status()) };
    assert!(why.starts_with("a part of its log is lost"), "{why}");
}

/// Makes a closed image with a snapshot, and deletes one of its segments; returns its head.
fn broken(store: &mut Memory) -> Head {
    let settings = Settings { checkpoint_segments: 100, ..settings() };
    let mut first = image(store, settings, BLOCKS * BLOCK_BYTES);
    for round in 0..30 {
        let data = vec![round; BLOCK_BYTES as usize];
        store.submit(&mut first, Request::Write { offset: 0, data, durable: true });
    }
    store.edit(Edit::Snapshot(String::from("s"))).expect("a snapshot");
    store.submit(&mut first, Request::Close);
    store.perform(Operation::Delete { image: [2; 16], key: Key::Segment(20) });
    let head = store.head();
    assert!(head.is_closed, "{head:?}");
    head
}

/// Opens the image, which must fail because of the deleted segment. `put` carries out each PUT of
/// the head, of which it gets the number.
fn fail_to_open(store: &mut Memory, mut put: impl FnMut(&mut Memory, u32, Operation) -> Answer) {
    let writer = Writer { nonce: [9; 16], name: String::from("the next") };
    let mut next = Image::open(Settings::new(writer), Origin::TakeOver, 0);
    let mut puts = 0;
    while !matches!(next.status(), Status::Over(_)) {
        while let Some((ticket, operation)) = next.pop_operation() {
            let answer = match operation {
                Operation::PutIfMatch { .. } => {
                    puts += 1;
                    put(store, puts, operation)
                }
                operation => store.perform(operation),
            };
            next.answer(ticket, answer, store.now_ns);
        }
        store.now_ns = next.next_ns().unwrap_or(store.now_ns);
        next.turn(store.now_ns);
    }
    let Status::Over(Over::Failed(why)) = next.status() else { panic!("{:?}", next.status()) };
    assert!(why.starts_with("a part of its log is lost"), "{why}");
}

#[test]
fn a_head_that_a_writer_gives_back_keeps_the_edits_made_meanwhile() {
    const TAKES: u32 = 1;
    const GIVES_BACK: u32 = 2;
    for behind in [TAKES, GIVES_BACK] {
        let mut store = Memory::default();
        let mut expected = broken(&mut store);
        let clone = CloneOf { image: [3; 16], path: String::from("twin"), is_made: false };
        let edit = Edit::Clone { snapshot: String::from("s"), clone: clone.clone() };
        fail_to_open(&mut store, |store, number, put| {
            if (number, behind) == (GIVES_BACK, GIVES_BACK) {
                store.edit(edit.clone()).expect("a clone");
            }
            let answer = store.perform(put);
            if (number, behind) == (TAKES, TAKES) {
                store.edit(edit.clone()).expect("a clone");
            }
            answer
        });
        let head = store.head();
        expected.snapshots[0].clones.push(clone);
        expected.revision = head.revision;
        assert_eq!(head, expected);
    }
}

#[test]
fn a_head_given_back_without_an_answer_of_the_store_is_given_back_once() {
    let mut store = Memory::default();
    let expected = broken(&mut store);
    let mut last = 0;
    fail_to_open(&mut store, |store, number, put| {
        last = number;
        let answer = store.perform(put);
        if number == 2 { Answer::Failed } else { answer }
    });
    let head = store.head();
    assert_eq!((last, head.revision), (3, expected.revision + 2));
    assert_eq!(Head { revision: expected.revision, ..head }, expected);
}
