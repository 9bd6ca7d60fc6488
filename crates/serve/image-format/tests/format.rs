//! The format: parsing returns what was encoded, and reports damage.

#[path = "support/strangers.rs"]
mod strangers;

use nowait_image_format::extents::Extent;
use nowait_image_format::head::{COUNT_MAX, PARTS_MAX};
use nowait_image_format::needs::Needs;
use nowait_image_format::segment::{RECORDS_MAX, WINDOW};
use nowait_image_format::stamp::STAMP_BYTES;
use nowait_image_format::{
    Base, Bases, BlockCodec, Change, Checkpoint, CloneOf, Content, Geometry, Head, Header, Key,
    Map, Part, Record, Snapshot, Writer, checkpoint,
};
use proptest::prelude::*;
use strangers::{encrypted, geometry};

fn checkpoints() -> impl Strategy<Value = Checkpoint> {
    (1..=COUNT_MAX, 0..=PARTS_MAX, 0..=COUNT_MAX, any::<u32>())
        .prop_map(|(position, parts, epoch, nth)| Checkpoint { position, parts, epoch, nth })
}

fn snapshots() -> impl Strategy<Value = Vec<Snapshot>> {
    let one = (checkpoints(), 0..=COUNT_MAX, 1..1u64 << 40);
    prop::collection::vec(one, 0..5).prop_map(|all| {
        let named = |(number, (checkpoint, after, blocks)): (usize, (Checkpoint, u64, u64))| {
            let end = (checkpoint.position + after).min(COUNT_MAX);
            let clone = CloneOf {
                image: [number as u8; 16],
                path: String::from("a/b"),
                is_made: number > 2,
            };
            let (name, clones) = (format!("é {number}"), vec![clone; number]);
            Snapshot { name, checkpoint, end, size_bytes: blocks * 4096, clones }
        };
        all.into_iter().enumerate().map(named).collect()
    })
}

fn clone_of(head: &Head, depth: usize) -> Head {
    let Some(snapshot) = head.snapshots.first().filter(|_| depth > 0) else { return head.clone() };
    let image = [depth as u8; 16];
    let mut clone = head
        .clone_of(snapshot, &format!("at/{depth}"), image, head.writer.clone())
        .expect("not too many");
    clone.snapshots = vec![Snapshot { clones: Vec::new(), ..snapshot.clone() }];
    clone_of(&clone, depth - 1)
}

fn heads() -> impl Strategy<Value = Head> {
    let writer = (any::<[u8; 16]>(), "\\PC{0,30}").prop_map(|(nonce, name)| Writer { nonce, name });
    let counts = (0..=COUNT_MAX, 1..=COUNT_MAX);
    let maps = (checkpoints(), prop::collection::vec(checkpoints(), 0..3));
    let ends = (0..=COUNT_MAX, any::<bool>(), any::<bool>());
    (any::<[u8; 16]>(), counts, writer, geometries(), maps, snapshots(), ends).prop_map(
        |(image, counts, writer, geometry, (checkpoint, retired), snapshots, ends)| Head {
            image,
            revision: counts.0,
            epoch: counts.1,
            writer,
            end: checkpoint.position.max(ends.0),
            is_closed: ends.1,
            is_quiet: ends.1 && ends.2,
            geometry,
            checkpoint,
            retired,
            snapshots,
            bases: Bases::default(),
        },
    )
}

fn geometries() -> impl Strategy<Value = Geometry> {
    prop_oneof![Just(geometry()), Just(encrypted())]
}

fn contents() -> impl Strategy<Value = Content> {
    let change = prop_oneof![Just(Change::Zero), Just(Change::Data)];
    let record = (0..geometry().blocks() - 8, 1..8u32, change)
        .prop_map(|(block, blocks, change)| Record { block, blocks, change });
    let fence = (1..u64::MAX, "\\PC{0,30}");
    prop_oneof![
        prop::collection::vec(record, 0..50).prop_map(Content::Changes),
        fence.prop_map(|(resume, writer)| Content::Fence { resume, writer }),
    ]
}

fn headers() -> impl Strategy<Value = Header> {
    let numbers = (any::<u64>(), any::<u64>(), any::<u64>());
    (any::<[u8; 16]>(), any::<[u8; 16]>(), numbers, contents()).prop_map(
        |(image, writer, (epoch, number, back), content)| {
            let sequence = match content {
                Content::Fence { resume, .. } => resume.saturating_sub(1 + number % WINDOW),
                Content::Changes(_) => number,
            };
            let durable = sequence.saturating_sub(back);
            Header { image, epoch, writer, sequence, durable, content }
        },
    )
}

