//! The thread of an image that is only read: it has a view, and reads what callers ask for.
//!
//! A store that does not answer is asked again without an end, as the thread of a writer does. What
//! the view needs may be gone: its writer has gone on. Such reads fail, the others go on.

use crate::client::Client;
use crate::driver::{Callback, Command};
use crate::status::{Shared, Status};
use crate::url::StoreUrl;
use crate::view::View;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use nowait_log::{Costs, Failure, Request};
use std::collections::VecDeque;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc::UnboundedReceiver;

/// Reads in flight at a time.
const READS_MAX: usize = 32;

/// How long a store that does not answer is left alone.
const PAUSE: Duration = Duration::from_secs(1);

type Running = Pin<Box<dyn Future<Output = (Callback, Result<Vec<u8>, String>)>>>;

/// What is read.
pub(crate) struct Plan {
    pub(crate) url: StoreUrl,
    pub(crate) client: Client,
    pub(crate) opens_until: Instant,
}

/// Serves an image until it is not wanted any more. Each request that is left then fails.
pub(crate) async fn run(plan: Plan, mut commands: UnboundedReceiver<Command>, shared: Arc<Shared>) {
    let ended = match opened(&plan).await {
        Ok(view) => {
            let mut viewing = Viewing::new(view, shared.clone());
            viewing.serve(&mut commands).await;
            None
        }
        Err(why) => Some(why),
    };
    shared.end(ended);
    commands.close();
    while let Some(command) = commands.recv().await {
        if let Command::Request(_, callback) = command {
            callback(Err(Failure::Io));
        }
    }
}

/// Reads the map, again and again while the store does not answer.
async fn opened(plan: &Plan) -> Result<View, String> {
    loop {
        match View::recovered(&plan.url, plan.client.clone()).await {
            Ok(view) => return Ok(view),
            // It has answered, and will not answer otherwise.
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
    waiting: VecDeque<(Range<u64>, Callback)>,
    failures: u64,
}

impl Viewing {
    fn new(view: View, shared: Arc<Shared>) -> Viewing {
        let status = Status::Reading { epoch: view.epoch(), geometry: view.geometry() };
        let (running, waiting) = (FuturesUnordered::new(), VecDeque::new());
        Viewing { view: Arc::new(view), shared, status, running, waiting, failures: 0 }
    }

    async fn serve(&mut self, commands: &mut UnboundedReceiver<Command>) {
        loop {
            self.publish();
            while self.running.len() < READS_MAX
                && let Some((blocks, callback)) = self.waiting.pop_front()
            {
                let view = self.view.clone();
                self.running.push(Box::pin(async move { (callback, read(&view, blocks).await) }));
            }
            tokio::select! {
                Some((callback, read)) = self.running.next() => self.end(callback, read),
                command = commands.recv() => match command {
                    Some(Command::Request(request, callback)) => self.begin(&request, callback),
                    Some(Command::End) | None => break,
                },
            }
        }
        self.waiting.drain(..).for_each(|(_, callback)| callback(Err(Failure::Io)));
    }

    fn begin(&mut self, request: &Request, callback: Callback) {
        match request {
            Request::Read { offset, len } => match self.view.blocks_of(*offset, *len) {
                Some(blocks) => self.waiting.push_back((blocks, callback)),
                None => callback(Err(Failure::Invalid)),
            },
            Request::Flush => callback(Ok(Vec::new())),
            // No front asks for it: the image says that it is only read.
            Request::Write { .. } | Request::Discard { .. } => callback(Err(Failure::Io)),
        }
    }

    fn end(&mut self, callback: Callback, read: Result<Vec<u8>, String>) {
        let result = read.map_err(|why| {
            self.failures += 1;
            self.status = Status::Failed(why);
            // Before the end: a caller whose request has failed asks for the reason.
            self.publish();
            Failure::Io
        });
        callback(result);
    }

    fn publish(&self) {
        let (gets, bytes_got) = self.view.asked();
        let costs = Costs { gets, bytes_got, ..Costs::default() };
        self.shared.set(self.status.clone(), costs, self.failures, 0);
    }
}

/// Reads blocks; an error is for good.
async fn read(view: &View, blocks: Range<u64>) -> Result<Vec<u8>, String> {
    loop {
        match view.read_blocks(blocks.clone()).await {
            Ok(read) => return read,
            Err(_) => tokio::time::sleep(PAUSE).await,
        }
    }
}
