//! Images whose log has lost a part: opening them fails until a repair. And repairs and removals of
//! images that another writer still uses.

use super::checks::{BLOCK, change, checked};
use crate::catalog;
use crate::client::Client;
use crate::edit::{clone, edit};
use crate::image::{StoredImage, writer};
use crate::place::{Place, StoreOptions};
use crate::repair::{Loss, Way, look, repair};
use crate::url::StoreUrl;
use crate::view::View;
use nowait_image_format::{
    Answer, Edit, Image, Key, Operation, Origin, Request, RequestId, Settings, Status, Ticket,
};
use object_store::ObjectStoreExt;
use std::ops::Range;
use std::time::Duration;

/// The time that tests pass to a state machine which they run without the thread of an image.
const NOW_NS: u64 = 1_000_000;

fn options() -> StoreOptions {
    StoreOptions::default()
}

fn url(name: &str) -> StoreUrl {
    format!("memory://{name}/vm").parse().unwrap()
}

fn created(name: &str) -> (StoreUrl, StoredImage) {
    let url = url(name);
    let image = StoredImage::create(&url, &options(), 4 << 20, BLOCK as u32).unwrap();
    (url, image)
}

fn close(image: StoredImage) {
    image.close(Duration::from_secs(9)).unwrap();
}

fn fill(image: &StoredImage, blocks: Range<u64>, what: u8) {
    for block in blocks {
        image.write_at(block * BLOCK, vec![what; BLOCK as usize]).unwrap();
        image.flush().unwrap();
    }
}

/// Makes an image: its log has segments 1 to 20 of the first writer, a fence at 21, and segments 37
/// to 39 of the second writer. Neither writer closes the image.
fn built(name: &str) -> StoreUrl {
    let (url, image) = created(name);
    fill(&image, 0..20, 7);
    drop(image);
    fill(&StoredImage::open(&url, &options()).unwrap(), 20..23, 8);
    url
}

fn lose(url: &StoreUrl, sequence: u64) {
    change(url, Key::Segment(sequence), |_| None);
}

fn found(url: &StoreUrl, blocks: Range<u64>) -> Vec<u8> {
    let image = StoredImage::open(url, &options()).unwrap();
    blocks.map(|block| image.read_at(block * BLOCK, BLOCK).unwrap()[0]).collect()
}

fn repaired(url: &StoreUrl, way: Way) -> Loss {
    repair(url, &options(), way, |_| {}).unwrap().expect("something is lost")
}

fn is_refused(url: &StoreUrl) -> bool {
    StoredImage::open(url, &options()).is_err()
}

#[test]
fn a_segment_is_not_taken_for_a_fence_because_one_lies_16_places_on() {
    let url = built("sixteenth");
    lose(&url, 5);
    lose(&url, 38);
    assert!(is_refused(&url));
    let loss = repaired(&url, Way::Skip);
    assert_eq!((loss.lost, loss.before, loss.behind), (2, 4, 17));
    // Segment 5 had block 4, and segment 38 had block 21.
    let expected = [[7; 4].as_slice(), &[0], &[7; 15], &[8, 0, 8]].concat();
    assert_eq!(found(&url, 0..23), expected);
}

#[test]
fn a_long_gap_is_noticed_whatever_letters_the_name_of_the_image_has() {
    for name in ["vm", "b\u{fc}ro/vm~1"] {
        let url: StoreUrl = format!("memory://gap/{name}").parse().unwrap();
        let image = StoredImage::create(&url, &options(), 4 << 20, BLOCK as u32).unwrap();
        fill(&image, 0..24, 7);
        drop(image);
        (2..22).for_each(|sequence| lose(&url, sequence));
        assert!(is_refused(&url), "{name}");
    }
}

#[test]
fn a_lost_fence_loses_no_other_segment() {
    let url = built("fence");
    lose(&url, 21);
    assert!(is_refused(&url));
    let loss = repaired(&url, Way::Skip);
    assert_eq!((loss.lost, loss.before, loss.behind), (0, 20, 3));
    assert_eq!(found(&url, 0..23), [[7; 20].as_slice(), &[8; 3]].concat());
}