fn data_bytes(header: &Header, geometry: Geometry) -> u64 {
    let Content::Changes(records) = &header.content else { return 0 };
    let data = records.iter().filter(|record| record.change == Change::Data);
    data.map(|record| u64::from(record.blocks) * geometry.stored_bytes() as u64).sum()
}

fn header(epoch: u64, sequence: u64, content: Content) -> Header {
    Header { image: [1; 16], epoch, writer: [3; 16], sequence, durable: 1, content }
}

fn head_of(epoch: u64) -> Head {
    Head {
        image: [1; 16],
        revision: 1,
        epoch,
        writer: Writer { nonce: [3; 16], name: String::new() },
        end: 9,
        is_closed: false,
        is_quiet: false,
        geometry: geometry(),
        checkpoint: Checkpoint { position: 9, parts: 0, epoch, nth: 1 },
        retired: Vec::new(),
        snapshots: Vec::new(),
        bases: Bases::default(),
    }
}

fn maps() -> impl Strategy<Value = Map> {
    let extent = (0..10_000u64, 1..20u32, 1..9u64);
    prop::collection::vec(extent, 0..40).prop_map(|mut writes| {
        writes.sort_by_key(|write| write.2);
        let mut map = Map::default();
        let mut used = [0; 9];
        for (block, blocks, sequence) in writes {
            let index = used[sequence as usize];
            used[sequence as usize] += blocks;
            map.add(sequence);
            map.place_data(sequence, 300 + sequence as u32);
            map.write(block, Extent { blocks, index, sequence });
        }
        map
    })
}

proptest! {
    #[test]
    fn a_head_is_read_as_it_was_written(head in heads(), depth in 0..4usize) {
        let head = clone_of(&head, depth);
        prop_assert_eq!(Head::parse(&head.encode()), Ok(head));
    }

    #[test]
    fn the_table_of_needs_is_that_of_each_snapshot(
        all in prop::collection::vec((1..60u64, 0..30u64), 0..8),
        sequence in 1..80u64,
        after in 0..40u64,
    ) {
        let one = |(position, after)| {
            let checkpoint = Checkpoint { position, parts: 1, epoch: 1, nth: 1 };
            snapshot(checkpoint, position + after)
        };
        let snapshots: Vec<Snapshot> = all.into_iter().map(one).collect();
        let expected = snapshots.iter().any(|it| needs(it, sequence, sequence + after));
        prop_assert_eq!(Needs::of(&snapshots).has(sequence, sequence + after), expected);
    }

    #[test]
    fn a_header_is_read_as_it_was_written(
        header in headers(), geometry in geometries(), behind in 0..100usize,
    ) {
        let mut bytes = header.encode(geometry);
        let len = bytes.len() as u32;
        bytes.resize(bytes.len() + behind, 7);
        let object_bytes = u64::from(len) + data_bytes(&header, geometry);
        let read = Header::parse(&bytes, object_bytes, geometry);
        prop_assert_eq!(read, Ok((header.clone(), len)));
        prop_assert!(Header::parse(&bytes, object_bytes + 1, geometry).is_err());
        // A segment of an encrypted image is an error for a plain image, and the reverse, even if
        // the segment has no data.
        let other = if geometry == encrypted() { self::geometry() } else { encrypted() };
        let object_bytes = u64::from(len) + data_bytes(&header, other);
        prop_assert!(Header::parse(&bytes, object_bytes, other).is_err());
    }

    #[test]
    fn a_map_is_read_as_it_was_written(map in maps()) {
        let parts = Part::of(&map, &head_of(2), 9);
        let read = parts.iter().map(|part| Part::parse(&part.encode()));
        let read: Vec<Part> = read.collect::<Result<_, _>>().expect("they are whole");
        prop_assert_eq!(&read, &parts);
        prop_assert_eq!(checkpoint::assemble(&read, 9, geometry()), Ok(map));
    }

    #[test]
    fn a_changed_bit_is_noticed(
        head in heads(), header in headers(), map in maps(), at in any::<usize>(), bit in 0..8u8,
        geometry in geometries(),
    ) {
        let spoiled = |mut bytes: Vec<u8>| {
            let at = at % bytes.len();
            bytes[at] ^= 1 << bit;
            bytes
        };
        prop_assert!(Head::parse(&spoiled(head.encode())).is_err());
        let object_bytes = header.encode(geometry).len() as u64 + data_bytes(&header, geometry);
        let header = spoiled(header.encode(geometry));
        prop_assert!(Header::parse(&header, object_bytes, geometry).is_err());
        for part in Part::of(&map, &head_of(2), 9) {
            prop_assert!(Part::parse(&spoiled(part.encode())).is_err());
        }
    }

    #[test]
    fn a_cut_object_is_noticed(head in heads(), map in maps(), at in any::<usize>()) {
        let head = head.encode();
        prop_assert!(Head::parse(&head[..at % head.len()]).is_err());
        for part in Part::of(&map, &head_of(2), 9) {
            let part = part.encode();
            prop_assert!(Part::parse(&part[..at % part.len()]).is_err());
        }
    }

    #[test]
    fn arbitrary_objects_do_no_harm(
        head in heads(), header in headers(), map in maps(), kind in 0..3usize,
        changes in prop::collection::vec((any::<usize>(), any::<u8>()), 0..6),
        geometry in geometries(),
    ) {
        let part = Part::of(&map, &head_of(2), 9).first().map(Part::encode).unwrap_or_default();
        let kinds: [Vec<u8>; 3] = [head.encode(), header.encode(geometry), part];
        let mut bytes = kinds[kind].clone();
        for (at, byte) in changes {
            let len = bytes.len().max(1);
            if let Some(spoiled) = bytes.get_mut(at % len) {
                *spoiled = byte;
            }
        }
        strangers::object(&bytes);
    }
}

