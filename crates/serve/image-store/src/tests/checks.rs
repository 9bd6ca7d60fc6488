//! Checks of images with damaged or missing objects.

use crate::check::{Finding, Report, check};
use crate::image::StoredImage;
use crate::place::{Place, StoreOptions};
use crate::url::StoreUrl;
use nowait_image_format::Key;
use object_store::ObjectStoreExt;
use std::io;
use std::ops::Range;

const SIZE: u64 = 4 << 20;
pub(super) const BLOCK: u64 = 4096;

fn url(name: &str) -> StoreUrl {
    format!("memory://{name}/vm").parse().unwrap()
}

/// Makes an image: its first segment has blocks 1 to 3, and its second segment has blocks 3 to 5.
pub(super) fn image(name: &str) -> StoreUrl {
    let url = url(name);
    let image = StoredImage::create(&url, &StoreOptions::default(), SIZE, BLOCK as u32).unwrap();
    image.write_at(BLOCK, vec![1; 3 * BLOCK as usize]).unwrap();
    image.flush().unwrap();
    image.write_at(3 * BLOCK, vec![2; 3 * BLOCK as usize]).unwrap();
    image.flush().unwrap();
    url
}

pub(super) fn checked(url: &StoreUrl) -> io::Result<Report> {
    check(url, &StoreOptions::default())
}

fn found(sequence: u64, what: &'static str, ranges: Vec<Range<u64>>) -> Finding {
    let (key, snapshots) = (Key::Segment(sequence), Vec::new());
    Finding { key, of: None, what, ranges, is_of_image: true, snapshots }
}

pub(super) fn change(url: &StoreUrl, key: Key, change: impl FnOnce(Vec<u8>) -> Option<Vec<u8>>) {
    let place = Place::new(url, &StoreOptions::default()).unwrap();
    let image =
        crate::catalog::look(url, &StoreOptions::default()).map_or([0; 16], |head| head.image);
    let path = place.path(image, key);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let bytes = place.store.get(&path).await.unwrap().bytes().await.unwrap();
        match change(bytes.to_vec()) {
            Some(bytes) => drop(place.store.put(&path, bytes.into()).await.unwrap()),
            None => place.store.delete(&path).await.unwrap(),
        }
    });
}

#[test]
fn an_image_as_it_should_be_has_no_findings_and_keeps_its_writer() {
    let url = image("whole");
    let serving = StoredImage::open(&url, &StoreOptions::default()).unwrap();
    let report = checked(&url).unwrap();
    assert_eq!((report.head.epoch, &report.findings[..]), (2, &[][..]));
    assert_eq!((report.live_bytes, report.segments), (5 * BLOCK, 2));
    assert_eq!(report.objects, 4, "a head, two segments and a fence");
    assert!(report.stored_bytes > 6 * BLOCK);
    serving.write_at(0, vec![3; BLOCK as usize]).unwrap();
    serving.flush().unwrap();
    assert_eq!(checked(&url).unwrap().live_bytes, 6 * BLOCK);
}

#[test]
fn a_changed_bit_is_found_with_the_bytes_of_the_image_that_it_hits() {
    let url = image("changed");
    change(&url, Key::Segment(2), |mut bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        Some(bytes)
    });
    let bytes = 5 * BLOCK..6 * BLOCK;
    let expected = found(2, "damaged", vec![bytes]);
    assert_eq!(checked(&url).unwrap().findings, [expected]);
    // The second segment replaces the third block of the first segment, so damage to this block
    // does not matter.
    let url = image("dead");
    change(&url, Key::Segment(1), |mut bytes| {
        let last = bytes.len() - 1;
        bytes[last] ^= 1;
        Some(bytes)
    });
    assert_eq!(checked(&url).unwrap().findings, []);
}

#[test]
fn a_segment_that_is_cut_or_deleted_is_found() {
    let all: Vec<_> = std::iter::once(0..SIZE).collect();
    let url = image("cut");
    change(&url, Key::Segment(1), |bytes| Some(bytes[..bytes.len() / 2].to_vec()));
    let expected = found(1, "damaged", all.clone());
    assert_eq!(checked(&url).unwrap().findings, [expected], "the log cannot be read on");
    let url = image("deleted");
    // The next writer puts a fence, and its segments lie a window behind the fence.
    let next = StoredImage::open(&url, &StoreOptions::default()).unwrap();
    next.write_at(0, vec![3; BLOCK as usize]).unwrap();
    next.flush().unwrap();
    change(&url, Key::Segment(2), |_| None);
    let expected = found(2, "missing", all);
    assert_eq!(checked(&url).unwrap().findings, [expected]);
}

#[test]
fn a_missing_head_means_no_image_and_a_damaged_head_is_reported() {
    let said = checked(&url("none")).unwrap_err().to_string();
    assert_eq!(said, "memory://none/vm: no such image");
    let url = image("headless");
    change(&url, Key::Head, |bytes| Some(bytes[1..].to_vec()));
    let said = checked(&url).unwrap_err().to_string();
    assert!(said.ends_with("the head is damaged: nothing can be read"), "{said}");
}
