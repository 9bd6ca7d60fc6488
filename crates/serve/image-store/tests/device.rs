//! Images on an object store in memory, which tests use through a [`nowait_device::Disk`].

#[path = "../../device/tests/support/mod.rs"]
mod support;

use nowait::{Errno, Nowait};
use nowait_device::image::ImageError;
use nowait_device::{BlockingTask, Image, ImageOptions, Patience};
use nowait_image_store::{
    Durability, ImageKey, Object, ObjectOptions, StoreOptions, StoreUrl, StoredImage,
    open::open_all,
};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use support::Rig;

const BYTES: u64 = 1 << 20;

fn make(name: &str) {
    let url: StoreUrl = name.parse().unwrap();
    StoredImage::create(&url, &StoreOptions::default(), BYTES, 4096).unwrap();
}

fn options(name: &str) -> ImageOptions {
    ImageOptions { path: name.into(), name: "vm".to_owned(), ..ImageOptions::default() }
}

type Named = (ImageOptions, ObjectOptions);

fn try_open(nowait: &Nowait, all: &[Named]) -> Result<Vec<Image>, ImageError> {
    let (images, objects): (Vec<_>, Vec<_>) = all.iter().cloned().unzip();
    open_all(nowait, &images, &objects)
}

fn open_as(options: &ImageOptions, object: &ObjectOptions) -> Rig {
    let nowait = Nowait::new().unwrap();
    let image = try_open(&nowait, &[(options.clone(), object.clone())]).unwrap().remove(0);
    Rig::of(&nowait, image)
}

fn open(options: &ImageOptions) -> Rig {
    open_as(options, &ObjectOptions::default())
}

#[test]
fn bytes_that_are_no_whole_blocks_are_written_and_read() {
    make("memory://parts/vm");
    let mut rig = open(&options("memory://parts/vm"));
    assert_eq!((rig.image.size(), rig.image.properties().sector_bytes), (BYTES, 4096));
    let bytes: Vec<u8> = (0..10_000).map(|number| number as u8 | 1).collect();
    rig.write(1000, &bytes, false).unwrap();
    rig.write(8192, &[7; 4096], true).unwrap();
    let mut expected = [vec![0; 1000], bytes, vec![0; 1288]].concat();
    expected[8192..].fill(7);
    assert_eq!(rig.read(0..12_288).unwrap(), expected);
    assert_eq!(rig.read(990..1010).unwrap(), expected[990..1010]);
    rig.run(BlockingTask::Discard { range: 0..4096, durable: false }).unwrap();
    let zero =
        BlockingTask::Zero { range: 4096..4100, allocated: true, fast: false, durable: true };
    rig.run(zero).unwrap();
    expected[..4100].fill(0);
    rig.flush().unwrap();
    drop(rig);
    let mut rig = open(&options("memory://parts/vm"));
    assert_eq!(rig.read(0..12_288).unwrap(), expected);
}

fn puts(rig: &Rig) -> u64 {
    let object = rig.image.file().downcast::<Object>().expect("it is on a store");
    object.image().figures().costs.puts
}

#[test]
fn each_write_is_durable_if_the_options_say_so() {
    make("memory://each/vm");
    let object = ObjectOptions { durability: Durability::Each, ..ObjectOptions::default() };
    let mut rig = open_as(&options("memory://each/vm"), &object);
    let before = puts(&rig);
    for number in 0..5 {
        rig.write(4096 * number, &[1; 4096], false).unwrap();
    }
    assert_eq!(puts(&rig), before + 5);
    rig.flush().unwrap();
    assert_eq!(puts(&rig), before + 5, "there is nothing to flush");
}

static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());

