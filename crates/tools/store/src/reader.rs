//! Reading of an image without being its writer: by GETs and LISTs, which are tried again.

use crate::client::Client;
use crate::place::{Place, StoreOptions, one_line};
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_log::head::HEAD_BYTES_MAX;
use nowait_log::{Answer, Head, Key, Operation};
use std::collections::BTreeMap;
use std::io;
use std::time::Duration;

/// How often an object is asked for that does not come, or looks damaged.
pub(crate) const READS_MAX: u32 = 5;

/// How long the first of them waits for the next; each further one twice as long.
const PAUSE: Duration = Duration::from_millis(50);

/// Reads an image.
pub(crate) struct Reader<'a> {
    pub(crate) client: &'a Client,
}

/// Makes a client for an image.
pub(crate) fn client(url: &StoreUrl, options: &StoreOptions) -> io::Result<Client> {
    let place = Place::new(url, options).map_err(io::Error::other)?;
    Ok(Client::new(place, options.request_timeout))
}

/// Waits for work with a store; its error is one of the image.
pub(crate) fn blocking<T>(
    url: &StoreUrl,
    work: impl Future<Output = Result<T, String>>,
) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let done = runtime.block_on(work);
    // A look-up of a name may hang; nothing waits for it.
    runtime.shutdown_background();
    done.map_err(|why| io::Error::other(format!("{url}: {why}")))
}

impl Reader<'_> {
    /// Returns the objects of the image, by their names behind its own, and their bytes.
    pub(crate) async fn list(&self) -> Result<BTreeMap<String, u64>, String> {
        let place = self.client.place();
        let mut why = String::new();
        for tried in 0..READS_MAX {
            pause(tried).await;
            let mut listed = BTreeMap::new();
            let mut stream = place.store.list(Some(&place.prefix));
            let ended = loop {
                match tokio::time::timeout(self.client.timeout(), stream.next()).await {
                    Err(_) => break Err(format!("no list within {:?}", self.client.timeout())),
                    Ok(None) => break Ok(()),
                    Ok(Some(Err(error))) => break Err(one_line(&error)),
                    Ok(Some(Ok(meta))) => {
                        if let Some(name) = meta.location.prefix_match(&place.prefix) {
                            let parts: Vec<_> = name.map(|part| part.as_ref().to_owned()).collect();
                            listed.insert(parts.join("/"), meta.size);
                        }
                    }
                }
            };
            match ended {
                Ok(()) => return Ok(listed),
                Err(error) => why = error,
            }
        }
        Err(why)
    }

    /// Returns the head, if there is one that can be read.
    pub(crate) async fn look(&self) -> Result<Read<Head>, String> {
        self.read(Key::Head, HEAD_BYTES_MAX, |bytes, _| Head::parse(bytes).ok()).await
    }

    /// Returns the head of the image.
    pub(crate) async fn head(&self) -> Result<Head, String> {
        match self.look().await? {
            Read::Good(head) => Ok(head),
            Read::Missing => Err("there is no image".to_owned()),
            Read::Damaged => Err("its head is damaged: nothing of it can be read".to_owned()),
        }
    }

    /// Reads an object of at most `len` bytes, again if it does not come or makes no sense.
    pub(crate) async fn read<T>(
        &self,
        key: Key,
        len: usize,
        mut parse: impl FnMut(&[u8], u64) -> Option<T>,
    ) -> Result<Read<T>, String> {
        let mut is_damaged = false;
        for tried in 0..READS_MAX {
            pause(tried).await;
            match self.client.run(Operation::Get { key, range: 0..len as u64 }).await {
                Answer::Missing => return Ok(Read::Missing),
                Answer::Got { bytes, object_bytes, .. } => match parse(&bytes, object_bytes) {
                    Some(it) => return Ok(Read::Good(it)),
                    None => is_damaged = true,
                },
                _ => is_damaged = false,
            }
        }
        match is_damaged {
            true => Ok(Read::Damaged),
            false => Err(self.client.last_error().unwrap_or_else(|| format!("no answer: {key}"))),
        }
    }
}

/// What came of reading an object.
pub(crate) enum Read<T> {
    Good(T),
    Missing,
    Damaged,
}

impl<T> Read<T> {
    /// Returns the word for it.
    pub(crate) fn what(&self) -> &'static str {
        match self {
            Read::Good(_) => "good",
            Read::Missing => "missing",
            Read::Damaged => "damaged",
        }
    }
}

/// Waits before an operation that was tried so often.
pub(crate) async fn pause(tried: u32) {
    if tried > 0 {
        tokio::time::sleep(PAUSE * (1 << (tried - 1))).await;
    }
}
