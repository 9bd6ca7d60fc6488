//! Writers without the key of an encrypted image, which must change nothing.

use crate::run::BLOCK_BYTES;
use crate::store::Store;
use nowait_image_format::{ImageKey, Key, Operation};

/// Each third seed has an encrypted image.
const SEEDS: u64 = 3;

/// One in four writers that join an encrypted image later has another key, or none.
const WRITERS: usize = 4;

/// Returns the key of a seed's image, if this image is encrypted.
pub fn key_of(seed: u64) -> Option<ImageKey> {
    (seed % SEEDS == 1).then(|| ImageKey::new([seed as u8 & 0x7f; 32]))
}

/// A writer without the key of the image.
pub struct Stranger {
    /// Another key, or none.
    pub key: Option<ImageKey>,
}

impl Stranger {
    /// Returns a stranger if the writer `number` is to be one.
    pub fn of(key: Option<&ImageKey>, number: usize) -> Option<Stranger> {
        // No image has this key.
        let other = (number % (2 * WRITERS) == 1).then(|| ImageKey::new([255; 32]));
        (key.is_some() && number % WRITERS == 1).then_some(Stranger { key: other })
    }
}

/// Fails if an operation of a writer without the key changes something.
pub fn judge_operation(operation: &Operation) -> Result<(), String> {
    match operation {
        Operation::Get { .. } | Operation::List { .. } => Ok(()),
        _ => Err(String::from("a writer without the key changes something")),
    }
}

/// Fails if segments have plain data: a block of plain data is one number repeated.
pub fn judge(store: &Store) -> Result<(), String> {
    const WORDS: usize = BLOCK_BYTES as usize / 8 / 2;
    for (key, body) in store.all_objects() {
        let has_number = |word: &[u8]| word.iter().any(|byte| *byte != 0);
        let repeats = |at: &[u8]| at.chunks_exact(8).all(|word| word == &at[..8]);
        let mut pieces = body.windows(WORDS * 8);
        if matches!(key, Key::Segment(_)) && pieces.any(|it| has_number(&it[..8]) && repeats(it)) {
            return Err(format!("{key} has data that are not encrypted"));
        }
    }
    Ok(())
}
