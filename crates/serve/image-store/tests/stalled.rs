//! A store in a folder whose disk stalls.

use nowait_block::skip::note_skip_here;
use nowait_image_store::{Place, StoreOptions};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt, PutMode, PutResult, Result, UpdateVersion};
use std::fs::{self, File};
use std::pin::pin;
use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;
use tokio::time::timeout;

struct Disk {
    point: String,
    _folder: TempDir,
}

impl Disk {
    fn new() -> Option<Disk> {
        let folder = tempfile::tempdir_in("/var/tmp").unwrap();
        let (image, point) = (folder.path().join("image"), folder.path().join("point"));
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        fs::create_dir(&point).unwrap();
        let [image, point] = [image, point].map(|path| path.to_str().unwrap().to_owned());
        if !run("mkfs.ext4", &["-q", "-F", &image])
            || !run("mount", &["-o", "loop", &image, &point])
        {
            note_skip_here("no file system can be mounted");
            return None;
        }
        Some(Disk { point, _folder: folder })
    }

    fn freeze(&self) -> Option<Thaw<'_>> {
        if !run("fsfreeze", &["-f", &self.point]) {
            note_skip_here("a file system cannot be frozen");
            return None;
        }
        Some(Thaw(&self.point))
    }

    fn place(&self) -> Place {
        let url = format!("file://{}/image", self.point).parse().unwrap();
        Place::new(&url, &StoreOptions::default()).unwrap()
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        run("umount", &["-l", &self.point]);
    }
}

struct Thaw<'a>(&'a str);

impl Drop for Thaw<'_> {
    fn drop(&mut self) {
        run("fsfreeze", &["-u", self.0]);
    }
}

fn run(program: &str, args: &[&str]) -> bool {
    let status = Command::new(program).args(args).stderr(Stdio::null()).status();
    status.is_ok_and(|status| status.success())
}

async fn replace(place: &Place, text: &'static str, before: &PutResult) -> Result<PutResult> {
    let (e_tag, version) = (before.e_tag.clone(), None);
    let mode = PutMode::Update(UpdateVersion { e_tag, version });
    place.store.put_opts(&Path::from("image/head"), text.into(), mode.into()).await
}

/// The first writer's PUT times out, and a second writer tries to replace the same object
/// meanwhile. When the disk works again, the first PUT succeeds, and the store refuses the second.
#[test]
fn a_stalled_put_does_not_replace_a_later_one() {
    const LONG: Duration = Duration::from_millis(300);
    let Some(disk) = Disk::new() else { return };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async {
        let (one, other) = (disk.place(), disk.place());
        let path = Path::from("image/head");
        let before = one.store.put(&path, "before".into()).await.unwrap();
        let Some(thaw) = disk.freeze() else { return };
        let late = timeout(LONG, replace(&one, "one", &before)).await;
        late.expect_err("nothing is written while it stands still");
        let mut second = pin!(replace(&other, "other", &before));
        let early = timeout(LONG, &mut second).await;
        early.expect_err("nothing is written while it stands still");
        drop(thaw);
        let second = second.await;
        assert!(matches!(second, Err(Error::Precondition { .. })), "{second:?}");
        let there = other.store.get(&path).await.unwrap().bytes().await.unwrap();
        assert_eq!(there, "one");
    });
}
