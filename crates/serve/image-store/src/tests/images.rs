//! Images on stores, as their callers use them.

use super::wrong::{Wrong, WrongStore};
use crate::client::Client;
use crate::image::{StoredImage, writer};
use crate::place::{Place, StoreOptions};
use crate::status::Status;
use crate::url::StoreUrl;
use nowait_image_format::{Geometry, Origin, Request, Settings};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

const SIZE: u64 = 1 << 20;
const BLOCK: u32 = 4096;
const LIMIT: Duration = Duration::from_mins(1);

fn url(name: &str) -> StoreUrl {
    format!("memory://{name}/vm").parse().unwrap()
}

fn create(name: &str) -> StoredImage {
    StoredImage::create(&url(name), &StoreOptions::default(), SIZE, BLOCK).unwrap()
}

fn open(name: &str) -> StoredImage {
    StoredImage::open(&url(name), &StoreOptions::default()).unwrap()
}

fn block(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK as usize]
}

static TOLD: (Mutex<Vec<String>>, Condvar) = (Mutex::new(Vec::new()), Condvar::new());

fn tell(text: &str) {
    TOLD.0.lock().unwrap().push(text.to_owned());
    TOLD.1.notify_all();
}

fn told(what: &str) -> bool {
    let is_told = |told: &mut Vec<String>| !told.iter().any(|text| text.contains(what));
    let (told, _) = TOLD.1.wait_timeout_while(TOLD.0.lock().unwrap(), LIMIT, is_told).unwrap();
    told.iter().any(|text| text.contains(what))
}

fn begin(store: &Arc<WrongStore>, makes: bool, millis: u64) -> std::io::Result<StoredImage> {
    let place = Place::in_store(store.clone(), "vm");
    let client = Client::new(place, Duration::from_millis(millis)).telling(Some(tell));
    let geometry = Geometry::checked(BLOCK, SIZE).unwrap();
    let origin = match makes {
        true => Origin::Create { image: [1; 16], geometry },
        false => Origin::TakeOver,
    };
    let settings = Settings::new(writer()?);
    StoredImage::begin_on(
        &url("wrong"),
        client,
        4 * Duration::from_millis(millis),
        settings,
        origin,
    )
}

#[test]
fn data_is_read_by_its_writer_and_by_the_next() {
    let image = create("written");
    assert_eq!(image.geometry(), Geometry::checked(BLOCK, SIZE).unwrap());
    image.write_at(8192, block(7)).unwrap();
    image.write_at(0, block(6)).unwrap();
    image.discard(0, 4096).unwrap();
    assert_eq!(image.read_at(4096, 8192).unwrap(), [block(0), block(7)].concat());
    assert!(image.figures().unflushed_bytes > 0);
    image.close(LIMIT).unwrap();
    let image = open("written");
    assert!(matches!(image.status(), Status::Serving { epoch: 2, .. }));
    assert_eq!(image.read_at(0, 12_288).unwrap(), [block(0), block(0), block(7)].concat());
    let costs = image.figures().costs;
    assert!(costs.puts > 0 && costs.gets > 0 && costs.bytes_got >= 12_288, "{costs:?}");
}

#[test]
fn a_dropped_image_has_lost_no_flushed_data() {
    let image = create("dropped");
    for number in 0..100 {
        image.write_at(4096 * number, block(number as u8 + 1)).unwrap();
    }
    image.flush().unwrap();
    image.write_at(0, block(200)).unwrap();
    drop(image);
    let image = open("dropped");
    for number in 1..100 {
        assert_eq!(image.read_at(4096 * number, 4096).unwrap(), block(number as u8 + 1));
    }
    let first = image.read_at(0, 4096).unwrap();
    assert!(first == block(1) || first == block(200));
}

#[test]
fn an_image_that_was_taken_over_names_the_new_writer() {
    let first = create("two");
    first.write_at(0, block(1)).unwrap();
    first.flush().unwrap();
    let second = open("two");
    assert_eq!(second.read_at(0, 4096).unwrap(), block(1));
    first.write_at(0, block(2)).unwrap();
    let error = first.flush().unwrap_err().to_string();
    let process = format!("process {} (epoch 2)", std::process::id());
    assert!(error.contains("taken over by") && error.contains(&process), "{error}");
    assert!(matches!(first.status(), Status::Fenced { epoch: 2, .. }));
    assert!(first.read_at(0, 4096).is_err() && first.write_at(0, block(3)).is_err());
    assert_eq!(second.read_at(0, 4096).unwrap(), block(1), "what was refused is not there");
}

#[test]
fn requests_that_are_not_of_whole_blocks_or_behind_the_end_are_invalid() {
    let image = create("invalid");
    for (offset, len) in [(1, 4096), (0, 100), (SIZE, 4096), (u64::MAX - 4095, 4096)] {
        let error = image.read_at(offset, len).unwrap_err();
        assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput, "{offset} {len}");
    }
}

