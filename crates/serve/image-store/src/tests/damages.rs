//! An image with a snapshot, a clone and garbage. The test damages each object in each of six ways,
//! one object at a time: then a read returns the right data or an error, and a check names the
//! loss.

use crate::check::check;
use crate::edit::{clone, edit};
use crate::image::StoredImage;
use crate::place::{Place, StoreOptions};
use crate::url::StoreUrl;
use crate::view::View;
use futures_util::TryStreamExt;
use nowait_image_format::{Edit, Settings};
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

const BLOCK: u64 = 4096;
const BLOCKS: u64 = 24;
const LIMIT: Duration = Duration::from_mins(1);

/// The number of cases that run at the same time: most of the time they only wait for repeated
/// reads of missing objects.
const THREADS: usize = 48;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Damage {
    Gone,
    Empty,
    Cut,
    Front,
    End,
    Older,
}

const DAMAGES: [Damage; 6] =
    [Damage::Gone, Damage::Empty, Damage::Cut, Damage::Front, Damage::End, Damage::Older];

pub(super) type Objects = BTreeMap<Path, Vec<u8>>;

struct Built {
    objects: Objects,
    older: Objects,
    images: Vec<(&'static str, Vec<u8>)>,
}

fn url(store: &str, image: &str) -> StoreUrl {
    format!("memory://{store}/{image}").parse().unwrap()
}

fn waited<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(work)
}

pub(super) fn store(name: &str) -> Arc<dyn ObjectStore> {
    Place::new(&url(name, "x"), &StoreOptions::default()).unwrap().store
}

pub(super) fn objects(store: &dyn ObjectStore) -> Objects {
    waited(async {
        let mut objects = Objects::new();
        for meta in store.list(None).try_collect::<Vec<_>>().await.unwrap() {
            let bytes = store.get(&meta.location).await.unwrap().bytes().await.unwrap();
            objects.insert(meta.location, bytes.to_vec());
        }
        objects
    })
}

pub(super) fn plant(store: &dyn ObjectStore, objects: &Objects) {
    waited(async {
        for (path, bytes) in objects {
            store.put(path, bytes.clone().into()).await.unwrap();
        }
    });
}

fn open(url: &StoreUrl) -> StoredImage {
    let mut settings = Settings::new(crate::image::writer().unwrap());
    (settings.checkpoint_segments, settings.segment_blocks) = (6, 4);
    StoredImage::open_with(url, &StoreOptions::default(), settings).unwrap()
}

fn fill(url: &StoreUrl, from: u8, expected: &mut [u8]) {
    let image = open(url);
    for round in 0..13 {
        let (what, block) = (from + round, u64::from(round) * 7 % BLOCKS);
        let len = 3.min(BLOCKS - block);
        image.write_at(block * BLOCK, vec![what; (len * BLOCK) as usize]).unwrap();
        image.flush().unwrap();
        expected[block as usize..(block + len) as usize].fill(what);
    }
    image.close(LIMIT).unwrap();
}

fn build() -> Built {
    const STORE: &str = "damages";
    let options = StoreOptions::default();
    let (vm, twin) = (url(STORE, "vm"), url(STORE, "twin"));
    let image = StoredImage::create(&vm, &options, BLOCKS * BLOCK, BLOCK as u32).unwrap();
    image.close(LIMIT).unwrap();
    let mut now = vec![0; BLOCKS as usize];
    fill(&vm, 1, &mut now);
    let mut older = objects(&*store(STORE));
    edit(&vm, &options, Edit::Snapshot("monday".to_owned())).unwrap();
    let monday = now.clone();
    fill(&vm, 40, &mut now);
    clone(&url(STORE, "vm@monday"), &twin, &options).unwrap();
    older.append(&mut objects(&*store(STORE)));
    let mut cloned = monday.clone();
    fill(&twin, 80, &mut cloned);
    fill(&vm, 120, &mut now);
    let images = vec![("vm", now), ("vm@monday", monday), ("twin", cloned)];
    Built { objects: objects(&*store(STORE)), older, images }
}

