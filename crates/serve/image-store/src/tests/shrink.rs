//! Images that become smaller.

use super::checks::{BLOCK, checked, image};
use crate::catalog;
use crate::edit::{clone, edit};
use crate::image::StoredImage;
use crate::place::StoreOptions;
use crate::shrink::{cut, shrink};
use crate::status::Status;
use crate::url::StoreUrl;
use crate::view::View;
use nowait_image_format::{Edit, ImageKey};
use std::io;
use std::time::Duration;

const LIMIT: Duration = Duration::from_mins(1);

fn options() -> StoreOptions {
    StoreOptions::default()
}

fn data(byte: u8) -> Vec<u8> {
    vec![byte; BLOCK as usize]
}

fn at(text: &str) -> StoreUrl {
    text.parse().unwrap()
}

#[test]
fn a_smaller_image_is_served_checked_and_has_zeroes_when_it_grows_again() {
    let url = image("smaller");
    assert_eq!(shrink(&url, &options(), 3 * BLOCK).unwrap().geometry.size_bytes, 4 << 20);
    let report = checked(&url).unwrap();
    assert_eq!((report.live_bytes, &report.findings[..]), (2 * BLOCK, &[][..]));
    // The writer has deleted all objects except the head, a part of the map, the one segment with
    // data and the fence.
    assert_eq!((report.objects, report.segments), (4, 1));
    let serving = StoredImage::open(&url, &options()).unwrap();
    assert_eq!(serving.geometry().size_bytes, 3 * BLOCK);
    assert_eq!(serving.read_at(0, 3 * BLOCK).unwrap(), [data(0), data(1), data(1)].concat());
    let beyond = serving.write_at(3 * BLOCK, data(7)).unwrap_err();
    assert_eq!(beyond.kind(), io::ErrorKind::InvalidInput);
    edit(&url, &options(), Edit::Grow(4 << 20)).unwrap();
    let grown = StoredImage::open(&url, &options()).unwrap();
    let rest = grown.read_at(2 * BLOCK, (4 << 20) - 2 * BLOCK).unwrap();
    assert!(rest[..BLOCK as usize] == data(1) && rest[BLOCK as usize..].iter().all(|it| *it == 0));
    assert_eq!(checked(&url).unwrap().findings, []);
}

#[test]
fn a_replaced_server_learns_which_process_shrank_the_image() {
    let url = image("served");
    let serving = StoredImage::open(&url, &options()).unwrap();
    serving.write_at(0, data(6)).unwrap();
    serving.flush().unwrap();
    let reading = StoredImage::open_read_only(&url, &options()).unwrap();
    shrink(&url, &options(), 2 * BLOCK).unwrap();
    serving.write_at(0, data(7)).unwrap();
    let error = serving.flush().unwrap_err().to_string();
    let process = format!("process {} (epoch 3)", std::process::id());
    assert!(error.contains("taken over by") && error.contains(&process), "{error}");
    let now = StoredImage::open(&url, &options()).unwrap();
    assert_eq!(now.read_at(0, 2 * BLOCK).unwrap(), [data(6), data(1)].concat());
    // A reader keeps the size that the image had when the reader opened it; reads of deleted data
    // fail.
    assert_eq!(reading.geometry().size_bytes, 4 << 20);
    assert_eq!(reading.read_at(0, 2 * BLOCK).unwrap(), [data(6), data(1)].concat());
    assert!(reading.read_at(4 * BLOCK, BLOCK).is_err());
}

