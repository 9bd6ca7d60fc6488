//! Writers of one image: they start, write, are killed, and take over from each other.

use crate::clones;
use crate::edits::{EDITORS, Edits, Histories};
use crate::history::{History, Version};
use crate::leftovers;
use crate::store::{Faults, IMAGE, Store};
use crate::strangers::{self, Stranger};
use nowait_image_format::mistake::{self, Mistake};
use nowait_image_format::{
    Answer, Encryption, Geometry, Image, Operation, Origin, Over, PROOF_NS, Request, RequestEnd,
    Settings, Status, Ticket, Writer,
};
use nowait_sim::Prng;
use std::collections::BTreeMap;
use std::ops::Range;

pub(crate) const BLOCK_BYTES: u32 = 512;
/// Number of blocks of the image at first; the run checks only these blocks of a larger image.
pub const BLOCKS: usize = 24;

const STOP_NS_MAX: u64 = 150_000_000_000;

const EVENTS_MAX: usize = 200_000;

/// Counters of a run, by which a test sees that the run did enough.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Flushes, closes, shrinks and durable writes that have succeeded.
    pub flushes: u64,
    /// Reads that have succeeded.
    pub reads: u64,
    /// Takeovers after which the run compared the image.
    pub takeovers: u64,
    /// Writers that learned of their replacement.
    pub fenced: u64,
    /// Segments that writers have collected.
    pub collected: u64,
    /// Number of times that the image has become smaller.
    pub shrunk: u64,
    /// Reads beyond the image's end, which writers refused.
    pub beyond: u64,
    /// Writers that have closed the image.
    pub closed: u64,
    /// Snapshots that were made.
    pub snapshots: u64,
    /// Snapshots that were removed.
    pub removed: u64,
    /// Clones that were made.
    pub clones: u64,
    /// Writers that ended because they did not have the image's key.
    pub strangers: u64,
}

#[derive(Debug)]
enum Claim {
    /// The first read of each writer, begun before the writer has found the image.
    Early,
    All,
    /// A read, with `History::ended` at the read's beginning.
    Read(Range<usize>, usize),
    /// Like `Read`, but beyond the end of the image: refused, unless the image grows meanwhile.
    Beyond(Range<usize>, usize),
    /// A change, with the number of changes up to it, and `true` if the change is durable at its
    /// end.
    Change(usize, bool),
    /// A flush or a close, with `History::ended` at its beginning.
    Flush(usize),
    /// A shrink: the number of changes up to it, the blocks left, and the size's number in `Sizes`.
    Shrink(usize, usize, usize),
}

struct Client {
    image: Image,
    origin: Origin,
    is_alive: bool,
    /// The run has asked the writer to close the image: changes fail from now on.
    is_closing: bool,
    stopped_ns: u64,
    /// No writer had found the image when this one started.
    is_early: bool,
    is_stranger: bool,
    epoch: u64,
    /// The time of the writer's start, on the clock of the sizes.
    since: u64,
    is_asked: bool,
    /// The changes of the writer, from its first read of the whole image on.
    history: Option<History>,
    /// The time when a later writer had read the image, and the number of this writer's changes
    /// found there.
    taken_over: Option<(u64, usize)>,
    asked: BTreeMap<u64, Claim>,
}

/// A run.
pub struct Run {
    prng: Prng,
    store: Store,
    clients: Vec<Client>,
    edits: Edits,
    now_ns: u64,
    versions: Version,
    ids: u64,
    weights: [u32; 13],
    settings: Settings,
    is_there: bool,
    report: Report,
    notes: Option<Vec<String>>,
}

const NOTES_MAX: usize = 150;

/// Runs a seed with `actions` actions, with or without a mistake.
pub fn run(seed: u64, actions: usize, mistake: Option<Mistake>) -> Result<Report, String> {
    mistake::make(mistake);
    let mut run = Run::new(seed);
    let result = run.all(actions).map_err(|what| {
        // A second run of the seed records the events.
        let mut again = Run { notes: Some(Vec::new()), ..Run::new(seed) };
        drop(again.all(actions));
        let notes = again.notes.unwrap_or_default();
        let last = notes.len().saturating_sub(NOTES_MAX);
        format!("seed {seed}: {what}\n{}", notes[last..].join("\n"))
    });
    mistake::make(None);
    result.map(|()| run.report)
}

