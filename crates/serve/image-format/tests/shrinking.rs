//! Images that become smaller on a store without errors, and writers that are killed while they
//! make an image smaller.

#[path = "support/memory.rs"]
mod memory;

use memory::{BLOCK_BYTES, Memory, image, settings};
use nowait_image_format::{
    Answer, Edit, Failure, Image, Key, Operation, Origin, Over, Request, Settings, Status, Writer,
};

const BLOCKS: u64 = 64;
const LEFT: u64 = 10;
const SMALLER: Request = Request::Shrink { size_bytes: LEFT * BLOCK_BYTES };

fn asked(store: &mut Memory, image: &mut Image, request: Request) -> Result<Vec<u8>, Failure> {
    image.submit(u64::MAX, request, store.now_ns);
    store.serve(image);
    let end = image.pop_end().expect("it ends at once");
    assert_eq!((end.id, image.pop_end()), (u64::MAX, None));
    end.result
}

fn read(store: &mut Memory, image: &mut Image, first: u64, blocks: u64) -> Vec<u8> {
    let (offset, len) = (first * BLOCK_BYTES, blocks * BLOCK_BYTES);
    asked(store, image, Request::Read { offset, len }).expect("it is there")
}

fn write(block: u64, byte: u8, durable: bool) -> Request {
    let data = vec![byte; BLOCK_BYTES as usize];
    Request::Write { offset: block * BLOCK_BYTES, data, durable }
}

/// Each byte of a block is the block's number plus one. Each segment has blocks of both halves of
/// the image.
fn full(store: &mut Memory, settings: Settings) -> Image {
    let settings = Settings { segment_blocks: 4, ..settings };
    let mut image = image(store, settings, BLOCKS * BLOCK_BYTES);
    for block in (0..BLOCKS / 2).flat_map(|block| [block, BLOCKS - 1 - block]) {
        store.submit(&mut image, write(block, block as u8 + 1, false));
    }
    store.submit(&mut image, Request::Flush);
    image
}

fn next(store: &mut Memory, number: u8, settings: Settings) -> Image {
    let writer = Writer { nonce: [number; 16], name: format!("writer {number}") };
    let mut image = Image::open(Settings { writer, ..settings }, Origin::TakeOver, store.now_ns);
    store.serve(&mut image);
    image
}

fn has_numbers(data: &[u8]) -> bool {
    let mut blocks = (1..).zip(data.chunks(BLOCK_BYTES as usize));
    blocks.all(|(number, block)| block.iter().all(|byte| *byte == number))
}

