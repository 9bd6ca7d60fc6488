//! Edits of an image while its writer continues: snapshots and their clones, and a larger size.
//! Runs the state machine for edits ([`Editor`]) on a real store.

use crate::catalog;
use crate::client::Client;
use crate::image::{drawn, writer};
use crate::place::StoreOptions;
use crate::reader::{Read, Reader, blocking, client};
use crate::repair::put_if_absent;
use crate::url::StoreUrl;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nowait_image_format::{Answer, CloneOf, Edit, Editor, Head, Key, Snapshot};
use std::io;
use std::time::{Duration, Instant};

/// Edits an image while its writer continues; returns the new head. Blocks, for the time limit for
/// opening an image at most.
///
/// # Errors
/// One line: the edit is not possible, there is no image, the image is damaged, or the store cannot
/// be used. If the store did not answer in time, it may have carried out the edit, or may do so
/// later.
pub fn edit(url: &StoreUrl, options: &StoreOptions, edit: Edit) -> io::Result<Head> {
    edit_on(url, &client(url, options)?, options.open_timeout, edit)
}

pub(crate) fn edit_on(
    url: &StoreUrl,
    client: &Client,
    limit: Duration,
    edit: Edit,
) -> io::Result<Head> {
    blocking(url, edited(client, limit, edit))
}

/// Makes a clone of a snapshot, in the same bucket; returns the head of the clone. The clone has
/// only a head at first, and its readers and writers read the snapshot's data. Blocks.
///
/// # Errors
/// One line: there is no such snapshot, an image exists already at the path of the clone, or the
/// store cannot be used.
pub fn clone(url: &StoreUrl, to: &StoreUrl, options: &StoreOptions) -> io::Result<Head> {
    let wrong = |why: String| io::Error::new(io::ErrorKind::InvalidInput, why);
    let Some(name) = &url.snapshot else {
        return Err(wrong(format!(
            "{url}: expected @NAME of a snapshot at the end: only snapshots \
                                  can be cloned"
        )));
    };
    if to.snapshot.is_some() || (to.scheme, &to.bucket) != (url.scheme, &url.bucket) {
        return Err(wrong(format!(
            "{to}: a clone must be in the bucket of its snapshot, and without @NAME"
        )));
    }
    let (client, writer) = (client(url, options)?, writer()?);
    let clone = CloneOf { image: drawn()?, path: to.image.clone(), is_made: false };
    let noted = Edit::Clone { snapshot: name.clone(), clone: clone.clone() };
    let head = edit_on(url, &client, options.open_timeout, noted)?;
    let snapshot = head.snapshot(name).ok_or_else(|| wrong(format!("{url} no longer exists")))?;
    let made = head.clone_of(snapshot, &url.image, clone.image, writer);
    let put = match &made {
        Ok(head) => blocking(to, async {
            let client = client.beside(&clone.path);
            let put = put_if_absent(&client, head.image, Key::Head, head.encode()).await;
            let put = put.map_err(|why| format!("the result is unknown: {why}"))?;
            // A writer may have opened the clone already, and changed its head.
            Ok(put || Reader { client: &client }.head().await?.image == head.image)
        })?,
        Err(_) => false,
    };
    if !put {
        edit_on(url, &client, options.open_timeout, Edit::Release(clone.image))?;
        let why = made.err().unwrap_or("the image exists");
        return Err(io::Error::other(format!("{to}: {why}")));
    }
    // Another process may have removed the snapshot before it saw the clone.
    if let Err(error) = edit_on(url, &client, options.open_timeout, Edit::Made(clone.image)) {
        // Do not wait for a writer of the clone: no user should open it before this call has
        // returned.
        catalog::remove(to, options, |_| {})?;
        return Err(error);
    }
    made.map_err(io::Error::other)
}

/// Removes a snapshot that has no clone; returns the new head of the image. Blocks.
///
/// # Errors
/// One line: there is no such snapshot, the snapshot has a clone, or the store cannot be used.
pub fn remove(url: &StoreUrl, options: &StoreOptions) -> io::Result<Head> {
    let client = client(url, options)?;
    let name = url.snapshot.clone().unwrap_or_default();
    let head = blocking(url, Reader { client: &client }.head())?;
    let gone: Vec<Snapshot> = head.snapshot(&name).into_iter().cloned().collect();
    blocking(url, without_clones(&client, &gone))?;
    edit_on(url, &client, options.open_timeout, Edit::Remove(gone))
}

pub(crate) async fn without_clones(client: &Client, snapshots: &[Snapshot]) -> Result<(), String> {
    for snapshot in snapshots {
        for clone in &snapshot.clones {
            if is_there(client, clone).await? {
                return Err(format!("{} is a clone of @{}", clone.path, snapshot.name));
            }
        }
    }
    Ok(())
}

/// Returns `true` if a clone exists, or the head at its path is damaged.
async fn is_there(client: &Client, clone: &CloneOf) -> Result<bool, String> {
    let client = client.beside(&clone.path);
    match (Reader { client: &client }).look().await? {
        Read::Missing => Ok(false),
        Read::Good(head) => Ok(head.image == clone.image),
        Read::Damaged => Ok(true),
    }
}

async fn edited(client: &Client, limit: Duration, edit: Edit) -> Result<Head, String> {
    let begin = Instant::now();
    let now_ns = || begin.elapsed().as_nanos() as u64;
    let mut editor = Editor::new(edit, 0);
    let mut running = FuturesUnordered::new();
    loop {
        editor.turn(now_ns());
        if let Some(outcome) = editor.outcome() {
            return outcome.clone().map_err(str::to_owned);
        }
        while let Some((ticket, operation)) = editor.pop_operation() {
            running.push(async move { (ticket, client.run(operation).await) });
        }
        let end = begin + limit;
        let due = editor.next_ns().map(|ns| begin + Duration::from_nanos(ns));
        let due = due.map_or(end, |due| due.min(end));
        let answered = tokio::select! {
            Some(answered) = running.next() => Some(answered),
            () = tokio::time::sleep_until(due.into()) => None,
        };
        if let Some((ticket, answer)) = answered {
            let is_failure = answer == Answer::Failed;
            editor.answer(ticket, answer, now_ns());
            if is_failure && client.is_hopeless() {
                let why = client.last_error().unwrap_or_default();
                return Err(format!("the store refuses: {why}"));
            }
        } else if Instant::now() >= end {
            let why = client.last_error().unwrap_or_else(|| "the store gave no answer".to_owned());
            return Err(format!("the result is unknown after {limit:?}: {why}"));
        }
    }
}