#[test]
fn a_disk_whose_image_was_taken_over_fails_and_names_the_writer() {
    make("memory://taken/vm");
    let say: fn(&str) = |text| SAID.lock().unwrap().push(text.to_owned());
    let patience = Patience { say: Some(say), ..Patience::default() };
    let mut first = open(&ImageOptions { patience, ..options("memory://taken/vm") });
    first.write(0, &[1; 4096], true).unwrap();
    let mut second = open(&options("memory://taken/vm"));
    assert_eq!(first.write(0, &[2; 4096], true), Err(Errno::IO));
    assert_eq!(first.read(0..4096), Err(Errno::IO));
    assert_eq!(first.flush(), Err(Errno::IO));
    assert!(first.image.file().sync_all().unwrap_err().contains("taken over by"));
    let said = SAID.lock().unwrap().clone();
    assert!(said.len() == 1 && said[0].contains("(epoch 3)"), "{said:?}");
    assert_eq!(second.read(0..4096).unwrap(), [1; 4096]);
}

#[test]
fn an_image_that_cannot_be_opened_is_reported_in_one_line() {
    make("memory://opens/vm");
    let nowait = Nowait::new().unwrap();
    let said = |all: &[ImageOptions]| {
        let objects = vec![ObjectOptions::default(); all.len()];
        open_all(&nowait, all, &objects).unwrap_err().to_string()
    };
    let (vm, none) = (options("memory://opens/vm"), options("memory://opens/none"));
    assert_eq!(said(&[none]), "memory://opens/none: no such image");
    let both = [vm.clone(), vm.clone()];
    assert_eq!(said(&both), "memory://opens/vm: named twice: name each image once");
    let cached = ImageOptions { cache: nowait_device::Cache::Host, ..vm };
    assert!(said(&[cached]).contains("--cache host works with files only"));
}

fn key_file(folder: &Path, byte: u8) -> PathBuf {
    let path = folder.join(format!("key {byte}"));
    fs::write(&path, [byte; 32]).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    path
}

#[test]
fn an_encrypted_image_is_a_disk_with_its_key_file_only() {
    let folder = tempfile::tempdir().unwrap();
    let [right, wrong] = [1, 2].map(|byte| key_file(folder.path(), byte));
    let url: StoreUrl = "memory://locked/vm".parse().unwrap();
    let store = StoreOptions { key: Some(ImageKey::new([1; 32])), ..StoreOptions::default() };
    drop(StoredImage::create(&url, &store, BYTES, 4096).unwrap());
    let with = |key_file: Option<&PathBuf>, path: &str| {
        let object = ObjectOptions { key_file: key_file.cloned(), ..ObjectOptions::default() };
        (options(path), object)
    };
    let (image, object) = with(Some(&right), "memory://locked/vm");
    let mut rig = open_as(&image, &object);
    rig.write(1000, &[7; 5000], true).unwrap();
    let nowait = Nowait::new().unwrap();
    for (key, why) in [(Some(&wrong), "with another key"), (None, "give --key-file")] {
        let (options, object) = with(key, "memory://locked/vm");
        for read_only in [false, true] {
            let named = (ImageOptions { read_only, ..options.clone() }, object.clone());
            let said = try_open(&nowait, &[named]).unwrap_err().to_string();
            assert!(said.contains(why), "{said}");
        }
    }
    assert_eq!(rig.read(1000..6000).unwrap(), [7; 5000], "it was not taken over");
    rig.write(0, &[8; 100], true).unwrap();
    let file = folder.path().join("disk");
    fs::write(&file, [0; 4096]).unwrap();
    let file = file.to_str().unwrap();
    for path in [file, "nbd+unix:///vm?socket=/none"] {
        let said = try_open(&nowait, &[with(Some(&right), path)]).unwrap_err().to_string();
        assert!(said.contains("--key-file works with object stores only"), "{said}");
    }
    // If a key file is missing, opening fails before this process takes over another image.
    make("memory://other/vm");
    let none = folder.path().join("none");
    let all = [with(None, "memory://other/vm"), with(Some(&none), "memory://locked/vm")];
    let mut first = open(&all[0].0);
    assert!(try_open(&nowait, &all).is_err());
    first.write(0, &[9; 4096], true).unwrap();
    // If a key is wrong, opening also fails before this process takes over another image.
    let all = [with(None, "memory://other/vm"), with(Some(&wrong), "memory://locked/vm")];
    let said = try_open(&nowait, &all).unwrap_err().to_string();
    assert!(said.contains("with another key"), "{said}");
    first.write(0, &[9; 4096], true).unwrap();
}