fn damaged(built: &Built, path: &Path, damage: Damage) -> Objects {
    let mut objects = built.objects.clone();
    let mut bytes = objects.remove(path).unwrap();
    let len = bytes.len();
    match damage {
        Damage::Gone => return objects,
        Damage::Empty => bytes.clear(),
        Damage::Cut => bytes.truncate(len / 2),
        Damage::Front => bytes[len.min(40) - 1] ^= 4,
        Damage::End => bytes[len - 7] ^= 4,
        Damage::Older => {
            let kind = |path: &Path| path.parts().nth(1).map(|it| it.as_ref().to_owned());
            let is_like = |it: &&Path| *it != path && kind(it) == kind(path);
            let other = objects.keys().find(is_like).map(|it| objects[it].clone());
            bytes = match path.filename() {
                Some("head") => built.older[path].clone(),
                _ => other.unwrap(),
            };
        }
    }
    objects.insert(path.clone(), bytes);
    objects
}

fn read(url: &StoreUrl, expected: &[u8]) -> bool {
    let Ok(view) = View::open(url, &StoreOptions::default()) else { return false };
    let mut found = vec![0; expected.len()];
    let read = view.read_from(0, |offset, data| {
        let at = (offset / BLOCK) as usize;
        for (found, data) in found[at..].iter_mut().zip(data.chunks(BLOCK as usize)) {
            assert!(data.iter().all(|it| *it == data[0]));
            *found = data[0];
        }
        Ok(())
    });
    assert!(read.is_err() || found == expected, "{url}: {found:?} and not {expected:?}");
    read.is_ok()
}

/// Damages one object; returns how many images could not be read as a whole, and how many images a
/// check named as damaged or could not read.
fn judge(built: &Built, number: usize, path: &Path, damage: Damage) -> (usize, usize) {
    let name = format!("damages-{number}");
    plant(&*store(&name), &damaged(built, path, damage));
    let (mut lost, mut named) = (0, 0);
    for (image, expected) in &built.images {
        let is_lost = !read(&url(&name, image), expected);
        let (whole, snapshot) = image.split_once('@').unwrap_or((image, ""));
        // An error of the check means that the head itself cannot be read.
        let report = check(&url(&name, whole), &StoreOptions::default());
        let is_named = report.as_ref().map_or(true, |report| {
            let is_of = |it: &crate::check::Finding| match snapshot.is_empty() {
                true => it.is_of_image,
                false => it.snapshots.iter().any(|it| it == snapshot),
            };
            // An older head does not list the snapshot that was made later.
            report.findings.iter().any(is_of) || report.head.snapshots.len() < usize::from(is_lost)
        });
        assert!(is_named || !is_lost, "{image} with {path} {damage:?}: {report:?}");
        lost += usize::from(is_lost);
        named += usize::from(is_named);
    }
    (lost, named)
}

#[test]
fn every_damage_of_every_object_is_an_error_and_is_named_by_a_check() {
    let built = build();
    let paths = built.objects.keys().flat_map(|path| DAMAGES.map(|damage| (path, damage)));
    let cases: Mutex<Vec<_>> = Mutex::new(paths.enumerate().collect());
    let count = cases.lock().unwrap().len();
    let table: Mutex<BTreeMap<(String, Damage), [usize; 3]>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let Some((number, (path, damage))) = cases.lock().unwrap().pop() else {
                        return;
                    };
                    let (lost, named) = judge(&built, number, path, damage);
                    let kind = path.parts().nth(1).map(|it| it.as_ref().to_owned());
                    let mut table = table.lock().unwrap();
                    let row = table.entry((kind.unwrap_or_default(), damage)).or_default();
                    let more = [built.images.len(), lost, named];
                    row.iter_mut().zip(more).for_each(|(sum, it)| *sum += it);
                }
            });
        }
    });
    println!("of {count} cases: images that were read, not whole, named by a check");
    for ((kind, damage), [all, lost, named]) in table.into_inner().unwrap() {
        println!("{kind:4} {damage:5?} {all:4} {lost:4} {named:4}");
        let is_lost = matches!(damage, Damage::Gone | Damage::Empty | Damage::Cut);
        assert!(lost > 0 || !is_lost, "{kind} {damage:?}");
    }
}
