//! Snapshots and clones: tests make them while a writer continues, read them and remove them.

use super::checks::{BLOCK, change, checked, image};
use super::wrong::{Wrong, WrongStore};
use crate::catalog;
use crate::client::Client;
use crate::edit::{clone, edit, edit_on, remove};
use crate::image::StoredImage;
use crate::place::{Place, StoreOptions};
use crate::url::StoreUrl;
use crate::view::View;
use nowait_image_format::{CloneOf, Edit, Key};
use std::sync::Arc;
use std::time::Duration;

fn options() -> StoreOptions {
    StoreOptions::default()
}

fn snapshot(url: &StoreUrl, name: &str) -> StoreUrl {
    edit(url, &options(), Edit::Snapshot(name.to_owned())).unwrap();
    StoreUrl { snapshot: Some(name.to_owned()), ..url.clone() }
}

fn data(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK as usize]
}

#[test]
fn a_snapshot_stays_as_it_was_while_the_writer_goes_on() {
    let url = image("kept");
    let serving = StoredImage::open(&url, &options()).unwrap();
    serving.write_at(0, data(3)).unwrap();
    serving.flush().unwrap();
    let monday = snapshot(&url, "monday");
    serving.write_at(0, data(4)).unwrap();
    serving.discard(BLOCK, 5 * BLOCK).unwrap();
    serving.flush().unwrap();
    let tuesday = snapshot(&url, "tuesday");
    let readers: Vec<_> =
        (0..3).map(|_| StoredImage::open_read_only(&monday, &options()).unwrap()).collect();
    for reader in &readers {
        assert_eq!(reader.read_at(0, BLOCK).unwrap(), data(3));
        assert_eq!(reader.read_at(3 * BLOCK, BLOCK).unwrap(), data(2));
    }
    let view = View::open(&monday, &options()).unwrap();
    assert_eq!(view.stored_bytes_from(0), 6 * BLOCK);
    assert!(view.is_current().unwrap());
    let view = View::open(&tuesday, &options()).unwrap();
    assert_eq!(view.stored_bytes_from(0), BLOCK);
    serving.write_at(0, data(5)).unwrap();
    serving.flush().unwrap();
    assert!(view.is_current().unwrap(), "what is written later is not in it");
    assert_eq!(serving.read_at(0, BLOCK).unwrap(), data(5));
}

#[test]
fn a_check_finds_damage_that_only_a_snapshot_has() {
    let url = image("only");
    snapshot(&url, "a");
    let serving = StoredImage::open(&url, &options()).unwrap();
    serving.discard(0, 4 << 20).unwrap();
    serving.flush().unwrap();
    snapshot(&url, "b");
    let report = checked(&url).unwrap();
    assert_eq!((report.live_bytes, report.segments, &report.findings[..]), (0, 2, &[][..]));
    change(&url, Key::Segment(2), |mut bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        Some(bytes)
    });
    let findings = checked(&url).unwrap().findings;
    assert_eq!(findings.len(), 1, "{findings:?}");
    let found = &findings[0];
    let expected = (Key::Segment(2), false, vec!["a".to_owned()]);
    assert_eq!((found.key, found.is_of_image, found.snapshots.clone()), expected);
    assert!(found.ranges.iter().eq([&(5 * BLOCK..6 * BLOCK)]));
}

#[test]
fn a_removed_snapshot_is_gone_and_the_other_stays() {
    let url = image("removed");
    let (one, other) = (snapshot(&url, "one"), snapshot(&url, "other"));
    remove(&one, &options()).unwrap();
    let said = View::open(&one, &options()).unwrap_err().to_string();
    assert_eq!(said, "memory://removed/vm@one: no such snapshot: see nowait image info");
    let said = StoredImage::open_read_only(&one, &options()).unwrap_err().to_string();
    assert_eq!(said, "memory://removed/vm@one: no such snapshot: see nowait image info");
    assert_eq!(View::open(&other, &options()).unwrap().stored_bytes_from(0), 5 * BLOCK);
    let twice = edit(&url, &options(), Edit::Snapshot("other".to_owned())).unwrap_err();
    assert_eq!(
        twice.to_string(),
        "memory://removed/vm: a snapshot of this name exists: choose another name"
    );
}

