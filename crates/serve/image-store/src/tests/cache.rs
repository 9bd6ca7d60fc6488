//! The cache: compared with a model, and between an image and its store.

use super::checks::BLOCK;
use crate::cache::{Cache, PAGE_BYTES, Segment, pages_of};
use crate::image::StoredImage;
use crate::place::StoreOptions;
use crate::url::StoreUrl;
use nowait::{CacheMode, Nowait};
use nowait_image_format::{BlockCodec, Change, Content, Geometry, Header, Record};
use proptest::prelude::*;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const SLOTS: u64 = 8;

/// 64 bytes are the row of a slot in the table.
const FOLDER_BYTES: u64 = SLOTS * (PAGE_BYTES + 64);

fn folder(place: &Path, bytes: u64) -> std::io::Result<Arc<Cache>> {
    Cache::in_folder(&Nowait::new().unwrap(), place, bytes, CacheMode::Host, None)
}

fn opened(place: &TempDir) -> Arc<Cache> {
    folder(place.path(), FOLDER_BYTES).unwrap()
}

fn segment(image: u8, sequence: u64) -> Segment {
    Segment { origin: [image; 16], sequence }
}

fn bytes_of(Segment { origin, sequence }: Segment, len: u64) -> Vec<u8> {
    let byte = |at: u64| (at / 7 + sequence * 31 + u64::from(origin[0]) * 101) as u8;
    (0..len).map(byte).collect()
}

fn run<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(work)
}

fn read(cache: &Cache, segment: Segment, range: std::ops::Range<u64>) -> Option<Vec<u8>> {
    run(cache.read(segment, &range))
}

#[derive(Clone, Debug)]
enum Step {
    Insert { segment: Segment, start: u64, end: u64, anew: bool },
    Read { segment: Segment, start: u64, len: u64 },
}

const SEGMENT_BYTES: u64 = 3 * PAGE_BYTES + 4100;

fn step() -> impl Strategy<Value = Step> {
    let segments = || (0..2_u8, 0..4_u64).prop_map(|(image, sequence)| segment(image, sequence));
    let insert = (segments(), 0..4_u64, 1..=4_u64, any::<bool>());
    let insert = insert.prop_map(|(segment, first, pages, anew)| {
        let start = first * PAGE_BYTES;
        Step::Insert { segment, start, end: SEGMENT_BYTES.min(start + pages * PAGE_BYTES), anew }
    });
    let read = (segments(), 0..SEGMENT_BYTES, 1..2 * PAGE_BYTES);
    let read = read.prop_map(|(segment, start, len)| Step::Read { segment, start, len });
    prop_oneof![insert, read]
}

