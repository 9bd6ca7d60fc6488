//! The thread of an image that is written: it owns the state machine, and passes the state
//! machine's operations to the client of the store.
//!
//! ```text
//!  callers ── Command ──▶ queue ──▶ machine ── Operation ──▶ client, 32 at a time ──▶ store
//!     ▲                             │  ▲                        │
//!     └──── callback ◀── end ◀──────┘  └──────── Answer ◀───────┘
//! ```
//! This thread calls the callbacks of requests, so the callbacks must not wait.

use crate::client::Client;
use crate::probe::{Verdict, probe};
use crate::status::{Figures, Shared, Status};
use crate::trouble::{Kind, Trouble};
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nowait_image_format::head::HEAD_BYTES_MAX;
use nowait_image_format::{
    Answer, Costs, Encryption, Failure, Head, Image, ImageId, Key, Operation, Origin, Over,
    Request, RequestId, Settings, Ticket,
};
use nowait_sys::time::boot_ns;
use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::{UnboundedReceiver, error::TryRecvError};

const OPERATIONS_MAX: usize = 32;

/// The most commands that the thread takes from the queue before it handles the store's answers.
const COMMANDS_MAX: usize = 256;

/// A temporary file that is at least this many time limits of a request old counts as left by a
/// killed process.
const TIMEOUTS: u32 = 20;

const PROBE_PAUSE: Duration = Duration::from_millis(200);

pub(crate) type Callback = Box<dyn FnOnce(Result<Vec<u8>, Failure>) + Send>;

pub(crate) enum Command {
    Request(Request, Callback),
    End,
}

pub(crate) type Commands = UnboundedReceiver<Command>;
type Running = Pin<Box<dyn Future<Output = (Ticket, Kind, Answer)>>>;

pub(crate) struct Plan {
    pub(crate) client: Client,
    pub(crate) settings: Settings,
    pub(crate) origin: Origin,
    pub(crate) nonce: String,
    pub(crate) opens_until: Instant,
    pub(crate) shown: String,
}

/// Opens an image, and serves it until its owner drops it or the opening takes too long. Each
/// unfinished request then fails.
pub(crate) async fn run(plan: Plan, mut commands: Commands, shared: Arc<Shared>) {
    let ended = match prepare(&plan).await {
        Ok(()) => {
            let mut driver = Driver::new(plan, shared.clone());
            driver.serve(&mut commands).await;
            driver.fail_all();
            None
        }
        Err(why) => Some(why),
    };
    shared.end(ended);
    refuse(commands).await;
}

pub(crate) async fn refuse(mut commands: Commands) {
    commands.close();
    while let Some(command) = commands.recv().await {
        if let Command::Request(_, callback) = command {
            callback(Err(Failure::Io));
        }
    }
}

/// The state machine compares the key too, but only after the probe, which puts objects. If the
/// head cannot be read, the state machine will report the reason.
async fn unlock(plan: &Plan) -> Result<(), &'static str> {
    let range = 0..HEAD_BYTES_MAX as u64;
    let image = ImageId::default();
    let get = Operation::Get { of: None, image, key: Key::Head, range, data: None };
    let Answer::Got { bytes, .. } = plan.client.run(get).await else { return Ok(()) };
    let Ok(head) = Head::parse(&bytes) else { return Ok(()) };
    let (encryption, key) = (head.geometry.encryption, plan.settings.key.as_ref());
    Encryption::cipher(encryption.as_ref(), key).map(drop)
}

async fn prepare(plan: &Plan) -> Result<(), String> {
    if plan.origin == Origin::TakeOver {
        unlock(plan).await?;
    }
    let mut number = 0;
    loop {
        number += 1;
        match probe(&plan.client, &format!("{}-{number}", plan.nonce)).await {
            Verdict::Good => {
                plan.client.place().sweep(plan.client.timeout() * TIMEOUTS).await;
                return Ok(());
            }
            Verdict::Bad(why) => return Err(format!("the store cannot be used: {why}")),
            Verdict::Failed if Instant::now() >= plan.opens_until => {
                let why = plan.client.last_error().unwrap_or_default();
                return Err(format!("the store cannot be reached: {why}"));
            }
            Verdict::Failed if plan.client.is_hopeless() => {
                let why = plan.client.last_error().unwrap_or_default();
                return Err(format!("the store refuses: {why}"));
            }
            Verdict::Failed => tokio::time::sleep(PROBE_PAUSE).await,
        }
    }
}

struct Driver {
    image: Image,
    client: Client,
    shared: Arc<Shared>,
    running: FuturesUnordered<Running>,
    waiting: VecDeque<(Ticket, Operation)>,
    has_forgotten: bool,
    callbacks: HashMap<RequestId, Callback>,
    requests: RequestId,
    /// When the state machine was made, by a clock that goes on while the computer is suspended.
    begin_ns: u64,
    opens_until: Instant,
    failures: u64,
    trouble: Trouble,
    asked_before: (u64, u64),
}

enum News {
    Command(Option<Command>),
    Answer(Ticket, Kind, Answer),
    Time,
}

impl Driver {
    fn new(plan: Plan, shared: Arc<Shared>) -> Driver {
        Driver {
            image: Image::open(plan.settings, plan.origin, 0),
            asked_before: plan.client.asked(),
            client: plan.client,
            shared,
            running: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            has_forgotten: false,
            callbacks: HashMap::new(),
            requests: 0,
            begin_ns: boot_ns(),
            opens_until: plan.opens_until,
            failures: 0,
            trouble: Trouble::of(plan.shown),
        }
    }

