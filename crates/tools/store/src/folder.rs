//! A folder as a store: that of `object_store`, and the PUT with a condition that it lacks.
//!
//! An object is replaced under a lock of its folder (`flock`), which all processes of one machine
//! see, and those of other machines if the file system is one that shares such locks: so an image
//! in a folder of NFS 3 or older is for one machine only.

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
use std::time::Duration;

/// A folder as a store. What is put is on the disk when the PUT ends.
#[derive(Debug)]
pub(crate) struct Folder {
    inner: LocalFileSystem,
}

impl Folder {
    /// Opens a folder that is there.
    pub(crate) fn open(path: &str) -> Result<Folder> {
        let inner = LocalFileSystem::new_with_prefix(path)?;
        Ok(Folder { inner: inner.with_fsync(true) })
    }

    /// Replaces an object, if it is the one that is meant.
    async fn replace(
        &self,
        location: &Path,
        payload: PutPayload,
        before: UpdateVersion,
    ) -> Result<PutResult> {
        let path = self.inner.path_to_filesystem(location)?;
        let folder = path.parent().unwrap_or(&path).to_owned();
        let lock = tokio::task::spawn_blocking(move || {
            let folder = File::open(folder)?;
            folder.lock().map(|()| folder)
        });
        let _lock = lock.await?.map_err(|error| generic("lock", &error))?;
        let there = self.inner.head(location).await?;
        if there.e_tag.is_none() || there.e_tag != before.e_tag {
            let (path, source) = (location.to_string(), "it is not the one meant".into());
            return Err(Error::Precondition { path, source });
        }
        let modified = || File::open(&path).and_then(|file| file.metadata()?.modified());
        let then = modified().map_err(|error| generic("look", &error))?;
        let result = self.inner.put(location, payload).await?;
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
        let e_tag = self.inner.head(location).await?.e_tag;
        Ok(PutResult { e_tag, ..result })
    }
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
