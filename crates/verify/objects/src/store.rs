//! An object store in memory that may be slow, fail, or lose answers.

use nowait_image_format::{Answer, Head, ImageId, Key, Operation, Tag, Ticket};
use nowait_sim::Prng;
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

/// Time after which a client takes an unanswered operation for failed.
const TIME_OUT_NS: u64 = 30_000_000_000;

const SECOND_NS: u64 = 1_000_000_000;

/// The frequency of each fault, in parts per million.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// The store does nothing, and the operation fails.
    pub refuse_ppm: u32,
    /// The store performs the operation, and the answer is lost.
    pub forget_ppm: u32,
    /// The store performs the operation late, and the answer is lost.
    pub late_ppm: u32,
    /// The store performs the operation twice.
    pub repeat_ppm: u32,
    /// A read returns too few bytes.
    pub cut_ppm: u32,
    /// A read returns a wrong bit.
    pub spoil_ppm: u32,
    /// An operation needs up to 9 seconds to arrive at the store.
    pub slow_ppm: u32,
    /// A read reports an existing object as missing.
    pub wrong_ppm: u32,
}

impl Faults {
    /// Draws some faults; the others are off.
    pub fn swarm(prng: &mut Prng) -> Faults {
        Faults {
            refuse_ppm: prng.swarm_ppm(400_000),
            forget_ppm: prng.swarm_ppm(300_000),
            late_ppm: prng.swarm_ppm(200_000),
            repeat_ppm: prng.swarm_ppm(200_000),
            cut_ppm: prng.swarm_ppm(30_000),
            spoil_ppm: prng.swarm_ppm(30_000),
            slow_ppm: prng.swarm_ppm(300_000),
            wrong_ppm: prng.swarm_ppm(30_000),
        }
    }
}

/// The paths of the two images in the store: an image, and a clone of it.
pub const HOMES: [&str; 2] = ["image", "clone"];

/// The index of a path.
pub type Home = usize;

/// The index of the image.
pub const IMAGE: Home = 0;

/// The index of the clone.
pub const CLONE: Home = 1;

#[derive(Debug)]
enum Event {
    Arrive(Home, Operation, Option<(usize, Ticket)>),
    Answer(usize, Ticket, Answer),
}

#[derive(Clone, Debug)]
struct Object {
    key: Key,
    body: Arc<Vec<u8>>,
    tag: Tag,
}

/// The store.
#[derive(Debug)]
pub struct Store {
    objects: BTreeMap<(Home, String), Object>,
    events: BTreeMap<(u64, u64), Event>,
    numbers: u64,
    /// `true`: equal objects have equal tags.
    tags_by_content: bool,
    /// The faults of the store.
    pub faults: Faults,
    prng: Prng,
}

impl Store {
    /// Makes an empty store.
    pub fn new(faults: Faults, mut prng: Prng) -> Store {
        let tags_by_content = prng.chance(500_000);
        let (objects, events) = (BTreeMap::new(), BTreeMap::new());
        Store { objects, events, numbers: 0, tags_by_content, faults, prng }
    }

    /// Accepts an operation of a client of an image.
    pub fn submit(
        &mut self,
        (client, home): (usize, Home),
        ticket: Ticket,
        operation: Operation,
        now_ns: u64,
    ) {
        let faults = self.faults;
        let slow = self.prng.chance(faults.slow_ppm);
        let way_ns = self.prng.range(100_000..=if slow { 9 * SECOND_NS } else { 20_000_000 });
        let back = Some((client, ticket));
        let refused = self.prng.chance(faults.refuse_ppm);
        let forgotten = self.prng.chance(faults.forget_ppm);
        let late = self.prng.chance(faults.late_ppm);
        if self.prng.chance(faults.repeat_ppm) {
            let again_ns = self.prng.range(0..=100 * SECOND_NS);
            self.at(now_ns + way_ns + again_ns, Event::Arrive(home, operation.clone(), None));
        }
        let failed = Event::Answer(client, ticket, Answer::Failed);
        if refused {
            self.at(now_ns + way_ns, failed);
        } else if forgotten {
            let lost_ns = self.prng.range(0..=TIME_OUT_NS);
            self.at(now_ns + way_ns, Event::Arrive(home, operation, None));
            self.at(now_ns + way_ns + lost_ns, failed);
        } else if late {
            let late_ns = self.prng.range(0..=200 * SECOND_NS);
            self.at(now_ns + TIME_OUT_NS, failed);
            self.at(now_ns + TIME_OUT_NS / 2 + late_ns, Event::Arrive(home, operation, None));
        } else {
            self.at(now_ns + way_ns, Event::Arrive(home, operation, back));
        }
    }

    fn at(&mut self, at_ns: u64, event: Event) {
        self.numbers += 1;
        self.events.insert((at_ns, self.numbers), event);
    }

    /// Returns the time of the next event.
    pub fn next_ns(&self) -> Option<u64> {
        self.events.first_key_value().map(|(at, _)| at.0)
    }

    /// Runs the next event; returns its answer to a client, if any.
    pub fn turn(&mut self) -> Option<(usize, Ticket, Answer)> {
        let ((now_ns, _), event) = self.events.pop_first()?;
        match event {
            Event::Answer(client, ticket, answer) => Some((client, ticket, answer)),
            Event::Arrive(home, operation, back) => {
                let answer = self.perform(home, operation);
                let answer = self.damage(answer);
                let (client, ticket) = back?;
                let way_ns = self.prng.range(100_000..=20_000_000);
                self.at(now_ns + way_ns, Event::Answer(client, ticket, answer));
                None
            }
        }
    }

