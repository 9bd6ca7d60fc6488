//! Writers and editors on one simulated store, for programs that choose each action themselves.

use crate::store::{Faults, Home, IMAGE, Store};
use nowait_image_format::mistake::{self, Mistake};
use nowait_image_format::{
    Edit, Editor, Failure, Geometry, Head, Image, ImageId, Origin, Request, Settings, Status,
    Writer,
};
use nowait_sim::Prng;
use std::collections::BTreeMap;

const EVENTS_MAX: usize = 100_000;

enum Client {
    Writer(Box<Image>),
    Editor(Box<Editor>),
    Killed,
}

/// The store, its clients, and the time.
pub struct World {
    /// The store.
    pub store: Store,
    /// The source of random choices.
    pub prng: Prng,
    /// The virtual time.
    pub now_ns: u64,
    clients: Vec<Client>,
    homes: Vec<Home>,
    stopped_ns: Vec<u64>,
    requests: u64,
    ended: BTreeMap<u64, (Result<Vec<u8>, Failure>, u64)>,
}

/// Runs `program`, while the code of images makes `mistake`, if one is given.
pub fn run(
    seed: u64,
    mistake: Option<Mistake>,
    program: impl FnOnce(&mut World) -> Result<(), String>,
) -> Result<(), String> {
    let mut prng = Prng::new(seed);
    let store = Store::new(Faults::default(), prng.fork());
    let (clients, homes, stopped_ns) = (Vec::new(), Vec::new(), Vec::new());
    let ended = BTreeMap::new();
    let mut world =
        World { store, prng, now_ns: 0, clients, homes, stopped_ns, requests: 0, ended };
    mistake::make(mistake);
    let result = program(&mut world).map_err(|what| format!("seed {seed}: {what}"));
    mistake::make(None);
    result
}

/// Returns random settings with small segments and frequent checkpoints.
pub fn settings(prng: &mut Prng, writer: u8) -> Settings {
    let writer = Writer { nonce: [writer; 16], name: format!("writer {writer}") };
    Settings {
        segment_blocks: prng.range(1..=12) as u32,
        checkpoint_bytes: prng.range(4..=64) << 10,
        checkpoint_segments: prng.range(2..=40),
        ..Settings::new(writer)
    }
}

impl World {
    /// Starts a writer that makes an image of 512-byte blocks; returns its client number.
    pub fn create(&mut self, settings: Settings, image: ImageId, blocks: u64) -> usize {
        let geometry = Geometry { block_bytes: 512, size_bytes: blocks * 512, encryption: None };
        self.open(settings, Origin::Create { image, geometry })
    }

    /// Starts a writer of [`IMAGE`]; returns its client number.
    pub fn open(&mut self, settings: Settings, origin: Origin) -> usize {
        self.open_at(IMAGE, settings, origin)
    }

    /// Starts a writer of one of the images; returns its client number.
    pub fn open_at(&mut self, home: Home, settings: Settings, origin: Origin) -> usize {
        let image = Image::open(settings, origin, self.now_ns);
        self.add(home, Client::Writer(Box::new(image)))
    }

    fn add(&mut self, home: Home, client: Client) -> usize {
        self.homes.push(home);
        self.clients.push(client);
        self.stopped_ns.push(0);
        self.clients.len() - 1
    }

    /// Kills a client; its operations stay in flight.
    pub fn kill(&mut self, client: usize) {
        self.clients[client] = Client::Killed;
    }

    /// Makes the host of a writer stand still for a time: the writer gets no turns and no answers.
    pub fn stop(&mut self, client: usize, for_ns: u64) {
        self.stopped_ns[client] = self.now_ns + for_ns;
    }

    /// Returns the state of a writer; `None`: it was killed, or the client is an editor.
    pub fn status(&self, client: usize) -> Option<Status> {
        match &self.clients[client] {
            Client::Writer(image) => Some(image.status()),
            _ => None,
        }
    }

    /// Returns the image of a living writer.
    pub fn image(&self, client: usize) -> Option<&Image> {
        match &self.clients[client] {
            Client::Writer(image) => Some(image),
            _ => None,
        }
    }

    /// Sends a request to a writer; returns the request's number.
    pub fn submit(&mut self, client: usize, request: Request) -> u64 {
        self.requests += 1;
        if let Client::Writer(image) = &mut self.clients[client] {
            image.submit(self.requests, request, self.now_ns);
        }
        self.drain();
        self.requests
    }