#[test]
fn an_image_is_made_only_once_and_opened_only_if_it_exists() {
    let error = |result: std::io::Result<StoredImage>| result.unwrap_err().to_string();
    let said = error(StoredImage::open(&url("none"), &StoreOptions::default()));
    assert_eq!(said, "memory://none/vm: no such image");
    drop(create("none"));
    let said = error(StoredImage::create(&url("none"), &StoreOptions::default(), SIZE, BLOCK));
    assert_eq!(said, "memory://none/vm: the image exists");
    let said = error(StoredImage::create(&url("none"), &StoreOptions::default(), SIZE, 1000));
    assert_eq!(said, "the block size must be a power of two from 512 to 65536");
    let snapshot: StoreUrl = "memory://none/vm@monday".parse().unwrap();
    let said = error(StoredImage::open(&snapshot, &StoreOptions::default()));
    assert!(said.ends_with("a snapshot is read only: add --read-only"), "{said}");
}

#[test]
fn a_store_that_ignores_conditions_gets_no_image() {
    for wrong in [Wrong::IgnoresCreate, Wrong::IgnoresUpdate] {
        let store = Arc::new(WrongStore::new(wrong));
        let said = begin(&store, true, 10_000).unwrap_err().to_string();
        assert!(said.contains("the store cannot be used: it ignores"), "{said}");
    }
}

#[test]
fn a_store_that_never_answers_opens_nothing_and_says_so_in_time() {
    let store = Arc::new(WrongStore::new(Wrong::Silent));
    let said = begin(&store, true, 20).unwrap_err().to_string();
    assert!(said.contains("cannot be reached: no answer of the store within 20ms"), "{said}");
}

#[test]
fn missing_credentials_are_reported_at_once() {
    let store = Arc::new(WrongStore::new(Wrong::Denies));
    let said = begin(&store, true, 1_000_000).unwrap_err().to_string();
    assert!(said.contains("the store refuses") && said.contains("no key"), "{said}");
}

#[test]
fn passing_errors_of_a_store_cause_delays_and_no_loss() {
    for wrong in [Wrong::Silent, Wrong::Conflict, Wrong::Panics] {
        let store = Arc::new(WrongStore::new(Wrong::Nothing));
        let image = begin(&store, true, 500).unwrap();
        image.write_at(0, block(1)).unwrap();
        store.set(wrong);
        let (sender, ended) = std::sync::mpsc::channel();
        image.submit(nowait_image_format::Request::Flush, move |result| {
            sender.send(result).unwrap();
        });
        while image.figures().failures == 0 {
            std::thread::yield_now();
        }
        assert!(ended.try_recv().is_err(), "nothing is promised that is not there");
        assert!(image.last_error().is_some());
        store.set(Wrong::Nothing);
        assert_eq!(ended.recv_timeout(LIMIT).unwrap(), Ok(Vec::new()));
        drop(image);
        let image = begin(&store, false, 10_000).unwrap();
        assert_eq!(image.read_at(0, 4096).unwrap(), block(1));
    }
}

#[test]
fn closing_ends_in_time_though_the_store_does_not_answer() {
    let store = Arc::new(WrongStore::new(Wrong::Nothing));
    let image = begin(&store, true, 1000).unwrap();
    image.write_at(0, block(1)).unwrap();
    store.set(Wrong::Silent);
    let error = image.close(Duration::from_millis(50)).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::TimedOut);
}

#[test]
fn requests_of_many_threads_all_end() {
    let image = create("many");
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let image = &image;
            scope.spawn(move || {
                for number in 0..50 {
                    let (at, byte) = ((thread * 64 + number) * 4096, (thread * 50 + number) as u8);
                    image.write_at(at, block(byte)).unwrap();
                    if number % 10 == 0 {
                        image.flush().unwrap();
                    }
                    assert_eq!(image.read_at(at, 4096).unwrap(), block(byte));
                }
            });
        }
    });
}

#[test]
fn reads_of_a_read_only_image_end_with_it() {
    let store = Arc::new(WrongStore::new(Wrong::Nothing));
    let image = begin(&store, true, 500).unwrap();
    image.write_at(0, block(1)).unwrap();
    image.flush().unwrap();
    let place = Place::in_store(store.clone(), "vm");
    let client = Client::new(place, Duration::from_hours(1));
    let reading = StoredImage::read_on(&url("silent"), client, LIMIT, None).unwrap();
    let gets = reading.figures().costs.gets;
    store.set(Wrong::Silent);
    let (sender, ended) = std::sync::mpsc::channel();
    for _ in 0..100 {
        let (sender, len) = (sender.clone(), u64::from(BLOCK));
        let request = nowait_image_format::Request::Read { offset: 0, len };
        reading.submit(request, move |result| sender.send(result).unwrap());
    }
    while reading.figures().costs.gets == gets {
        std::thread::yield_now();
    }
    drop((reading, sender));
    let ends: Vec<_> = ended.iter().collect();
    assert_eq!(ends, vec![Err(nowait_image_format::Failure::Io); 100]);
}

#[test]
fn a_store_that_accepts_nothing_is_reported_and_loses_nothing() {
    let store = Arc::new(WrongStore::new(Wrong::Nothing));
    let image = begin(&store, true, 1000).unwrap();
    store.set(Wrong::ReadOnly);
    image.write_at(0, block(7)).unwrap();
    let (sender, flushed) = std::sync::mpsc::channel();
    image.submit(Request::Flush, move |result| sender.send(result.is_ok()).unwrap());
    assert!(told("vm: the store takes nothing, trying again: "), "{TOLD:?}");
    assert!(flushed.try_recv().is_err(), "it is asked on");
    store.set(Wrong::Nothing);
    assert_eq!(flushed.recv_timeout(LIMIT), Ok(true));
    assert!(told("vm: the store takes again"), "{TOLD:?}");
}
