//! A folder as a store: extends the folder store of the crate `object_store`, which cannot make the
//! replacement of an object conditional on the object's tag.
//!
//! A conditional replacement holds a lock on the object's folder (`flock`), which all processes of
//! one machine see. [`Folder::open`] refuses known file systems that other machines share without
//! sharing the lock, because nothing would tell a second machine that an image has a writer.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use nowait_sys::file;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UpdateVersion,
};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// A folder as a store. When a PUT succeeds, the object is on the disk.
#[derive(Debug)]
pub(crate) struct Folder {
    inner: Arc<LocalFileSystem>,
}

impl Folder {
    pub(crate) fn open(path: &str) -> Result<Folder> {
        let magic = |folder: File| file::filesystem_magic(folder.as_raw_fd()).ok();
        let magic = File::open(path).ok().and_then(magic);
        if let Some(name) = magic.and_then(keeps_locks_to_itself) {
            let why = "other machines may not see locks there: use a folder on a local disk, or an \
                       object store";
            let error = io::Error::other(format!("{path} is on {name}, and {why}"));
            return Err(generic("folder", &error));
        }
        let inner = LocalFileSystem::new_with_prefix(path)?;
        Ok(Folder { inner: Arc::new(inner.with_fsync(true)) })
    }

    /// Removes the image's temporary files that are at least as old as `older`: PUTs whose process
    /// was killed have left them. These files lie beside their targets, and their names end with #
    /// and a number. If one of the PUTs still runs, it fails, and its process repeats it. Blocks.
    pub(crate) fn sweep(&self, image: &Path, older: Duration) {
        let Ok(root) = self.inner.path_to_filesystem(image) else { return };
        let maps = fs::read_dir(root.join("map")).into_iter().flatten().flatten();
        let folders = [root.clone(), root.join("log"), root.join("probe")];
        for folder in folders.into_iter().chain(maps.map(|map| map.path())) {
            for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
                let is_left = is_staged(&entry.file_name());
                let modified = entry.metadata().and_then(|it| it.modified());
                let age = modified.ok().and_then(|it| it.elapsed().ok());
                if is_left && age.is_some_and(|age| age >= older) {
                    let _ = fs::remove_file(entry.path());
                }
            }
        }
    }

    /// If the caller drops the future, a replacement that has begun continues and keeps the lock:
    /// so the next writer finds it done.
    async fn replace(
        &self,
        location: &Path,
        payload: PutPayload,
        before: UpdateVersion,
    ) -> Result<PutResult> {
        let (inner, location) = (self.inner.clone(), location.clone());
        let replaced = tokio::task::spawn_blocking(move || {
            let replaced = replace_locked(&inner, &location, payload, &before);
            Handle::current().block_on(replaced)
        });
        replaced.await?
    }
}

/// Blocks until it has the lock.
async fn replace_locked(
    inner: &LocalFileSystem,
    location: &Path,
    payload: PutPayload,
    before: &UpdateVersion,
) -> Result<PutResult> {
    let path = inner.path_to_filesystem(location)?;
    let folder = File::open(path.parent().unwrap_or(&path));
    let _lock = folder
        .and_then(|folder| folder.lock().map(|()| folder))
        .map_err(|error| generic("lock", &error))?;
    let there = inner.head(location).await?;
    if there.e_tag.is_none() || there.e_tag != before.e_tag {
        let (path, source) = (location.to_string(), "changed".into());
        return Err(Error::Precondition { path, source });
    }
    let modified = || File::open(&path).and_then(|file| file.metadata()?.modified());
    let then = modified().map_err(|error| generic("look", &error))?;
    let result = inner.put(location, payload).await?;
    // The tag contains the time of the change in steps of the kernel's clock, and no two revisions
    // of an object may have the same tag. So move the time forward if it is the same.
    if modified().map_err(|error| generic("look", &error))? > then {
        return Ok(result);
    }
    let later = then + Duration::from_micros(1);
    let file = File::options().write(true).open(&path);
    let touched = file.and_then(|file| {
        file.set_modified(later)?;
        file.sync_all()
    });
    touched.map_err(|error| generic("touch", &error))?;
    let e_tag = inner.head(location).await?.e_tag;
    Ok(PutResult { e_tag, ..result })
}