#[test]
fn an_image_that_grew_is_larger_for_the_next_writer_and_in_no_older_snapshot() {
    let url = image("grown");
    let serving = StoredImage::open(&url, &options()).unwrap();
    let before = snapshot(&url, "before");
    edit(&url, &options(), Edit::Grow(8 << 20)).unwrap();
    serving.write_at(0, data(7)).unwrap();
    serving.flush().unwrap();
    assert!(serving.write_at(4 << 20, data(7)).is_err(), "it was opened as it was");
    let next = StoredImage::open(&url, &options()).unwrap();
    assert_eq!(next.geometry().size_bytes, 8 << 20);
    next.write_at((8 << 20) - BLOCK, data(8)).unwrap();
    next.flush().unwrap();
    assert_eq!(View::open(&before, &options()).unwrap().geometry().size_bytes, 4 << 20);
    assert_eq!(checked(&url).unwrap().findings, []);
}

#[test]
fn an_edit_on_a_store_that_never_answers_fails_in_time() {
    let place = Place::in_store(Arc::new(WrongStore::new(Wrong::Silent)), "vm");
    let client = Client::new(place, Duration::from_millis(20));
    let url: StoreUrl = "memory://silent/vm".parse().unwrap();
    let edit = Edit::Snapshot("s".to_owned());
    let said = edit_on(&url, &client, Duration::from_millis(100), edit).unwrap_err().to_string();
    assert!(
        said.contains("the result is unknown after 100ms: no answer of the store within 20ms"),
        "{said}"
    );
}

fn at(text: &str) -> StoreUrl {
    text.parse().unwrap()
}

#[test]
fn a_clone_begins_as_its_snapshot_and_then_differs() {
    let url = image("cloned");
    let serving = StoredImage::open(&url, &options()).unwrap();
    let golden = snapshot(&url, "golden");
    serving.write_at(BLOCK, data(9)).unwrap();
    serving.flush().unwrap();
    let (one, two) = (at("memory://cloned/one"), at("memory://cloned/two"));
    let head = clone(&golden, &one, &options()).unwrap();
    assert_eq!(head.geometry.size_bytes, 4 << 20);
    let mut first = StoredImage::open(&one, &options()).unwrap();
    assert_eq!(first.read_at(BLOCK, BLOCK).unwrap(), data(1));
    first.write_at(BLOCK, data(4)).unwrap();
    first.flush().unwrap();
    clone(&snapshot(&one, "s"), &two, &options()).unwrap();
    let second = StoredImage::open(&two, &options()).unwrap();
    second.write_at(2 * BLOCK, data(5)).unwrap();
    second.flush().unwrap();
    first = StoredImage::open(&one, &options()).unwrap();
    for (image, expected) in [(&serving, [9, 1, 2]), (&first, [4, 1, 2]), (&second, [4, 5, 2])] {
        for (block, byte) in (1..).zip(expected) {
            assert_eq!(image.read_at(block * BLOCK, BLOCK).unwrap(), data(byte), "{block}");
        }
    }
    for url in [&url, &one, &two] {
        let report = checked(url).unwrap();
        assert_eq!((report.live_bytes, &report.findings[..]), (5 * BLOCK, &[][..]));
    }
    assert_eq!(View::open(&two, &options()).unwrap().stored_bytes_from(0), 5 * BLOCK);
}

#[test]
fn a_snapshot_with_a_clone_is_removed_after_the_clone() {
    let url = image("family");
    let golden = snapshot(&url, "golden");
    let child = at("memory://family/a/child");
    clone(&golden, &child, &options()).unwrap();
    let said = |result: std::io::Result<u64>| result.unwrap_err().to_string();
    let refused = said(catalog::remove(&url, &options(), |_| {}));
    assert_eq!(refused, "memory://family/vm: a/child is a clone of @golden");
    let refused = remove(&golden, &options()).unwrap_err().to_string();
    assert_eq!(refused, "memory://family/vm@golden: a/child is a clone of @golden");
    assert_eq!(catalog::remove(&child, &options(), |_| {}).unwrap(), 1);
    remove(&golden, &options()).unwrap();
    catalog::remove(&url, &options(), |_| {}).unwrap();
}

