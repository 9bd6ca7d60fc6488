//! Objects of dead writers that the last writer should have deleted.

use crate::store::Store;
use nowait_image_format::leftovers::WRITERS_MAX;
use nowait_image_format::{Content, Header, Key};

/// Fails if there are objects that should no longer exist.
pub fn judge(store: &Store) -> Result<(), String> {
    let head = store.head()?;
    let mut fences = Vec::new();
    for (key, body) in store.objects() {
        if let Key::Segment(sequence) = key
            && sequence >= head.checkpoint.position
            && let Ok((header, _)) = Header::parse(body, body.len() as u64, head.geometry)
            && let Content::Fence { resume, .. } = header.content
            // A reader of the log jumps over the places behind a fence, and so over fences there.
            && fences.last().is_none_or(|(_, end)| sequence >= *end)
        {
            fences.push((sequence, resume));
        }
    }
    fences.drain(..fences.len().saturating_sub(WRITERS_MAX as usize));
    let first = head.checkpoint.epoch.max(head.epoch.saturating_sub(WRITERS_MAX));
    for (key, _) in store.objects() {
        let is_left = match key {
            Key::Head => false,
            Key::Segment(at) => fences.iter().any(|(fence, end)| (fence + 1..*end).contains(&at)),
            Key::Part { epoch, nth, .. } => {
                let is_named =
                    |it: &nowait_image_format::Checkpoint| (it.epoch, it.nth) == (epoch, nth);
                let is_retired = head.retired.iter().any(is_named);
                let is_begun =
                    (first..head.epoch).contains(&epoch) && nth == head.checkpoint.next_nth(epoch);
                is_retired || is_begun
            }
        };
        if is_left {
            return Err(format!("{key} is left"));
        }
    }
    Ok(())
}