fn blocks(image: &Image) -> u64 {
    match image.status() {
        Status::Serving { geometry, .. } => geometry.blocks(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn cut_blocks_are_gone_and_are_zeroes_when_the_image_grows_again() {
    let mut store = Memory::default();
    let mut first = full(&mut store, settings());
    asked(&mut store, &mut first, SMALLER).expect("it is made");
    assert_eq!(store.head().geometry.blocks(), LEFT);
    let beyond = Request::Read { offset: LEFT * BLOCK_BYTES, len: BLOCK_BYTES };
    assert_eq!(asked(&mut store, &mut first, beyond), Err(Failure::Invalid));
    assert_eq!(asked(&mut store, &mut first, write(LEFT, 1, true)), Err(Failure::Invalid));
    assert!(has_numbers(&read(&mut store, &mut first, 0, LEFT)));
    store.submit(&mut first, write(LEFT - 1, LEFT as u8, true));
    let mut second = next(&mut store, 2, settings());
    assert_eq!(blocks(&second), LEFT);
    assert!(has_numbers(&read(&mut store, &mut second, 0, LEFT)));
    store.edit(Edit::Grow(BLOCKS * BLOCK_BYTES)).expect("it grows");
    let mut third = next(&mut store, 3, settings());
    assert!(has_numbers(&read(&mut store, &mut third, 0, LEFT)));
    let rest = read(&mut store, &mut third, LEFT, BLOCKS - LEFT);
    assert!(rest.iter().all(|byte| *byte == 0), "what was cut off is back");
}

#[test]
fn a_writer_that_is_killed_at_any_time_has_cut_off_all_or_nothing() {
    let mut sizes = Vec::new();
    for operations in 0.. {
        let mut store = Memory::default();
        let mut image = full(&mut store, settings());
        image.submit(1, write(BLOCKS - 1, 99, false), 0);
        image.submit(2, SMALLER, 0);
        let mut left = operations;
        while left > 0
            && let Some((ticket, operation)) = image.pop_operation()
        {
            let answer = store.perform(operation);
            image.answer(ticket, answer, 0);
            left -= 1;
        }
        let is_over = left > 0;
        let mut second = next(&mut store, 2, settings());
        let now = blocks(&second);
        assert!(has_numbers(&read(&mut store, &mut second, 0, now.min(BLOCKS - 1))));
        sizes.push(now);
        if is_over {
            break;
        }
    }
    sizes.dedup();
    assert_eq!(sizes, [BLOCKS, LEFT], "it is as it was, and then smaller");
}

#[test]
fn a_head_whose_answer_is_lost_was_put_and_one_that_was_edited_is_put_again() {
    for is_put in [true, false] {
        let mut store = Memory::default();
        let mut image = full(&mut store, settings());
        image.submit(1, SMALLER, 0);
        while let Some((ticket, operation)) = image.pop_operation() {
            let is_head = matches!(operation, Operation::PutIfMatch { key: Key::Head, .. });
            let answer = match (is_head, is_put) {
                (true, false) => Answer::Failed,
                (true, true) => {
                    store.perform(operation);
                    Answer::Failed
                }
                _ => store.perform(operation),
            };
            image.answer(ticket, answer, 0);
        }
        assert_eq!(image.pop_end(), None);
        store.edit(Edit::Snapshot(String::from("s"))).expect("a snapshot");
        store.edit(Edit::Grow(2 * BLOCKS * BLOCK_BYTES)).expect("it grows");
        store.idle(&mut image);
        assert_eq!(image.pop_end().map(|end| (end.id, end.result)), Some((1, Ok(Vec::new()))));
        let head = store.head();
        let then = head.snapshot("s").expect("it stays").size_bytes / BLOCK_BYTES;
        let expected = if is_put { (2 * BLOCKS, LEFT) } else { (LEFT, BLOCKS) };
        assert_eq!((head.geometry.blocks(), then), expected);
    }
}

#[test]
fn an_earlier_snapshot_keeps_cut_blocks_and_a_later_one_does_not() {
    let mut store = Memory::default();
    let mut image = full(&mut store, Settings { garbage_percent: 100, ..settings() });
    let whole = store.bytes();
    store.edit(Edit::Snapshot(String::from("before"))).expect("a snapshot");
    asked(&mut store, &mut image, SMALLER).expect("it is made");
    store.edit(Edit::Snapshot(String::from("after"))).expect("a snapshot");
    assert!(store.bytes() >= whole);
    let gone = store.head().snapshot("before").into_iter().cloned().collect();
    store.edit(Edit::Remove(gone)).expect("it goes");
    // After the next checkpoint the writer deletes the segments of the cut blocks.
    asked(&mut store, &mut image, SMALLER).expect("it is made again");
    assert!(store.bytes() < whole * LEFT / BLOCKS * 3, "{} of {whole}", store.bytes());
    assert_eq!(image.deletions(), 0);
}

#[test]
fn another_writer_that_comes_while_the_image_shrinks_has_all_of_it() {
    let mut store = Memory::default();
    let mut first = full(&mut store, settings());
    let mut second = next(&mut store, 2, settings());
    first.submit(1, SMALLER, 0);
    store.serve(&mut first);
    assert_eq!(first.pop_end().map(|end| (end.id, end.result)), Some((1, Err(Failure::Io))));
    assert!(matches!(first.status(), Status::Over(Over::Fenced { epoch: 2, .. })));
    assert!(has_numbers(&read(&mut store, &mut second, 0, BLOCKS)));
}

#[test]
fn changes_that_wait_are_carried_out_in_their_order_or_end_as_invalid() {
    let mut store = Memory::default();
    let mut image = full(&mut store, Settings { buffer_bytes: 1, ..settings() });
    let requests = [
        write(0, 1, true),
        write(BLOCKS - 1, 7, true),
        SMALLER,
        write(LEFT, 7, true),
        write(LEFT - 1, 8, true),
        Request::Shrink { size_bytes: BLOCK_BYTES },
        write(1, 9, true),
        Request::Shrink { size_bytes: 2 * BLOCK_BYTES },
        write(0, 10, true),
    ];
    for (id, request) in (0..).zip(requests) {
        image.submit(id, request, store.now_ns);
    }
    assert_eq!(image.pop_end(), None, "nothing was put yet");
    store.serve(&mut image);
    store.idle(&mut image);
    let mut ends: Vec<_> = std::iter::from_fn(|| image.pop_end()).collect();
    ends.sort_by_key(|end| end.id);
    let refused: Vec<u64> =
        ends.iter().filter(|it| it.result == Err(Failure::Invalid)).map(|it| it.id).collect();
    assert_eq!((ends.len(), &refused[..]), (9, &[3, 6, 7][..]));
    assert_eq!(store.head().geometry.blocks(), 1);
    assert!(read(&mut store, &mut image, 0, 1).iter().all(|byte| *byte == 10));
}

#[test]
fn nothing_is_put_behind_the_place_that_is_left_out_before_the_head() {
    let mut store = Memory::default();
    let mut first = full(&mut store, Settings { garbage_percent: 100, ..settings() });
    for block in 0..BLOCKS / 2 {
        store.submit(&mut first, write(2 * block, 2 * block as u8 + 1, block % 4 == 0));
    }
    store.submit(&mut first, Request::Flush);
    let mut image = next(&mut store, 2, Settings { garbage_percent: 10, ..settings() });
    image.submit(1, SMALLER, store.now_ns);
    image.submit(2, write(0, 1, true), store.now_ns);
    let beyond = Request::Read { offset: LEFT * BLOCK_BYTES, len: BLOCK_BYTES };
    image.submit(3, beyond, store.now_ns);
    assert_eq!(image.pop_end().map(|end| (end.id, end.result)), Some((3, Err(Failure::Invalid))));
    let mut head = None;
    // A second after a segment's first change, a writer would put the segment even if no flush
    // needs it.
    for now_ns in [0, 5_000_000_000, 10_000_000_000] {
        image.turn(now_ns);
        while let Some((ticket, operation)) = image.pop_operation() {
            match operation {
                Operation::PutIfMatch { .. } => head = Some((ticket, operation)),
                Operation::PutIfAbsent { key: Key::Segment(place), .. } => {
                    panic!("log/{place} is put")
                }
                _ => image.answer(ticket, store.perform(operation), now_ns),
            }
        }
    }
    let (ticket, put) = head.expect("a head is put");
    image.answer(ticket, store.perform(put), 10_000_000_000);
    store.now_ns = 10_000_000_000;
    store.serve(&mut image);
    store.idle(&mut image);
    let ends: Vec<_> = std::iter::from_fn(|| image.pop_end()).map(|end| end.id).collect();
    assert_eq!(ends, [1, 2]);
    assert!(image.costs().segments_collected > 0, "{:?}", image.costs());
    assert!(has_numbers(&read(&mut store, &mut image, 0, LEFT)));
}

#[test]
fn impossible_sizes_are_invalid_and_nothing_is_put() {
    let mut store = Memory::default();
    let mut image = full(&mut store, settings());
    let costs = image.costs();
    for size_bytes in [0, 1, BLOCK_BYTES + 512, (BLOCKS + 1) * BLOCK_BYTES, u64::MAX] {
        let refused = asked(&mut store, &mut image, Request::Shrink { size_bytes });
        assert_eq!(refused, Err(Failure::Invalid), "{size_bytes}");
    }
    assert_eq!(image.costs(), costs);
}

#[test]
fn segments_that_were_cut_are_collected_as_others_are() {
    let mut store = Memory::default();
    let mut image = full(&mut store, Settings { garbage_percent: 100, ..settings() });
    asked(&mut store, &mut image, SMALLER).expect("it is made");
    assert_eq!(image.usage().expect("it is served").garbage_percent(), 50);
    let collecting = Settings { garbage_percent: 10, checkpoint_segments: 2, ..settings() };
    let mut image = next(&mut store, 2, collecting);
    store.submit(&mut image, write(0, 1, true));
    store.idle(&mut image);
    let usage = image.usage().expect("it is served");
    assert!(usage.garbage_percent() <= 10, "{usage:?}");
    assert!(has_numbers(&read(&mut store, &mut image, 0, LEFT)));
}
