//! A folder as a store: that of `object_store`, and the PUT with a condition that it lacks.
//!
//! An object is replaced under a lock of its folder (`flock`), which all processes of one machine
//! see. NFS and SMB keep the lock of a folder to the machine that has it: an image there is for one
//! machine only, and nothing tells the second.

use async_trait::async_trait;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, ObjectStoreExt, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result, UpdateVersion,
};
use std::fs::File;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;

/// A folder as a store. What is put is on the disk when the PUT ends.
#[derive(Debug)]
pub(crate) struct Folder {
    inner: Arc<LocalFileSystem>,
}

impl Folder {
    /// Opens a folder that is there.
    pub(crate) fn open(path: &str) -> Result<Folder> {
        let inner = LocalFileSystem::new_with_prefix(path)?;
        Ok(Folder { inner: Arc::new(inner.with_fsync(true)) })
    }

    /// Replaces an object, if it is the one that is meant. A replacement that has begun goes on
    /// when the future is dropped, and keeps the lock until its end: the next writer finds it
    /// done.
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

/// Replaces an object, on a thread that may block.
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
        let (path, source) = (location.to_string(), "it is not the one meant".into());
        return Err(Error::Precondition { path, source });
    }
    let modified = || File::open(&path).and_then(|file| file.metadata()?.modified());
    let then = modified().map_err(|error| generic("look", &error))?;
    let result = inner.put(location, payload).await?;
    // The tag is of the time, in steps of the kernel's clock: no two revisions have the same.
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

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}