impl Run {
    fn new(seed: u64) -> Run {
        let mut prng = Prng::new(seed);
        let store = Store::new(Faults::swarm(&mut prng), prng.fork());
        let mut weights = [24, 8, 8, 16, 24, 4, 4, 8, 4, 4, 4, 2, 2];
        prng.swarm(&mut weights);
        let writer = Writer { nonce: [0; 16], name: String::new() };
        let settings = Settings {
            buffer_bytes: prng.range(1..=60) as usize * BLOCK_BYTES as usize,
            segment_blocks: prng.range(1..=12) as u32,
            linger_ns: prng.range(1..=2_000) * 1_000_000,
            checkpoint_bytes: prng.range(1..=64) << 10,
            checkpoint_segments: prng.range(1..=40),
            garbage_percent: prng.range(1..=100) as u32,
            key: strangers::key_of(seed),
            ..Settings::new(writer)
        };
        let (clients, report) = (Vec::new(), Report::default());
        let (now_ns, versions, ids, is_there) = (0, 0, 0, false);
        Run {
            prng,
            store,
            clients,
            edits: Edits::of(settings.key.clone()),
            now_ns,
            versions,
            ids,
            weights,
            settings,
            is_there,
            report,
            notes: None,
        }
    }

    fn all(&mut self, actions: usize) -> Result<(), String> {
        for _ in 0..actions {
            self.act()?;
            self.drain()?;
            for _ in 0..self.prng.index(12) {
                self.step()?;
            }
        }
        self.store.faults = Faults::default();
        self.settle()?;
        // The next writer finds the state that is in the store now.
        self.clients.iter_mut().for_each(|client| client.is_alive = false);
        for _ in 0..2 {
            self.start(None);
            self.settle()?;
        }
        let served = self.clients.last().is_some_and(|client| client.history.is_some());
        if !served {
            return Err(String::from("the last writer has no image"));
        }
        self.edits.judge(&self.store)?;
        (self.report.snapshots, self.report.removed) = (self.edits.made, self.edits.removed);
        self.report.collected +=
            self.clients.iter().map(|it| it.image.costs().segments_collected).sum::<u64>();
        leftovers::judge(&self.store)?;
        self.clone()?;
        match self.settings.key {
            Some(_) => strangers::judge(&self.store),
            None => Ok(()),
        }
    }

    fn clone(&mut self) -> Result<(), String> {
        let Some((snapshot, image)) = self.edits.any() else { return Ok(()) };
        self.store.faults = Faults::swarm(&mut self.prng);
        let settings = self.settings.clone();
        clones::serve(&mut self.store, &mut self.prng, &settings, &snapshot, image, self.now_ns)?;
        self.report.clones += 1;
        self.edits.judge(&self.store)
    }

    fn act(&mut self) -> Result<(), String> {
        let alive = self.clients.iter().filter(|client| client.is_alive).count();
        if alive == 0 {
            self.start(None);
            return Ok(());
        }
        let nth = self.prng.index(alive);
        let alive = self.clients.iter().enumerate().filter(|(_, client)| client.is_alive);
        let Some((client, it)) = alive.into_iter().nth(nth) else { return Ok(()) };
        if it.stopped_ns > self.now_ns {
            return Ok(());
        }
        match self.prng.weighted(&self.weights) {
            0 => self.change(client, false),
            1 => self.change(client, true),
            2 => self.discard(client),
            3 => self.ask(client, Request::Flush, |history| Claim::Flush(history.ended)),
            4 => self.read(client),
            5 => self.clients[client].is_alive = false,
            8 => self.edits.snapshot(&histories(&self.clients), self.now_ns),
            9 => self.edit()?,
            10 => self.shrink(client),
            11 => self.clients[client].stopped_ns = self.now_ns + self.prng.range(0..=STOP_NS_MAX),
            12 => self.close(client),
            6 if self.clients.iter().filter(|client| client.is_alive).count() < 3 => {
                self.start(Stranger::of(self.settings.key.as_ref(), self.clients.len()));
            }
            _ => self.now_ns += self.prng.range(0..=90_000_000_000) >> self.prng.index(12),
        }
        Ok(())
    }

