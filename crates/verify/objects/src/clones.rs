//! A clone of a snapshot: it begins with the snapshot's content, and only its writers change it.

use crate::history::Version;
use crate::run::{BLOCK_BYTES, offset, versions};
use crate::store::{CLONE, HOMES, IMAGE, Store};
use nowait_image_format::{
    Image, Key, Origin, Request, RequestEnd, Settings, Snapshot, Status, Writer,
};
use nowait_sim::Prng;

const WRITERS: usize = 1 << 21;

const EVENTS_MAX: usize = 100_000;

const WRITERS_MAX: usize = 3;

const VERSIONS: Version = 1 << 32;

struct Served<'a> {
    store: &'a mut Store,
    image: Image,
    number: usize,
    now_ns: u64,
}

/// Makes a clone of a snapshot whose blocks are `expected`, and checks what its writers find.
pub fn serve(
    store: &mut Store,
    prng: &mut Prng,
    settings: &Settings,
    snapshot: &Snapshot,
    mut expected: Vec<Version>,
    mut now_ns: u64,
) -> Result<(), String> {
    let writer = |number: u8| Writer { nonce: [number; 16], name: format!("cloner {number}") };
    let head = store.head()?.clone_of(snapshot, HOMES[IMAGE], [200; 16], writer(200))?;
    store.plant(CLONE, head.image, Key::Head, head.encode());
    let mut blocks = head.geometry.blocks();
    expected.truncate(blocks as usize);
    for number in 0..WRITERS_MAX {
        let settings = Settings { writer: writer(210 + number as u8), ..settings.clone() };
        let image = Image::open(settings, Origin::TakeOver, now_ns);
        let mut served = Served { store, image, number: WRITERS + number, now_ns };
        let len = offset(expected.len());
        let found = served.asked(Request::Read { offset: 0, len })?;
        if versions(&found)? != expected {
            return Err(format!("a clone is {:?} and not {expected:?}", versions(&found)?));
        }
        if prng.index(3) == 0 {
            expected.truncate(1 + prng.index(expected.len()));
            let size_bytes = offset(expected.len());
            served.asked(Request::Shrink { size_bytes })?;
            blocks = expected.len() as u64;
        }
        if served.blocks() != Some(blocks) {
            return Err(format!("a clone has {:?} blocks and not {blocks}", served.blocks()));
        }
        for round in 0..prng.index(30) {
            let block = prng.index(expected.len());
            let version = VERSIONS + (number * 100 + round) as Version;
            expected[block] = version;
            let data = version.to_le_bytes().repeat(BLOCK_BYTES as usize / 8);
            served.asked(Request::Write { offset: offset(block), data, durable: false })?;
            if prng.index(4) == 0 {
                served.asked(Request::Flush)?;
            }
        }
        served.asked(Request::Flush)?;
        let len = offset(expected.len());
        let found = served.asked(Request::Read { offset: 0, len })?;
        if versions(&found)? != expected {
            return Err(format!("a clone has become {:?}", versions(&found)?));
        }
        now_ns = served.now_ns;
    }
    Ok(())
}

impl Served<'_> {
    fn blocks(&self) -> Option<u64> {
        match self.image.status() {
            Status::Serving { geometry, .. } => Some(geometry.blocks()),
            _ => None,
        }
    }

    fn asked(&mut self, request: Request) -> Result<Vec<u8>, String> {
        let what = format!("{request:?}");
        self.image.submit(1, request, self.now_ns);
        for _ in 0..EVENTS_MAX {
            while let Some((ticket, operation)) = self.image.pop_operation() {
                self.store.submit((self.number, CLONE), ticket, operation, self.now_ns);
            }
            if let Some(RequestEnd { result, .. }) = self.image.pop_end() {
                return result.map_err(|_| format!("{:?}", self.image.status()));
            }
            let (due_ns, store_ns) = (self.image.next_ns(), self.store.next_ns());
            let Some(at_ns) = due_ns.into_iter().chain(store_ns).min() else { break };
            self.now_ns = self.now_ns.max(at_ns);
            if store_ns != Some(at_ns) {
                self.image.turn(self.now_ns);
            } else if let Some((client, ticket, answer)) = self.store.turn()
                && client == self.number
            {
                self.image.answer(ticket, answer, self.now_ns);
            }
        }
        Err(format!("{what} of a clone does not end"))
    }
}