    fn perform(&mut self, home: Home, operation: Operation) -> Answer {
        match operation {
            Operation::PutIfAbsent { image, key, body } => {
                match self.objects.contains_key(&(home, key.name(image))) {
                    true => Answer::Refused,
                    false => self.put(home, image, key, body),
                }
            }
            Operation::PutIfMatch { key, body, tag } => {
                let image = ImageId::default();
                let there = self.objects.get(&(home, key.name(image)));
                match there.is_some_and(|object| object.tag == tag) {
                    true => self.put(home, image, key, body),
                    false => Answer::Refused,
                }
            }
            Operation::Get { of, image, key, range, .. } => {
                let of = of.and_then(|path| HOMES.iter().position(|home| **home == *path));
                let there = self.objects.get(&(of.unwrap_or(home), key.name(image)));
                match there.filter(|_| !self.prng.chance(self.faults.wrong_ppm)) {
                    None => Answer::Missing,
                    Some(Object { body, tag, .. }) => {
                        let end = (range.end as usize).min(body.len());
                        let bytes = body[(range.start as usize).min(end)..end].to_vec();
                        Answer::Got { bytes, object_bytes: body.len() as u64, tag: tag.clone() }
                    }
                }
            }
            Operation::List { image, from } => {
                let own = self.objects.iter().filter(|((it, _), _)| *it == home);
                let places = own.filter_map(|((_, name), it)| match it.key {
                    Key::Segment(at) if at >= from && it.key.name(image) == *name => Some(at),
                    _ => None,
                });
                Answer::Listed(places.collect())
            }
            Operation::Delete { image, key } => {
                self.objects.remove(&(home, key.name(image)));
                Answer::Deleted
            }
        }
    }

    fn put(&mut self, home: Home, image: ImageId, key: Key, body: Arc<Vec<u8>>) -> Answer {
        let tag = self.tag(&body);
        self.objects.insert((home, key.name(image)), Object { key, body, tag: tag.clone() });
        Answer::Put(tag)
    }

    /// Puts an object into the store.
    pub fn plant(&mut self, home: Home, image: ImageId, key: Key, body: Vec<u8>) {
        self.put(home, image, key, Arc::new(body));
    }

    /// Deletes all objects at the path of the image.
    pub fn remove_all(&mut self) {
        self.objects.retain(|(home, _), _| *home != IMAGE);
    }

    /// Removes an object at the path of the image, and returns its bytes if the object existed.
    pub fn take(&mut self, image: ImageId, key: Key) -> Option<Arc<Vec<u8>>> {
        self.objects.remove(&(IMAGE, key.name(image))).map(|it| it.body)
    }

    /// Returns the names of all objects of both images, with their paths.
    pub fn names(&self) -> Vec<(Home, String)> {
        self.objects.keys().cloned().collect()
    }

    /// Replaces the bytes of an object by the result of `change`; `None` deletes the object.
    pub fn change(&mut self, name: &(Home, String), change: impl FnOnce(&[u8]) -> Option<Vec<u8>>) {
        let Some(Object { key, body, .. }) = self.objects.remove(name) else { return };
        if let Some(body) = change(&body) {
            let tag = self.tag(&body);
            self.objects.insert(name.clone(), Object { key, body: Arc::new(body), tag });
        }
    }

    /// Returns the bytes of an object.
    pub fn body(&self, name: &(Home, String)) -> Option<&[u8]> {
        self.objects.get(name).map(|it| it.body.as_slice())
    }

    /// Delays an answer to a client whose host stands still.
    pub fn defer(&mut self, client: usize, ticket: Ticket, answer: Answer, at_ns: u64) {
        self.at(at_ns, Event::Answer(client, ticket, answer));
    }

    /// Returns an object at the path of the image.
    pub fn object(&self, image: ImageId, key: Key) -> Option<&[u8]> {
        self.objects.get(&(IMAGE, key.name(image))).map(|it| it.body.as_slice())
    }

    /// Returns the head of the image; fails if the head is missing or damaged.
    pub fn head(&self) -> Result<Head, String> {
        let head =
            self.object(ImageId::default(), Key::Head).and_then(|body| Head::parse(body).ok());
        head.ok_or_else(|| String::from("there is no head"))
    }

    /// Returns all objects at the path of the image.
    pub fn objects(&self) -> impl Iterator<Item = (Key, &[u8])> {
        let own = self.objects.iter().filter(|((home, _), _)| *home == IMAGE);
        own.map(|(_, it)| (it.key, it.body.as_slice()))
    }

    /// Returns the objects of both images.
    pub fn all_objects(&self) -> impl Iterator<Item = (Key, &[u8])> {
        self.objects.values().map(|it| (it.key, it.body.as_slice()))
    }

    fn tag(&mut self, body: &[u8]) -> Tag {
        self.numbers += 1;
        let mut hasher = DefaultHasher::new();
        body.hash(&mut hasher);
        if !self.tags_by_content {
            self.numbers.hash(&mut hasher);
        }
        format!("{:x}", hasher.finish())
    }

    fn damage(&mut self, mut answer: Answer) -> Answer {
        let cut = self.prng.chance(self.faults.cut_ppm);
        let spoiled = self.prng.chance(self.faults.spoil_ppm);
        if let Answer::Got { bytes, .. } = &mut answer
            && !bytes.is_empty()
        {
            let at = self.prng.index(bytes.len());
            if cut {
                bytes.truncate(at);
            } else if spoiled {
                bytes[at] ^= 1 << self.prng.index(8);
            }
        }
        answer
    }
}