    fn edit(&mut self) -> Result<(), String> {
        let nth = self.prng.index(100);
        match self.prng.index(6) {
            0 => self.edits.kill(nth),
            1 => self.edits.grow(offset(1 + nth % (2 * BLOCKS)), self.now_ns),
            _ => return self.edits.remove(nth, &self.store, self.now_ns),
        }
        Ok(())
    }

    fn start(&mut self, stranger: Option<Stranger>) {
        let number = self.clients.len();
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&(number as u64 + 1).to_le_bytes());
        let writer = Writer { nonce, name: format!("writer {number}") };
        let is_stranger = stranger.is_some();
        let key = stranger.map_or_else(|| self.settings.key.clone(), |it| it.key);
        let encryption = key.as_ref().map(|key| Encryption::new(key, [7; 16]));
        let geometry = Geometry { block_bytes: BLOCK_BYTES, size_bytes: SIZE_BYTES, encryption };
        let origin = match self.is_there || number % 2 == 1 || is_stranger {
            true => Origin::TakeOver,
            false => Origin::Create { image: [number as u8; 16], geometry },
        };
        let settings = Settings { writer, key, ..self.settings.clone() };
        let image = Image::open(settings, origin.clone(), self.now_ns);
        self.clients.push(Client {
            image,
            origin,
            is_alive: true,
            stopped_ns: 0,
            is_closing: false,
            is_early: !self.is_there,
            is_stranger,
            epoch: 0,
            since: self.edits.sizes.now(),
            is_asked: false,
            history: None,
            taken_over: None,
            asked: BTreeMap::new(),
        });
        let first = Request::Read { offset: 0, len: offset(1) };
        self.submit(number, first, Claim::Early);
    }

    fn look(&mut self, client: usize) {
        if !core::mem::replace(&mut self.clients[client].is_asked, true) {
            let len = offset(self.end_of(client));
            self.submit(client, Request::Read { offset: 0, len }, Claim::All);
        }
    }

    /// Returns the number of blocks that may be requested, without those being cut off.
    fn end_of(&self, client: usize) -> usize {
        let Client { image, asked, .. } = &self.clients[client];
        let Status::Serving { geometry, .. } = image.status() else { return BLOCKS };
        let shrinks = asked.values().filter_map(|it| match it {
            Claim::Shrink(_, blocks, _) => Some(*blocks),
            _ => None,
        });
        shrinks.fold(BLOCKS.min(geometry.blocks() as usize), usize::min)
    }

    fn note(&mut self, what: impl FnOnce() -> String) {
        if let Some(notes) = &mut self.notes {
            notes.push(format!("{:>12.3} ms  {}", self.now_ns as f64 / 1e6, what()));
        }
    }

    fn submit(&mut self, client: usize, request: Request, asked: Claim) {
        let id = self.ids + 1;
        self.note(|| format!("writer {client} is asked {id}: {asked:?}"));
        self.ids += 1;
        self.clients[client].asked.insert(self.ids, asked);
        self.clients[client].image.submit(self.ids, request, self.now_ns);
    }

    /// Sends a request, if the writer has read the image.
    fn ask(&mut self, client: usize, request: Request, of: impl Fn(&History) -> Claim) {
        if let Some(asked) = self.clients[client].history.as_ref().map(of) {
            self.submit(client, request, asked);
        }
    }

    fn blocks(&mut self, client: usize) -> Range<usize> {
        let end = self.end_of(client);
        let start = self.prng.index(end);
        let len_max = [2, 8, BLOCKS][self.prng.index(3)];
        let len = 1 + self.prng.index(len_max);
        start..(start + len).min(end)
    }

    fn change(&mut self, client: usize, durable: bool) {
        let blocks = self.blocks(client);
        let Some(history) = &mut self.clients[client].history else { return };
        self.versions += 1;
        let count = history.write(blocks.clone(), self.versions);
        let data = self.versions.to_le_bytes().repeat(blocks.len() * BLOCK_BYTES as usize / 8);
        let request = Request::Write { offset: offset(blocks.start), data, durable };
        self.submit(client, request, Claim::Change(count, durable));
    }

    fn discard(&mut self, client: usize) {
        let blocks = self.blocks(client);
        let Some(history) = &mut self.clients[client].history else { return };
        let count = history.discard(blocks.clone());
        let (offset, len) = (offset(blocks.start), offset(blocks.len()));
        self.submit(client, Request::Discard { offset, len }, Claim::Change(count, false));
    }

    fn read(&mut self, client: usize) {
        let mut blocks = self.blocks(client);
        let is_beyond = self.end_of(client) < BLOCKS && self.prng.index(4) == 0;
        if is_beyond {
            blocks.end = BLOCKS;
        }
        let request = Request::Read { offset: offset(blocks.start), len: offset(blocks.len()) };
        self.ask(client, request, |history| match is_beyond {
            true => Claim::Beyond(blocks.clone(), history.ended),
            false => Claim::Read(blocks.clone(), history.ended),
        });
    }

    fn close(&mut self, client: usize) {
        self.clients[client].is_closing |= self.clients[client].history.is_some();
        self.ask(client, Request::Close, |history| Claim::Flush(history.ended));
    }

    fn shrink(&mut self, client: usize) {
        let blocks = 1 + self.prng.index(self.end_of(client));
        let Some(history) = &mut self.clients[client].history else { return };
        let count = history.discard(blocks..BLOCKS);
        let size_bytes = offset(blocks);
        let size = self.edits.sizes.begin(size_bytes);
        self.submit(client, Request::Shrink { size_bytes }, Claim::Shrink(count, blocks, size));
    }

    fn step(&mut self) -> Result<bool, String> {
        let alive = self.clients.iter().filter(|client| client.is_alive);
        let due_ns = alive
            .filter_map(|it| it.image.next_ns().map(|due_ns| due_ns.max(it.stopped_ns)))
            .chain(self.edits.next_ns())
            .min();
        let store_ns = self.store.next_ns();
        let Some(at_ns) = due_ns.into_iter().chain(store_ns).min() else { return Ok(false) };
        self.now_ns = self.now_ns.max(at_ns);
        if store_ns == Some(at_ns) {
            if let Some((client, ticket, answer)) = self.store.turn() {
                self.hear(client, ticket, answer);
            }
        } else {
            let awake = |it: &&mut Client| it.is_alive && it.stopped_ns <= self.now_ns;
            let awake = self.clients.iter_mut().filter(awake);
            awake.for_each(|client| client.image.turn(self.now_ns));
            self.edits.turn(self.now_ns);
        }
        self.drain().map(|()| true)
    }

    fn hear(&mut self, client: usize, ticket: Ticket, answer: Answer) {
        if client >= EDITORS {
            self.note(|| format!("editor {client} hears {ticket:?} {}", brief(&answer)));
            self.edits.answer(client, ticket, answer, self.now_ns);
        } else if self.clients[client].stopped_ns > self.now_ns {
            self.store.defer(client, ticket, answer, self.clients[client].stopped_ns);
        } else if self.clients[client].is_alive {
            self.note(|| format!("writer {client} hears {ticket:?} {}", brief(&answer)));
            self.clients[client].image.answer(ticket, answer, self.now_ns);
        }
    }

    /// Fails unless all requests of living writers, and all edits, end.
    fn settle(&mut self) -> Result<(), String> {
        self.drain()?;
        for _ in 0..EVENTS_MAX {
            if !self.step()? {
                let mut alive = self.clients.iter().filter(|client| client.is_alive);
                return match alive.find(|client| !client.asked.is_empty()) {
                    Some(client) => Err(format!("these do not end: {:?}", client.asked)),
                    None => self.edits.unfinished().map_or(Ok(()), Err),
                };
            }
        }
        Err(String::from("it runs in circles"))
    }

    fn drain(&mut self) -> Result<(), String> {
        for client in 0..self.clients.len() {
            if !self.clients[client].is_alive {
                continue;
            }
            if let Status::Serving { epoch, .. } = self.clients[client].image.status() {
                (self.clients[client].epoch, self.is_there) = (epoch, true);
                self.look(client);
            }
            while let Some((ticket, operation)) = self.clients[client].image.pop_operation() {
                self.note(|| format!("writer {client} sends {ticket:?} {}", name(&operation)));
                if self.clients[client].is_stranger {
                    strangers::judge_operation(&operation)?;
                }
                self.store.submit((client, IMAGE), ticket, operation, self.now_ns);
            }
            while let Some(end) = self.clients[client].image.pop_end() {
                self.note(|| format!("writer {client} ends {} {}", end.id, end.result.is_ok()));
                self.end(client, end)?;
            }
            if let Status::Over(over) = self.clients[client].image.status() {
                self.over(client, &over)?;
            }
        }
        while let Some((editor, ticket, operation)) = self.edits.pop_operation() {
            self.note(|| format!("editor {editor} sends {ticket:?} {}", name(&operation)));
            self.store.submit((editor, IMAGE), ticket, operation, self.now_ns);
        }
        self.edits.end(&histories(&self.clients), &self.store)
    }

    fn over(&mut self, client: usize, over: &Over) -> Result<(), String> {
        let Client { is_alive, is_early, is_stranger, asked, origin, .. } =
            &mut self.clients[client];
        *is_alive = false;
        if !asked.is_empty() {
            return Err(format!("these do not end with the image: {asked:?}"));
        }
        match over {
            Over::Fenced { .. } => self.report.fenced += 1,
            Over::Closed => self.report.closed += 1,
            Over::Failed("no such image") if *is_early => {}
            Over::Failed(
                "the image is encrypted with another key: give that one with --key-file"
                | "the image is encrypted: give --key-file",
            ) if *is_stranger => {
                self.report.strangers += 1;
            }
            Over::Failed("the image exists") if *origin != Origin::TakeOver => {
                self.is_there = true;
            }
            Over::Failed(why) => return Err(format!("writer {client} fails: {why}")),
        }
        Ok(())
    }

    fn end(&mut self, client: usize, end: RequestEnd) -> Result<(), String> {
        let asked = self.clients[client].asked.remove(&end.id);
        let Some(asked) = asked else { return Err(format!("an end too many: {end:?}")) };
        let Ok(data) = end.result else {
            // `over` checks the end of a writer, after the results of its requests.
            return match (self.clients[client].image.status(), &asked) {
                (Status::Over(_), _) => Ok(()),
                _ if self.clients[client].is_closing => Ok(()),
                (_, Claim::Beyond(..)) => {
                    self.report.beyond += 1;
                    Ok(())
                }
                _ => Err(format!("writer {client}: {asked:?} fails")),
            };
        };
        match asked {
            Claim::Early => {}
            Claim::All => return self.found(client, versions(&data)?),
            Claim::Read(blocks, from) | Claim::Beyond(blocks, from) => {
                self.read_ended(client, blocks, from, &data)?;
            }
            Claim::Change(count, durable) => {
                let history = self.clients[client].history.as_mut();
                history.into_iter().for_each(|it| it.ended = it.ended.max(count));
                if durable {
                    self.flushed(client, count)?;
                }
            }
            Claim::Flush(count) => self.flushed(client, count)?,
            Claim::Shrink(count, _, size) => {
                self.report.shrunk += 1;
                self.edits.sizes.end(size, true);
                self.flushed(client, count)?;
            }
        }
        Ok(())
    }

    fn flushed(&mut self, client: usize, count: usize) -> Result<(), String> {
        self.report.flushes += 1;
        let Client { history, taken_over, .. } = &mut self.clients[client];
        let Some(history) = history else { return Ok(()) };
        history.flushed = history.flushed.max(count);
        match taken_over {
            Some((_, found)) if history.differs(*found, count) => Err(format!(
                "writer {client}: {count} changes are durable, its successor has found {found}"
            )),
            _ => Ok(()),
        }
    }

    fn read_ended(
        &mut self,
        client: usize,
        blocks: Range<usize>,
        from: usize,
        data: &[u8],
    ) -> Result<(), String> {
        self.report.reads += 1;
        let Client { history: Some(history), taken_over, .. } = &self.clients[client] else {
            return Ok(());
        };
        for (block, version) in blocks.zip(versions(data)?) {
            if !history.may_read(block, version, from) {
                return Err(format!("writer {client} reads {version} in block {block}"));
            }
        }
        match taken_over {
            Some((at_ns, _)) if self.now_ns - at_ns > PROOF_NS => {
                Err(format!("writer {client} still reads, though another has the image"))
            }
            _ => Ok(()),
        }
    }

    /// Compares the content that a writer has found with the history of the last writer before it.
    fn found(&mut self, client: usize, mut image: Vec<Version>) -> Result<(), String> {
        let Client { epoch, since, .. } = self.clients[client];
        if let Status::Serving { geometry, .. } = self.clients[client].image.status() {
            self.edits.judge_size(geometry.size_bytes, since)?;
        }
        // The blocks of a shrunk image must be zeroes if it grows again.
        image.resize(BLOCKS, 0);
        let before = self.clients.iter_mut().filter(|it| it.epoch < epoch && it.history.is_some());
        let before = before.max_by_key(|it| it.epoch);
        match before.map(|it| (it.history.clone(), it)) {
            Some((Some(history), before)) => {
                self.report.takeovers += 1;
                let Some(found) = history.find(&image, history.flushed) else {
                    return Err(format!("writer {client} finds {image:?} after {history:?}"));
                };
                before.taken_over.get_or_insert((self.now_ns, found));
            }
            _ if image.iter().any(|version| *version != 0) => {
                return Err(format!("a new image is {image:?}"));
            }
            _ => {}
        }
        self.clients[client].history = Some(History::new(image));
        Ok(())
    }
}

