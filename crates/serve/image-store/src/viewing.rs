//! The thread of an image that is only read: it owns a view, and carries out the reads of its
//! callers.
//!
//! While the store does not answer, the thread of an open image repeats its requests without a
//! limit, as a writer's thread does. If the writer has deleted objects that the view needs, reads
//! that need these objects fail, and other reads succeed.

use crate::client::Client;
use crate::driver::{Callback, Command, Commands, refuse};
use crate::status::{Figures, Shared, Status};
use crate::url::StoreUrl;
use crate::view::View;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nowait_image_format::{Costs, Failure, ImageKey, Request, RequestId};
use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};

const READS_MAX: usize = 32;

/// The pause before the thread tries again, if the store does not answer.
const PAUSE: Duration = Duration::from_secs(1);

type Running = Pin<Box<dyn Future<Output = (RequestId, Result<Vec<u8>, String>)>>>;

pub(crate) struct Plan {
    pub(crate) url: StoreUrl,
    pub(crate) client: Client,
    pub(crate) key: Option<ImageKey>,
    pub(crate) opens_until: Instant,
}

/// Opens an image, and serves it until its owner drops it. Each unfinished request then fails.
pub(crate) async fn run(plan: Plan, mut commands: Commands, shared: Arc<Shared>) {
    let ended = match opened(&plan).await {
        Ok(view) => {
            let mut viewing = Viewing::new(view, shared.clone());
            viewing.serve(&mut commands).await;
            viewing.fail_all();
            None
        }
        Err(why) => Some(why),
    };
    shared.end(ended);
    refuse(commands).await;
}

async fn opened(plan: &Plan) -> Result<View, String> {
    loop {
        match View::recovered(&plan.url, plan.client.clone(), plan.key.as_ref()).await {
            Ok(view) => return Ok(view),
            // The store has answered each request, or a retry cannot succeed.
            Err(why) if plan.client.is_well() || plan.client.is_hopeless() => return Err(why),
            Err(why) if Instant::now() >= plan.opens_until => return Err(why),
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}

struct Viewing {
    view: Arc<View>,
    shared: Arc<Shared>,
    status: Status,
    running: FuturesUnordered<Running>,
    waiting: VecDeque<(RequestId, Range<u64>)>,
    callbacks: HashMap<RequestId, Callback>,
    requests: RequestId,
    failures: u64,
}

impl Viewing {
    fn new(view: View, shared: Arc<Shared>) -> Viewing {
        let status = Status::Reading { epoch: view.epoch(), geometry: view.geometry() };
        Viewing {
            view: Arc::new(view),
            shared,
            status,
            running: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            callbacks: HashMap::new(),
            requests: 0,
            failures: 0,
        }
    }

    async fn serve(&mut self, commands: &mut Commands) {
        loop {
            self.publish();
            while self.running.len() < READS_MAX
                && let Some((id, blocks)) = self.waiting.pop_front()
            {
                let view = self.view.clone();
                self.running.push(Box::pin(async move { (id, read(&view, blocks).await) }));
            }
            tokio::select! {
                Some((id, read)) = self.running.next() => self.end(id, read),
                command = commands.recv() => match command {
                    Some(Command::Request(request, callback)) => self.begin(&request, callback),
                    Some(Command::End) | None => return,
                },
            }
        }
    }

    fn begin(&mut self, request: &Request, callback: Callback) {
        match request {
            Request::Read { offset, len } => match self.view.blocks_of(*offset, *len) {
                Some(blocks) => {
                    self.requests += 1;
                    self.callbacks.insert(self.requests, callback);
                    self.waiting.push_back((self.requests, blocks));
                }
                None => callback(Err(Failure::Invalid)),
            },
            Request::Extents { offset, len } => match self.view.blocks_of(*offset, *len) {
                Some(blocks) => callback(Ok(self.view.runs_of(blocks))),
                None => callback(Err(Failure::Invalid)),
            },
            Request::Flush | Request::Close => callback(Ok(Vec::new())),
            // No front sends these requests, because fronts know that the image is read-only.
            Request::Write { .. } | Request::Discard { .. } | Request::Shrink { .. } => {
                callback(Err(Failure::Io));
            }
        }
    }

    fn end(&mut self, id: RequestId, read: Result<Vec<u8>, String>) {
        let result = read.map_err(|why| {
            self.failures += 1;
            self.status = Status::Failed(why);
            Failure::Io
        });
        // Publish the status before the callback, because the caller of a failed request asks for
        // the reason.
        self.publish();
        if let Some(callback) = self.callbacks.remove(&id) {
            callback(result);
        }
    }

    fn fail_all(&mut self) {
        self.callbacks.drain().for_each(|(_, callback)| callback(Err(Failure::Io)));
    }

    fn publish(&self) {
        let (gets, bytes_got) = self.view.asked();
        let figures = Figures {
            costs: Costs { gets, bytes_got, ..Costs::default() },
            cache: self.view.cache_figures(),
            failures: self.failures,
            unflushed_bytes: 0,
            deletions: 0,
        };
        self.shared.set(self.status.clone(), figures);
    }
}

/// Reads blocks; repeats this while the store does not answer. An error means that stored data is
/// missing or damaged.
async fn read(view: &View, blocks: Range<u64>) -> Result<Vec<u8>, String> {
    loop {
        match view.read_blocks(blocks.clone()).await {
            Ok(read) => return read,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
