//! Collection on a store in memory that answers at once: the cost of the collection, and its end.

#[path = "support/memory.rs"]
mod memory;

use memory::{BLOCK_BYTES, Memory, image, settings};
use nowait_image_format::{Image, Request, Settings};

const BLOCKS: u64 = 16_384;

/// Returns the number of bytes put for each byte written.
fn overwrite(image: &mut Image, store: &mut Memory, count: u64, random: &mut u64) -> f64 {
    let before = image.costs();
    for number in 1..=count {
        *random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963);
        let offset = (*random >> 33) % BLOCKS * BLOCK_BYTES;
        let data = vec![number as u8; BLOCK_BYTES as usize];
        store.submit(image, Request::Write { offset, data, durable: false });
        if number % 64 == 0 {
            store.submit(image, Request::Flush);
        }
    }
    (image.costs().bytes_put - before.bytes_put) as f64 / (count * BLOCK_BYTES) as f64
}

fn full(settings: Settings) -> (Image, Memory) {
    let mut store = Memory::default();
    let mut image = image(&mut store, settings, BLOCKS * BLOCK_BYTES);
    for offset in (0..BLOCKS).step_by(64).map(|block| block * BLOCK_BYTES) {
        let data = vec![1; 64 * BLOCK_BYTES as usize];
        store.submit(&mut image, Request::Write { offset, data, durable: true });
    }
    (image, store)
}

/// Returns settings by which checkpoints cost as much as those of a large image.
fn thrifty(garbage_percent: u32) -> Settings {
    Settings { checkpoint_bytes: 1 << 20, garbage_percent, ..settings() }
}

#[test]
fn random_overwrites_of_an_image_that_fills_70_percent_put_no_more_than_twice_their_bytes() {
    let (mut image, mut store) = full(thrifty(30));
    let mut random = 1;
    overwrite(&mut image, &mut store, 3 * BLOCKS, &mut random);
    let ratio = overwrite(&mut image, &mut store, 2 * BLOCKS, &mut random);
    let (costs, usage) = (image.costs(), image.usage().expect("it is served"));
    println!("{ratio} {costs:?} {usage:?} {}", usage.garbage_percent());
    assert!(ratio <= 2.0, "{ratio} bytes put for each that was written");
    assert!(usage.garbage_percent() <= 31, "{usage:?}");
    assert!(costs.segments_collected > 500, "{costs:?}");
    // These bytes include segments that the writer will delete only after the next checkpoint.
    let most = BLOCKS * BLOCK_BYTES * 2;
    assert!(store.bytes() < most, "{} bytes are in the store", store.bytes());
}

#[test]
fn without_collection_a_flush_every_64_writes_puts_no_more_than_115_percent() {
    let (mut image, mut store) = full(thrifty(100));
    let ratio = overwrite(&mut image, &mut store, 2 * BLOCKS, &mut 1);
    println!("{ratio}");
    assert!(ratio <= 1.15, "{ratio} bytes put for each that was written");
    assert_eq!(image.costs().segments_collected, 0);
}

#[test]
fn moved_blocks_are_read_as_they_were_written() {
    let (mut image, mut store) = full(thrifty(30));
    for block in (0..BLOCKS).filter(|block| block % 2 == 0) {
        let data = vec![2; BLOCK_BYTES as usize];
        let offset = block * BLOCK_BYTES;
        store.submit(&mut image, Request::Write { offset, data, durable: block % 64 == 0 });
    }
    store.idle(&mut image);
    assert!(image.costs().segments_collected > 10, "{:?}", image.costs());
    let data = store.submit(&mut image, Request::Read { offset: 0, len: BLOCKS * BLOCK_BYTES });
    for (block, data) in (0..BLOCKS).zip(data.chunks_exact(BLOCK_BYTES as usize)) {
        let expected = if block % 2 == 0 { 2 } else { 1 };
        assert!(data.iter().all(|byte| *byte == expected), "block {block}");
    }
}

#[test]
fn collection_ends_when_there_is_no_more_garbage_than_is_allowed() {
    let (mut image, mut store) = full(thrifty(30));
    // Discards the first half of each segment.
    for offset in (0..BLOCKS).step_by(64).map(|block| block * BLOCK_BYTES) {
        store.submit(&mut image, Request::Discard { offset, len: 32 * BLOCK_BYTES });
    }
    store.submit(&mut image, Request::Flush);
    store.idle(&mut image);
    let (costs, usage) = (image.costs(), image.usage().expect("it is served"));
    assert!((20..=30).contains(&usage.garbage_percent()), "{usage:?}");
    store.idle(&mut image);
    assert_eq!(image.costs(), costs);
    let live_bytes = BLOCKS / 2 * BLOCK_BYTES;
    assert!(store.bytes() < live_bytes * 2, "{} bytes are in the store", store.bytes());
}
