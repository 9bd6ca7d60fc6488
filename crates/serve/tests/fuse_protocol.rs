//! Requests of the kernel by hand: what is answered, what is refused, and what is kept.

mod support;

use nowait::Errno;
use nowait_export::{Image, Medium, Properties};
use nowait_serve::fuse::{Face, Kernel, Landing, Rights, Session};
use std::{
    io::{IoSlice, Read},
    sync::Arc,
    time::UNIX_EPOCH,
};
use support::{Memory, PLAIN, SIZE};

/// Keeps the answers.
#[derive(Default)]
struct Heard(Vec<Vec<u8>>);

impl Kernel for Heard {
    fn answer(&mut self, parts: &[IoSlice<'_>]) {
        self.0.push(parts.iter().flat_map(|part| part.to_vec()).collect());
    }
}

struct Asking {
    session: Session<()>,
    memory: Memory,
    landing: Landing,
    heard: Heard,
}

const READ: u32 = 15;
const WRITE: u32 = 16;
const USER: u32 = 7;

fn words(values: &[u64]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_ne_bytes()).collect()
}

/// Two numbers of 32 bits as one of 64.
fn pair(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

impl Asking {
    fn new(properties: Properties, users: Vec<u32>) -> Asking {
        let image = Arc::new(Image::new("disk", properties, 0, SIZE as u64, ()));
        let rights = Rights { user: 1, group: 2, users };
        let mut memory = Memory::new(64 << 20);
        let landing = Landing::new(memory.pool());
        let session = Session::new(3, Arc::new(Face::new(image, rights, UNIX_EPOCH)));
        Asking { session, memory, landing, heard: Heard::default() }
    }

    /// Sends a request, and lets all end that is under way.
    fn send(&mut self, opcode: u32, body: &[u8]) {
        let len = 40 + body.len() as u32;
        let head = [pair(len, opcode), 99, 1, pair(USER, 0), 0];
        let bytes = [words(&head), body.to_vec()].concat();
        let count = (&bytes[..]).read_vectored(&mut self.landing.slices()).expect("memory");
        assert_eq!(count, bytes.len());
        let Asking { session, memory, landing, heard } = self;
        session.request(landing, count, memory, heard, 0);
        while let Some(ended) = memory.pop() {
            session.end(ended, memory, heard, 1);
        }
    }

    /// Returns the data of the only answer, or its error.
    fn answer(&mut self) -> Result<Vec<u8>, i32> {
        let [answer] = &self.heard.0[..] else { panic!("{} answers", self.heard.0.len()) };
        let len = u32::from_ne_bytes(answer[..4].try_into().expect("four bytes"));
        assert_eq!((len as usize, &answer[8..16]), (answer.len(), &99u64.to_ne_bytes()[..]));
        let error = i32::from_ne_bytes(answer[4..8].try_into().expect("four bytes"));
        let data = answer[16..].to_vec();
        self.heard.0.clear();
        if error == 0 { Ok(data) } else { Err(-error) }
    }

    fn ask(&mut self, opcode: u32, body: &[u8]) -> Result<Vec<u8>, i32> {
        self.send(opcode, body);
        self.answer()
    }

    fn write(&mut self, offset: u64, data: &[u8]) -> Result<Vec<u8>, i32> {
        let about = words(&[0, offset, pair(data.len() as u32, 0), 0, 0]);
        self.ask(WRITE, &[about, data.to_vec()].concat())
    }

    fn read(&mut self, offset: u64, len: u32) -> Result<Vec<u8>, i32> {
        self.ask(READ, &words(&[0, offset, pair(len, 0), 0, 0]))
    }
}

#[test]
fn data_of_any_length_come_back_and_no_memory_is_kept() {
    let mut asking = Asking::new(PLAIN, vec![]);
    let used = asking.memory.pool().used_bytes();
    for len in [1, 4095, 40_000, (256 << 10) + 1, 1 << 20] {
        let data: Vec<u8> = (0..len).map(|i| (i * 13 + len) as u8).collect();
        let written = asking.write(512, &data).expect("written");
        assert_eq!(written, words(&[pair(len as u32, 0)]));
        assert!(asking.read(512, len as u32).expect("read") == data, "{len}");
    }
    assert_eq!((asking.memory.pool().used_bytes(), asking.session.in_flight()), (used, 0));
    asking.landing.give_back(asking.memory.pool());
    assert_eq!(asking.memory.pool().used_bytes(), 0);
}

#[test]
fn the_end_of_the_file_is_where_the_image_ends() {
    let (mut asking, size) = (Asking::new(PLAIN, vec![]), SIZE as u64);
    assert_eq!(asking.read(size, 10), Ok(vec![]));
    assert_eq!(asking.read(size - 3, 10), Ok(vec![0; 3]));
    assert_eq!(asking.write(size, b"x"), Err(Errno::NOSPC.raw()));
    assert_eq!(asking.write(size - 2, b"xyz"), Ok(words(&[pair(2, 0)])));
    assert_eq!(asking.read(u64::MAX, 10), Ok(vec![]));
    assert_eq!(asking.write(u64::MAX, b"x"), Err(Errno::NOSPC.raw()));
}

#[test]
fn an_error_of_the_medium_is_the_answer() {
    let mut asking = Asking::new(PLAIN, vec![]);
    asking.memory.failure = Some(Errno::IO);
    assert_eq!(asking.read(0, 1 << 20), Err(Errno::IO.raw()));
    assert_eq!(asking.write(0, &vec![1; 300_000]), Err(Errno::IO.raw()));
    assert_eq!(asking.ask(20, &words(&[0, 0])), Err(Errno::IO.raw()), "fsync");
}

#[test]
fn who_is_not_named_and_what_would_change_the_image_is_refused() {
    let read_only = Properties { read_only: true, ..PLAIN };
    let mut asking = Asking::new(read_only, vec![USER]);
    assert!(asking.ask(14, &words(&[0])).is_ok(), "open for reading");
    assert_eq!(asking.ask(14, &words(&[pair(2, 0)])), Err(Errno::ROFS.raw()));
    assert_eq!(asking.write(0, b"x"), Err(Errno::ROFS.raw()));
    assert_eq!(asking.ask(43, &words(&[0, 0, 4096, 3])), Err(Errno::ROFS.raw()), "fallocate");
    let mut asking = Asking::new(PLAIN, vec![USER + 1]);
    assert_eq!(asking.ask(14, &words(&[0])), Err(Errno::ACCES.raw()));
    let resize = words(&[pair(8, 0), 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(asking.ask(4, &resize), Err(Errno::PERM.raw()));
}

#[test]
fn what_is_too_short_or_unknown_is_refused_and_never_read_beyond() {
    let mut asking = Asking::new(PLAIN, vec![]);
    for opcode in 0..60 {
        for body in [0, 4, 8, 39, 100] {
            // FORGET and BATCH_FORGET have no answer.
            asking.send(opcode, &vec![0xff; body]);
            let expected = usize::from(!matches!(opcode, 2 | 42));
            assert_eq!(asking.heard.0.len(), expected, "{opcode} with {body} bytes");
            asking.heard.0.clear();
        }
    }
    assert_eq!(asking.session.in_flight(), 0);
}

#[test]
fn the_greeting_agrees_on_what_both_know() {
    let mut asking = Asking::new(PLAIN, vec![]);
    let everything = words(&[pair(7, 45), pair(128 << 10, u32::MAX)]);
    let agreed = asking.ask(26, &everything).expect("agreed");
    let number = |at: usize| u32::from_ne_bytes(agreed[at..at + 4].try_into().expect("a number"));
    assert_eq!((agreed.len(), number(0), number(8), number(20)), (64, 7, 128 << 10, 1 << 20));
    assert_eq!(number(12), 1 | 1 << 5 | 1 << 15 | 1 << 22);
    let old = words(&[pair(7, 20), pair(0, u32::MAX)]);
    assert_eq!(asking.ask(26, &old), Err(Errno::OPNOTSUPP.raw()));
}