    fn now_ns(&self) -> u64 {
        boot_ns() - self.begin_ns
    }

    async fn serve(&mut self, commands: &mut Commands) {
        loop {
            self.image.turn(self.now_ns());
            self.forget_others();
            self.start_operations();
            self.tell_losses();
            if matches!(self.image.status(), nowait_image_format::Status::Over(_)) {
                self.waiting.clear();
            }
            // Publish the status before calling the callbacks, because the caller of a failed
            // request asks for the reason.
            self.publish();
            self.tell_ends();
            if self.is_late() {
                let why = self
                    .client
                    .last_error()
                    .unwrap_or_else(|| "the store gave no answer".to_owned());
                return self
                    .shared
                    .end(Some(format!("the image could not be opened in time: {why}")));
            }
            match self.wait(commands).await {
                News::Command(Some(Command::Request(request, callback))) => {
                    self.submit(request, callback);
                    if self.submit_more(commands) {
                        return;
                    }
                }
                News::Command(Some(Command::End) | None) => return,
                News::Answer(ticket, kind, answer) => {
                    self.failures += u64::from(answer == Answer::Failed);
                    self.trouble.note(kind, &answer, self.now_ns(), &self.client);
                    self.image.answer(ticket, answer, self.now_ns());
                }
                News::Time => {}
            }
        }
    }

    fn is_late(&self) -> bool {
        self.image.status() == nowait_image_format::Status::Opening
            && Instant::now() >= self.opens_until
    }

    async fn wait(&mut self, commands: &mut Commands) -> News {
        let now_ns = self.now_ns();
        let after = |ns: u64| Instant::now() + Duration::from_nanos(ns.saturating_sub(now_ns));
        let due = self.image.next_ns().map(after);
        let opening = self.image.status() == nowait_image_format::Status::Opening;
        let due = due.into_iter().chain(opening.then_some(self.opens_until)).min();
        let time = async {
            match due {
                Some(due) => tokio::time::sleep_until(due.into()).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            Some((ticket, kind, answer)) = self.running.next() => {
                News::Answer(ticket, kind, answer)
            }
            command = commands.recv() => News::Command(command),
            () = time => News::Time,
        }
    }

    fn submit(&mut self, request: Request, callback: Callback) {
        self.requests += 1;
        self.callbacks.insert(self.requests, callback);
        self.image.submit(self.requests, request, self.now_ns());
    }

    /// Submits the other requests in the queue, so that the state machine handles them together.
    /// Returns `true` if a command ends the thread.
    fn submit_more(&mut self, commands: &mut Commands) -> bool {
        for _ in 1..COMMANDS_MAX {
            match commands.try_recv() {
                Ok(Command::Request(request, callback)) => self.submit(request, callback),
                Ok(Command::End) | Err(TryRecvError::Disconnected) => return true,
                Err(TryRecvError::Empty) => return false,
            }
        }
        false
    }

    fn start_operations(&mut self) {
        while let Some((ticket, operation)) = self.image.pop_operation() {
            match self.client.run_now(&operation) {
                Some(answer) => self.image.answer(ticket, answer, self.now_ns()),
                None => self.waiting.push_back((ticket, operation)),
            }
        }
        while self.running.len() < OPERATIONS_MAX
            && let Some((ticket, operation)) = self.waiting.pop_front()
        {
            let (client, kind) = (self.client.clone(), Kind::of(&operation));
            let run = async move { (ticket, kind, client.run(operation).await) };
            self.running.push(Box::pin(run));
        }
    }

    /// Removes cached segments from this writer's first one on: if an administrator has put the
    /// store back to an older state, the cache may hold other segments with these numbers.
    fn forget_others(&mut self) {
        if !self.has_forgotten
            && let Some((image, first)) = self.image.id().zip(self.image.first_sequence())
        {
            self.client.forget(image, first);
            self.has_forgotten = true;
        }
    }

    fn tell_ends(&mut self) {
        while let Some(end) = self.image.pop_end() {
            if let Some(callback) = self.callbacks.remove(&end.id) {
                callback(end.result);
            }
        }
    }

    fn tell_losses(&mut self) {
        while let Some((image, sequence, what)) = self.image.pop_loss() {
            self.trouble.lost(&Key::Segment(sequence).name(image), what, &self.client);
        }
    }

    fn publish(&self) {
        let status = match self.image.status() {
            nowait_image_format::Status::Opening => Status::Opening,
            nowait_image_format::Status::Serving { epoch, geometry } => {
                Status::Serving { epoch, geometry }
            }
            nowait_image_format::Status::Over(Over::Fenced { epoch, writer }) => {
                Status::Fenced { epoch, writer }
            }
            nowait_image_format::Status::Over(Over::Failed(why)) => Status::Failed(why.to_owned()),
            nowait_image_format::Status::Over(Over::Closed) => Status::Closed,
        };
        // Take the counts of GETs from the client: only the client knows which requests the cache
        // has answered, and that a GET reads whole pages.
        let (asked, before) = (self.client.asked(), self.asked_before);
        let (gets, bytes_got) = (asked.0 - before.0, asked.1 - before.1);
        let costs = Costs { gets, bytes_got, ..self.image.costs() };
        let figures = Figures {
            costs,
            cache: self.client.cache_figures(),
            failures: self.failures,
            unflushed_bytes: self.image.unflushed_bytes() as u64,
            deletions: self.image.deletions() as u64,
        };
        self.shared.set(status, figures);
    }

    fn fail_all(&mut self) {
        for (_, callback) in self.callbacks.drain() {
            callback(Err(Failure::Io));
        }
    }
}