/// Each flush may make a segment, so a map may have as many segments as extents. Readers of older
/// versions accept parts of 8 MiB at most.
#[test]
fn the_parts_of_a_map_with_many_segments_and_extents_are_short_enough_for_readers() {
    const FLUSHES: u64 = 210_000;
    let mut map = Map::default();
    for sequence in 1..=FLUSHES {
        map.replay(
            sequence,
            300,
            &[Record { block: 2 * sequence, blocks: 1, change: Change::Data }],
        );
    }
    let parts = Part::of(&map, &head_of(2), FLUSHES + 1);
    let objects: Vec<Vec<u8>> = parts.iter().map(Part::encode).collect();
    let longest = objects.iter().map(Vec::len).max();
    assert!(longest.is_some_and(|bytes| bytes <= 8 << 20), "{longest:?}");
    let read: Result<Vec<Part>, _> = objects.iter().map(|it| Part::parse(it)).collect();
    assert!(read.expect("they are whole") == parts);
}

fn with(object: &[u8], at: usize, number: u32) -> Vec<u8> {
    let mut bytes = object.to_vec();
    bytes[at..at + 4].copy_from_slice(&number.to_le_bytes());
    let end = bytes.len() - 4;
    strangers::seal(&mut bytes, end);
    bytes
}

#[test]
fn hostile_lengths_are_refused_before_memory_is_allocated() {
    let mut map = Map::default();
    map.replay(1, 300, &[Record { block: 0, blocks: 1, change: Change::Data }]);
    let part = Part::of(&map, &head_of(2), 9).remove(0).encode();
    assert!(Part::parse(&with(&part, STAMP_BYTES, 0)).is_ok());
    for (at, what) in [(4, "segments"), (4 + 4 + 24, "extents")] {
        for count in [3, 1 << 20, u32::MAX] {
            let damaged = Part::parse(&with(&part, STAMP_BYTES + at, count));
            assert!(damaged.is_err(), "{count} {what}");
        }
    }
    let content = Content::Changes(vec![Record { block: 0, blocks: 1, change: Change::Zero }]);
    let header = header(1, 1, content);
    let bytes = header.encode(geometry());
    let read = |bytes: &[u8]| Header::parse(bytes, bytes.len() as u64, geometry());
    assert_eq!(read(&bytes), Ok((header, bytes.len() as u32)));
    let count_at = STAMP_BYTES + 4 + 4 + 4 + 8 + 2;
    for count in [2, RECORDS_MAX as u32 + 1, u32::MAX] {
        assert!(read(&with(&bytes, count_at, count)).is_err(), "{count} records");
    }
    for len in [0, STAMP_BYTES as u32, bytes.len() as u32 - 1, 70_000, u32::MAX] {
        assert!(read(&with(&bytes, STAMP_BYTES, len)).is_err(), "a header of {len} bytes");
    }
}

