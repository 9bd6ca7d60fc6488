//! The images of a store: reads a head, lists images, and removes an image.

use crate::client::Client;
use crate::edit::{edit_on, without_clones};
use crate::image::writer;
use crate::place::{StoreOptions, one_line};
use crate::reader::{READS_MAX, Read, Reader, blocking, client, pause};
use crate::url::StoreUrl;
use futures_util::StreamExt;
use nowait_image_format::{Answer, Base, Edit, Head, ImageId, Key};
use object_store::path::Path;
use std::io;
use std::time::Duration;

const DELETES_AT_ONCE: usize = 16;

/// The time after which a replaced writer has noticed its replacement, or acknowledges no flush of
/// new data.
pub const NOTICED_WITHIN: Duration = Duration::from_nanos(nowait_image_format::PROOF_NS);

/// How often a removal lists and deletes an image's objects, if a writer still puts objects.
const ROUNDS_MAX: u32 = 5;

/// An entry of a folder in a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The name of the entry in the folder.
    pub name: String,
    /// The head of the image; `Ok(None)`: the entry has no head, so it is a folder and not an
    /// image.
    ///
    /// # Errors
    /// The head is damaged.
    pub head: Result<Option<Head>, &'static str>,
}

/// Reads the head of an image; the image's writer continues. Blocks.
///
/// # Errors
/// One line: there is no image, its head is damaged, or the store cannot be used.
pub fn look(url: &StoreUrl, options: &StoreOptions) -> io::Result<Head> {
    let client = client(url, options)?;
    blocking(url, async { Reader { client: &client }.head().await })
}

/// Lists the images and folders in the folder that contains the image of `url`, in the order of
/// their names. Blocks.
///
/// # Errors
/// One line: the store cannot be used. A damaged head is only an error of its [`Entry`].
pub fn list(url: &StoreUrl, options: &StoreOptions) -> io::Result<Vec<Entry>> {
    let client = client(url, options)?;
    blocking(url, async { entries(&client).await })
}

