//! The list of a store's images, and the images that are left after a removal.

use super::damages::{Objects, objects, plant, store};
use super::wrong::WrongStore;
use crate::catalog::{list, look, remove, remove_on};
use crate::check::check;
use crate::client::Client;
use crate::image::StoredImage;
use crate::place::{Place, StoreOptions};
use crate::url::StoreUrl;
use std::sync::Arc;
use std::time::Duration;

const SIZE: u64 = 4 << 20;

fn url(text: &str) -> StoreUrl {
    text.parse().unwrap()
}

fn make(url: &StoreUrl) -> StoredImage {
    StoredImage::create(url, &StoreOptions::default(), SIZE, 4096).unwrap()
}

#[test]
fn a_folder_has_its_images_and_folders_in_their_order() {
    let options = StoreOptions::default();
    let all = ["memory://catalog/b", "memory://catalog/a", "memory://catalog/c/d"].map(url);
    all.iter().for_each(|url| drop(make(url)));
    let names = |beside: &str| {
        let entries = list(&url(beside), &options).unwrap();
        entries
            .iter()
            .map(|it| (it.name.clone(), matches!(it.head, Ok(Some(_)))))
            .collect::<Vec<_>>()
    };
    let expected = [("a", true), ("b", true), ("c", false)];
    assert_eq!(names("memory://catalog/x"), expected.map(|(name, is)| (name.to_owned(), is)));
    assert_eq!(names("memory://catalog/c/x"), [("d".to_owned(), true)]);
    assert_eq!(names("memory://catalog/nothing/x"), []);
}

#[test]
fn a_damaged_head_does_not_hide_the_other_images() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| url(&format!("file://{}/{name}", folder.path().display()));
    ["a", "b"].iter().for_each(|name| drop(make(&at(name))));
    std::fs::write(folder.path().join("a/head"), "damaged").unwrap();
    let entries = list(&at("x"), &StoreOptions::default()).unwrap();
    let is_readable =
        |name: &str| entries.iter().find(|it| it.name == name).map(|it| it.head.is_ok());
    assert_eq!(["a", "b"].map(is_readable), [Some(false), Some(true)]);
}

#[test]
fn a_look_at_an_image_leaves_its_writer() {
    let url = url("memory://looked-at/vm");
    let image = make(&url);
    let head = look(&url, &StoreOptions::default()).unwrap();
    assert_eq!((head.epoch, head.geometry), (1, image.geometry()));
    image.write_at(0, vec![1; 4096]).unwrap();
    image.flush().unwrap();
}

#[test]
fn an_image_whose_name_has_any_letters_is_listed_checked_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let in_folder = format!("file://{}/vm~1", folder.path().display());
    for text in ["memory://letters/b\u{fc}ro %7E/vm~1", &in_folder] {
        let (url, options) = (url(text), StoreOptions::default());
        let image = make(&url);
        image.write_at(0, vec![1; 4096]).unwrap();
        image.flush().unwrap();
        drop(image);
        let [entry] = &list(&url, &options).unwrap()[..] else { panic!("one image") };
        assert_eq!((&*entry.name, matches!(entry.head, Ok(Some(_)))), ("vm~1", true), "{text}");
        assert_eq!(check(&url, &options).unwrap().objects, 2, "a head and a segment");
        // Images of earlier versions have this name on the disk.
        let path = folder.path().join("vm%7E1/head");
        assert!(text != in_folder || path.exists());
        assert_eq!(remove(&url, &options, |_| {}).unwrap(), 2, "{text}");
    }
}

#[test]
fn a_removed_image_is_gone_and_images_beside_and_below_it_are_not() {
    let options = StoreOptions::default();
    let gone = url("memory://removed/vm");
    let others = ["vm/log/other", "vm/log", "vm/map", "vm/probe", "vm2"];
    let others = others.map(|name| url(&format!("memory://removed/{name}")));
    for url in others.iter().chain([&gone]) {
        let image = make(url);
        image.write_at(0, vec![1; 4096]).unwrap();
        image.flush().unwrap();
    }
    assert_eq!(remove(&gone, &options, |_| {}).unwrap(), 2, "a head and a segment");
    let said = StoredImage::open(&gone, &options).unwrap_err().to_string();
    assert!(said.contains("no such image"), "{said}");
    for url in &others {
        let image = StoredImage::open(url, &options).unwrap();
        assert_eq!(image.read_at(0, 4096).unwrap(), vec![1; 4096]);
    }
    let said = remove(&gone, &options, |_| {}).unwrap_err().to_string();
    assert!(said.contains("no such image"), "{said}");
}

/// Makes an image `vm` with two segments in a new store; returns its objects.
fn made(name: &str) -> Objects {
    let image = make(&url(&format!("memory://{name}/vm")));
    for block in 0..2 {
        image.write_at(block * 4096, vec![1; 4096]).unwrap();
        image.flush().unwrap();
    }
    drop(image);
    objects(&*store(name))
}

#[test]
fn an_image_that_another_process_makes_during_a_removal_is_not_removed() {
    let why = "another process made an image here: repeat the command to remove that one";
    for (has_head, expected) in [(true, Ok(3)), (false, Err(format!("memory://x/vm: {why}")))] {
        let wrong = Arc::new(WrongStore::default());
        let mut gone = made(&format!("gone-{has_head}"));
        // An interrupted removal has left the segments.
        gone.retain(|path, _| has_head || path.filename() != Some("head"));
        plant(&*wrong, &gone);
        let new = made(&format!("new-{has_head}"));
        wrong.planted.lock().unwrap().clone_from(&new);
        let client = Client::new(Place::in_store(wrong.clone(), "vm"), Duration::from_mins(1));
        let options = StoreOptions::default();
        let removed = remove_on(&url("memory://x/vm"), &client, &options, |_| {});
        assert_eq!(removed.map_err(|error| error.to_string()), expected);
        assert!(objects(&*wrong) == new, "{has_head}");
    }
}
