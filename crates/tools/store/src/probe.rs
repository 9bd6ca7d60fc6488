//! Whether a store keeps its conditions: without them a second writer is not noticed.

use crate::client::{Client, update};
use nowait_log::{Answer, Tag};
use object_store::path::Path;
use object_store::{PutMode, PutPayload};

/// What came of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The store does as it must.
    Good,
    /// An image on it would be lost to a second writer.
    Bad(&'static str),
    /// A request failed; the client knows why.
    Failed,
}

/// Tries the conditions of a store on an object whose name has `nonce`, and deletes it.
pub async fn probe(client: &Client, nonce: &str) -> Verdict {
    let path = Path::from(format!("{}/probe/{nonce}", client.place().prefix));
    let verdict = conditions(client, &path).await;
    match (client.delete(&path).await, verdict) {
        (Answer::Failed, Verdict::Good) => Verdict::Failed,
        (_, verdict) => verdict,
    }
}

async fn conditions(client: &Client, path: &Path) -> Verdict {
    let put = |text: &'static str, mode| client.put(path, PutPayload::from(text), mode);
    let first = match put("one", PutMode::Create).await {
        Answer::Put(tag) => tag,
        Answer::Refused => return Verdict::Bad("it refuses to make an object (If-None-Match)"),
        _ => return Verdict::Failed,
    };
    match put("two", PutMode::Create).await {
        Answer::Refused => {}
        Answer::Put(_) => return Verdict::Bad("it ignores conditions of PUTs (If-None-Match)"),
        _ => return Verdict::Failed,
    }
    match put("three", update(&first)).await {
        Answer::Put(second) if is_other(&first, &second) => {}
        Answer::Put(_) => return Verdict::Bad("it gives two objects the same ETag"),
        Answer::Refused => return Verdict::Bad("it refuses to replace an object (If-Match)"),
        _ => return Verdict::Failed,
    }
    match put("four", update(&first)).await {
        Answer::Refused => Verdict::Good,
        Answer::Put(_) => Verdict::Bad("it ignores conditions of PUTs (If-Match)"),
        _ => Verdict::Failed,
    }
}

fn is_other(first: &Tag, second: &Tag) -> bool {
    first != second
}