fn follow(cache: &Cache, steps: &[Step]) {
    for step in steps {
        match *step {
            Step::Insert { segment, start, end, anew } => {
                let bytes = &bytes_of(segment, SEGMENT_BYTES)[start as usize..end as usize];
                cache.insert(segment, start, bytes, (SEGMENT_BYTES, anew));
            }
            Step::Read { segment, start, len } => {
                let range = start..(start + len).min(SEGMENT_BYTES);
                if let Some(bytes) = read(cache, segment, range.clone()) {
                    let all = bytes_of(segment, SEGMENT_BYTES);
                    assert_eq!(bytes, &all[range.start as usize..range.end as usize]);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_cache_returns_the_bytes_of_the_segment(steps in prop::collection::vec(step(), 1..80)) {
        follow(&Cache::in_memory(SLOTS * PAGE_BYTES), &steps);
        let place = TempDir::new().unwrap();
        let (first, second) = steps.split_at(steps.len() / 2);
        follow(&opened(&place), first);
        // Another cache continues with the same folder, as another process would.
        follow(&opened(&place), second);
    }
}

#[test]
fn recently_used_pages_stay() {
    let cache = Cache::in_memory(SLOTS * PAGE_BYTES);
    let insert = |sequence| {
        let segment = segment(1, sequence);
        cache.insert(segment, 0, &bytes_of(segment, PAGE_BYTES), (PAGE_BYTES, false));
    };
    let has = |sequence| read(&cache, segment(1, sequence), 0..PAGE_BYTES).is_some();
    (0..SLOTS).for_each(insert);
    assert!(has(3));
    (SLOTS..2 * SLOTS - 1).for_each(insert);
    let kept: Vec<u64> = (0..SLOTS).filter(|sequence| has(*sequence)).collect();
    assert_eq!(kept, [3]);
    assert!((SLOTS..2 * SLOTS - 1).all(has));
}

#[test]
fn a_folder_keeps_its_pages_until_its_size_changes() {
    let place = TempDir::new().unwrap();
    let all: Vec<Segment> = (1..=SLOTS).map(|sequence| segment(1, sequence)).collect();
    let cache = opened(&place);
    for segment in &all {
        cache.insert(*segment, 0, &bytes_of(*segment, 4100), (4100, false));
    }
    let held = |cache: &Cache| {
        let range = 0..4100;
        all.iter()
            .filter(|it| read(cache, **it, range.clone()) == Some(bytes_of(**it, 4100)))
            .count()
    };
    // Pages that the cache is still writing count, too.
    assert_eq!(held(&cache), all.len());
    let refused = folder(place.path(), FOLDER_BYTES).unwrap_err().to_string();
    assert!(
        refused.ends_with(": another process uses the folder: give each server its own"),
        "{refused}"
    );
    drop(cache);
    assert_eq!(held(&opened(&place)), all.len());
    assert_eq!(held(&folder(place.path(), FOLDER_BYTES / 2).unwrap()), 0);
    assert_eq!(held(&opened(&place)), 0, "that was another one");
}

#[test]
fn damaged_pages_of_a_folder_count_as_missing() {
    let place = TempDir::new().unwrap();
    let (whole, hit) = (segment(1, 1), segment(1, 2));
    let cache = opened(&place);
    for segment in [whole, hit] {
        cache.insert(segment, 0, &bytes_of(segment, PAGE_BYTES), (PAGE_BYTES, false));
    }
    drop(cache);
    // The pages begin behind the head and one block of the table, at a multiple of the page size.
    let file = fs::File::options().write(true).open(place.path().join("nowait-cache")).unwrap();
    file.write_all_at(b"!", PAGE_BYTES + PAGE_BYTES + 99).unwrap();
    let cache = opened(&place);
    assert_eq!(read(&cache, whole, 0..9), Some(bytes_of(whole, 9)));
    assert_eq!(read(&cache, hit, 0..9), None);
    cache.insert(hit, 0, &bytes_of(hit, PAGE_BYTES), (PAGE_BYTES, false));
    assert_eq!(read(&cache, hit, 0..9), Some(bytes_of(hit, 9)));
}

#[test]
fn each_part_of_a_page_has_a_checksum_of_its_own() {
    let place = TempDir::new().unwrap();
    let segment = segment(1, 1);
    let all = bytes_of(segment, PAGE_BYTES);
    let part = |number: u64| number * 4096..(number + 1) * 4096;
    for damaged in 0..4 {
        let cache = opened(&place);
        cache.insert(segment, 0, &all, (PAGE_BYTES, true));
        drop(cache);
        let file = fs::File::options().write(true).open(place.path().join("nowait-cache")).unwrap();
        file.write_all_at(b"!", PAGE_BYTES + part(damaged).end - 1).unwrap();
        let cache = opened(&place);
        for other in (0..4).filter(|other| *other != damaged) {
            let expected = &all[part(other).start as usize..part(other).end as usize];
            assert_eq!(read(&cache, segment, part(other)).as_deref(), Some(expected));
        }
        assert_eq!(read(&cache, segment, part(damaged)), None);
        assert_eq!(read(&cache, segment, part((damaged + 1) % 4)), None, "the page is gone");
    }
}

fn put_by(image: u8, data: u8) -> Vec<u8> {
    let geometry = Geometry::checked(4096, 1 << 20).unwrap();
    let record = Record { block: 3, blocks: 1, change: Change::Data };
    let content = Content::Changes(vec![record]);
    let (image, writer, sequence) = ([image; 16], [9; 16], 5);
    let header = Header { image, epoch: 1, writer, sequence, durable: 1, content };
    let mut bytes = header.encode(geometry);
    let codec = BlockCodec { cipher: None, image: [1; 16], sequence: 5 };
    codec.put(&mut bytes, &[data; 4096], 3);
    bytes
}

#[test]
fn a_page_of_another_image_in_its_slot_counts_as_missing() {
    let place = TempDir::new().unwrap();
    let (bytes, other) = (put_by(1, 1), put_by(2, 2));
    let len = bytes.len() as u64;
    let cache = opened(&place);
    cache.insert(segment(1, 5), 0, &bytes, (len, false));
    assert_eq!(read(&cache, segment(1, 5), 0..len), Some(bytes));
    drop(cache);
    // A server leaves such a file if it is killed after it has written a page into the slot and
    // before it has written the row of this page.
    let file = fs::File::options().write(true).open(place.path().join("nowait-cache")).unwrap();
    file.write_all_at(&other, PAGE_BYTES).unwrap();
    assert_eq!(read(&opened(&place), segment(1, 5), 0..len), None);
}

#[test]
fn damaged_rows_are_no_pages_and_strange_files_no_caches() {
    let place = TempDir::new().unwrap();
    let path = place.path().join("nowait-cache");
    drop(opened(&place));
    let file = fs::File::options().write(true).open(&path).unwrap();
    file.write_all_at(&[0xff; 4096], 4096).unwrap();
    assert_eq!(read(&opened(&place), segment(0xff, u64::MAX), 0..9), None);
    let said = || folder(place.path(), FOLDER_BYTES).unwrap_err().to_string();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    assert!(said().ends_with(": nowait-cache is not a private file of this user: remove it"));
    fs::set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, b"something else").unwrap();
    assert!(said().ends_with(": nowait-cache is not a cache of nowait: remove it"), "{}", said());
    assert_eq!(fs::read(&path).unwrap(), b"something else");
    fs::remove_file(&path).unwrap();
    symlink(place.path().join("victim"), &path).unwrap();
    assert!(said().contains("Too many levels of symbolic links"), "{}", said());
}

#[test]
fn pages_stay_though_others_come_after_the_cache_has_ended() {
    let place = TempDir::new().unwrap();
    let cache = Cache::in_folder(
        &Nowait::new().unwrap(),
        place.path(),
        600 * (PAGE_BYTES + 64),
        CacheMode::Host,
        None,
    )
    .unwrap();
    let insert = |sequence| {
        let segment = segment(1, sequence);
        cache.insert(segment, 0, &bytes_of(segment, 4100), (4100, false));
    };
    (0..500).for_each(insert);
    cache.end();
    insert(500);
    drop(cache);
    let cache = folder(place.path(), 600 * (PAGE_BYTES + 64)).unwrap();
    let has = |sequence: &u64| read(&cache, segment(1, *sequence), 0..9).is_some();
    assert_eq!((0..500).filter(has).count(), 500);
}

#[test]
fn one_read_asks_the_store_and_the_others_wait() {
    let cache = Cache::in_memory(SLOTS * PAGE_BYTES);
    let asked = std::cell::Cell::new(0);
    let range = 100..200;
    let ask = async || {
        let _turn = cache.turn(segment(1, 1), &range).await;
        if cache.read(segment(1, 1), &range).await.is_none() {
            asked.set(asked.get() + 1);
            tokio::task::yield_now().await;
            let pages = pages_of(&range);
            let bytes = bytes_of(segment(1, 1), PAGE_BYTES);
            cache.insert(segment(1, 1), pages.start, &bytes, (PAGE_BYTES, false));
        }
    };
    run(async { tokio::join!(ask(), ask(), ask()) });
    assert_eq!(asked.get(), 1);
}

fn image(name: &str, cache: Arc<Cache>) -> (StoreUrl, StoreOptions) {
    let url: StoreUrl = format!("memory://{name}/vm").parse().unwrap();
    let options = StoreOptions { cache: Some(cache), ..StoreOptions::default() };
    drop(StoredImage::create(&url, &StoreOptions::default(), 64 * BLOCK, BLOCK as u32).unwrap());
    (url, options)
}

fn gets(image: &StoredImage, work: impl FnOnce()) -> u64 {
    // The image publishes its counters before a request ends.
    let misses = || image.figures().cache.misses;
    let before = misses();
    work();
    misses() - before
}

#[test]
fn data_is_read_from_the_store_once_and_own_writes_never() {
    let (url, options) = image("once", Cache::in_memory(1 << 20));
    let writer = StoredImage::open(&url, &StoreOptions::default()).unwrap();
    writer.write_at(0, vec![1; 2 * BLOCK as usize]).unwrap();
    writer.close(options.open_timeout).unwrap();
    let image = StoredImage::open(&url, &options).unwrap();
    let read = |image: &StoredImage, block: u64, byte: u8| {
        let expected = vec![byte; BLOCK as usize];
        gets(image, || assert_eq!(image.read_at(block * BLOCK, BLOCK).unwrap(), expected))
    };
    assert_eq!((read(&image, 0, 1), read(&image, 0, 1)), (1, 0));
    assert_eq!(read(&image, 1, 1), 0, "it came along");
    image.write_at(0, vec![2; BLOCK as usize]).unwrap();
    image.flush().unwrap();
    assert_eq!(read(&image, 0, 2), 0);
    drop(image);
    let reader = StoredImage::open_read_only(&url, &options).unwrap();
    assert_eq!((read(&reader, 0, 2), read(&reader, 1, 1)), (0, 0));
}

#[test]
fn cached_data_found_damaged_is_read_from_the_store_again() {
    let cache = Cache::in_memory(1 << 20);
    let (url, options) = image("anew", cache.clone());
    let image = StoredImage::open(&url, &options).unwrap();
    image.write_at(0, vec![7; BLOCK as usize]).unwrap();
    image.flush().unwrap();
    let ids = cache.segments();
    assert!(!ids.is_empty());
    for segment in ids {
        cache.insert(segment, 0, &[0x55; PAGE_BYTES as usize], (PAGE_BYTES, true));
    }
    let read = || assert_eq!(image.read_at(0, BLOCK).unwrap(), vec![7; BLOCK as usize]);
    assert_eq!(gets(&image, read), 1);
    assert_eq!(gets(&image, read), 0, "it is mended");
}

fn copy(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let to = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &to),
            false => drop(fs::copy(entry.path(), to).unwrap()),
        }
    }
}

