//! A probe of a store's conditional PUTs: without such PUTs a second writer would go unnoticed.

use crate::client::{Client, update};
use nowait_image_format::{Answer, Tag};
use object_store::path::Path;
use object_store::{PutMode, PutPayload};

/// The result of a probe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The store carries out conditional PUTs, and respects the conditions.
    Good,
    /// The store ignores conditions or gives two objects the same ETag, so a second writer would
    /// destroy an image; or the store refuses conditional PUTs.
    Bad(&'static str),
    /// A request has failed; [`Client::last_error`] returns the reason.
    Failed,
}

/// Tries conditional PUTs on objects whose names contain `nonce`, and deletes these objects.
///
/// The store may refuse a PUT because the PUT repeats one whose answer was lost. A refusal is
/// evidence about the store only if the store refuses each of four objects.
pub async fn probe(client: &Client, nonce: &str) -> Verdict {
    const OBJECTS: usize = 4;
    let mut refusal = "";
    for object in 0..OBJECTS {
        let path = client.place().below(&format!("probe/{nonce}-{object}"));
        let tried = conditions(client, &path).await;
        let deleted = client.delete(&path).await;
        match tried {
            Err(what) => refusal = what,
            Ok(Verdict::Good) if matches!(deleted, Answer::Failed) => return Verdict::Failed,
            Ok(verdict) => return verdict,
        }
    }
    Verdict::Bad(refusal)
}

/// An error means that the store has refused a PUT that it must carry out. Perhaps an earlier
/// attempt at the same PUT succeeded.
async fn conditions(client: &Client, path: &Path) -> Result<Verdict, &'static str> {
    let put = |text: &'static str, mode| client.put(path, PutPayload::from(text), mode);
    let first = match put("one", PutMode::Create).await {
        Answer::Put(tag) => tag,
        Answer::Refused => return Err("the store refuses conditional creation (If-None-Match)"),
        _ => return Ok(Verdict::Failed),
    };
    match put("two", PutMode::Create).await {
        Answer::Refused => {}
        Answer::Put(_) => {
            return Ok(Verdict::Bad(
                "it ignores conditions of PUTs \
             (If-None-Match): use another store",
            ));
        }
        _ => return Ok(Verdict::Failed),
    }
    match put("three", update(&first)).await {
        Answer::Put(second) if is_other(&first, &second) => {}
        Answer::Put(_) => {
            return Ok(Verdict::Bad(
                "it gives two objects the same ETag: use \
             another store",
            ));
        }
        Answer::Refused => return Err("the store refuses conditional replacement (If-Match)"),
        _ => return Ok(Verdict::Failed),
    }
    Ok(match put("four", update(&first)).await {
        Answer::Refused => Verdict::Good,
        Answer::Put(_) => Verdict::Bad(
            "it ignores conditions of PUTs (If-Match): use \
             another store",
        ),
        _ => Verdict::Failed,
    })
}

fn is_other(first: &Tag, second: &Tag) -> bool {
    first != second
}