#[test]
fn a_clone_is_made_only_beside_its_snapshot_and_where_no_image_is() {
    let url = image("place");
    let golden = snapshot(&url, "golden");
    let said = |to: &str| clone(&golden, &at(to), &options()).unwrap_err().to_string();
    assert_eq!(said("memory://place/vm"), "memory://place/vm: the image exists");
    let elsewhere = "a clone must be in the bucket of its snapshot, and without @NAME";
    assert_eq!(said("memory://other/vm"), format!("memory://other/vm: {elsewhere}"));
    assert_eq!(said("memory://place/vm@x"), format!("memory://place/vm@x: {elsewhere}"));
    let none = clone(&at("memory://place/vm@none"), &at("memory://place/b"), &options());
    let none = none.unwrap_err().to_string();
    assert_eq!(none, "memory://place/vm@none: no such snapshot: see nowait image info");
    remove(&golden, &options()).unwrap();
}

#[test]
fn a_clone_that_was_begun_and_never_made_does_not_keep_its_snapshot() {
    let url = image("begun");
    let golden = snapshot(&url, "golden");
    let clone = CloneOf { image: [7; 16], path: "never".to_owned(), is_made: false };
    edit(&url, &options(), Edit::Clone { snapshot: "golden".to_owned(), clone }).unwrap();
    remove(&golden, &options()).unwrap();
    // The process that makes the clone would get this error, and remove the clone.
    let late = edit(&url, &options(), Edit::Made([7; 16])).unwrap_err().to_string();
    assert_eq!(late, "memory://begun/vm: the snapshot was removed meanwhile");
}

#[test]
fn a_clone_made_during_a_removal_keeps_its_snapshot() {
    let url = image("looked");
    let golden = snapshot(&url, "golden");
    let note = CloneOf { image: [7; 16], path: "late".to_owned(), is_made: false };
    let noted = Edit::Clone { snapshot: "golden".to_owned(), clone: note };
    let looked = edit(&url, &options(), noted).unwrap().snapshots;
    edit(&url, &options(), Edit::Made([7; 16])).unwrap();
    let kept = edit(&url, &options(), Edit::Remove(looked)).unwrap_err().to_string();
    assert_eq!(kept, "memory://looked/vm: the snapshot has a clone: see nowait image info");
    assert!(View::open(&golden, &options()).is_ok());
}

#[test]
fn a_clone_released_during_a_removal_does_not_keep_its_snapshot() {
    let url = image("released");
    snapshot(&url, "golden");
    let clone = CloneOf { image: [7; 16], path: "gone".to_owned(), is_made: false };
    let noted = Edit::Clone { snapshot: "golden".to_owned(), clone };
    let looked = edit(&url, &options(), noted).unwrap().snapshots;
    edit(&url, &options(), Edit::Release([7; 16])).unwrap();
    assert_eq!(edit(&url, &options(), Edit::Remove(looked)).unwrap().snapshots, []);
}

#[test]
fn a_missing_object_of_a_base_is_noticed() {
    let url = image("gone");
    let golden = snapshot(&url, "golden");
    let child = at("memory://gone/child");
    clone(&golden, &child, &options()).unwrap();
    let serving = StoredImage::open(&child, &options()).unwrap();
    serving.write_at(0, data(9)).unwrap();
    serving.flush().unwrap();
    drop(serving);
    change(&url, Key::Segment(1), |_| None);
    // Neither readers nor writers of the clone take the missing object for the end of the log.
    let missing = checked(&child).unwrap().findings;
    let found: Vec<_> = missing.iter().map(|it| (it.key, it.of.as_deref(), it.what)).collect();
    assert_eq!(found, [(Key::Segment(1), Some("vm"), "missing")]);
    assert!(View::open(&child, &options()).is_err());
    let said = StoredImage::open(&child, &options()).unwrap_err().to_string();
    assert!(said.starts_with("memory://gone/child: a part of its log is lost"), "{said}");
    let said = edit(&child, &options(), Edit::Snapshot("s".to_owned())).unwrap_err().to_string();
    assert!(said.ends_with("a part of its log is missing: see nowait image check"), "{said}");
    assert_eq!(checked(&url).unwrap().findings[0].key, Key::Segment(1));
}
