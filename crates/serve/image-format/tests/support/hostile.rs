//! A store that carries out operations or not, and gives arbitrary answers, as a tape of bytes
//! decides. When the tape is over, the store works, and every request must end.

use crate::memory::{BLOCK_BYTES, Memory, image, settings};
use crate::strangers::seal;
use nowait_image_format::{
    Answer, Edit, Editor, Image, Operation, Origin, Request, RequestId, Settings, Status,
};
use std::collections::BTreeMap;

const BLOCKS: u64 = 64;

const TURNS_MAX: usize = 10_000;

struct Tape<'a>(&'a [u8]);

impl Tape<'_> {
    fn take(&mut self) -> Option<u8> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    fn number(&mut self) -> u64 {
        u64::from(self.take().unwrap_or(0))
    }
}

struct World<'a> {
    tape: Tape<'a>,
    store: Memory,
    writer: Image,
    writers: u8,
    now_ns: u64,
    reads: BTreeMap<RequestId, u64>,
    submitted: u64,
    ended: u64,
}

pub(crate) fn run(tape: &[u8]) {
    let mut store = Memory::default();
    let writer = image(&mut store, small(1), BLOCKS * BLOCK_BYTES);
    let (tape, reads) = (Tape(tape), BTreeMap::new());
    let mut world =
        World { tape, store, writer, writers: 1, now_ns: 0, reads, submitted: 0, ended: 0 };
    while let Some(step) = world.tape.take() {
        world.step(step);
    }
    world.finish();
}

fn small(writer: u8) -> Settings {
    let mut settings = settings();
    settings.writer.nonce = [writer; 16];
    settings.buffer_bytes = 16 * BLOCK_BYTES as usize;
    (settings.segment_blocks, settings.checkpoint_segments, settings.garbage_percent) = (4, 3, 20);
    settings
}

impl World<'_> {
    fn step(&mut self, step: u8) {
        match step % 8 {
            0..=2 => {
                let range = self.range();
                let data = vec![step; (range.1) as usize];
                let durable = step >= 128;
                self.submit(Request::Write { offset: range.0, data, durable });
            }
            3 => {
                let (offset, len) = self.range();
                self.submit(Request::Read { offset, len });
            }
            4 => {
                let (offset, len) = self.range();
                self.submit(Request::Discard { offset, len });
            }
            5 if step >= 224 => {
                let size_bytes = self.tape.number() % (BLOCKS + 2) * BLOCK_BYTES;
                self.submit(Request::Shrink { size_bytes });
            }
            5 => self.submit(Request::Flush),
            6 => self.pass(),
            _ => match step >> 6 {
                0 => self.take_over(),
                1 => self.edit(Edit::Snapshot(format!("{}", step & 8))),
                2 => self.edit(Edit::Remove(self.store.head().snapshots)),
                _ => self.edit(Edit::Grow((BLOCKS + u64::from(step & 8)) * BLOCK_BYTES)),
            },
        }
        self.serve();
    }

    /// Returns the offset and length of some blocks, which may reach a little beyond the image's
    /// end.
    fn range(&mut self) -> (u64, u64) {
        let (block, blocks) = (self.tape.number() % BLOCKS, 1 + self.tape.number() % 8);
        (block * BLOCK_BYTES, blocks * BLOCK_BYTES)
    }

    fn submit(&mut self, request: Request) {
        self.submitted += 1;
        if let Request::Read { len, .. } = &request {
            self.reads.insert(self.submitted, *len);
        }
        self.writer.submit(self.submitted, request, self.now_ns);
    }

    /// Drops the previous writer with its unanswered requests.
    fn take_over(&mut self) {
        self.writers = self.writers.wrapping_add(1);
        self.writer = Image::open(small(self.writers), Origin::TakeOver, self.now_ns);
        (self.submitted, self.ended) = (0, 0);
        self.reads.clear();
    }

    fn edit(&mut self, edit: Edit) {
        let mut editor = Editor::new(edit, self.now_ns);
        while let Some((ticket, operation)) = editor.pop_operation() {
            let answer = self.answer(operation);
            editor.answer(ticket, answer, self.now_ns);
        }
    }

    fn pass(&mut self) {
        if let Some(next_ns) = self.writer.next_ns() {
            self.now_ns = self.now_ns.max(next_ns);
            self.writer.turn(self.now_ns);
        }
    }

    fn serve(&mut self) {
        while let Some((ticket, operation)) = self.writer.pop_operation() {
            let answer = self.answer(operation);
            self.writer.answer(ticket, answer, self.now_ns);
        }
        while let Some(end) = self.writer.pop_end() {
            self.ended += 1;
            let asked = self.reads.remove(&end.id).unwrap_or(0);
            assert!(end.result.is_err() || end.result.is_ok_and(|it| it.len() as u64 == asked));
        }
    }

    fn answer(&mut self, operation: Operation) -> Answer {
        let how = self.tape.number();
        match how % 16 {
            1 => Answer::Failed,
            2 => {
                self.store.perform(operation);
                Answer::Failed
            }
            3 => Answer::Missing,
            4 => Answer::Refused,
            5 => Answer::Deleted,
            6 => Answer::Put("another".to_owned()),
            7 => {
                let (bytes, tag) = (self.tape.0.to_vec(), "another".to_owned());
                Answer::Got { object_bytes: bytes.len() as u64, bytes, tag }
            }
            8..=11 => {
                let answer = self.store.perform(operation);
                self.distorted(answer, how)
            }
            _ => self.store.perform(operation),
        }
    }

    /// Changes the answer to a GET: its length, the object's length, or a byte, perhaps with valid
    /// checksums.
    fn distorted(&mut self, answer: Answer, how: u64) -> Answer {
        let Answer::Got { mut bytes, mut object_bytes, tag } = answer else { return answer };
        let at = self.tape.number() as usize * if how >= 128 { 16 } else { 1 };
        match how % 16 {
            8 => bytes.truncate(at),
            9 => object_bytes = [0, 1, object_bytes + 1, u64::MAX][at % 4],
            _ => {
                let value = self.tape.number() as u8;
                bytes.get_mut(at).into_iter().for_each(|byte| *byte = value);
                if how % 16 == 11 {
                    let end = bytes.len().saturating_sub(4);
                    seal(&mut bytes, 48);
                    seal(&mut bytes, end);
                }
            }
        }
        Answer::Got { bytes, object_bytes, tag }
    }

    fn finish(&mut self) {
        for _ in 0..TURNS_MAX {
            self.serve();
            if matches!(self.writer.status(), Status::Over(_)) || self.writer.next_ns().is_none() {
                break;
            }
            self.pass();
        }
        self.serve();
        let (ended, status) = (self.ended, self.writer.status());
        assert_eq!(ended, self.submitted, "{status:?}, {:?}", self.writer.next_ns());
    }
}
