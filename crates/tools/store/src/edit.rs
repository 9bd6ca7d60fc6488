//! Edits of an image beside its writer: snapshots, and a larger size. The machine for them, driven
//! by a real store.

use crate::client::Client;
use crate::place::StoreOptions;
use crate::reader::{blocking, client};
use crate::url::StoreUrl;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nowait_log::{Answer, Edit, Editor, Head};
use std::io;
use std::time::{Duration, Instant};

/// Edits an image; whichever writer it has goes on, and need not be asked. Blocks, for no longer
/// than an image may take to be opened.
///
/// # Errors
/// It cannot be edited so, there is none, it is damaged, or the store cannot be used: in one line.
/// If the store did not answer in time, the edit may have been made, or be made later.
pub fn edit(url: &StoreUrl, options: &StoreOptions, edit: Edit) -> io::Result<Head> {
    edit_on(url, &client(url, options)?, options.open_timeout, edit)
}

/// The same on a store that is there.
pub(crate) fn edit_on(
    url: &StoreUrl,
    client: &Client,
    limit: Duration,
    edit: Edit,
) -> io::Result<Head> {
    blocking(url, edited(client, limit, edit))
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
            let why = client.last_error().unwrap_or_else(|| "no time".to_owned());
            return Err(format!("not known to be done within {limit:?}: {why}"));
        }
    }
}
