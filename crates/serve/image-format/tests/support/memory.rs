//! A store in memory that answers at once, and images on it.

use nowait_image_format::{
    Answer, Costs, Edit, Editor, Encryption, Geometry, Head, Image, Key, Operation, Origin,
    Request, Settings, Writer,
};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(crate) const BLOCK_BYTES: u64 = 4096;

#[derive(Default)]
pub(crate) struct Memory {
    objects: BTreeMap<Key, (Arc<Vec<u8>>, u64)>,
    revisions: u64,
    requests: u64,
    pub(crate) now_ns: u64,
    /// `true`: deletions fail.
    pub(crate) keeps_all: bool,
}

pub(crate) fn settings() -> Settings {
    Settings::new(Writer { nonce: [1; 16], name: String::from("a writer") })
}

pub(crate) fn image(store: &mut Memory, settings: Settings, size_bytes: u64) -> Image {
    let mut geometry = Geometry::checked(BLOCK_BYTES as u32, size_bytes).expect("an image");
    geometry.encryption = settings.key.as_ref().map(|key| Encryption::new(key, [5; 16]));
    let mut image = Image::open(settings, Origin::Create { image: [2; 16], geometry }, 0);
    store.serve(&mut image);
    image
}

impl Memory {
    #[allow(dead_code, reason = "not every test looks")]
    pub(crate) fn bytes(&self) -> u64 {
        self.objects.values().map(|(body, _)| body.len() as u64).sum()
    }

    /// Submits a request; returns the data of a read that ends at once.
    pub(crate) fn submit(&mut self, image: &mut Image, request: Request) -> Vec<u8> {
        self.requests += 1;
        image.submit(self.requests, request, self.now_ns);
        self.serve(image);
        let mut data = Vec::new();
        while let Some(end) = image.pop_end() {
            let read = end.result.unwrap_or_else(|why| panic!("{why:?}: {:?}", image.status()));
            if end.id == self.requests {
                data = read;
            }
        }
        data
    }

    pub(crate) fn serve(&mut self, image: &mut Image) {
        while let Some((ticket, operation)) = image.pop_operation() {
            let answer = match operation {
                Operation::Delete { .. } if self.keeps_all => Answer::Failed,
                operation => self.perform(operation),
            };
            image.answer(ticket, answer, self.now_ns);
        }
    }

    pub(crate) fn idle(&mut self, image: &mut Image) {
        while let Some(next_ns) = image.next_ns() {
            self.now_ns = self.now_ns.max(next_ns);
            image.turn(self.now_ns);
            self.serve(image);
        }
    }

    #[allow(dead_code, reason = "not every test looks")]
    pub(crate) fn parts(&self) -> usize {
        self.objects.keys().filter(|key| matches!(key, Key::Part { .. })).count()
    }

    #[allow(dead_code, reason = "not every test looks")]
    pub(crate) fn bodies(&self) -> impl Iterator<Item = &[u8]> {
        self.objects.values().map(|(body, _)| &body[..])
    }

    #[allow(dead_code, reason = "not every test looks")]
    pub(crate) fn head(&self) -> Head {
        Head::parse(&self.objects[&Key::Head].0).expect("a head")
    }

    #[allow(dead_code, reason = "not every test edits")]
    pub(crate) fn edit(&mut self, edit: Edit) -> Result<Costs, &'static str> {
        let mut editor = Editor::new(edit, self.now_ns);
        while editor.outcome().is_none() {
            while let Some((ticket, operation)) = editor.pop_operation() {
                let answer = self.perform(operation);
                editor.answer(ticket, answer, self.now_ns);
            }
            self.now_ns = editor.next_ns().unwrap_or(self.now_ns);
            editor.turn(self.now_ns);
        }
        let outcome = editor.outcome().expect("it ends").clone();
        outcome.map(|_| editor.costs())
    }

    pub(crate) fn perform(&mut self, operation: Operation) -> Answer {
        match operation {
            Operation::PutIfAbsent { key, body, .. } => match self.objects.contains_key(&key) {
                true => Answer::Refused,
                false => self.put(key, body),
            },
            Operation::PutIfMatch { key, body, tag } => {
                match self.objects.get(&key).is_some_and(|it| it.1.to_string() == tag) {
                    true => self.put(key, body),
                    false => Answer::Refused,
                }
            }
            Operation::Get { key, range, .. } => match self.objects.get(&key) {
                None => Answer::Missing,
                Some((body, revision)) => {
                    let end = body.len().min(range.end as usize);
                    let bytes = body[end.min(range.start as usize)..end].to_vec();
                    let object_bytes = body.len() as u64;
                    Answer::Got { bytes, object_bytes, tag: revision.to_string() }
                }
            },
            Operation::List { from, .. } => {
                let place = |key: &Key| match key {
                    Key::Segment(at) if *at >= from => Some(*at),
                    _ => None,
                };
                Answer::Listed(self.objects.keys().filter_map(place).collect())
            }
            Operation::Delete { key, .. } => {
                self.objects.remove(&key);
                Answer::Deleted
            }
        }
    }

    fn put(&mut self, key: Key, body: Arc<Vec<u8>>) -> Answer {
        self.revisions += 1;
        self.objects.insert(key, (body, self.revisions));
        Answer::Put(self.revisions.to_string())
    }
}