async fn entries(client: &Client) -> Result<Vec<Entry>, String> {
    let place = client.place();
    let mut parts: Vec<_> = place.prefix.parts().collect();
    parts.pop();
    let folder: Path = parts.into_iter().collect();
    let listed = tokio::time::timeout(
        client.timeout(),
        place.store.list_with_delimiter((!folder.as_ref().is_empty()).then_some(&folder)),
    );
    let listed = listed
        .await
        .map_err(|_| format!("the store sent no list within {:?}", client.timeout()))?;
    let mut entries = Vec::new();
    for prefix in listed.map_err(|error| one_line(&error))?.common_prefixes {
        let encoded = prefix.filename().unwrap_or_default();
        let name = Path::from_url_path(encoded).map_or_else(|_| encoded.to_owned(), String::from);
        let client = Client::new(place.at(prefix), client.timeout());
        let head = match (Reader { client: &client }).look().await? {
            Read::Good(head) => Ok(Some(head)),
            Read::Missing => Ok(None),
            Read::Damaged => Err("the head is damaged"),
        };
        entries.push(Entry { name, head });
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(entries)
}

/// Removes an image; returns the number of objects that it deleted. The call deletes the head
/// first: if the call is interrupted, no writer can open the rest, and the next call removes the
/// rest. If the image is a clone, the call removes it from the list of clones of its snapshot.
/// Blocks.
///
/// The call replaces the image's writer. If an earlier writer may not know this yet, the call runs
/// `wait`. `wait` must return only when that writer has noticed this ([`NOTICED_WITHIN`]) or has
/// certainly ended. Until then that writer may acknowledge data that the removal deletes.
///
/// # Errors
/// One line: there is no image, its head is damaged, it has clones, another process uses it
/// meanwhile, or not all objects could be deleted.
pub fn remove(url: &StoreUrl, options: &StoreOptions, wait: impl FnOnce(&Head)) -> io::Result<u64> {
    remove_on(url, &client(url, options)?, options, wait)
}

pub(crate) fn remove_on(
    url: &StoreUrl,
    client: &Client,
    options: &StoreOptions,
    wait: impl FnOnce(&Head),
) -> io::Result<u64> {
    let head = match blocking(url, (Reader { client }).look())? {
        Read::Good(head) => Some(head),
        Read::Missing => None,
        Read::Damaged => {
            let why = "the head is damaged, so clones are unknown: see nowait image check";
            return Err(io::Error::other(format!("{url}: {why}")));
        }
    };
    if let Some(head) = head.as_ref().filter(|head| !head.snapshots.is_empty()) {
        blocking(url, without_clones(client, &head.snapshots))?;
        // After this edit no process can make a clone of the snapshots.
        let gone = Edit::Remove(head.snapshots.clone());
        edit_on(url, client, options.open_timeout, gone)?;
    }
    if let Some(head) = &head {
        let remover = writer()?;
        let retire = Edit::Retire(remover.clone());
        if !edit_on(url, client, options.open_timeout, retire)?.is_quiet {
            wait(head);
        }
        let now = blocking(url, (Reader { client }).head())?;
        let why = if now.writer != remover {
            format!("{} took over the image during this command", now.writer.name)
        } else if !now.snapshots.is_empty() {
            "the image got a snapshot meanwhile".to_owned()
        } else {
            String::new()
        };
        if !why.is_empty() {
            return Err(io::Error::other(format!("{url}: {why}")));
        }
    }
    let gone = blocking(url, delete_all(client, head.as_ref().map(|head| head.image)))?;
    if let Some((head, base)) = head.as_ref().and_then(|head| Some((head, head.bases.last()?))) {
        release(url, client, options, head, base)?;
    }
    Ok(gone)
}

/// Removes a clone from the list in the head of its base. Succeeds if the base no longer exists.
fn release(
    url: &StoreUrl,
    client: &Client,
    options: &StoreOptions,
    head: &Head,
    base: &Base,
) -> io::Result<()> {
    let at = StoreUrl { image: base.path.to_string(), ..url.clone() };
    let client = client.beside(&base.path);
    match blocking(&at, (Reader { client: &client }).look())? {
        Read::Missing => Ok(()),
        _ => edit_on(&at, &client, options.open_timeout, Edit::Release(head.image)).map(drop),
    }
}

/// Deletes the objects of `image`, and what earlier removals have left. `None`: there was no head,
/// so an earlier removal was interrupted. Another process may make an image at the same path
/// meanwhile.
async fn delete_all(client: &Client, image: Option<ImageId>) -> Result<u64, String> {
    let (mut gone, head) = (0, Key::Head.name(ImageId::default()));
    for _ in 0..ROUNDS_MAX {
        let mut listed = Reader { client }.list().await?;
        listed.retain(|name, _| is_own(name));
        if !listed.is_empty() && has_another(client, image).await? {
            let why = "another process made an image here: repeat the command to remove that one";
            let image = image.ok_or(why)?;
            listed.retain(|name, _| is_of(name, image));
        }
        if listed.is_empty() {
            return if gone > 0 { Ok(gone) } else { Err("no such image".to_owned()) };
        }
        gone += listed.len() as u64;
        if listed.remove(&head).is_some() {
            delete(client, client.place().below(&head)).await?;
        }
        let deletes = listed.keys().map(|name| delete(client, client.place().below(name)));
        let mut deletes = futures_util::stream::iter(deletes).buffer_unordered(DELETES_AT_ONCE);
        while let Some(deleted) = deletes.next().await {
            deleted?;
        }
    }
    Err("the server of this image still writes: stop that server first".to_owned())
}

/// Returns `true` if an object belongs to this image, not to another image below its path.
fn is_own(name: &str) -> bool {
    let is_number = |text: &str| {
        !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
    };
    match name.split('/').collect::<Vec<_>>()[..] {
        ["head"] => true,
        ["probe", name] => name != "head", // the head of an image named "probe"
        ["log", sequence] => is_number(sequence),
        ["map", checkpoint, part] => is_number(checkpoint) && is_number(part),
        _ => false,
    }
}

/// Returns `true` if another image than `image` is at the path. A new image has a head before it
/// has segments: so if there is none, no earlier list has one of its segments.
async fn has_another(client: &Client, image: Option<ImageId>) -> Result<bool, String> {
    Ok(match (Reader { client }).look().await? {
        Read::Missing => false,
        Read::Good(head) => Some(head.image) != image,
        Read::Damaged => true,
    })
}

/// Returns `true` if the name of a segment, or of a part of a checkpoint, has the image's digits.
fn is_of(name: &str, image: ImageId) -> bool {
    let log = Key::Segment(0).name(image);
    let digits = log.split(['/', '-']).nth(1);
    is_own(name) && name.split(['/', '-']).nth(1) == digits
}

async fn delete(client: &Client, path: Path) -> Result<(), String> {
    for tried in 0..READS_MAX {
        pause(tried).await;
        if client.delete(&path).await == Answer::Deleted {
            return Ok(());
        }
    }
    Err(client.last_error().unwrap_or_else(|| format!("{path} cannot be deleted")))
}
