//! Snapshots on a store that does no wrong: what they keep, and that it goes with them.

#[path = "support/memory.rs"]
mod memory;

use memory::{BLOCK_BYTES, Memory, image, settings};
use nowait_log::{Edit, Image, Request, Settings};

const BLOCKS: u64 = 256;

fn write_all(store: &mut Memory, image: &mut Image, round: u8) {
    for block in 0..BLOCKS {
        let data = vec![round; BLOCK_BYTES as usize];
        store.submit(image, Request::Write { offset: block * BLOCK_BYTES, data, durable: false });
    }
    store.submit(image, Request::Flush);
    store.idle(image);
}

/// An image with a checkpoint after every 64 KiB of segments of 64 KiB.
fn small(store: &mut Memory) -> Image {
    let settings = Settings { segment_blocks: 16, checkpoint_bytes: 1 << 16, ..settings() };
    image(store, settings, BLOCKS * BLOCK_BYTES)
}

#[test]
fn a_snapshot_costs_what_was_overwritten_since_and_gives_it_back_when_it_goes() {
    let mut store = Memory::default();
    let mut image = small(&mut store);
    write_all(&mut store, &mut image, 1);
    write_all(&mut store, &mut image, 2);
    let (alone, parts) = (store.bytes(), store.parts());
    store.edit(Edit::Snapshot(String::from("one"))).expect("a snapshot");
    for round in 3..6 {
        write_all(&mut store, &mut image, round);
    }
    // Once more all blocks, however often they were overwritten since.
    let with_one = store.bytes();
    assert!(with_one > alone + alone * 8 / 10 && with_one < alone + alone * 13 / 10);
    store.edit(Edit::Snapshot(String::from("two"))).expect("a snapshot");
    write_all(&mut store, &mut image, 6);
    assert!(store.bytes() > with_one + alone * 8 / 10);
    // The first one alone goes: what only it needs is deleted, though the second one is there.
    store.edit(Edit::Remove(String::from("one"))).expect("it is there");
    write_all(&mut store, &mut image, 7);
    assert!(store.bytes() < alone * 23 / 10, "{} of {alone}", store.bytes());
    store.edit(Edit::Remove(String::from("two"))).expect("it is there");
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
    // The head, and places of the log from the checkpoint on: one round trip for all of them.
    assert_eq!((costs.puts, costs.gets <= 1 + 16 + 2, costs.deletes), (1, true, 0), "{costs:?}");
}

#[test]
fn what_cannot_be_edited_is_refused_and_nothing_is_put() {
    let mut store = Memory::default();
    let mut image = small(&mut store);
    let name = |it: &str| it.to_owned();
    store.edit(Edit::Snapshot(name("s"))).expect("a snapshot");
    for (edit, why) in [
        (Edit::Snapshot(name("s")), "there is one of this name"),
        (Edit::Snapshot(name("")), "a name has 1 to 255 bytes"),
        (Edit::Snapshot("x".repeat(256)), "a name has 1 to 255 bytes"),
        (Edit::Remove(name("t")), "there is no such snapshot"),
        (Edit::Grow(BLOCK_BYTES), "it is larger than that"),
        (Edit::Grow(BLOCKS * BLOCK_BYTES + 1), "the size is not in whole blocks"),
        (Edit::Grow(u64::MAX - BLOCK_BYTES + 1), "larger than any image"),
    ] {
        let bytes = store.bytes();
        assert_eq!(store.edit(edit), Err(why));
        assert_eq!(store.bytes(), bytes);
    }
    store.edit(Edit::Grow(2 * BLOCKS * BLOCK_BYTES)).expect("it grows");
    write_all(&mut store, &mut image, 1);
}