#[test]
fn two_extents_of_the_same_data_are_damage() {
    let mut map = Map::default();
    map.replay(1, 300, &[Record { block: 0, blocks: 2, change: Change::Data }]);
    map.discard(1..2, 1);
    map.write(7, Extent { blocks: 1, index: 1, sequence: 1 });
    let part = Part::of(&map, &head_of(2), 9).remove(0).encode();
    let second_index = STAMP_BYTES + 4 + 4 + 24 + 4 + 24 + 12;
    let read =
        |bytes: &[u8]| Part::parse(bytes).and_then(|it| checkpoint::assemble(&[it], 9, geometry()));
    assert_eq!(read(&part), Ok(map));
    let beyond = with(&part, second_index, 2);
    assert!(read(&beyond).is_err());
    // The part now says that the segment has one block, but an extent lies behind that block.
    let blocks_at = STAMP_BYTES + 4 + 4 + 12;
    assert!(read(&with(&part, blocks_at, 1)).is_err());
}

#[test]
fn a_segment_is_dead_since_a_later_one_or_alive() {
    let mut map = Map::default();
    map.replay(1, 300, &[Record { block: 0, blocks: 2, change: Change::Data }]);
    map.replay(2, 300, &[Record { block: 0, blocks: 2, change: Change::Data }]);
    assert_eq!(map.dead(), [(1, 2)]);
    let part = Part::of(&map, &head_of(2), 9).remove(0).encode();
    let read = |bytes: &[u8]| {
        let parts = [Part::parse(bytes).expect("a part")];
        checkpoint::assemble(&parts, 9, geometry())
    };
    assert_eq!(read(&part), Ok(map));
    let dead_since = |nth: usize| STAMP_BYTES + 4 + 4 + nth * 24 + 16;
    for (nth, since) in [(0, 0), (0, 9), (1, 2)] {
        assert!(read(&with(&part, dead_since(nth), since)).is_err(), "{nth} since {since}");
    }
}

fn snapshot(checkpoint: Checkpoint, end: u64) -> Snapshot {
    Snapshot { name: String::from("s"), checkpoint, end, size_bytes: 4096, clones: Vec::new() }
}

fn needs(snapshot: &Snapshot, sequence: u64, dead_since: u64) -> bool {
    let follows = sequence >= snapshot.checkpoint.position;
    sequence < snapshot.end && (dead_since >= snapshot.end || follows)
}

#[test]
fn a_fence_that_leads_beyond_a_place_differs_from_one_that_leads_there() {
    let content = Content::Fence { resume: 20, writer: String::new() };
    let fence = header(1, 10, content);
    for (end, leads_over) in [(10, false), (11, true), (19, true), (20, false), (21, false)] {
        assert_eq!(fence.leads_over(end), leads_over, "{end}");
    }
}

#[test]
fn a_snapshot_needs_segments_live_at_its_end_or_behind_its_map() {
    let checkpoint = Checkpoint { position: 10, parts: 1, epoch: 1, nth: 1 };
    let snapshot = snapshot(checkpoint, 20);
    for (sequence, dead_since, needed) in [
        (5, 9, false),
        (5, 15, false),
        (5, 19, false),
        (5, 20, true),
        (12, 15, true),
        (19, 19, true),
        (20, 25, false),
    ] {
        let table = Needs::of(core::slice::from_ref(&snapshot));
        assert_eq!(table.has(sequence, dead_since), needed, "{sequence} {dead_since}");
    }
}

#[test]
fn the_number_of_an_object_names_its_image() {
    let at = |path: &str, image: u8, end, epoch| Base {
        image: [image; 16],
        path: path.into(),
        snapshot: String::from("s"),
        end,
        epoch,
    };
    let bases = Bases::from(vec![at("oldest", 1, 10, 3), at("older", 2, 25, 3)]);
    let path = |key| bases.of(key).map(|base| base.path.to_string());
    for (sequence, expected) in [
        (1, Some("oldest")),
        (9, Some("oldest")),
        (10, Some("older")),
        (24, Some("older")),
        (25, None),
    ] {
        assert_eq!(path(Key::Segment(sequence)).as_deref(), expected, "{sequence}");
    }
    for (epoch, expected) in [(1, Some("oldest")), (3, Some("oldest")), (4, None)] {
        let key = Key::Part { epoch, nth: 1, number: 0 };
        assert_eq!(path(key).as_deref(), expected, "{epoch}");
    }
    assert_eq!(path(Key::Head), None);
}

