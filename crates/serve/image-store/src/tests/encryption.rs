//! Encrypted images: the stored bytes, and the keys that open the images.

use super::wrong::{Wrong, WrongStore};
use crate::cache::Cache;
use crate::check::check;
use crate::client::Client;
use crate::edit::{clone, edit};
use crate::image::{StoredImage, writer};
use crate::key_file::read_key;
use crate::place::{Place, StoreOptions};
use crate::status::Status;
use crate::url::StoreUrl;
use crate::view::View;
use crate::{catalog, edit as edits};
use nowait_image_format::{Edit, Encryption, Geometry, ImageKey, Origin, Settings};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

const BLOCK: u64 = 4096;
const SIZE: u64 = 1 << 20;
const LIMIT: Duration = Duration::from_mins(1);
const SECRET: &[u8; 8] = b"a secret";

fn folder() -> TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

fn url(folder: &TempDir, image: &str) -> StoreUrl {
    format!("file://{}/{image}", folder.path().display()).parse().unwrap()
}

fn with_key(byte: u8) -> StoreOptions {
    let key = (byte > 0).then(|| ImageKey::new([byte; 32]));
    StoreOptions { key, ..StoreOptions::default() }
}

fn data(byte: u8) -> Vec<u8> {
    let mut data = SECRET.repeat(BLOCK as usize / 8);
    data[0] = byte;
    data
}

fn made(folder: &TempDir) -> (StoreUrl, StoredImage) {
    let url = url(folder, "vm");
    let image = StoredImage::create(&url, &with_key(1), SIZE, BLOCK as u32).unwrap();
    for block in 0..4 {
        image.write_at(block * BLOCK, data(block as u8)).unwrap();
    }
    image.flush().unwrap();
    (url, image)
}

fn files(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut files = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            match path.is_dir() {
                true => folders.push(path),
                false => drop(files.insert(path.clone(), fs::read(path).unwrap())),
            }
        }
    }
    files
}

fn has_secret(folder: &Path) -> bool {
    files(folder).values().any(|bytes| bytes.windows(8).any(|it| it == SECRET))
}

#[test]
fn with_a_wrong_key_nothing_is_put_and_the_writer_continues() {
    let folder = folder();
    let (url, first) = made(&folder);
    let before = files(folder.path());
    for (key, why) in [
        (2, "the image is encrypted with another key: give that one with --key-file"),
        (0, "the image is encrypted: give --key-file"),
    ] {
        let options = with_key(key);
        let said = format!("{url}: {why}");
        for opened in [
            StoredImage::open(&url, &options).map(drop),
            StoredImage::open_read_only(&url, &options).map(drop),
            View::open(&url, &options).map(drop),
        ] {
            assert_eq!(opened.unwrap_err().to_string(), said);
        }
        assert!(files(folder.path()) == before);
    }
    first.write_at(0, data(9)).unwrap();
    first.flush().unwrap();
    assert!(matches!(first.status(), Status::Serving { epoch: 1, .. }));
    drop(first);
    let second = StoredImage::open(&url, &with_key(1)).unwrap();
    assert_eq!(second.read_at(0, 2 * BLOCK).unwrap(), [data(9), data(1)].concat());
    assert!(!has_secret(folder.path()));
}

#[test]
fn a_wrong_key_is_found_before_the_store_is_probed() {
    let store = Arc::new(WrongStore::new(Wrong::Nothing));
    let begin = |key: u8, makes: bool| {
        let place = Place::in_store(store.clone(), "vm");
        let key = with_key(key).key;
        let mut geometry = Geometry::checked(BLOCK as u32, SIZE).unwrap();
        geometry.encryption = key.as_ref().map(|key| Encryption::new(key, [3; 16]));
        let origin = match makes {
            true => Origin::Create { image: [1; 16], geometry },
            false => Origin::TakeOver,
        };
        let settings = Settings { key, ..Settings::new(writer().unwrap()) };
        let (client, limit) = (Client::new(place, LIMIT), LIMIT);
        let url = "memory://probed/vm".parse().unwrap();
        let begun = StoredImage::begin_on(&url, client, limit, settings, origin);
        begun.map(drop).map_err(|error| error.to_string())
    };
    begin(1, true).unwrap();
    store.set(Wrong::ReadOnly);
    let said = begin(2, false).unwrap_err();
    assert_eq!(
        said,
        "memory://probed/vm: the image is encrypted with another key: give that one with --key-file"
    );
    let said = begin(1, false).unwrap_err();
    assert!(said.contains("the store refuses"), "{said}");
}