pub(crate) const SIZE_BYTES: u64 = BLOCKS as u64 * BLOCK_BYTES as u64;

fn histories(clients: &[Client]) -> Histories<'_> {
    clients.iter().filter_map(|it| it.history.as_ref().map(|done| (it.epoch, done))).collect()
}

pub(crate) fn offset(blocks: usize) -> u64 {
    blocks as u64 * u64::from(BLOCK_BYTES)
}

/// Returns the version of each block; fails if a block has parts of two writes.
pub(crate) fn versions(data: &[u8]) -> Result<Vec<Version>, String> {
    let mut versions = Vec::new();
    for block in data.chunks_exact(BLOCK_BYTES as usize) {
        let (words, _) = block.as_chunks::<8>();
        if words.iter().any(|word| word != &words[0]) {
            return Err(String::from("a block is of two writes"));
        }
        versions.push(u64::from_le_bytes(words[0]));
    }
    Ok(versions)
}

fn name(operation: &Operation) -> String {
    match operation {
        Operation::PutIfAbsent { key, .. } => format!("put {key}, if it is absent"),
        Operation::PutIfMatch { key, tag, .. } => format!("put {key}, if it is {tag}"),
        Operation::Get { key, range, .. } => format!("get {key} {range:?}"),
        Operation::List { from, .. } => format!("list from {from}"),
        Operation::Delete { key, .. } => format!("delete {key}"),
    }
}

fn brief(answer: &Answer) -> String {
    match answer {
        Answer::Got { bytes, .. } => format!("got {} bytes", bytes.len()),
        other => format!("{other:?}"),
    }
}