    /// Returns the result of a request, and the time of its end.
    pub fn ended(&self, request: u64) -> Option<&(Result<Vec<u8>, Failure>, u64)> {
        self.ended.get(&request)
    }

    /// Sends a request to a writer, and waits for its end. Fails if the request does not end.
    pub fn call(
        &mut self,
        client: usize,
        request: Request,
    ) -> Result<Result<Vec<u8>, Failure>, String> {
        let what = format!("{request:?}");
        let number = self.submit(client, request);
        self.until(|world| world.ended.get(&number).map(|it| it.0.clone())).ok_or_else(|| {
            format!("{} does not end: {:?}", &what[..what.len().min(60)], self.status(client))
        })
    }

    /// Edits the head of [`IMAGE`], and waits for the outcome.
    pub fn edit(&mut self, edit: Edit) -> Result<Head, String> {
        let editor = self.add(IMAGE, Client::Editor(Box::new(Editor::new(edit, self.now_ns))));
        let outcome = self.until(|world| match &world.clients[editor] {
            Client::Editor(editor) => editor.outcome().cloned(),
            _ => None,
        });
        self.kill(editor);
        outcome.ok_or("an edit does not end")?.map_err(str::to_owned)
    }

    /// Runs events until `is_so` returns a value; `None`: no event is left, or too many have run.
    pub fn until<T>(&mut self, is_so: impl Fn(&World) -> Option<T>) -> Option<T> {
        for _ in 0..EVENTS_MAX {
            self.drain();
            if let Some(it) = is_so(self) {
                return Some(it);
            }
            if !self.step(u64::MAX) {
                return None;
            }
        }
        None
    }

    /// Runs the events of a period of time.
    pub fn pass(&mut self, for_ns: u64) {
        let end_ns = self.now_ns + for_ns;
        self.drain();
        while self.step(end_ns) {}
        self.now_ns = end_ns;
    }

    fn step(&mut self, end_ns: u64) -> bool {
        let due = |(client, stopped_ns): (&Client, &u64)| {
            let due_ns = match client {
                Client::Writer(image) => image.next_ns(),
                Client::Editor(editor) => editor.next_ns(),
                Client::Killed => None,
            };
            due_ns.map(|it| it.max(*stopped_ns))
        };
        let due_ns = self.clients.iter().zip(&self.stopped_ns).filter_map(due).min();
        let store_ns = self.store.next_ns();
        let next_ns = due_ns.into_iter().chain(store_ns).min();
        let Some(at_ns) = next_ns.filter(|at_ns| *at_ns <= end_ns) else { return false };
        self.now_ns = self.now_ns.max(at_ns);
        if store_ns == Some(at_ns) {
            self.hear();
        } else {
            for (client, stopped_ns) in self.clients.iter_mut().zip(&self.stopped_ns) {
                match client {
                    Client::Writer(it) if *stopped_ns <= self.now_ns => it.turn(self.now_ns),
                    Client::Editor(editor) => editor.turn(self.now_ns),
                    _ => {}
                }
            }
        }
        self.drain();
        true
    }

    fn hear(&mut self) {
        let Some((client, ticket, answer)) = self.store.turn() else { return };
        let until_ns = self.stopped_ns[client];
        match &mut self.clients[client] {
            Client::Writer(_) if until_ns > self.now_ns => {
                self.store.defer(client, ticket, answer, until_ns);
            }
            Client::Writer(image) => image.answer(ticket, answer, self.now_ns),
            Client::Editor(editor) => editor.answer(ticket, answer, self.now_ns),
            Client::Killed => {}
        }
    }

    fn drain(&mut self) {
        for (number, client) in self.clients.iter_mut().enumerate() {
            let mut pop = || match client {
                Client::Writer(image) => image.pop_operation(),
                Client::Editor(editor) => editor.pop_operation(),
                Client::Killed => None,
            };
            while let Some((ticket, operation)) = pop() {
                let home = self.homes[number];
                self.store.submit((number, home), ticket, operation, self.now_ns);
            }
            if let Client::Writer(image) = client {
                while let Some(end) = image.pop_end() {
                    self.ended.insert(end.id, (end.result, self.now_ns));
                }
            }
        }
    }
}