#[test]
fn a_key_for_an_image_that_is_not_encrypted_is_refused_and_nothing_is_put() {
    let folder = folder();
    let url = url(&folder, "vm");
    let first = StoredImage::create(&url, &with_key(0), SIZE, BLOCK as u32).unwrap();
    let before = files(folder.path());
    let why = format!("{url}: the image is not encrypted: leave out --key-file");
    for opened in [
        StoredImage::open(&url, &with_key(1)).map(drop),
        StoredImage::open_read_only(&url, &with_key(1)).map(drop),
        check(&url, &with_key(1)).map(drop),
    ] {
        assert_eq!(opened.unwrap_err().to_string(), why);
    }
    assert!(files(folder.path()) == before);
    first.write_at(0, data(1)).unwrap();
    first.flush().unwrap();
    assert!(has_secret(folder.path()), "what is not encrypted is found by this test");
}

#[test]
fn snapshots_and_clones_have_the_key_of_their_image_and_are_made_without_it() {
    let folder = folder();
    let (url, first) = made(&folder);
    let none = with_key(0);
    edit(&url, &none, Edit::Snapshot("monday".to_owned())).unwrap();
    first.write_at(0, data(9)).unwrap();
    first.flush().unwrap();
    let monday = StoreUrl { snapshot: Some("monday".to_owned()), ..url.clone() };
    let reader = StoredImage::open_read_only(&monday, &with_key(1)).unwrap();
    assert_eq!(reader.read_at(0, BLOCK).unwrap(), data(0));
    assert!(StoredImage::open_read_only(&monday, &with_key(2)).is_err());
    let other = self::url(&folder, "other");
    let head = clone(&monday, &other, &none).unwrap();
    let encryption = catalog::look(&url, &none).unwrap().geometry.encryption;
    assert!(encryption.is_some() && head.geometry.encryption == encryption);
    assert!(StoredImage::open(&other, &with_key(2)).is_err());
    let cloned = StoredImage::open(&other, &with_key(1)).unwrap();
    cloned.write_at(BLOCK, data(8)).unwrap();
    cloned.flush().unwrap();
    assert_eq!(cloned.read_at(0, 3 * BLOCK).unwrap(), [data(0), data(8), data(2)].concat());
    drop(cloned);
    let view = View::open(&other, &with_key(1)).unwrap();
    let mut read = Vec::new();
    view.read_from(0, |_, bytes| {
        read.extend_from_slice(bytes);
        Ok(())
    })
    .unwrap();
    assert_eq!(read, [data(0), data(8), data(2), data(3)].concat());
    assert!(view.is_current().unwrap());
    assert!(check(&other, &with_key(1)).unwrap().findings.is_empty());
    assert!(!has_secret(folder.path()));
}

#[test]
fn an_encrypted_image_grows_and_is_removed_without_its_key() {
    let folder = folder();
    let (url, first) = made(&folder);
    first.close(LIMIT).unwrap();
    edits::edit(&url, &with_key(0), Edit::Grow(2 * SIZE)).unwrap();
    let image = StoredImage::open(&url, &with_key(1)).unwrap();
    assert_eq!(image.geometry().size_bytes, 2 * SIZE);
    image.write_at(2 * SIZE - BLOCK, data(5)).unwrap();
    assert_eq!(image.read_at(2 * SIZE - BLOCK, BLOCK).unwrap(), data(5));
    assert_eq!(image.read_at(0, BLOCK).unwrap(), data(0));
    drop(image);
    catalog::remove(&url, &with_key(0), |_| {}).unwrap();
    assert!(catalog::look(&url, &with_key(0)).is_err());
}

