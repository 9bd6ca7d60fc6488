//! A store in memory with errors that tests choose.

use super::damages::Objects;
use async_trait::async_trait;
use futures_util::stream::BoxStream;
use futures_util::{FutureExt, StreamExt};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload,
    ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload, PutResult,
    Result,
};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Wrong {
    #[default]
    Nothing,
    /// The store overwrites existing objects in spite of the condition (If-None-Match).
    IgnoresCreate,
    /// The store replaces an object although its ETag does not match the condition (If-Match).
    IgnoresUpdate,
    Silent,
    /// The store sends half of the bytes that it announces.
    Cut,
    /// The store sends more bytes than it announces, without an end.
    Endless,
    /// The store announces another range than the requested one.
    OtherRange,
    /// The store answers 409, as S3 does for simultaneous requests, and carries out no request.
    Conflict,
    /// The store says, as Azure does, that the object exists already.
    AlreadyExists,
    Panics,
    Denies,
    ReadOnly,
}

#[derive(Debug, Default)]
pub(super) struct WrongStore {
    pub(super) inner: InMemory,
    pub(super) wrong: Mutex<Wrong>,
    /// Objects that another process puts right before the second DELETE.
    pub(super) planted: Mutex<Objects>,
    deletes: AtomicU32,
}

impl WrongStore {
    pub(super) fn new(wrong: Wrong) -> WrongStore {
        WrongStore { wrong: Mutex::new(wrong), ..WrongStore::default() }
    }

    pub(super) fn set(&self, wrong: Wrong) {
        *self.wrong.lock().unwrap() = wrong;
    }

    async fn fail(&self) -> Result<Wrong> {
        let wrong = *self.wrong.lock().unwrap();
        match wrong {
            Wrong::Silent => std::future::pending().await,
            Wrong::Panics => panic!("injected"),
            Wrong::Conflict => Err(Error::AlreadyExists {
                path: "x".to_owned(),
                source: "Server returned non-2xx status code: 409 Conflict".into(),
            }),
            Wrong::AlreadyExists => Err(Error::AlreadyExists {
                path: "x".to_owned(),
                source: "Server returned non-2xx status code: 409 Conflict: \
                    <Error> <Code>BlobAlreadyExists</Code>"
                    .into(),
            }),
            Wrong::Denies => {
                Err(Error::Unauthenticated { path: "x".to_owned(), source: "no\nkey".into() })
            }
            _ => Ok(wrong),
        }
    }
}

impl std::fmt::Display for WrongStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("wrong")
    }
}

#[async_trait]
impl ObjectStore for WrongStore {
    async fn put_opts(
        &self,
        location: &Path,
        payload: PutPayload,
        mut options: PutOptions,
    ) -> Result<PutResult> {
        match (self.fail().await?, &options.mode) {
            (Wrong::ReadOnly, _) => {
                let (path, source) = (location.to_string(), "read only".into());
                return Err(Error::PermissionDenied { path, source });
            }
            (Wrong::IgnoresCreate, PutMode::Create)
            | (Wrong::IgnoresUpdate, PutMode::Update(_)) => options.mode = PutMode::Overwrite,
            _ => {}
        }
        self.inner.put_opts(location, payload, options).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        options: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        self.inner.put_multipart_opts(location, options).await
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let wrong = self.fail().await?;
        let mut got = self.inner.get_opts(location, options).await?;
        let range = got.range.clone();
        match wrong {
            Wrong::Cut => {
                let half = got.bytes().await?.split_to((range.end - range.start) as usize / 2);
                let inner = self.inner.get_opts(location, GetOptions::default()).await?;
                let stream = futures_util::stream::iter([Ok(half)]).boxed();
                got = GetResult { payload: GetResultPayload::Stream(stream), range, ..inner };
            }
            Wrong::Endless => {
                let piece = bytes::Bytes::from(vec![7; 1 << 20]);
                let stream = futures_util::stream::repeat_with(move || Ok(piece.clone())).boxed();
                got.payload = GetResultPayload::Stream(stream);
            }
            Wrong::OtherRange => got.range = 0..u64::MAX,
            _ => {}
        }
        Ok(got)
    }

    fn delete_stream(
        &self,
        locations: BoxStream<'static, Result<Path>>,
    ) -> BoxStream<'static, Result<Path>> {
        if self.deletes.fetch_add(1, Relaxed) == 1 {
            for (path, bytes) in core::mem::take(&mut *self.planted.lock().unwrap()) {
                let put = self.inner.put_opts(&path, bytes.into(), PutOptions::default());
                put.now_or_never().expect("memory does not wait").unwrap();
            }
        }
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