#[test]
fn a_map_that_is_needed_is_not_retired() {
    let checkpoint = Checkpoint { position: 9, parts: 1, epoch: 2, nth: 1 };
    let named = Checkpoint { position: 5, parts: 1, epoch: 1, nth: 3 };
    let snapshot = snapshot(named, 7);
    let writer = Writer { nonce: [3; 16], name: String::new() };
    let mut head = Head {
        image: [1; 16],
        revision: 4,
        epoch: 2,
        writer,
        end: 10,
        is_closed: true,
        is_quiet: true,
        geometry: geometry(),
        checkpoint,
        retired: Vec::new(),
        snapshots: vec![snapshot],
        bases: Bases::default(),
    };
    assert_eq!(Head::parse(&head.encode()), Ok(head.clone()));
    let gone = Checkpoint { nth: 9, ..named };
    for retired in [vec![checkpoint], vec![named], vec![gone, Checkpoint { parts: 7, ..gone }]] {
        head.retired = retired;
        assert!(Head::parse(&head.encode()).is_err());
    }
    head.retired = vec![gone];
    assert_eq!(Head::parse(&head.encode()), Ok(head.clone()));
    for number in [COUNT_MAX + 1, u64::MAX] {
        for wrong in [
            Head { revision: number, ..head.clone() },
            Head { epoch: number, ..head.clone() },
            Head { end: number, ..head.clone() },
            Head { end: 8, ..head.clone() },
            Head { checkpoint: Checkpoint { position: number, ..checkpoint }, ..head.clone() },
        ] {
            assert!(Head::parse(&wrong.encode()).is_err(), "{number}");
        }
    }
}

#[test]
fn a_block_in_another_place_is_damaged() {
    let codec = |sequence| BlockCodec { cipher: None, image: [1; 16], sequence };
    let (mut stored, mut read) = (Vec::new(), Vec::new());
    codec(9).put(&mut stored, &[7; 4096], 5);
    assert_eq!(stored.len(), geometry().stored_bytes());
    codec(9).append(&mut read, &stored, 5).expect("that block");
    assert_eq!(read, [7; 4096]);
    assert!(codec(9).check(&stored, 6).is_err());
    assert!(codec(8).check(&stored, 5).is_err());
    assert!(codec(9).check(&stored[1..], 5).is_err());
    stored[17] ^= 1;
    assert!(codec(9).check(&stored, 5).is_err());
    assert!(codec(9).append(&mut read, &stored, 5).is_err() && read.len() == 4096);
}

#[test]
fn a_fence_leads_on() {
    let fence = |sequence, resume| {
        let content = Content::Fence { resume, writer: String::from("host 1") };
        let bytes = header(2, sequence, content).encode(geometry());
        Header::parse(&bytes, bytes.len() as u64, geometry())
    };
    assert!(fence(5, 5 + WINDOW).is_ok());
    assert!(fence(5, 5).is_err());
}

#[test]
fn impossible_geometries_are_refused() {
    for (block_bytes, size_bytes) in
        [(0, 4096), (4095, 4095), (256, 256), (1 << 17, 1 << 17), (4096, 0), (4096, 4097)]
    {
        assert!(Geometry::checked(block_bytes, size_bytes).is_err(), "{block_bytes} {size_bytes}");
    }
    assert!(Geometry::checked(4096, 1 << 61).is_err());
    assert!(Geometry::checked(512, 512).is_ok());
}

/// If one of these checksums must change, the version must change, too (`stamp.rs`).
#[test]
fn this_version_stores_what_it_always_has() {
    let sum = |bytes: &[u8]| bytes.last_chunk().map_or(0, |sum| u32::from_le_bytes(*sum));
    let checkpoint = Checkpoint { position: 9, parts: 1, epoch: 2, nth: 1 };
    let head = Head {
        image: [1; 16],
        revision: 4,
        epoch: 2,
        writer: Writer { nonce: [3; 16], name: String::from("host 1") },
        end: 10,
        is_closed: true,
        is_quiet: true,
        geometry: geometry(),
        checkpoint,
        retired: vec![Checkpoint { nth: 9, ..checkpoint }],
        snapshots: vec![snapshot(Checkpoint { position: 5, ..checkpoint }, 7)],
        bases: Bases::default(),
    };
    assert_eq!(sum(&head.encode()), 0x5a4e_9c77);
    let content = Content::Changes(vec![Record { block: 3, blocks: 2, change: Change::Data }]);
    let header = header(2, 9, content);
    assert_eq!(sum(&header.encode(geometry())), 0x8fff_7266);
    let mut stored = Vec::new();
    BlockCodec { cipher: None, image: [1; 16], sequence: 9 }.put(&mut stored, &[7; 4096], 3);
    assert_eq!(sum(&stored), 0x10d1_6fe9);
}