fn is_staged(name: &OsStr) -> bool {
    let number = name.to_str().and_then(|name| name.rsplit_once('#'));
    number.is_some_and(|(_, number)| {
        !number.is_empty() && number.bytes().all(|it| it.is_ascii_digit())
    })
}

/// Returns the name of a known file system on which other machines do not see, or may not see, the
/// lock of a folder. Sources: linux/magic.h; flock(2), NFS details and CIFS details.
fn keeps_locks_to_itself(magic: u32) -> Option<&'static str> {
    Some(match magic {
        0x6969 => "NFS",
        0x517b | 0xff53_4d42 | 0xfe53_4d42 => "SMB",
        0x0102_1997 => "9p",
        0x6573_5546 => "FUSE",
        0x00c3_6400 => "Ceph",
        0x0bd0_0bd0 => "Lustre",
        0x5346_414f | 0x6b41_4653 => "AFS",
        0x7375_7245 => "Coda",
        0x786f_4256 => "a folder of VirtualBox",
        0x4750_4653 => "GPFS",
        0x1983_0326 => "BeeGFS",
        _ => return None,
    })
}

fn generic(what: &str, error: &io::Error) -> Error {
    let text = format!("{what}: {error}");
    Error::Generic { store: "folder", source: Box::new(io::Error::new(error.kind(), text)) }
}

impl std::fmt::Display for Folder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.inner.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for Folder {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        options: PutOptions,
    ) -> Result<PutResult> {
        match options.mode {
            PutMode::Update(before) => self.replace(location, payload, before).await,
            _ => self.inner.put_opts(location, payload, options).await,
        }
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.inner.get_opts(location, options).await
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        self.inner.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list(prefix)
    }

    fn list_with_offset(
        &self,
        prefix: Option<&Path>,
        offset: &Path,
    ) -> BoxStream<'static, Result<ObjectMeta>> {
        self.inner.list_with_offset(prefix, offset)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_of_several_machines_are_refused_and_those_of_one_are_not() {
        const EXT4: u32 = 0xef53;
        const XFS: u32 = 0x5846_5342;
        const BTRFS: u32 = 0x9123_683e;
        const TMPFS: u32 = 0x0102_1994;
        // All machines of a cluster see the locks of these file systems.
        const GFS2: u32 = 0x0116_1970;
        const OCFS2: u32 = 0x7461_636f;
        for shown in [EXT4, XFS, BTRFS, TMPFS, GFS2, OCFS2] {
            assert_eq!(keeps_locks_to_itself(shown), None, "{shown:x}");
        }
        for (magic, name) in [(0x6969, "NFS"), (0xff53_4d42, "SMB"), (0x6573_5546, "FUSE")] {
            assert_eq!(keeps_locks_to_itself(magic), Some(name));
        }
    }

    #[test]
    fn temporary_files_of_killed_puts_are_removed_and_objects_stay() {
        let place = tempfile::tempdir().unwrap();
        let folder = Folder::open(place.path().to_str().unwrap()).unwrap();
        let root = place.path().join("vm");
        for name in ["log", "map/5-1", "probe"] {
            fs::create_dir_all(root.join(name)).unwrap();
        }
        let stay = ["head", "log/a-1", "map/5-1/00000", "log/a#b", "log/a#"];
        let go = ["head#1", "log/a-2#1", "map/5-1/00001#12", "probe/x#1"];
        stay.iter().chain(&go).for_each(|name| fs::write(root.join(name), "x").unwrap());
        folder.sweep(&Path::from("vm"), Duration::from_mins(10));
        assert!(go.iter().all(|name| root.join(name).exists()), "they may be on their way");
        folder.sweep(&Path::from("vm"), Duration::ZERO);
        assert!(stay.iter().all(|name| root.join(name).exists()));
        assert!(!go.iter().any(|name| root.join(name).exists()));
    }
}