fn write_and_read(image: &StoredImage, byte: u8) {
    image.write_at(0, vec![byte; BLOCK as usize]).unwrap();
    image.flush().unwrap();
    assert_eq!(image.read_at(0, BLOCK).unwrap(), vec![byte; BLOCK as usize]);
}

#[test]
fn copies_of_an_image_and_images_put_back_have_their_own_data() {
    let store = TempDir::new().unwrap();
    let [vm, twin, backup] = ["vm", "twin", "backup"].map(|name| store.path().join(name));
    let url = |name: &str| -> StoreUrl {
        format!("file://{}/{name}", store.path().display()).parse().unwrap()
    };
    let options =
        StoreOptions { cache: Some(Cache::in_memory(1 << 20)), ..StoreOptions::default() };
    let size = 64 * BLOCK;
    drop(StoredImage::create(&url("vm"), &options, size, BLOCK as u32).unwrap());
    copy(&vm, &twin);
    copy(&vm, &backup);
    // Both copies have the same image number, and their writers use the same segment numbers.
    let both = ["vm", "twin"].map(|name| StoredImage::open(&url(name), &options).unwrap());
    both[0].write_at(0, vec![1; BLOCK as usize]).unwrap();
    both[0].flush().unwrap();
    write_and_read(&both[1], 2);
    assert_eq!(both[0].read_at(0, BLOCK).unwrap(), vec![1; BLOCK as usize]);
    drop(both);
    copy(&backup, &vm);
    let image = StoredImage::open(&url("vm"), &options).unwrap();
    assert_eq!(image.read_at(0, BLOCK).unwrap(), vec![0; BLOCK as usize]);
    write_and_read(&image, 3);
}
