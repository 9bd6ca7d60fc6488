//! The output of a connection, in order: heads of replies, texts, and the chunks of reads, which
//! are not copied.

use nowait_device::{Chunk, Pool};
use std::{collections::VecDeque, io::IoSlice};

const HEAD_BYTES_MAX: usize = 40;

/// The position of an image among the served images.
type ImageNumber = usize;

#[derive(Debug)]
enum Part {
    Head([u8; HEAD_BYTES_MAX], u8),
    Data(Chunk),
    Text(Vec<u8>),
    /// Text whose bytes count as used in the pool.
    Counted(Vec<u8>, ImageNumber),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Head(bytes, len) => &bytes[..usize::from(*len)],
            Part::Data(chunk) => chunk.data(),
            Part::Text(bytes) | Part::Counted(bytes, _) => bytes,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Outbox {
    parts: VecDeque<Part>,
    /// The number of bytes of the first part that were sent.
    sent: usize,
    /// The image for which the pool counts the memory of counted texts.
    image: ImageNumber,
}

impl Outbox {
    pub(crate) fn is_of(&mut self, image: ImageNumber) {
        self.image = image;
    }

    pub(crate) fn head(&mut self, bytes: &[u8]) {
        let mut head = [0; HEAD_BYTES_MAX];
        head[..bytes.len()].copy_from_slice(bytes);
        self.parts.push_back(Part::Head(head, bytes.len() as u8));
    }

    pub(crate) fn data(&mut self, chunk: Chunk) {
        self.parts.push_back(Part::Data(chunk));
    }

    /// Adds a text that does not count in the pool.
    pub(crate) fn text(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.parts.push_back(Part::Text(bytes));
        }
    }

    /// Adds a text that the caller has counted as used in the pool, byte for byte.
    pub(crate) fn counted(&mut self, bytes: Vec<u8>) {
        self.parts.push_back(Part::Counted(bytes, self.image));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    pub(crate) fn len(&self) -> usize {
        self.parts.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.parts.iter().map(|part| part.bytes().len()).sum()
    }

    /// Points `slices` at the next bytes to send; returns how many slices it has set.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>]) -> usize {
        let mut count = 0;
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            let skip = if count == 0 { self.sent } else { 0 };
            *slice = IoSlice::new(&part.bytes()[skip..]);
            count += 1;
        }
        count
    }

    /// Removes the first `bytes` bytes, which were sent, and gives the memory of parts that are
    /// sent as a whole back to the pool. Returns how many bytes of chunks and counted texts these
    /// parts had.
    pub(crate) fn sent(&mut self, bytes: usize, pool: &mut Pool) -> usize {
        let mut given_back = 0;
        self.sent += bytes;
        while let Some(part) = self.parts.front()
            && self.sent >= part.bytes().len()
        {
            self.sent -= part.bytes().len();
            given_back += self.parts.pop_front().map_or(0, |part| give_back(part, pool));
        }
        given_back
    }

    pub(crate) fn abandon(&mut self, pool: &mut Pool) {
        self.parts.drain(..).for_each(|part| _ = give_back(part, pool));
    }
}

/// Returns the bytes of a chunk or counted text, 0 for other parts.
fn give_back(part: Part, pool: &mut Pool) -> usize {
    let counted = part.bytes().len();
    match part {
        Part::Data(chunk) => pool.give_back(chunk),
        Part::Counted(bytes, image) => pool.release(image, bytes.len()),
        Part::Head(..) | Part::Text(_) => return 0,
    }
    counted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn output_sent_in_part_continues_where_it_stopped() {
        let (mut outbox, mut pool) = (Outbox::default(), Pool::new(1 << 20));
        outbox.head(b"head");
        let mut chunk = pool.take(6);
        chunk.data_mut().copy_from_slice(b"inside");
        outbox.data(chunk);
        outbox.text(b"end".to_vec());
        pool.reserve(0, 3);
        outbox.counted(b"...".to_vec());
        let mut all = Vec::new();
        let mut back = 0;
        while !outbox.is_empty() {
            let mut slices = [IoSlice::new(&[]); 8];
            let count = outbox.fill(&mut slices);
            let joined: Vec<u8> = slices[..count].iter().flat_map(|s| s.to_vec()).collect();
            let some = joined.len().min(5);
            all.extend(&joined[..some]);
            back += outbox.sent(some, &mut pool);
        }
        assert_eq!((all.as_slice(), back, pool.used_bytes()), (&b"headinsideend..."[..], 9, 0));
    }
}