#[test]
fn a_damaged_segment_behind_the_end_does_not_prevent_opening() {
    let url = built("remnant");
    let head = catalog::look(&url, &options()).unwrap();
    let place = Place::new(&url, &options()).unwrap();
    let path = place.path(head.image, Key::Segment(42));
    runtime().block_on(async { place.store.put(&path, vec![1; 99].into()).await.unwrap() });
    assert_eq!(look(&url, &options()).unwrap(), None);
    assert_eq!(checked(&url).unwrap().findings, []);
    assert_eq!(found(&url, 0..23), [[7; 20].as_slice(), &[8; 3]].concat());
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

fn head(url: &StoreUrl, put: Option<Vec<u8>>) -> Vec<u8> {
    let place = Place::new(url, &options()).unwrap();
    let path = place.path([0; 16], Key::Head);
    runtime().block_on(async {
        let bytes = place.store.get(&path).await.unwrap().bytes().await.unwrap();
        if let Some(put) = put {
            place.store.put(&path, put.into()).await.unwrap();
        }
        bytes.to_vec()
    })
}

#[test]
fn an_older_head_is_refused_again_and_again_until_the_image_is_repaired() {
    for is_closed in [true, false] {
        let (url, image) = created(&format!("older-{is_closed}"));
        fill(&image, 0..3, 7);
        if is_closed {
            close(image);
        } else {
            drop(image);
        }
        let older = head(&url, None);
        fill(&StoredImage::open(&url, &options()).unwrap(), 3..6, 8);
        edit(&url, &options(), Edit::Snapshot("monday".to_owned())).unwrap();
        head(&url, Some(older));
        assert_eq!([is_refused(&url), is_refused(&url), is_refused(&url)], [true; 3]);
        let loss = repaired(&url, Way::Skip);
        assert_eq!((loss.what, loss.lost), ("newer than the head", 0));
        assert_eq!(found(&url, 0..6), [7, 7, 7, 8, 8, 8]);
    }
}

#[test]
fn an_image_that_gets_a_clone_while_it_is_to_be_removed_stays() {
    let (url, image) = created("removing");
    fill(&image, 0..3, 7);
    drop(image);
    let twin: StoreUrl = "memory://removing/twin".parse().unwrap();
    let refused = catalog::remove(&url, &options(), |_| {
        edit(&url, &options(), Edit::Snapshot("s".to_owned())).unwrap();
        let of = StoreUrl { snapshot: Some("s".to_owned()), ..url.clone() };
        clone(&of, &twin, &options()).unwrap();
    });
    assert!(refused.unwrap_err().to_string().ends_with("the image got a snapshot meanwhile"));
    View::open(&twin, &options()).unwrap();
}

/// A writer without a thread: the test decides when the store carries out each operation.
struct Driven {
    image: Image,
    client: Client,
    runtime: tokio::runtime::Runtime,
}

impl Driven {
    fn take_over(url: &StoreUrl) -> Driven {
        let client = Client::new(Place::new(url, &options()).unwrap(), Duration::from_secs(5));
        let settings = Settings { segment_blocks: 1, ..Settings::new(writer().unwrap()) };
        let image = Image::open(settings, Origin::TakeOver, 0);
        let mut driven = Driven { image, client, runtime: runtime() };
        driven.pump();
        assert!(matches!(driven.image.status(), Status::Serving { .. }));
        driven
    }

    fn pop_all(&mut self) -> Vec<(Ticket, Operation)> {
        std::iter::from_fn(|| self.image.pop_operation()).collect()
    }

    fn carry_out(&mut self, (ticket, operation): (Ticket, Operation)) {
        let answer: Answer = self.runtime.block_on(self.client.run(operation));
        self.image.answer(ticket, answer, NOW_NS);
    }

    /// Returns the requests that have ended, with `true` for each that succeeded.
    fn pump(&mut self) -> Vec<(RequestId, bool)> {
        while let Some(asked) = self.image.pop_operation() {
            self.carry_out(asked);
        }
        std::iter::from_fn(|| self.image.pop_end()).map(|it| (it.id, it.result.is_ok())).collect()
    }

    fn write(&mut self, id: RequestId, block: u64, what: u8) {
        let (offset, data) = (block * BLOCK, vec![what; BLOCK as usize]);
        self.image.submit(id, Request::Write { offset, data, durable: false }, NOW_NS);
    }
}

/// A replaced writer has a minute to notice its replacement. The repair keeps the data that this
/// writer acknowledges in that time.
#[test]
fn a_repair_waits_for_the_writer_and_keeps_what_it_promises_until_then() {
    let (url, image) = created("beside");
    fill(&image, 0..3, 7);
    drop(image);
    let mut driven = Driven::take_over(&url);
    for block in 10..13 {
        driven.write(block, block, 9);
        driven.image.submit(100 + block, Request::Flush, NOW_NS);
        driven.pump();
    }
    let first = driven.image.first_sequence().unwrap();
    lose(&url, first);
    for block in 20..22 {
        driven.write(block, block, 5);
    }
    driven.image.submit(99, Request::Flush, NOW_NS);
    driven.write(22, 22, 6);
    let mut held = driven.pop_all();
    let slow = held.remove(0);
    held.into_iter().for_each(|asked| driven.carry_out(asked));
    driven.pump();
    let mut is_flushed = false;
    let loss = repair(&url, &options(), Way::Skip, |before| {
        assert!(!before.is_quiet);
        driven.carry_out(slow);
        is_flushed = driven.pump().contains(&(99, true));
    });
    assert_eq!(loss.unwrap().unwrap().lost, 1);
    assert!(is_flushed);
    assert_eq!(found(&url, 10..13), [0, 9, 9]);
    assert_eq!(found(&url, 20..22), [5, 5]);
}

#[test]
fn an_image_closed_by_a_new_writer_may_still_have_the_earlier_one() {
    let (url, image) = created("closed");
    close(image);
    let mut waited = false;
    // The writer that made the image was the first one, so no earlier writer can still run.
    let is_quiet = || catalog::look(&url, &options()).unwrap().is_quiet;
    assert!(is_quiet());
    close(StoredImage::open(&url, &options()).unwrap());
    assert!(is_quiet());
    let _first = Driven::take_over(&url);
    close(StoredImage::open(&url, &options()).unwrap());
    assert!(!is_quiet());
    catalog::remove(&url, &options(), |_| waited = true).unwrap();
    assert!(waited);
}