#[test]
fn snapshots_and_clones_keep_the_size_before_a_shrink() {
    let url = image("larger");
    edit(&url, &options(), Edit::Snapshot("before".to_owned())).unwrap();
    shrink(&url, &options(), 2 * BLOCK).unwrap();
    let before = StoreUrl { snapshot: Some("before".to_owned()), ..url.clone() };
    let view = View::open(&before, &options()).unwrap();
    assert_eq!((view.geometry().size_bytes, view.stored_bytes_from(0)), (4 << 20, 5 * BLOCK));
    let reading = StoredImage::open_read_only(&before, &options()).unwrap();
    assert_eq!(reading.read_at(5 * BLOCK, 2 * BLOCK).unwrap(), [data(2), data(0)].concat());
    assert_eq!(checked(&url).unwrap().findings, []);
    let child = at("memory://larger/child");
    assert_eq!(clone(&before, &child, &options()).unwrap().geometry.size_bytes, 4 << 20);
    let cloned = StoredImage::open(&child, &options()).unwrap();
    cloned.write_at((4 << 20) - BLOCK, data(9)).unwrap();
    cloned.close(LIMIT).unwrap();
    shrink(&child, &options(), 5 * BLOCK).unwrap();
    let cloned = StoredImage::open(&child, &options()).unwrap();
    assert_eq!(cloned.read_at(3 * BLOCK, 2 * BLOCK).unwrap(), [data(2), data(2)].concat());
    assert_eq!(reading.read_at(5 * BLOCK, BLOCK).unwrap(), data(2));
    for url in [&url, &child] {
        assert_eq!(checked(url).unwrap().findings, []);
    }
}

#[test]
fn the_same_size_changes_nothing_and_an_impossible_one_is_refused_before_the_takeover() {
    let url = image("refused");
    let serving = StoredImage::open(&url, &options()).unwrap();
    let said = |size: u64| shrink(&url, &options(), size).unwrap_err().to_string();
    let larger = "memory://refused/vm: the image is smaller: leave out --shrink to make it larger";
    assert_eq!(said((4 << 20) + BLOCK), larger);
    assert_eq!(said(0), "memory://refused/vm: the image must have at least one block");
    assert_eq!(
        said(BLOCK + 512),
        "memory://refused/vm: the size must be a multiple of the block size"
    );
    shrink(&url, &options(), 4 << 20).unwrap();
    serving.write_at(0, data(7)).unwrap();
    serving.flush().unwrap();
    let none = shrink(&at("memory://refused/none"), &options(), BLOCK).unwrap_err().to_string();
    assert_eq!(none, "memory://refused/none: no such image");
}

#[test]
fn an_encrypted_image_becomes_smaller_with_its_key_only() {
    let url = at("memory://secret/vm");
    let with_key = StoreOptions { key: Some(ImageKey::new([3; 32])), ..options() };
    let serving = StoredImage::create(&url, &with_key, 1 << 20, BLOCK as u32).unwrap();
    serving.write_at(0, [data(5), data(6)].concat()).unwrap();
    serving.flush().unwrap();
    let said = shrink(&url, &options(), BLOCK).unwrap_err().to_string();
    assert_eq!(said, "memory://secret/vm: the image is encrypted: give --key-file");
    serving.write_at(0, data(7)).unwrap();
    serving.flush().unwrap();
    shrink(&url, &with_key, BLOCK).unwrap();
    let now = StoredImage::open(&url, &with_key).unwrap();
    assert_eq!((now.geometry().size_bytes, now.read_at(0, BLOCK).unwrap()), (BLOCK, data(7)));
}

#[test]
fn a_writer_that_comes_during_a_shrink_has_all_of_the_image() {
    let url = image("meanwhile");
    let shrinking = StoredImage::open(&url, &options()).unwrap();
    let serving = StoredImage::open(&url, &options()).unwrap();
    let head = || catalog::look(&url, &options());
    let said = cut(&shrinking, BLOCK, LIMIT, head).unwrap_err().to_string();
    assert!(said.contains("taken over by") && said.ends_with(": nothing was cut off"), "{said}");
    assert!(matches!(shrinking.status(), Status::Fenced { epoch: 3, .. }));
    assert_eq!(serving.read_at(5 * BLOCK, BLOCK).unwrap(), data(2));
    assert_eq!(head().unwrap().geometry.size_bytes, 4 << 20);
    // A shrink that fails counts as done if the head has the new size.
    serving.shrink_within(BLOCK, LIMIT).unwrap();
    cut(&shrinking, BLOCK, LIMIT, head).unwrap();
}

#[test]
fn an_export_that_was_interrupted_is_not_resumed_with_another_size() {
    let url = image("resumed");
    let state = || View::open(&url, &options()).unwrap().state();
    let before = state();
    // The image has no data behind the new end, but the state changes with the size.
    shrink(&url, &options(), 2 << 20).unwrap();
    assert_ne!(state(), before);
}