/// Changes a block of the first segment as an attacker without the key could, and gives it a valid
/// checksum.
fn forge(folder: &TempDir, block: u64) {
    let log = fs::read_dir(folder.path().join("vm/log")).unwrap();
    let mut paths = log.map(|entry| entry.unwrap().path());
    let path = paths.find(|path| path.to_string_lossy().ends_with(&format!("-{:020}", 1))).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let stored = BLOCK as usize + 20;
    let start = bytes.len() - 4 * stored + block as usize * stored;
    let end = start + stored - 4;
    bytes[start + 100] ^= 1;
    let place = [block.to_le_bytes(), 1_u64.to_le_bytes()];
    let sum = crc32c::crc32c_append(crc32c::crc32c(place.as_flattened()), &bytes[start..end]);
    bytes[end..end + 4].copy_from_slice(&sum.to_le_bytes());
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_check_needs_no_key_and_with_it_finds_what_was_forged() {
    let folder = folder();
    let (url, image) = made(&folder);
    drop(image);
    for key in [0, 1] {
        let report = check(&url, &with_key(key)).unwrap();
        assert_eq!((report.live_bytes, &report.findings[..]), (4 * BLOCK, &[][..]));
    }
    let said = check(&url, &with_key(2)).unwrap_err().to_string();
    assert!(
        said.ends_with(
            "the image is encrypted with another key: give that one with \
                            --key-file"
        ),
        "{said}"
    );
    forge(&folder, 2);
    assert!(check(&url, &with_key(0)).unwrap().findings.is_empty(), "its checksum fits");
    let found = check(&url, &with_key(1)).unwrap().findings;
    let ranges: Vec<_> = std::iter::once(2 * BLOCK..3 * BLOCK).collect();
    assert_eq!((found.len(), found[0].what, &found[0].ranges), (1, "damaged", &ranges));
    let image = StoredImage::open(&url, &with_key(1)).unwrap();
    assert!(image.read_at(2 * BLOCK, BLOCK).is_err());
    assert_eq!(image.read_at(3 * BLOCK, BLOCK).unwrap(), data(3));
}

#[test]
fn a_cache_has_what_the_store_has() {
    let (folder, local) = (folder(), folder());
    let nowait = nowait::Nowait::new().unwrap();
    let mode = nowait::CacheMode::Host;
    let cache = Cache::in_folder(&nowait, local.path(), 64 << 20, mode, None).unwrap();
    let options = StoreOptions { cache: Some(cache.clone()), ..with_key(1) };
    let (url, image) = made(&folder);
    drop(image);
    for round in 0..2 {
        let image = StoredImage::open(&url, &options).unwrap();
        assert_eq!(image.read_at(0, 2 * BLOCK).unwrap(), [data(0), data(1)].concat());
        let figures = image.figures().cache;
        assert_eq!(figures.hits > 0, round == 1, "{figures:?}");
    }
    cache.end();
    assert!(!has_secret(local.path()));
}

#[test]
fn a_key_file_that_others_may_read_is_refused() {
    let folder = folder();
    let path = folder.path().join("vm.key");
    fs::write(&path, [7; 32]).unwrap();
    let read_with = |mode: u32| {
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        read_key(&path).map(drop).map_err(|error| error.to_string())
    };
    for mode in [0o644, 0o660, 0o620, 0o601, 0o604] {
        let said = read_with(mode).unwrap_err();
        assert!(said.contains("lets others read the key: chmod 600"), "{said}");
    }
    for mode in [0o600, 0o400] {
        read_with(mode).unwrap();
    }
    // A group may read a key file of root. Only its owner may read a key file of another user.
    let is_roots = fs::metadata(&path).unwrap().uid() == 0;
    for mode in [0o640, 0o440] {
        assert_eq!(read_with(mode).is_ok(), is_roots, "{mode:o}");
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&path, "secret\n").unwrap();
    let said = read_key(&path).unwrap_err().to_string();
    assert!(said.ends_with("32 random bytes or 64 hexadecimal digits"), "{said}");
    let said = read_key(folder.path()).unwrap_err().to_string();
    assert!(said.ends_with("not a regular file"), "{said}");
    fs::write(&path, [7; 32]).unwrap();
    if std::os::unix::fs::chown(&path, Some(12_345), None).is_ok() {
        let said = read_key(&path).unwrap_err().to_string();
        assert!(said.contains("user 12345 owns the key file"), "{said}");
    }
    let said = read_key(&folder.path().join("none")).unwrap_err().to_string();
    assert!(said.contains("none: ") && said.lines().count() == 1, "{said}");
}
